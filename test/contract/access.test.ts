// Section 3 of the contract: the greeting, and who gets a token, the note and the protected page.
// One case of each class: the tables of tokens, credentials and headers are in test/auth, that of forms in
// test/http/form.test.ts.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { TEXT } from '../support/bytes.ts';
import { basic, exchange, type HttpResponse, send } from '../support/client.ts';
import { claims as claimsOf, token as newToken } from '../support/login.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';
import { claimsAt, HEADER, signed } from '../vectors/tokens.ts';

const FORM = 'application/x-www-form-urlencoded';
const RIGHT = { id: USER, pw: PASSWORD };
const PARTS = 'id=admin&pw=correct+horse';
const NOTE = { NOTE_TITLE: 'Shopping "list"', NOTE_CONTENTS: 'Milk\nand <eggs> 🥚' };
const CHALLENGES = {
  '/token': 'Bearer realm="token"',
  '/notes': 'Bearer realm="notes"',
  '/protected': 'Basic realm="protected", charset="UTF-8"',
};
const INVALID_TOKEN = 'Bearer realm="notes", error="invalid_token"';
// 19 bytes: their last base64 character has four unused bits, and two "=" follow it.
const PAIR = 'YWRtaW46Y29ycmVjdCBob3JzZQ==';

const now = () => Math.floor(Date.now() / 1000);
const sign = (payload: object = claimsAt(now()), secret?: string) =>
  signed(HEADER, payload, secret);
const base64 = (text: string) => Buffer.from(text).toString('base64');

/** Checks the whole 401. */
function assertRefused({ status, headers, body }: HttpResponse, challenge: string): void {
  assert.deepEqual([status, body, headers.get('content-type')], [401, 'Unauthorized', TEXT]);
  assert.equal(headers.get('www-authenticate'), challenge);
}

describe('3 access', () => {
  let program: Program;
  before(async () => {
    program = await start({ ...NOTE, AUTH_FAILURES_PER_MINUTE: '0' });
  });

  const get = (path: string, authorization: string) =>
    send(program.url + path, { headers: { authorization } });
  const post = (body: unknown, headers = {}) =>
    send(`${program.url}/token`, { method: 'POST', body, headers });
  const typed = (type: string, body: string) =>
    post(Buffer.from(body, 'latin1'), { 'content-type': type });

  test('3.1 GET / returns 200 and a plain-text greeting, with any credentials', async () => {
    for (const authorization of ['', 'Bearer nonsense']) {
      const { status, headers, body } = await get('/', authorization);
      assert.deepEqual([status, headers.get('content-type')], [200, TEXT]);
      assert.match(body, /^\P{Cc}+\n?$/u);
      assert.equal(headers.get('www-authenticate'), null);
    }
  });

  test('3.2 POST /token with the right pair returns 200 and a token that caches do not store', async () => {
    for (const response of [
      await post(RIGHT),
      await post({ ...RIGHT, name: 'x', user: {} }),
      await post(RIGHT, { authorization: 'Bearer x y z' }),
      await post(RIGHT, { authorization: 'Basic YTpi' }),
      await typed(FORM, PARTS),
    ]) {
      const { status, headers, body } = response;
      assert.deepEqual([status, headers.get('content-type')], [200, 'application/json']);
      assert.equal(headers.get('cache-control'), 'no-store');
      assert.equal(headers.get('www-authenticate'), null);
      assert.deepEqual(Object.keys(JSON.parse(body)), ['token']);
      assert.match(JSON.parse(body).token, /^[\w-]+\.[\w-]+\.[\w-]{43}$/);
    }
  });

  test('3.3 3.11 3.12 POST /token with a wrong, missing or nested id or pw returns 401', async () => {
    for (const body of [
      { id: 'root', pw: PASSWORD },
      { id: USER, pw: 'wrong horse' },
      { id: USER, pw: '' },
      { pw: PASSWORD },
      { id: USER },
      { id: [USER], pw: PASSWORD },
      { id: USER, pw: null },
      { id: USER, pw: { toString: PASSWORD } },
      { id: 'a'.repeat(16_000), pw: PASSWORD },
    ]) {
      assertRefused(await post(body), CHALLENGES['/token']);
    }
    for (const body of [
      ...[`[${JSON.stringify(RIGHT)}]`, '"admin"', '0', 'null', 'true', ''],
      `{"__proto__":${JSON.stringify(RIGHT)}}`,
    ]) {
      assertRefused(await typed('application/json', body), CHALLENGES['/token']);
    }
    for (const body of ['', 'id=admin', 'id=admin&pw[]=correct+horse']) {
      assertRefused(await typed(FORM, body), CHALLENGES['/token']);
    }
    const head = 'POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
    assertRefused((await exchange(program.url, head))[0]!, CHALLENGES['/token']);
  });

  // The right id and pw are strings, so 401 means that one was nested or absent.
  for (const [why, form, status] of [
    ['encoded parts', 'pw=correct%20horse&&%69d=%61dmin', 200],
    ['nested values', `user[id]=x&a[]=1&a[]=2&c[0][d]=2&c[1][d]=3&=x&${PARTS}`, 200],
    ['two ids', 'id=admin&id=admin&pw=correct+horse', 401],
    ['names of Object.prototype', '__proto__[id]=admin&__proto__[pw]=correct+horse', 401],
    ['an unclosed bracket', `a[b=1&${PARTS}`, 400],
    ['201 parameters', `${'x=1&'.repeat(199)}${PARTS}`, 413],
    ['a byte that is not UTF-8', `a=\xff&${PARTS}`, 400],
  ] as const) {
    test(`3.14, 3.15, 3.16, 3.17 a form with ${why} returns ${status}`, async () =>
      assert.equal((await typed(FORM, form)).status, status));
  }

  test('3.4 the token has exactly the header, the claims and the signature of the rule', async () => {
    const earliest = now();
    const token = await newToken(program);
    const latest = now();
    const { iat } = claimsOf(token);
    assert.ok(Number(iat) >= earliest && Number(iat) <= latest, `iat ${iat}`);
    const claims = { id: USER, name: 'Administrator', iat, exp: Number(iat) + 3600 };
    assert.equal(token, signed({ alg: 'HS256', typ: 'JWT' }, claims, SECRET));
  });

  test('3.5 GET /notes with the token of POST /token returns 200 and the note', async () => {
    const { status, headers, body } = await get('/notes', `Bearer ${await newToken(program)}`);
    assert.deepEqual([status, headers.get('content-type')], [200, 'application/json']);
    assert.equal(body, JSON.stringify({ title: NOTE.NOTE_TITLE, contents: NOTE.NOTE_CONTENTS }));
  });

  test('3.9 GET /protected with the right pair returns 200 and plain text', async () => {
    assert.equal(basic(USER, PASSWORD), `Basic ${PAIR}`);
    const { status, headers, body } = await get('/protected', `Basic ${PAIR}`);
    assert.deepEqual([status, headers.get('content-type')], [200, TEXT]);
    assert.match(body, /\S/);
  });

  test('3.6 3.9 the name of a scheme is accepted in any case', async () => {
    assert.equal((await get('/notes', `bEaReR ${sign()}`)).status, 200);
    assert.equal((await get('/protected', `bAsIc ${PAIR}`)).status, 200);
  });

  for (const [path, scheme, other, right] of [
    ['/notes', 'Bearer', `Basic ${PAIR}`, sign],
    ['/protected', 'Basic', `Bearer ${sign()}`, () => PAIR],
  ] as const) {
    const raw = async (lines: readonly string[]) => {
      const head = [`GET ${path} HTTP/1.1`, 'Host: x', 'Connection: close', ...lines];
      return (await exchange(program.url, `${head.join('\r\n')}\r\n\r\n`))[0]!;
    };
    test(`3.6 3.8 3.10 GET ${path} without exactly one header of two parts returns 401 without error`, async () => {
      const line = `Authorization: ${scheme} ${right()}`;
      for (const lines of [
        [],
        [`${line} x`],
        [`Authorization: ${other}`],
        [line, line],
        [line, 'authorization: Basic YTpi'],
      ]) {
        assertRefused(await raw(lines), CHALLENGES[path]);
      }
    });

    test(`2.4, 3.6 GET ${path} with the values "authorization" and "host" in other headers returns 200`, async () => {
      const lines = ['X-One: authorization', 'X-Two: host', `Authorization: ${scheme} ${right()}`];
      assert.equal((await raw(lines)).status, 200);
    });
  }

  test('3.7 3.8 a wrong token is refused with an error, one with padding inside without', async () => {
    assertRefused(await get('/notes', `Bearer ${sign()}x`), INVALID_TOKEN);
    assertRefused(await get('/notes', 'Bearer a=.b.c'), CHALLENGES['/notes']);
  });

  test('3.10 3.12 a wrong pair, or another spelling of the right one, returns 401', async () => {
    for (const credentials of [
      ...[`root:${PASSWORD}`, `${USER}:wrong horse`, ':', USER].map(base64),
      ...[PAIR.slice(0, -1), `${PAIR}=`, 'YWRtaW46Y29ycmVjdCBob3JzZR=='], // RFC 4648 3.5
    ]) {
      assertRefused(await get('/protected', `Basic ${credentials}`), CHALLENGES['/protected']);
    }
  });
});

test('3.2 3.4 3.10 3.20 a pair beyond ASCII, with colons and spaces, is UTF-8 in either normal form', async () => {
  const [user, password] = [' jörg ', ' :pässwörd:: ế 🔑\u00a0=+& '];
  const secret = 'ключ подписи: 🔐🔐🔐'.padEnd(40, '!');
  const env = { AUTH_USER: user, AUTH_PASSWORD: password, AUTH_NAME: 'Jörg "🙂"' };
  await using program = await start({ ...env, SIGNING_SECRET: secret });
  const statusOf = async (pair: string, encoding: BufferEncoding = 'utf8') => {
    const authorization = `Basic ${Buffer.from(pair, encoding).toString('base64')}`;
    return (await send(`${program.url}/protected`, { headers: { authorization } })).status;
  };
  for (const form of ['NFC', 'NFD']) {
    const [id, pw] = [user.normalize(form), password.normalize(form)];
    assert.equal(await statusOf(`${id}:${pw}`), 200, form);
    assert.equal(await statusOf(`${id}:${pw}:`), 401, form);
    for (const body of [{ id, pw }, new URLSearchParams({ id, pw })]) {
      const response = await send(`${program.url}/token`, { method: 'POST', body });
      assert.equal(response.status, 200);
      const { token } = JSON.parse(response.body);
      const { iat, exp } = claimsOf(token);
      const claims = { id: user, name: 'Jörg "🙂"', iat, exp };
      assert.equal(token, signed(HEADER, claims, secret));
    }
  }
  assert.equal(await statusOf(`${user}:${password}`, 'latin1'), 401);
});
