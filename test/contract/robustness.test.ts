// While the store works, no input over HTTP gets a 5xx or an error line in the log (contract 2.9).
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { request } from '../support/bytes.ts';
import { basic, exchange, send, statusesOf } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';
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
  ...['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'M-SEARCH'],
];

const ROUTES = [
  ...['GET /', 'POST /token', 'GET /notes', 'GET /protected', 'GET /users', 'POST /users'],
  ...['GET /users/1', 'PUT /users/1', 'PATCH /users/1', 'DELETE /users/999'],
];
const HEADERS: readonly (readonly [name: string, value: string])[] = [
  ['authorization', 'Basic '],
  ['authorization', `Basic ${'A'.repeat(8000)}`],
  ['authorization', basic('\ud800', '\udfff')],
  ['authorization', `Bearer ${'.'.repeat(8000)}`],
  ['authorization', 'Bearer e30.e30.e30'],
  ['authorization', `Bearer ${Buffer.from('{"alg":"HS256"}').toString('base64url')}.W10.AA`],
  ['if-match', '"'.repeat(8000)],
  ['if-match', '"",'.repeat(4000)],
  ['if-none-match', 'W/'.repeat(4000)],
  ['if-none-match', '"99999999999999999999999999"'],
  ['if-match', '"9007199254740993", "-1", "1e9", "0x1"'],
  ['x-forwarded-for', ', , ,'],
  ['x-request-id', 'a'.repeat(8000)],
  ['accept', 'x'.repeat(8000)],
  ['content-type', ';;;==="'],
  ['content-type', 'application/json; charset=utf-8; charset=utf-16'],
  ['content-type', `application/json${';a=b'.repeat(2000)}`],
  ['content-type', `application/json;a="${'\\"'.repeat(3000)}"`],
  ['content-encoding', 'gzip, identity'],
  ['expect', 'the unexpected'],
  ['origin', 'null'],
  ['te', 'trailers'],
];

describe('2 input of every kind', { timeout: 300_000 }, () => {
  let program: Program;
  before(async () => {
    program = await start({ BODY_LIMIT_BYTES: '700000', AUTH_FAILURES_PER_MINUTE: '0' });
    await create(program);
  });

  test('2.9 no odd body gets a 5xx, as itself or as a field that is ignored', async () => {
    for (const [status, why, text] of BODIES) {
      const user = `{"name":"Ann","email":"${newEmail()}","x":${text}}`;
      for (const [body, expected] of [
        [text, 400],
        [user, status],
      ] as const) {
        const init = { method: 'POST', headers: { 'content-type': JSON_TYPE }, body };
        const response = await send(`${program.url}/users`, init);
        assert.equal(response.status, expected, why);
      }
    }
  });

  test('2.9 no odd path, query or method gets a 5xx', async () => {
    for (const path of PATHS.flatMap((path) => ENDS.map((end) => path + end))) {
      const responses = await Promise.all(
        METHODS.map((method) => send(program.url + path, { method })),
      );
      assert.ok(Math.max(...statusesOf(responses)) < 500, path);
    }
  });

  test('2.9 no odd header gets a 5xx on any route', async () => {
    for (const [name, value] of HEADERS) {
      const type = name === 'content-type' ? '' : JSON_TYPE;
      const fields = `Connection: close\r\n${name}: ${value}\r\n`;
      const requests = ROUTES.map((route) => request(route, '{}', { type, fields }));
      const responses = await Promise.all(requests.map((bytes) => exchange(program.url, bytes)));
      for (const [response] of responses) {
        assert.ok(response!.status < 500, `${name}: ${value.slice(0, 40)}`);
      }
    }
  });

  test('2.9 none of these requests left an error line in the log', async () => {
    const headers = { 'x-request-id': 'last' };
    await send(program.url, { headers });
    await program.until(() => program.log.some(({ requestId }) => requestId === 'last'));
    assert.deepEqual(
      program.log.filter(({ status, level }) => Number(status) >= 500 || level === 'error'),
      [],
    );
  });
});
