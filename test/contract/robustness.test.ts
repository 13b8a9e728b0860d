// While the store works, no input over HTTP gets a 5xx or an error line in the log (contract 2.9).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../support/bytes.ts';
import { basic, exchange, send } from '../support/client.ts';
import { start } from '../support/program.ts';
import { create, newEmail } from '../support/service.ts';

const JSON_TYPE = 'application/json';
/** JSON of every depth, and what only begins like JSON. */
const BODIES: readonly (readonly [status: number, why: string, body: string])[] = [
  [201, '100,000 nested arrays', `${'['.repeat(100_000)}${']'.repeat(100_000)}`],
  [201, '60,000 nested objects', `${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}`],
  [201, 'lone surrogates and large numbers', String.raw`["\uDEAD", 1e999, -0, 123123123123123123]`],
  [201, 'special members', '{"__proto__":{"x":1},"":2,"constructor":3}'],
  [400, '100,000 opening brackets', '['.repeat(100_000)],
  [400, '50,000 opening brackets and braces', '[{"":'.repeat(50_000)],
];

const PATHS = ['/', '/users', '/users/999999', '/token', '/notes', '/protected', '/nowhere'];
const ENDS = [
  ...['', '/', '//', '/..', '/.', '/%', '/%zz', '/%00', '/%2e%2e', '/%ff', '/%C0%AF', '/;a=b'],
  ...['?', '?%', '?a=%ff', '?limit', '?limit=1&limit=2', '?__proto__=1', '/__proto__', '/NaN'],
  ...['/constructor', `/${'a'.repeat(8000)}`, `?email=${'%F0%9F%98%80'.repeat(500)}`, '/1e999'],
];
const METHODS = [
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'PROPFIND',
  'M-SEARCH',
];

const ROUTES = [
  ...['GET /', 'POST /token', 'GET /notes', 'GET /protected', 'GET /users', 'POST /users'],
  ...['GET /users/1', 'PUT /users/1', 'PATCH /users/1', 'DELETE /users/999'],
];
const HEADERS = [
  ...['Authorization: Basic ', `Authorization: Basic ${'A'.repeat(8000)}`, 'TE: trailers'],
  ...[`Authorization: ${basic('\ud800', '\udfff')}`, `Authorization: Bearer ${'.'.repeat(8000)}`],
  ...['Authorization: Bearer e30.e30.e30', 'Origin: null', 'Expect: the unexpected'],
  `Authorization: Bearer ${Buffer.from('{"alg":"HS256"}').toString('base64url')}.W10.AA`,
  ...[`If-Match: ${'"'.repeat(8000)}`, `If-Match: ${'"",'.repeat(4000)}`],
  ...[`If-None-Match: ${'W/'.repeat(4000)}`, 'If-None-Match: "99999999999999999999999999"'],
  'If-Match: "9007199254740993", "-1", "1e9", "0x1"',
  ...['X-Forwarded-For: , , ,', `X-Request-Id: ${'a'.repeat(8000)}`, `Accept: ${'x'.repeat(8000)}`],
  ...['Content-Type: ;;;==="', 'Content-Type: application/json; charset=utf-8; charset=utf-16'],
  `Content-Type: application/json${';a=b'.repeat(2000)}`,
  `Content-Type: application/json;a="${'\\"'.repeat(3000)}"`,
  'Content-Encoding: gzip, identity',
];

test('2.9 no odd body, path, query, method or header gets a 5xx or an error line', async () => {
  await using program = await start({ BODY_LIMIT_BYTES: '700000', AUTH_FAILURES_PER_MINUTE: '0' });
  await create(program);
  for (const [status, why, text] of BODIES) {
    const user = `{"name":"Ann","email":"${newEmail()}","x":${text}}`;
    for (const [body, expected] of [
      [text, 400],
      [user, status],
    ] as const) {
      const init = { method: 'POST', headers: { 'content-type': JSON_TYPE }, body };
      assert.equal((await send(`${program.url}/users`, init)).status, expected, why);
    }
  }
  for (const path of PATHS.flatMap((path) => ENDS.map((end) => path + end))) {
    await Promise.all(METHODS.map((method) => send(program.url + path, { method })));
  }
  for (const field of HEADERS) {
    const type = field.startsWith('Content-Type') ? '' : JSON_TYPE;
    const fields = `Connection: close\r\n${field}\r\n`;
    const requests = ROUTES.map((route) => request(route, '{}', { type, fields }));
    await Promise.all(requests.map((bytes) => exchange(program.url, bytes)));
  }
  await send(program.url, { headers: { 'x-request-id': 'last' } });
  await program.until(() => program.log.some(({ requestId }) => requestId === 'last'));
  assert.deepEqual(
    program.log.filter(({ status, level }) => Number(status) >= 500 || level === 'error'),
    [],
  );
});
