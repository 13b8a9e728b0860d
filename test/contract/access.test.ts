// Section 3 of the contract: the greeting, and who gets a token, the note and the protected page.
// One case of each class: the tables of tokens and credentials are in test/auth, that of forms in
// test/http/form.test.ts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkAuthorization } from '../support/authorization.ts';
import { exchange, TEXT } from '../support/bytes.ts';
import { basic, type HttpResponse, send, statusesOf } from '../support/client.ts';
import { claims as claimsOf, token as newToken } from '../support/login.ts';
import { PASSWORD, start, USER } from '../support/program.ts';
import { INCOMPLETE, WRONG } from '../vectors/logins.ts';
import { HEADER, signed } from '../vectors/tokens.ts';

const FORM = 'application/x-www-form-urlencoded';
const PARTS = 'id=admin&pw=correct+horse';
const NOTE = { NOTE_TITLE: 'Shopping "list"', NOTE_CONTENTS: 'Milk\nand <eggs> 🥚' };

const now = () => Math.floor(Date.now() / 1000);

/** Checks the whole 401 of POST /token. */
function assertRefused({ status, headers, body }: HttpResponse): void {
  assert.deepEqual([status, body, headers.get('content-type')], [401, 'Unauthorized', TEXT]);
  assert.equal(headers.get('www-authenticate'), 'Bearer realm="token"');
}

const LIMIT = 3;
const program = await start({ ...NOTE, AUTH_FAILURES_PER_MINUTE: '0' });
const limited = await start({ AUTH_FAILURES_PER_MINUTE: String(LIMIT), TRUST_PROXY: '1' });

const post = (body: unknown, headers = {}) =>
  send(`${program.url}/token`, { method: 'POST', body, headers });
const typed = (type: string, body: string) =>
  post(Buffer.from(body, 'latin1'), { 'content-type': type });

test('3.3 3.11 3.12 POST /token with a wrong, missing or nested id or pw returns 401', async () => {
  for (const body of [...WRONG, ...INCOMPLETE]) assertRefused(await post(body));
  const right = JSON.stringify({ id: USER, pw: PASSWORD });
  for (const text of [`[${right}]`, `{"__proto__":${right}}`, '0', 'null', '']) {
    assertRefused(await typed('application/json', text));
  }
  for (const form of ['', 'id=admin', 'id=admin&pw[]=correct+horse']) {
    assertRefused(await typed(FORM, form));
  }
  // Without a body, they need no media type (2.8).
  for (const length of ['', 'Content-Length: 0\r\n', 'Content-Length: 00\r\n']) {
    const head = `POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${length}\r\n`;
    assertRefused((await exchange(program.url, head))[0]!);
  }
});

// The right id and pw are strings, so 401 means that one was nested or absent.
for (const [why, form, status] of [
  ['nested values', `user[id]=x&a[]=1&a[]=2&c[0][d]=2&c[1][d]=3&=x&${PARTS}`, 200],
  ['names of Object.prototype', '__proto__[id]=admin&__proto__[pw]=correct+horse', 401],
  ['an unclosed bracket', `a[b=1&${PARTS}`, 400],
  ['201 parameters', `${'x=1&'.repeat(199)}${PARTS}`, 413],
  ['a byte that is not UTF-8', `a=\xff&${PARTS}`, 400],
] as const) {
  test(`3.14, 3.15, 3.16, 3.17 a form with ${why} returns ${status}`, async () =>
    assert.equal((await typed(FORM, form)).status, status));
}

test('1 NOTE_TITLE, NOTE_CONTENTS: GET /notes with the token of POST /token returns them (3.5)', async () => {
  const authorization = `Bearer ${await newToken(program)}`;
  const response = await send(`${program.url}/notes`, { headers: { authorization } });
  const { status, headers, body } = response;
  assert.deepEqual([status, headers.get('content-type')], [200, 'application/json']);
  assert.equal(body, JSON.stringify({ title: NOTE.NOTE_TITLE, contents: NOTE.NOTE_CONTENTS }));
});

test('3.2 3.4 3.9 3.10 3.20 a pair beyond ASCII, with colons and spaces, is UTF-8 in either normal form', async () => {
  const [user, password] = [' jörg ', ' :pässwörd:: ế 🔑\u00a0=+& '];
  const secret = 'ключ подписи: 🔐🔐🔐'.padEnd(40, '!');
  const env = { AUTH_USER: user, AUTH_PASSWORD: password, AUTH_NAME: 'Jörg "🙂"' };
  await using program = await start({ ...env, SIGNING_SECRET: secret });
  const ask = (pair: string, encoding: BufferEncoding = 'utf8') => {
    const authorization = `Basic ${Buffer.from(pair, encoding).toString('base64')}`;
    return send(`${program.url}/protected`, { headers: { authorization } });
  };
  const earliest = now();
  for (const form of ['NFC', 'NFD']) {
    const [id, pw] = [user.normalize(form), password.normalize(form)];
    const { status, headers, body } = await ask(`${id}:${pw}`);
    assert.deepEqual([status, headers.get('content-type')], [200, TEXT], form);
    assert.match(body, /\S/);
    for (const body of [{ id, pw }, new URLSearchParams({ id, pw })]) {
      const response = await send(`${program.url}/token`, { method: 'POST', body });
      const { token } = JSON.parse(response.body);
      assert.deepEqual([response.status, response.body], [200, JSON.stringify({ token })]);
      assert.equal(response.headers.get('cache-control'), 'no-store');
      const iat = Number(claimsOf(token).iat);
      assert.ok(iat >= earliest && iat <= now(), `iat ${iat}`);
      const claims = { id: user, name: 'Jörg "🙂"', iat, exp: iat + 3600 };
      assert.equal(token, signed(HEADER, claims, secret));
    }
  }
  assert.equal((await ask(`${user}:${password}`, 'latin1')).status, 401);
});

// Each test has its own client addresses. Times, addresses and networks are in test/auth/limiter.test.ts.
type Check = (from: string) => Promise<HttpResponse>;
const login = (from: string, body: object) =>
  send(`${limited.url}/token`, { method: 'POST', headers: { 'x-forwarded-for': from }, body });
const get = (path: string, from: string, authorization: string) =>
  send(limited.url + path, { headers: { 'x-forwarded-for': from, authorization } });
const wrongToken: Check = (from) => login(from, { id: USER, pw: 'wrong' });
const rightToken: Check = (from) => login(from, { id: USER, pw: PASSWORD });
const wrongBasic: Check = (from) => get('/protected', from, basic(USER, 'wrong'));
const rightBasic: Check = (from) => get('/protected', from, basic(USER, PASSWORD));

const inTurn = (from: string, checks: readonly Check[]) =>
  Array.fromAsync(checks, async (check) => (await check(from)).status);

test('3.5 3.6 3.7 3.8 3.10 3.13 3.19 only one header with right credentials is accepted, its scheme in any case, and no other form counts', () =>
  checkAuthorization(limited.url));

test('1 AUTH_FAILURES_PER_MINUTE, TRUST_PROXY: of concurrent failures on /token and /protected as many get 401, and then everything 429 (3.13)', async () => {
  const from = '192.0.2.1';
  const checks = Array.from({ length: 10 }, () => [wrongToken, wrongBasic]).flat();
  const responses = await Promise.all(checks.map((check) => check(from)));
  const expected = [...Array(LIMIT).fill(401), ...Array(20 - LIMIT).fill(429)];
  assert.deepEqual(statusesOf(responses).sort(), expected);
  for (const response of [await rightToken(from), await rightBasic(from)]) {
    const { status, headers, body } = response;
    assert.deepEqual([status, body], [429, 'Too Many Requests']);
    assert.match(headers.get('retry-after') ?? '', /^([1-9]|[1-5]\d|60)$/);
  }
  assert.deepEqual(await inTurn('192.0.2.2', [rightToken, wrongBasic]), [200, 401]);
  await limited.until(({ log }) => log.some(({ client }) => client === '192.0.2.2'));
});

test('3.13 only a checked credential counts and is refused, and a success neither counts nor resets', async () => {
  const from = '192.0.2.3';
  const { token } = JSON.parse((await rightToken(from)).body);
  const unchecked = [
    ...INCOMPLETE.map((body) => (from: string) => login(from, body)),
    ...['', 'Basic', 'Bearer x'].map((wrong) => (from: string) => get('/protected', from, wrong)),
    (from: string) => get('/notes', from, 'Bearer a.b.c'),
  ];
  const right = [rightToken, rightBasic, rightToken, rightBasic];
  const all401 = Array(unchecked.length).fill(401);
  assert.deepEqual(await inTurn(from, unchecked), all401);
  assert.deepEqual(await inTurn(from, [wrongToken, wrongBasic]), [401, 401]);
  assert.deepEqual(await inTurn(from, right), [200, 200, 200, 200]);
  assert.deepEqual(await inTurn(from, [wrongToken, rightToken]), [401, 429]);
  assert.deepEqual(await inTurn(from, unchecked), all401);
  assert.equal((await get('/notes', from, `Bearer ${token}`)).status, 200);
});
