// While the store works, no input over HTTP gets a 5xx (contract section 2), and the service still
// responds afterwards. The JSON cases in json-suite.json are those of nst/JSONTestSuite (MIT).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { basic, type HttpResponse, raw, send } from '../support/client.ts';
import { newDatabase, PASSWORD, type Program, STORES, start, USER } from '../support/program.ts';
import { until } from '../support/until.ts';

const TEXT = 'text/plain; charset=utf-8';
const JSON_TYPE = 'application/json';
const FORM = 'application/x-www-form-urlencoded';
const LIMIT_BYTES = 1_000;
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

for (const store of STORES) {
  describe(`2 JSON of every kind (${store})`, () => {
    let program: Program;
    let syntaxFault: string;
    before(async () => {
      program = await start({
        DATABASE_URL: await newDatabase(store),
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
            token.status !== 401 ||
            ![201, 400].includes(users.status) ||
            users.body === syntaxFault,
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

    for (const { why, body } of [
      { why: 'arrays', body: `${'['.repeat(100_000)}${']'.repeat(100_000)}` },
      {
        why: 'arrays as name',
        body: `{"name":${'['.repeat(100_000)}${']'.repeat(100_000)},"email":"a@b"}`,
      },
      { why: 'objects', body: `${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}` },
      {
        why: 'objects as email',
        body: `{"name":"A","email":${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}}`,
      },
      {
        why: 'objects as an unknown member',
        body: `{"x":${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}}`,
      },
      { why: 'arrays that do not end', body: '['.repeat(390_000) },
    ]) {
      test(`2.8 deeply nested ${why} return 400, and 401 or 400 at /token`, async () => {
        const users = await post(program, '/users', body);
        const patch = await send(`${program.url}/users/999999`, {
          method: 'PATCH',
          headers: { 'content-type': JSON_TYPE },
          body: body.replace('"name":', '"email":'),
        });
        const token = await post(program, '/token', body);
        assert.deepEqual(heading(users), [400, TEXT]);
        assert.ok([400, 404].includes(patch.status), patch.body);
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

  describe(`2 sizes, bytes and order (${store})`, () => {
    let program: Program;
    before(async () => {
      program = await start({
        DATABASE_URL: await newDatabase(store),
        BODY_LIMIT_BYTES: String(LIMIT_BYTES),
        AUTH_FAILURES_PER_MINUTE: '0',
      });
      await ready(program);
      await post(program, '/users', JSON.stringify({ name: 'Ada', email: newEmail() }));
    });
    after(() => program?.[Symbol.asyncDispose]());

    for (const { route, type, body, status } of [
      { route: 'POST /users', type: JSON_TYPE, body: () => userJson(), status: 201 },
      { route: 'PUT /users/1', type: JSON_TYPE, body: () => userJson(), status: 200 },
      { route: 'PATCH /users/1', type: JSON_TYPE, body: () => userJson(), status: 200 },
      {
        route: 'PATCH /users/1',
        type: 'application/merge-patch+json',
        body: () => userJson(),
        status: 200,
      },
      {
        route: 'POST /token',
        type: JSON_TYPE,
        body: () => JSON.stringify({ id: USER, pw: PASSWORD }),
        status: 200,
      },
      {
        route: 'POST /token',
        type: FORM,
        body: () => `id=${USER}&pw=correct+horse&a=`,
        status: 200,
      },
      { route: 'POST /token', type: FORM, body: () => 'id=x&pw=y&a=', status: 401 },
    ]) {
      for (const framing of ['Content-Length', 'chunked'] as const) {
        for (const { length, expected } of [
          { length: LIMIT_BYTES - 1, expected: status },
          { length: LIMIT_BYTES, expected: status },
          { length: LIMIT_BYTES + 1, expected: 413 },
          { length: 2 * LIMIT_BYTES, expected: 413 },
        ]) {
          test(`2.8 ${route} of ${length} bytes of ${type}, ${framing}, returns ${expected}`, async () => {
            const fill = type === FORM ? 'x' : ' ';
            const response = await raw(
              program.url,
              ...message(route, type, body().padEnd(length, fill), framing),
            );
            assert.equal(Number(response.slice(9, 12)), expected, response);
            assert.match(response, /\r\nConnection: close\r\n/i);
          });
        }
      }
    }

    test('2.8 413 is plain text and closes a keep-alive connection', async () => {
      const [head = ''] = message(
        'POST /users',
        JSON_TYPE,
        'x'.repeat(LIMIT_BYTES + 1),
        'Content-Length',
      );
      const keepAlive = head.replace('Connection: close\r\n', '');
      const response = await raw(program.url, keepAlive, 'x'.repeat(LIMIT_BYTES + 1));
      assert.match(response, /^HTTP\/1\.1 413 /);
      assert.match(response, /\r\nContent-Type: text\/plain; charset=utf-8\r\n/i);
      assert.match(response, /\r\nConnection: close\r\n/i);
    });

    for (const { why, lines, body, statuses } of smuggling()) {
      test(`2.10 ${why} returns ${statuses}, and nothing after it is processed`, async () => {
        const response = await raw(
          program.url,
          Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body ?? ''}`, 'latin1'),
        );
        assert.match(statusesIn(response).join(' '), statuses);
        assert.equal((await send(program.url)).status, 200);
      });
    }

    for (const { why, bytes } of [
      { why: 'a TLS hello', bytes: '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' },
      { why: 'an HTTP/2 preface', bytes: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' },
      { why: 'binary noise', bytes: '\x00\x01\x02\xff\xfe\r\n\r\n' },
      { why: 'an SSH banner', bytes: 'SSH-2.0-OpenSSH_9.0\r\n\r\n' },
      { why: 'a request line without a version', bytes: 'GET /\r\n\r\n' },
      { why: 'a request line of one word', bytes: 'GET\r\n\r\n' },
      { why: 'a method in lower case', bytes: 'get / HTTP/1.1\r\nHost: x\r\n\r\n' },
      { why: 'a NUL in the target', bytes: 'GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n' },
      {
        why: 'a target with bytes beyond ASCII',
        bytes: 'GET /\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
      },
      {
        why: 'a target that is not a path',
        bytes: 'GET users HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
      },
    ]) {
      test(`2.10 ${why} returns 4xx or 505 and closes`, async () => {
        const response = await raw(program.url, Buffer.from(bytes, 'latin1'));
        assert.match(statusesIn(response).join(' '), /^(4\d\d|505)$/, response);
        assert.equal((await send(program.url)).status, 200);
      });
    }

    test('2.9 no odd path, query, method or header gets a 5xx', async () => {
      const paths = ['/', '/users', '/users/999999', '/token', '/notes', '/protected', '/nowhere'];
      const odd = [
        '',
        '/',
        '//',
        '/..',
        '/.',
        '/%',
        '/%zz',
        '/%00',
        '/%2e%2e',
        '/%ff',
        '/%C0%AF',
        '?',
        '?%',
        '?a=%ff',
        '?limit',
        '?limit=1&limit=2',
        '?__proto__=1',
        '/__proto__',
        '/constructor',
        `/${'a'.repeat(8000)}`,
        `?email=${'%F0%9F%98%80'.repeat(500)}`,
        '/;a=b',
        '/1e999',
        '/NaN',
      ];
      const methods = [
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
          'GET /',
          'POST /token',
          'GET /notes',
          'GET /protected',
          'GET /users',
          'POST /users',
          'GET /users/1',
          'PUT /users/1',
          'PATCH /users/1',
          'DELETE /users/999',
        ]) {
          const [head, body] = message(route, JSON_TYPE, '{}', 'Content-Length');
          const kept = head!
            .split('\r\n')
            .filter((line) => !line.toLowerCase().startsWith(`${name}:`));
          kept.splice(-2, 0, `${name}: ${value}`);
          statuses.push(statusesIn(await raw(program.url, kept.join('\r\n'), body!)).at(-1));
        }
        assert.equal(statuses.length, 10);
        assert.deepEqual(
          statuses.filter((status) => !(status! >= 200 && status! < 500)),
          [],
        );
      });
    }

    test('2.11 twenty pipelined requests get responses in order, a slow one first', async () => {
      const created = await post(program, '/users', userJson());
      const user = userJson();
      const targets = ['/', created.headers.get('location'), '/nowhere', '/users?limit=1'];
      const slow = [
        'POST /users HTTP/1.1',
        `Content-Type: ${JSON_TYPE}`,
        `Content-Length: ${user.length}`,
      ];
      const others = Array.from({ length: 19 }, (_, i) => [`GET ${targets[i % 4]} HTTP/1.1`]);
      const heads = [slow, ...others].map((lines, i) =>
        [...lines, 'Host: x', `X-Request-Id: pipelined-${i}`].join('\r\n'),
      );
      const [first, ...rest] = heads;
      const last = `${rest.pop()}\r\nConnection: close`;
      const bytes = `${first}\r\n\r\n${user}${[...rest, last].join('\r\n\r\n')}\r\n\r\n`;
      const response = await raw(program.url, bytes);
      const ids = [...response.matchAll(/^X-Request-Id: (.*?)\r?$/gim)].map(([, id]) => id);
      assert.deepEqual(
        ids,
        heads.map((_, i) => `pipelined-${i}`),
      );
      const statuses = others.map((_, i) => [200, 200, 404, 200][i % 4]);
      assert.deepEqual(statusesIn(response), [201, ...statuses]);
    });

    test('2.3 a refusal comes after the response to the request before it', async () => {
      const slow = userJson();
      const [head = ''] = message('POST /users', JSON_TYPE, slow, 'Content-Length');
      const first = head.replace('Connection: close\r\n', '');
      const response = await raw(program.url, `${first}${slow}BROKEN\r\n\r\n`);
      assert.match(statusesIn(response).join(' '), /^201 400$/);
      assert.equal((await send(program.url)).status, 200);
    });

    test('2.9 none of these requests got a 5xx or an error line in the log', async () => {
      await program.until(() => program.log.some((line) => line.requestId === 'pipelined-19'));
      const faults = program.log.filter(
        (line) => (Number(line.status) >= 500 && line.status !== 505) || line.level === 'error',
      );
      assert.deepEqual(faults, []);
    });
  });
}

interface Smuggled {
  readonly why: string;
  readonly lines: readonly string[];
  readonly body?: string;
  readonly statuses: RegExp;
}

// Returns messages whose end two parsers could see in different places. Each hides a "GET /secret".
function smuggling(): Smuggled[] {
  const hidden = 'GET /secret HTTP/1.1\r\nHost: x\r\n\r\n';
  const head = ['POST /token HTTP/1.1', 'Host: x', `Content-Type: ${JSON_TYPE}`];
  const chunked = 'Transfer-Encoding: chunked';
  const refused = (why: string, lines: readonly string[], body = `0\r\n\r\n${hidden}`) => ({
    why,
    lines: [...head, ...lines],
    body,
    statuses: /^400$/,
  });
  return [
    refused('Content-Length before Transfer-Encoding', ['Content-Length: 5', chunked]),
    refused('Transfer-Encoding before Content-Length', [chunked, 'Content-Length: 5']),
    refused('two different Content-Length', ['Content-Length: 0', 'Content-Length: 5']),
    refused('two equal Content-Length', ['Content-Length: 5', 'Content-Length: 5']),
    refused('a list of Content-Length', ['Content-Length: 5, 5']),
    refused('a negative Content-Length', ['Content-Length: -1']),
    refused('a Content-Length with +', ['Content-Length: +5']),
    refused('a Content-Length in hex', ['Content-Length: 0x5']),
    refused('a Content-Length with a fraction', ['Content-Length: 5.0']),
    refused('a Content-Length with a space inside', ['Content-Length: 1 0']),
    refused('an empty Content-Length', ['Content-Length:']),
    refused('a Content-Length beyond 2^64', ['Content-Length: 99999999999999999999999']),
    {
      ...refused('a Content-Length of 2^53', ['Content-Length: 9007199254740992']),
      statuses: /^413$/,
    },
    refused('a space before the colon', ['Content-Length : 5']),
    refused('a tab before the colon', ['Transfer-Encoding\t: chunked']),
    refused('a folded header', ['X-Folded: a', ' b', 'Content-Length: 5']),
    refused('a folded Transfer-Encoding', ['Transfer-Encoding:', ' chunked']),
    refused('a NUL in a header value', ['X-Null: a\0b', 'Content-Length: 0']),
    refused('a NUL in a header name', ['X-Nu\0ll: a', 'Content-Length: 0']),
    refused('a header name with a space', ['X Y: a', 'Content-Length: 0']),
    refused('a header line without a colon', ['nonsense', 'Content-Length: 0']),
    refused('an empty header name', [': a', 'Content-Length: 0']),
    refused('a bare CR in a header', ['X-Cr: a\rb', 'Content-Length: 0']),
    refused('a bare LF between headers', ['X-Lf: a\nContent-Length: 5']),
    refused('Transfer-Encoding that does not end with chunked', [
      'Transfer-Encoding: chunked, identity',
    ]),
    refused('Transfer-Encoding of an unknown coding', ['Transfer-Encoding: xchunked']),
    refused('Transfer-Encoding with a control character', ['Transfer-Encoding: \x0bchunked']),
    refused('two Transfer-Encoding', [chunked, 'Transfer-Encoding: identity']),
    refused('a chunk size of no digits', [chunked], `x\r\n\r\n${hidden}`),
    refused('an empty chunk size', [chunked], `\r\n\r\n${hidden}`),
    refused('a negative chunk size', [chunked], `-1\r\n\r\n${hidden}`),
    refused('a chunk size with 0x', [chunked], `0x2\r\n{}\r\n0\r\n\r\n${hidden}`),
    refused('a chunk size beyond 2^64', [chunked], `fffffffffffffffff\r\n{}\r\n0\r\n\r\n${hidden}`),
    refused('a chunk longer than its size', [chunked], `1\r\n{}\r\n0\r\n\r\n${hidden}`),
    refused('a chunk without its CRLF', [chunked], `2\r\n{}0\r\n\r\n${hidden}`),
    refused('a bare LF after a chunk size', [chunked], `2\n{}\r\n0\r\n\r\n${hidden}`),
    refused('two Host', ['Host: y', 'Connection: close', 'Content-Length: 0'], ''),
  ];
}

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

// Returns the head and body of a request after which the connection closes.
function message(
  route: string,
  type: string,
  body: string,
  framing: 'Content-Length' | 'chunked',
): [string, string] {
  const half = Math.ceil(body.length / 2);
  const chunks = [body.slice(0, half), body.slice(half), ''];
  const framed = {
    'Content-Length': { line: `Content-Length: ${body.length}`, body },
    chunked: {
      line: 'Transfer-Encoding: chunked',
      body: chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join(''),
    },
  }[framing];
  const head = [
    `${route} HTTP/1.1`,
    'Host: x',
    'Connection: close',
    `Content-Type: ${type}`,
    framed.line,
  ];
  return [`${head.join('\r\n')}\r\n\r\n`, framed.body];
}

// Returns the final statuses in a connection's bytes, without 100 Continue.
function statusesIn(response: string): number[] {
  return [...response.matchAll(/(?:^|\n|[^\r\n])HTTP\/1\.1 ([2-5]\d\d) /g)].map(([, status]) =>
    Number(status),
  );
}
