// While the store works, no input over HTTP gets a 5xx (contract section 2), and the service still
// responds afterwards. The JSON cases in json-suite.json are those of nst/JSONTestSuite (MIT).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { exchange, request, statusesOf, TEXT } from '../support/bytes.ts';
import { basic, type HttpResponse, send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';
import { until } from '../support/until.ts';

const JSON_TYPE = 'application/json';
const FORM = 'application/x-www-form-urlencoded';
const SUITE_LIMIT_BYTES = 400_000;

const SUITE: Record<string, string> = JSON.parse(
  readFileSync(new URL('json-suite.json', import.meta.url), 'utf8'),
).cases;
// Every case by its file name, including the two large ones.
const CASES = new Map<string, Buffer>([
  ...Object.entries(SUITE).map(([name, text]) => [name, Buffer.from(text, 'base64')] as const),
  ['n_structure_100000_opening_arrays', Buffer.from('['.repeat(100_000))],
  ['n_structure_open_array_object', Buffer.from(`${'[{"":'.repeat(50_000)}\n`)],
]);

let emails = 0;

describe(`2 JSON of every kind`, () => {
  let program: Program;
  let syntaxFault: string;
  before(async () => {
    program = await start({
      BODY_LIMIT_BYTES: String(SUITE_LIMIT_BYTES),
      AUTH_FAILURES_PER_MINUTE: '0',
    });
    await ready(program);
    syntaxFault = (await post(program, '/users', '{')).body;
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('2.8 the JSON suite is complete', () => {
    const counts = ['y_', 'n_', 'i_'].map((kind) => casesOf(kind).length);
    assert.deepEqual(counts, [95, 193, 35]);
  });

  for (const { why, wrap } of [
    { why: 'bare', wrap: (bytes: Buffer) => bytes },
    { why: 'as the value of name', wrap: asName },
  ]) {
    test(`2.8 y_ cases ${why} are never called malformed`, async () => {
      const seen = await responsesTo(program, 'y_', wrap);
      const wrong = seen.filter(
        ({ token, users }) =>
          token.status !== 401 || ![201, 400].includes(users.status) || users.body === syntaxFault,
      );
      assert.deepEqual(wrong, []);
      assert.equal(seen.length, 95);
    });

    test(`2.8 n_ cases ${why} return 400`, async () => {
      const seen = await responsesTo(program, 'n_', wrap);
      // POST /token treats an empty body as absent credentials (3.3).
      const wrong = seen.filter(
        ({ name, bytes, token, users }) =>
          token.status !== (bytes.length === 0 ? 401 : 400) ||
          users.status !== 400 ||
          !name.startsWith('n_'),
      );
      assert.deepEqual(wrong, []);
      assert.equal(seen.length, 193);
    });

    test(`2.8 i_ cases ${why} are accepted or return 400`, async () => {
      const seen = await responsesTo(program, 'i_', wrap);
      const wrong = seen.filter(
        ({ token, users }) =>
          ![400, 401].includes(token.status) || ![201, 400].includes(users.status),
      );
      assert.deepEqual(wrong, []);
      assert.equal(seen.length, 35);
    });
  }

  for (const [why, body] of [
    ['arrays', `${'['.repeat(100_000)}${']'.repeat(100_000)}`],
    ['objects', `{"name":"A","email":${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}}`],
    ['arrays that do not end', '['.repeat(390_000)],
  ] as const) {
    test(`2.8 deeply nested ${why} return 400, and 401 or 400 at /token`, async () => {
      const users = await post(program, '/users', body);
      const headers = { 'content-type': JSON_TYPE };
      const init = { method: 'PATCH', headers, body };
      const patch = await send(`${program.url}/users/999999`, init);
      const token = await post(program, '/token', body);
      assert.deepEqual([heading(users), heading(patch)], Array(2).fill([400, TEXT]));
      assert.ok([400, 401].includes(token.status), token.body);
      assert.equal((await send(program.url)).status, 200);
    });
  }

  for (const { why, bytes } of [
    { why: 'a stray continuation byte', bytes: [0x80] },
    { why: 'an overlong slash', bytes: [0xc0, 0xaf] },
    { why: 'an overlong NUL', bytes: [0xc0, 0x80] },
    { why: 'a sequence cut short', bytes: [0xe2, 0x82] },
    { why: 'an encoded surrogate', bytes: [0xed, 0xa0, 0x80] },
    { why: 'a code point beyond U+10FFFF', bytes: [0xf4, 0x90, 0x80, 0x80] },
    { why: 'a five-byte sequence', bytes: [0xf8, 0x88, 0x80, 0x80, 0x80] },
    { why: '0xFE', bytes: [0xfe] },
    { why: '0xFF', bytes: [0xff] },
    { why: 'Latin-1', bytes: [0xe9, 0x61] },
  ]) {
    test(`2.8 a body with ${why} returns 400 as JSON and as form`, async () => {
      const inside = Buffer.from(bytes);
      const json = Buffer.concat([
        Buffer.from(`{"email":"${newEmail()}","name":"a`),
        inside,
        Buffer.from('"}'),
      ]);
      const form = Buffer.concat([Buffer.from('id=admin&pw='), inside]);
      const responses = [
        await post(program, '/users', json),
        await post(program, '/token', json),
        await post(program, '/token', form, FORM),
      ];
      assert.deepEqual(responses.map(heading), Array(3).fill([400, TEXT]));
    });
  }

  test('2.9 none of these requests got a 5xx or an error line in the log', async () => {
    await program.until(() => program.log.filter((line) => line.status === 201).length > 0);
    const faults = program.log.filter(
      (line) => Number(line.status) >= 500 || line.level === 'error',
    );
    assert.deepEqual(faults, []);
  });
});

describe(`2 sizes, bytes and order`, () => {
  let program: Program;
  before(async () => {
    program = await start({
      AUTH_FAILURES_PER_MINUTE: '0',
    });
    await ready(program);
    await post(program, '/users', JSON.stringify({ name: 'Ada', email: newEmail() }));
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('2.9 no odd path, query, method or header gets a 5xx', async () => {
    const paths = ['/', '/users', '/users/999999', '/token', '/notes', '/protected', '/nowhere'];
    const odd = [
      ...['', '/', '//', '/..', '/.', '/%', '/%zz', '/%00', '/%2e%2e', '/%ff', '/%C0%AF'],
      ...['?', '?%', '?a=%ff', '?limit', '?limit=1&limit=2', '?__proto__=1', '/__proto__'],
      ...['/constructor', `/${'a'.repeat(8000)}`, `?email=${'%F0%9F%98%80'.repeat(500)}`],
      ...['/;a=b', '/1e999', '/NaN'],
    ];
    const methods = [
      ...['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'M-SEARCH'],
    ];
    const responses = [];
    for (const path of paths.flatMap((path) => odd.map((tail) => path + tail))) {
      responses.push(
        ...(await Promise.all(
          methods.map(async (method) => ({
            method,
            path,
            ...(await send(program.url + path, { method })),
          })),
        )),
      );
    }
    assert.equal(responses.length, paths.length * odd.length * methods.length);
    assert.deepEqual(
      responses
        .filter(({ status }) => status >= 500)
        .map(({ method, path }) => `${method} ${path}`),
      [],
    );
  });

  for (const headers of [
    { authorization: 'Basic ' },
    { authorization: `Basic ${'A'.repeat(8000)}` },
    { authorization: basic('\ud800', '\udfff') },
    { authorization: `Bearer ${'.'.repeat(8000)}` },
    { authorization: 'Bearer e30.e30.e30' },
    { authorization: `Bearer ${Buffer.from('{"alg":"HS256"}').toString('base64url')}.W10.AA` },
    { 'if-match': '"'.repeat(8000) },
    { 'if-match': '"",'.repeat(4000) },
    { 'if-none-match': 'W/'.repeat(4000) },
    { 'if-none-match': '"99999999999999999999999999"' },
    { 'if-match': '"9007199254740993", "-1", "1e9", "0x1"' },
    { 'x-forwarded-for': ', , ,' },
    { 'x-request-id': 'a'.repeat(8000) },
    { accept: 'x'.repeat(8000) },
    { 'content-type': ';;;==="' },
    { 'content-type': 'application/json; charset=utf-8; charset=utf-16' },
    { 'content-type': `application/json${';a=b'.repeat(2000)}` },
    { 'content-type': `application/json;a="${'\\"'.repeat(3000)}` },
    { 'content-encoding': 'gzip, identity' },
    { expect: '100-continue' },
    { expect: 'the unexpected' },
    { origin: 'null' },
    { te: 'trailers' },
  ]) {
    const [[name, value] = ['', '']] = Object.entries(headers);
    test(`2.9 the header ${name}: ${value.slice(0, 40)} gets no 5xx on any route`, async () => {
      const statuses = [];
      for (const route of [
        ...['GET /', 'POST /token', 'GET /notes', 'GET /protected', 'GET /users', 'POST /users'],
        ...['GET /users/1', 'PUT /users/1', 'PATCH /users/1', 'DELETE /users/999'],
      ]) {
        const type = name === 'content-type' ? '' : JSON_TYPE;
        const fields = `Connection: close\r\n${name}: ${value}\r\n`;
        statuses.push(
          ...statusesOf(await exchange(program.url, request(route, '{}', { type, fields }))),
        );
      }
      assert.ok(statuses.length >= 10);
      assert.deepEqual(
        statuses.filter((status) => status >= 500),
        [],
      );
    });
  }

  test('2.11 twenty pipelined requests get responses in order, a slow one first', async () => {
    const targets = ['/', '/users/1', '/nowhere', '/users?limit=1'];
    const id = (i: number) => `X-Request-Id: pipelined-${i}\r\n`;
    const first = request('POST /users', userJson(), { fields: id(0) });
    const rest = Array.from({ length: 19 }, (_, i) => {
      const close = i === 18 ? 'Connection: close\r\n' : '';
      return `GET ${targets[i % 4]} HTTP/1.1\r\nHost: x\r\n${id(i + 1)}${close}\r\n`;
    });
    const responses = await exchange(program.url, first + rest.join(''));
    assert.deepEqual(
      responses.map(({ status, headers }) => [status, headers.get('x-request-id')]),
      [201, ...rest.map((_, i) => [200, 200, 404, 200][i % 4])].map((status, i) => [
        status,
        `pipelined-${i}`,
      ]),
    );
  });

  test('2.9 none of these requests got a 5xx or an error line in the log', async () => {
    await program.until(() => program.log.some((line) => line.requestId === 'pipelined-19'));
    const faults = program.log.filter(
      (line) => (Number(line.status) >= 500 && line.status !== 505) || line.level === 'error',
    );
    assert.deepEqual(faults, []);
  });
});

function casesOf(kind: string): [string, Buffer][] {
  return [...CASES].filter(([name]) => name.startsWith(kind));
}

function asName(bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from('{"name":'), bytes, Buffer.from(`,"email":"${newEmail()}"}`)]);
}

async function responsesTo(program: Program, kind: string, wrap: (bytes: Buffer) => Buffer) {
  const seen = [];
  for (const [name, inner] of casesOf(kind)) {
    const bytes = wrap(inner);
    const [token, users] = await Promise.all([
      post(program, '/token', bytes),
      post(program, '/users', bytes),
    ]);
    seen.push({ name, bytes, token: brief(token), users: brief(users) });
  }
  return seen;
}

function brief({ status, body }: HttpResponse) {
  return { status, body };
}

function heading({ status, headers }: HttpResponse): [number, string | null] {
  return [status, headers.get('content-type')];
}

function post(program: Program, path: string, body: string | Uint8Array, type = JSON_TYPE) {
  const headers = { 'content-type': type };
  return send(program.url + path, { method: 'POST', headers, body });
}

async function ready(program: Program): Promise<void> {
  await until(async () => (await send(`${program.adminUrl}/ready`)).status === 200);
}

function newEmail(): string {
  emails++;
  return `user-${emails}@robust.example`;
}

function userJson(): string {
  return JSON.stringify({ name: 'Ada', email: newEmail() });
}
