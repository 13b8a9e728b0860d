// Section 3 of the contract: the greeting, and who gets a token, the note and the protected page.
// One case of each class: the vectors of tokens are in vectors/tokens.ts, those of credentials and
// headers in test/auth, those of forms in test/http/form.test.ts.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { exchange, TEXT } from '../support/bytes.ts';
import { basic, type HttpResponse, send } from '../support/client.ts';
import { claims as claimsOf, token as newToken } from '../support/login.ts';
import { freePort } from '../support/postgres.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';
import {
  claimsAt,
  HEADER,
  paddedTokens,
  refusedTokens,
  signed,
  validTokens,
} from '../vectors/tokens.ts';

const FORM = 'application/x-www-form-urlencoded';
const RIGHT = { id: USER, pw: PASSWORD };
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
  after(() => program?.[Symbol.asyncDispose]());

  const get = (path: string, authorization: string) =>
    send(program.url + path, { headers: { authorization } });
  const post = (body: unknown, headers = {}) =>
    send(`${program.url}/token`, { method: 'POST', body, headers });
  const typed = (type: string, body: string) => post(body, { 'content-type': type });

  test('3.1 GET / returns 200 and a plain-text greeting, with any credentials', async () => {
    for (const authorization of ['', 'Bearer nonsense']) {
      const { status, headers, body } = await get('/', authorization);
      assert.deepEqual([status, headers.get('content-type')], [200, TEXT]);
      assert.match(body, /^\P{Cc}+\n?$/u);
      assert.equal(headers.get('www-authenticate'), null);
    }
  });

  test('3.1 GET / returns 200 while the store is down', async () => {
    const url = `postgres://nobody:none@127.0.0.1:${await freePort()}/none`;
    await using away = await start({ DATABASE_URL: url, DATABASE_TIMEOUT_MS: '500' });
    assert.equal((await send(`${away.url}/users`)).status, 500);
    assert.equal((await send(away.url)).status, 200);
  });

  test('3.2 POST /token with the right pair returns 200 and a token that caches do not store', async () => {
    for (const response of [
      await post(RIGHT),
      await post({ ...RIGHT, name: 'x', user: {} }),
      await post(RIGHT, { authorization: 'Bearer x y z' }),
      await post(RIGHT, { authorization: 'Basic YTpi' }),
      await typed(FORM, 'pw=correct+horse&id=admin'),
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
  });

  test('3.3 POST /token with neither a body nor a length returns 401', async () => {
    const head = 'POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
    assertRefused((await exchange(program.url, head))[0]!, CHALLENGES['/token']);
  });

  test('3.3 the response does not say whether the id exists', async () => {
    const [known, unknown] = await Promise.all(
      [USER, 'nobody'].map((id) => post({ id, pw: 'wrong horse' })),
    );
    const shape = ({ status, body, headers }: HttpResponse) => [status, body, [...headers.keys()]];
    assert.deepEqual(shape(known!), shape(unknown!));
  });

  test('3.4 the token has exactly the header, the claims and the signature of the rule', async () => {
    const earliest = now();
    const [header = '', payload = '', signature] = (await newToken(program)).split('.');
    const latest = now();
    assert.equal(Buffer.from(header, 'base64url').toString(), '{"alg":"HS256","typ":"JWT"}');
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString());
    const { iat } = claims;
    assert.deepEqual(claims, { id: USER, name: 'Administrator', iat, exp: iat + 3600 });
    assert.ok(Number.isInteger(iat) && iat >= earliest && iat <= latest, `iat ${iat}`);
    const hmac = createHmac('sha256', SECRET).update(`${header}.${payload}`);
    assert.equal(signature, hmac.digest('base64url'));
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
        [`Authorization: ${scheme}`],
        [`Authorization: ${scheme}  ${right()}`],
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

  test('3.6 a token in the query is not read', async () =>
    assertRefused(await get(`/notes?access_token=${sign()}`, ''), CHALLENGES['/notes']));

  test('3.7 a token with only the claims that count is accepted', async () => {
    const token = validTokens(now())['only the claims that count'];
    assert.equal((await get('/notes', `Bearer ${token}`)).status, 200);
  });

  for (const [fault, tokens] of Object.entries(refusedTokens(now()))) {
    const [why, token] = Object.entries(tokens)[0]!;
    test(`3.7 3.8 a token with ${fault} (${why}) is refused`, async () =>
      assertRefused(await get('/notes', `Bearer ${token}`), INVALID_TOKEN));
  }

  for (const [why, token] of Object.entries(paddedTokens(now()))) {
    test(`3.7 3.8 a token with ${why} is refused without error`, async () =>
      assertRefused(await get('/notes', `Bearer ${token}`), CHALLENGES['/notes']));
  }

  test('3.7 a token is accepted until exp and refused from exp on', async () => {
    const exp = now() + 2;
    const authorization = `Bearer ${sign({ ...claimsAt(now()), exp })}`;
    const early: number[] = [];
    const late: number[] = [];
    while (late.length === 0) {
      const before = Date.now();
      const { status } = await get('/notes', authorization);
      if (Date.now() < exp * 1000) early.push(status);
      if (before >= exp * 1000) late.push(status);
    }
    assert.deepEqual([[...new Set(early)], late], [[200], [401]]);
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

for (const [user, password] of [
  [' a ', ' :a:b::c: '],
  ['jörg', 'pässwörd ế 🔑\u00a0=+&'],
] as const) {
  test(`3.2 3.4 3.10 3.20 the pair ${user} and ${password} is UTF-8, and in either normal form`, async () => {
    const secret = 'ключ подписи: 🔐🔐🔐'.padEnd(40, '!');
    const env = { AUTH_USER: user, AUTH_PASSWORD: password, AUTH_NAME: 'Jörg "🙂"' };
    await using program = await start({ ...env, SIGNING_SECRET: secret });
    const statusOf = async (pair: string | Buffer) => {
      const headers = { authorization: `Basic ${Buffer.from(pair).toString('base64')}` };
      return (await send(`${program.url}/protected`, { headers })).status;
    };
    for (const form of ['NFC', 'NFD']) {
      const [id, pw] = [user.normalize(form), password.normalize(form)];
      assert.equal(await statusOf(`${id}:${pw}`), 200, form);
      assert.equal(await statusOf(`${id}:${pw}:`), 401, form);
      for (const body of [{ id, pw }, new URLSearchParams({ id, pw })]) {
        const response = await send(`${program.url}/token`, { method: 'POST', body });
        assert.equal(response.status, 200);
        const { token } = JSON.parse(response.body);
        const claims = claimsOf(token);
        assert.deepEqual([claims.id, claims.name], [user, 'Jörg "🙂"']);
        const [header, payload, signature] = token.split('.');
        const hmac = createHmac('sha256', secret).update(`${header}.${payload}`);
        assert.equal(signature, hmac.digest('base64url'));
      }
    }
    const latin1 = Buffer.from(`${user}:${password}`, 'latin1');
    const isAscii = String(latin1) === `${user}:${password}`;
    assert.equal(await statusOf(latin1), isAscii ? 200 : 401);
  });
}
