// While the store works, no input over HTTP gets a 5xx or an error line in the log (contract 2.9).
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { exchange, request } from '../support/bytes.ts';
import { basic, type HttpResponse, send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';
import { create, newEmail, statusesOf } from '../support/service.ts';

const JSON_TYPE = 'application/json';
/** Texts that JSON has, one of each class of nst/JSONTestSuite. */
const VALID: readonly (readonly [why: string, text: string])[] = [
  ['scalars', '[null, true, false, "", -0, 1, 0.5, 1E+2, 1e-2]'],
  ['white space', '\t\r\n [ \t\r\n1 \t\r\n] \t\r\n'],
  ['escapes', String.raw`"\"\\\/\b\f\n\r\t\u0000\uD83D\uDE00\u00e9"`],
  ['characters', '"\x7f\u2028\u2029\u{10ffff}€"'],
  ['a repeated, empty or special member', '{"a":1,"a":2,"":3,"__proto__":{"x":1}}'],
  ['lone surrogates', String.raw`"\uDEAD\uD800"`],
  ['large numbers', '[1e999, -1e999, 1e-999, 123123123123123123123123123123]'],
  ['100,000 nested arrays', `${'['.repeat(100_000)}${']'.repeat(100_000)}`],
  ['60,000 nested objects', `${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}`],
];

/** Texts that JSON doesn't have, one of each class of nst/JSONTestSuite. */
const INVALID: readonly string[] = [
  ...['[1,]', '[,1]', '[1 2]', '{"a":1,}', '{"a" 1}', '{a:1}', '{1:1}', '{"a"}'],
  ...["['a']", '[1', '{"a":1', '"a', '[1]]', '{} {}', '[1]x', '/* */[]', '[] // a', '[] # a'],
  ...['01', '+1', '.5', '1.', '1e', '0x1', '1_000', '--1', 'NaN', '-Infinity', '１'],
  ...['True', 'nul', 'undefined', String.raw`"\x41"`, String.raw`"\u00G0"`, '"\t"', '"\n"'],
  ...['\ufeff[]', '[\u00a0]', '[\f]', '<null>', '`a`', '[\u2060]', '[...[]]', '(1)'],
];
const INVALID_BYTES: readonly (readonly [why: string, bytes: Buffer])[] = [
  ['a byte that is not UTF-8', Buffer.from('"\xe5"', 'latin1')],
  ['an overlong character', Buffer.from('22c0af22', 'hex')],
  ['a surrogate', Buffer.from('22eda08022', 'hex')],
  ['UTF-16', Buffer.from('\ufeff["é"]', 'utf16le')],
  ['100,000 opening brackets', Buffer.from('['.repeat(100_000))],
  ['50,000 opening brackets and braces', Buffer.from('[{"":'.repeat(50_000))],
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
  after(() => program?.[Symbol.asyncDispose]());

  function post(body: string | Uint8Array): Promise<HttpResponse> {
    const headers = { 'content-type': JSON_TYPE };
    return send(`${program.url}/users`, { method: 'POST', headers, body });
  }

  test('2.8 what is not JSON returns 400, and what is JSON is never called malformed', async () => {
    const malformed = (await post('{')).body;
    const textsOf = (text: string | Uint8Array) => {
      const end = Buffer.from(`,"email":"${newEmail()}"}`);
      return [text, Buffer.concat([Buffer.from('{"name":'), Buffer.from(text), end])];
    };
    for (const [why, text] of VALID) {
      for (const body of textsOf(text)) {
        const response = await post(body);
        assert.ok([201, 400].includes(response.status), why);
        assert.notEqual(response.body, malformed, why);
      }
    }
    for (const [why, bytes] of [
      ...INVALID.map((text) => [text, text] as const),
      ...INVALID_BYTES,
    ]) {
      for (const body of textsOf(bytes)) {
        const response = await post(body);
        assert.equal(response.status, 400, why);
        assert.match(response.body, /^The body is not valid (JSON|UTF-8)\.$/, why);
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
