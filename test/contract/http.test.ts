// Section 2 of the contract: headers of every response, refusals of input that reached no route,
// and failures of the service. Paths are in paths.test.ts, bodies in bodies.test.ts.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { STATUS_CODES } from 'node:http';
import { connect as openSocket } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { basic, type HttpResponse, raw, send } from '../support/client.ts';
import {
  newDatabase,
  PASSWORD,
  type Program,
  STORES,
  type StoreName,
  start,
  USER,
} from '../support/program.ts';
import { until } from '../support/until.ts';

const TEXT = 'text/plain; charset=utf-8';

/** Internal words that no client may see: stacks, SQL, modules, drivers, tables. */
const INTERNALS =
  /\bat \S+ \(|\.[jt]s\b|node:|\/src\/|\b(select|insert|update|delete) .*\b(from|into|set)\b|sqlite|postgres|constraint|relation|econn|undefined|\[object/i;

/** Refused requests: method, path, status, and headers and body for `fetch`. */
const REFUSALS: readonly (readonly [
  method: string,
  path: string,
  status: number,
  why: string,
  init?: { readonly headers?: Record<string, string>; readonly body?: unknown },
])[] = [
  ['GET', '/%zz', 400, 'bad encoding in a path'],
  ['GET', '/users?limit=0', 400, 'a bad value in a query'],
  [
    'POST',
    '/users',
    400,
    'malformed JSON',
    { headers: { 'content-type': 'application/json' }, body: '{' },
  ],
  ['POST', '/users', 400, 'wrong fields', { body: { name: '', email: '' } }],
  ['POST', '/users', 400, 'a taken email', { body: { name: 'Ann', email: 'ann@example.com' } }],
  ['POST', '/token', 401, 'wrong credentials', { body: { id: 'a', pw: 'b' } }],
  ['GET', '/notes', 401, 'no token'],
  ['GET', '/protected', 401, 'no credentials'],
  ['GET', '/nowhere', 404, 'an unknown path'],
  ['GET', '/users/999999', 404, 'an unknown user'],
  ['GET', '/users/x', 404, 'an id that cannot be'],
  ['DELETE', '/notes', 405, 'another method'],
  ['DELETE', '/users/1', 412, 'a stale tag', { headers: { 'if-match': '"stale"' } }],
  ['POST', '/users', 413, 'too large a body', { body: { name: 'x'.repeat(102_400) } }],
  ['POST', '/users', 415, 'text', { headers: { 'content-type': 'text/plain' }, body: 'x' }],
];

/** Requests that succeed with JSON, in order. ID is replaced by the id of the last created user. */
const JSON_SUCCESSES: readonly (readonly [
  method: string,
  path: string,
  status: number,
  body?: unknown,
])[] = [
  ['POST', '/token', 200, { id: USER, pw: PASSWORD }],
  ['GET', '/notes', 200],
  ['GET', '/users', 200],
  ['GET', '/users?limit=1', 200],
  ['GET', '/users?email=ann@example.com', 200],
  ['GET', '/users/1', 200],
  ['POST', '/users', 201, { name: 'Ben', email: 'ben@example.com' }],
  ['PUT', '/users/ID', 200, { name: 'Ben', email: 'ben@example.org' }],
  ['PATCH', '/users/ID', 200, { name: 'Benjamin' }],
  ['DELETE', '/users/ID', 200],
];

/** Input that reaches no route, and its refusal. */
const UNROUTED: readonly (readonly [bytes: string, status: number, why: string])[] = [
  ['nonsense\r\n\r\n', 400, 'no request line'],
  ['GET / http/1.1\r\nHost: x\r\n\r\n', 400, 'HTTP in small letters'],
  ['GET / HTTP/1.1\r\nHost: x\r\nbad name: 1\r\n\r\n', 400, 'a space in a field name'],
  ['GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n', 400, 'a folded field'],
  ['GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n', 400, 'NUL in a field'],
  ['POST /users HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n', 400, 'a negative length'],
  [
    'POST /users HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab',
    400,
    'two lengths',
  ],
  [
    'POST /users HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    400,
    'a length and chunks',
  ],
  [
    `POST /users HTTP/1.1\r\nHost: x\r\nContent-Length: ${'9'.repeat(30)}\r\n\r\n`,
    400,
    'a length beyond 64 bits',
  ],
  ['GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'no Host'],
  ['GET / HTTP/1.1\r\nConnection: close\r\nHost: x\r\nHost: y\r\n\r\n', 400, 'two hosts'],
  [`GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(16_384)}\r\n\r\n`, 431, 'a field over 16 KiB'],
  [`GET /${'a'.repeat(16_384)} HTTP/1.1\r\nHost: x\r\n\r\n`, 431, 'a path over 16 KiB'],
  ['GET / HTTP/0.9\r\nHost: x\r\n\r\n', 505, 'version 0.9'],
  ['GET / HTTP/1.2\r\nHost: x\r\n\r\n', 505, 'version 1.2'],
  ['GET / HTTP/2.0\r\nHost: x\r\n\r\n', 505, 'version 2.0'],
  ['GET / HTTP/3.0\r\nHost: x\r\n\r\n', 505, 'version 3.0'],
  ['GET / HTTP/3\r\nHost: x\r\n\r\n', 505, 'version 3'],
  ['GET / HTTP/10.0\r\nHost: x\r\n\r\n', 505, 'version 10.0'],
  ['GET / HTTP/1.1\nHost: x\n\n', 400, 'a line that ends without CR'],
  ['GET / HTTP/1.1 \r\nHost: x\r\n\r\n', 400, 'a space behind the version'],
  ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 505, 'the preface of HTTP/2'],
];

for (const store of STORES) {
  describe(`2 every response, ${store}`, { timeout: 300_000 }, () => {
    let program: Program;
    let authorization: string;
    let database: ReturnType<typeof connect>;
    before(async () => {
      const url = await newDatabase(store);
      program = await start({ DATABASE_URL: url });
      const body = { name: 'Ann', email: 'ann@example.com' };
      assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
      const init = { method: 'POST', body: { id: USER, pw: PASSWORD } };
      authorization = `Bearer ${JSON.parse((await send(`${program.url}/token`, init)).body).token}`;
      database = connect(store, url);
      // Enough users for a list of several pages.
      await database.run(`with recursive n(i) as (select 1 union all select i + 1 from n where i < 2500)
        insert into users (name, email) select 'Many', i || '@example.com' from n`);
    });
    after(async () => {
      await database?.close();
      await program[Symbol.asyncDispose]();
    });

    for (const [method, path, status, why, init] of REFUSALS) {
      test(`2.1 ${method} ${path} (${why}) returns ${status} in plain text`, async () => {
        const response = await send(program.url + path, { method, ...init });
        assert.equal(response.status, status);
        assertError(response);
        assertCommon(response);
        assert.equal(
          response.headers.get('content-length'),
          String(Buffer.byteLength(response.body)),
        );
      });
    }

    test('2.1, 2.2 successful JSON is application/json, text is text/plain, each with its length', async () => {
      let id = 0;
      for (const [method, path, status, body] of JSON_SUCCESSES) {
        const target = program.url + path.replace('ID', String(id));
        const response = await send(target, { method, body, headers: { authorization } });
        assert.equal(response.status, status, `${method} ${path}`);
        assert.equal(response.headers.get('content-type'), 'application/json', `${method} ${path}`);
        assertCommon(response);
        const length = response.headers.get('content-length');
        const streams = length === null && path === '/users';
        const expected = streams ? null : String(Buffer.byteLength(response.body));
        assert.equal(length, expected, `${method} ${path}`);
        id = JSON.parse(response.body).id ?? id;
      }
      for (const path of ['/', '/protected']) {
        const headers = { authorization: basic(USER, PASSWORD) };
        const response = await send(program.url + path, { headers });
        assert.equal(response.status, 200);
        assert.equal(response.headers.get('content-type'), TEXT);
        assert.equal(
          response.headers.get('content-length'),
          String(Buffer.byteLength(response.body)),
        );
        assertCommon(response);
      }
    });

    test('2.2 204 and 304 have no Content-Length, no content and no Transfer-Encoding', async () => {
      const etag = (await send(`${program.url}/users/1`)).headers.get('etag');
      assert.match(String(etag), /^"/);
      const responses = [
        await send(`${program.url}/users/1`, { method: 'OPTIONS' }),
        await send(`${program.url}/users/1`, { headers: { 'if-none-match': String(etag) } }),
      ];
      assert.deepEqual(
        responses.map(({ status }) => status),
        [204, 304],
      );
      for (const response of responses) {
        assert.equal(response.body, '');
        for (const name of ['content-length', 'transfer-encoding', 'content-type']) {
          assert.equal(response.headers.get(name), null, `${name} of ${response.status}`);
        }
        assertCommon(response);
      }
    });

    const ids = [
      ['a', 'one character'],
      ['x'.repeat(128), '128 characters'],
      ['ABCXYZabcxyz0189._-', 'every kind of character'],
    ] as const;
    for (const [id, why] of ids) {
      test(`2.2 the request's X-Request-Id is kept (${why}), in success, error and log`, async () => {
        for (const [path, status] of [
          ['/', 200],
          ['/nowhere', 404],
          ['/users/1', 200],
        ] as const) {
          const response = await send(program.url + path, { headers: { 'x-request-id': id } });
          assert.deepEqual([response.status, response.headers.get('x-request-id')], [status, id]);
          await program.until(
            ({ log }) => log.at(-1)?.requestId === id && log.at(-1)?.status === status,
          );
          assert.equal(program.log.at(-1)?.message, 'request');
        }
      });
    }

    const replaced = [
      ['X-Request-Id: \r\n', 'an empty one'],
      [`X-Request-Id: ${'x'.repeat(129)}\r\n`, '129 characters'],
      ['X-Request-Id: a b\r\n', 'a space'],
      ['X-Request-Id: a/b\r\n', 'a slash'],
      ['X-Request-Id: {"a":1}\r\n', 'JSON'],
      ['X-Request-Id: caf\xc3\xa9\r\n', 'a letter beyond ASCII'],
      ['X-Request-Id: one\r\nX-Request-Id: two\r\n', 'two of them'],
      ['', 'none'],
    ] as const;
    for (const [field, why] of replaced) {
      test(`2.2 X-Request-Id is new for each request with ${why}, also in the log`, async () => {
        const head = `GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${field}\r\n`;
        const made = [];
        for (let i = 0; i < 2; i++) {
          const [response] = parse(await raw(program.url, Buffer.from(head, 'latin1')));
          assert.equal(response?.status, 200);
          const id = String(response.headers.get('x-request-id'));
          assert.match(id, /^[A-Za-z0-9._-]{8,128}$/);
          assert.ok(!field.includes(id));
          await program.until(({ log }) => log.some((line) => line.requestId === id));
          made.push(id);
        }
        assert.notEqual(made[0], made[1]);
      });
    }

    for (const [bytes, status, why] of UNROUTED) {
      test(`2.2, 2.4 ${why} returns ${status} with the same headers, and the connection closes`, async () => {
        const responses = parse(await raw(program.url, Buffer.from(bytes, 'latin1')));
        assert.equal(responses.length, 1);
        const response = responses[0]!;
        assert.equal(response.status, status);
        assertError(response);
        assertCommon(response);
        assert.equal(
          response.headers.get('content-length'),
          String(Buffer.byteLength(response.body)),
        );
        assert.equal(response.headers.get('connection'), 'close');
        const id = response.headers.get('x-request-id');
        await program.until(({ log }) => log.some((line) => line.requestId === id));
      });
    }

    for (const [bytes, status, why] of UNROUTED) {
      test(`2.2, 2.4 ${why} on a connection already used returns ${status}`, async () => {
        const text = await afterOneResponse(program.url, Buffer.from(bytes, 'latin1'));
        const responses = parse(text);
        assert.deepEqual(
          responses.map((response) => response.status),
          [200, status],
        );
        assertError(responses[1]!);
        assertCommon(responses[1]!);
      });
    }

    test('2.14 an Expect that is not 100-continue is ignored: the same headers, and no close', async () => {
      const head = 'GET / HTTP/1.1\r\nHost: x\r\nExpect: the-impossible\r\n';
      const text = await raw(program.url, `${head}\r\n${head}Connection: close\r\n\r\n`);
      const [response, last, ...others] = parse(text);
      assert.ok(response && last && others.length === 0, text);
      assert.equal(response.status, 200);
      assertCommon(response);
      assert.equal(
        response.headers.get('content-length'),
        String(Buffer.byteLength(response.body)),
      );
      assert.match(String(response.headers.get('content-type')), /^text\/plain/);
    });

    for (const [bytes, status, why] of UNROUTED) {
      test(`2.3 ${why} after a request is refused after that request's response`, async () => {
        const first = 'GET /users/1 HTTP/1.1\r\nHost: x\r\n\r\n';
        const responses = parse(await raw(program.url, Buffer.from(first + bytes, 'latin1')));
        const statuses = responses.map((response) => response.status);
        assert.deepEqual(statuses, [200, status]);
        assert.equal(JSON.parse(responses[0]!.body).id, 1);
      });
    }

    test('2.3 a refusal is never sent inside a streamed list', async () => {
      const first = 'GET /users HTTP/1.1\r\nHost: x\r\n\r\n';
      const text = await raw(program.url, first, 'nonsense\r\n\r\n');
      assert.match(text, /^HTTP\/1\.1 200 /);
      const [list, refusal] = text.split('HTTP/1.1 400 ');
      assert.ok(list!.endsWith('0\r\n\r\n'), list!.slice(-100));
      assert.match(String(refusal), /Bad Request$/);
    });

    for (const [i, [bytes, status, why]] of UNROUTED.entries()) {
      test(`2.3 ${why} after a write that waits for the store is refused after that write's response`, async () => {
        const body = JSON.stringify({ name: 'Ben', email: `waits-${i}@example.com` });
        const head = `POST /users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`;
        const first = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
        await database.run(store === 'sqlite' ? 'begin immediate' : 'begin; lock table users');
        const responded = raw(
          program.url,
          Buffer.from(first, 'latin1'),
          Buffer.from(bytes, 'latin1'),
        );
        // Both have arrived once later connections have their responses.
        for (let i = 0; i < 3; i++) assert.equal((await send(program.url)).status, 200);
        await database.run('rollback');
        const statuses = parse(await responded).map((response) => response.status);
        assert.deepEqual(statuses, [201, status]);
      });
    }

    for (const [i, [bytes, status, why]] of UNROUTED.entries()) {
      test(`2.3 2.16 ${why} after a write that waits is refused, although the client has closed its side`, async () => {
        const body = JSON.stringify({ name: 'Ben', email: `closed-${i}@example.com` });
        const head = `POST /users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`;
        const first = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
        await database.run(store === 'sqlite' ? 'begin immediate' : 'begin; lock table users');
        const { hostname, port } = new URL(program.url);
        const socket = openSocket({ port: Number(port), host: hostname, allowHalfOpen: true });
        socket.end(Buffer.from(first + bytes, 'latin1'));
        const responded = socket.toArray();
        for (let i = 0; i < 3; i++) assert.equal((await send(program.url)).status, 200);
        await database.run('rollback');
        const responses = parse(String(Buffer.concat(await responded)));
        const statuses = responses.map((response) => response.status);
        assert.deepEqual(statuses, [201, status]);
      });
    }

    test('2.4 an HTTP/1.1 request with one Host is served, also with an empty one', async () => {
      for (const host of ['example.com', '']) {
        const head = `GET /users/1 HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
        assert.equal(parse(await raw(program.url, head))[0]?.status, 200);
      }
    });

    for (const host of ['a b', 'x/y', 'x@y', '[::1', 'a:b']) {
      test(`2.4 the Host "${host}" returns 400`, async () => {
        const head = `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
        assert.equal(parse(await raw(program.url, head))[0]?.status, 400);
      });
    }

    test('2.11 a request pipelined after a write sees its result', async () => {
      const post = (method: string, path: string, body: string) =>
        `${method} ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
      const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
      const created = await send(`${program.url}/users`, {
        method: 'POST',
        body: { name: 'a', email: 'in-order@example.com' },
      });
      const path = `/users/${JSON.parse(created.body).id}`;
      const put = post('PUT', path, '{"name":"b","email":"in-order@example.com"}');
      const last = get(path).replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
      const remove = get(path).replace('GET', 'DELETE');
      const text = await raw(program.url, put + get(path) + get(path) + remove + last);
      const responses = parse(text).map(({ status, body }) => [
        status,
        /"name":"(\w)"/.exec(body)?.[1],
      ]);
      assert.deepEqual(responses, [
        [200, 'b'],
        [200, 'b'],
        [200, 'b'],
        [200, 'b'],
        [404, undefined],
      ]);
    });

    test('2.11 the pipeline of a client that does not read is not processed to its end', async () => {
      const count = 800;
      const { hostname, port } = new URL(program.url);
      const socket = openSocket(Number(port), hostname).pause();
      const requests = Array.from(
        { length: count },
        (_, i) => `GET /users?limit=1000 HTTP/1.1\r\nHost: x\r\nX-Request-Id: unread-${i}\r\n\r\n`,
      );
      socket.write(requests.join(''));
      await program.until(({ log }) => log.some(({ requestId }) => requestId === 'unread-0'));
      // All have arrived once later requests have used the store.
      for (const id of ['later-0', 'later-1', 'later-2']) {
        const headers = { 'x-request-id': id };
        assert.equal((await send(`${program.url}/users?limit=1000`, { headers })).status, 200);
        await program.until(({ log }) => log.some(({ requestId }) => requestId === id));
      }
      const done = program.log.filter(({ requestId }) => String(requestId).startsWith('unread-'));
      assert.ok(done.length < count, `${done.length} of ${count}`);
      socket.destroy();
      // Waits for the log lines of its processed requests, before the next test reads the log.
      const idle = /^http_server_active_requests\{http_request_method="GET"\} 0$/m;
      await until(async () => idle.test((await send(`${program.adminUrl}/metrics`)).body));
    });

    test('2.3, 2.11 every request before a refusal gets its response, then the refusal is sent', async () => {
      const get = 'GET /users/1 HTTP/1.1\r\nHost: x\r\n\r\n';
      const responses = parse(await raw(program.url, `${get}${get}${get}nonsense\r\n\r\n`));
      assert.deepEqual(
        responses.map(({ status }) => status),
        [200, 200, 200, 400],
      );
    });

    test('2.17 a response is private, except the documents, and a token is not stored', async () => {
      for (const [method, path, status, headers = {}] of [
        ['GET', '/', 200],
        ['GET', '/notes', 200, { authorization }],
        ['GET', '/notes', 401],
        ['GET', '/users', 200],
        ['HEAD', '/users/1', 200],
        ['GET', '/users/1', 304, { 'if-none-match': '*' }],
        ['GET', '/users/999999', 404],
        ['OPTIONS', '/users', 204],
        ['DELETE', '/notes', 405],
        ['GET', '/nowhere', 404],
      ] as const) {
        const response = await send(program.url + path, { method, headers, cache: 'no-store' });
        const cache = response.headers.get('cache-control');
        assert.deepEqual([path, response.status, cache], [path, status, 'private, no-cache']);
      }
      const login = await send(`${program.url}/token`, {
        method: 'POST',
        body: { id: USER, pw: PASSWORD },
      });
      assert.equal(login.headers.get('cache-control'), 'no-store');
      for (const path of ['/openapi.json', '/docs']) {
        const { headers } = await send(program.url + path);
        assert.equal(headers.get('cache-control'), 'no-cache');
      }
      const refusal = await raw(program.url, 'nonsense\r\n\r\n');
      assert.match(refusal, /^Cache-Control: private, no-cache\r$/m);
    });

    test('2.12 CONNECT returns 405 with Allow and closes', async () => {
      const text = await raw(program.url, 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n');
      const responses = parse(text);
      assert.equal(responses.length, 1);
      const response = responses[0]!;
      assert.equal(response.status, 405);
      assert.equal(response.headers.get('connection'), 'close');
      const allowed = response.headers.get('allow')?.split(', ').sort();
      assert.deepEqual(allowed, ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT']);
      assertError(response);
      assertCommon(response);
    });

    for (const [version, coding, status] of [
      ['1.1', 'gzip, chunked', 400],
      ['1.0', 'chunked', 400],
    ] as const) {
      test(`2.10 HTTP/${version} with Transfer-Encoding: ${coding} returns ${status} and closes`, async () => {
        const head = `POST /token HTTP/${version}\r\nHost: x\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n`;
        const text = await raw(
          program.url,
          `${head}Transfer-Encoding: ${coding}\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
        );
        assert.equal(parse(text)[0]?.status, status);
      });
    }

    for (const [why, status, line, fields] of [
      [
        'a coding that is not known',
        400,
        'POST /token HTTP/1.1',
        ['Transfer-Encoding: gzip, chunked'],
      ],
      ['chunks in HTTP/1.0', 400, 'POST /token HTTP/1.0', ['Transfer-Encoding: chunked']],
      ['two hosts', 400, 'POST /token HTTP/1.1', ['Host: y', 'Transfer-Encoding: chunked']],
      [
        'too long a head',
        431,
        'POST /token HTTP/1.1',
        [...Array(3000).fill('a: b'), 'Transfer-Encoding: chunked'],
      ],
      ['another version', 505, 'POST /token HTTP/2.0', ['Transfer-Encoding: chunked']],
    ] as const) {
      test(`2.10 ${why} in a pipeline returns ${status} and closes, and nothing after it is processed`, async () => {
        const get = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
        const head = [line, 'Host: x', 'Connection: keep-alive', ...fields].join('\r\n');
        const text = await raw(program.url, `${get}${head}\r\n\r\n0\r\n\r\n${get}`);
        const responses = parse(text);
        assert.deepEqual(
          responses.map((response) => [response.status, response.headers.get('connection')]),
          [
            [200, 'keep-alive'],
            [status, 'close'],
          ],
        );
      });
    }

    for (const [bytes, why] of [
      ['CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', 'CONNECT'],
      ['nonsense\r\n\r\n', 'what is no HTTP'],
    ] as const) {
      test(`2.10 after a last request ${why} is not a request, not even in the log`, async () => {
        for (const path of ['/', '/users/1']) {
          const from = await logged();
          const last = `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;
          const responses = parse(await raw(program.url, last + bytes));
          const to = await logged();
          const lines = program.log.slice(from, to).map(({ method, status }) => [method, status]);
          assert.deepEqual(
            [responses.map(({ status }) => status), lines],
            [
              [200],
              [
                ['GET', 200],
                ['GET', 200],
              ],
            ],
            path,
          );
        }
      });
    }

    /** Resolves with the number of log lines, once the log has a line for every request so far. */
    async function logged(): Promise<number> {
      const { headers } = await send(program.url);
      const id = headers.get('x-request-id');
      const index = () => program.log.findIndex(({ requestId }) => requestId === id);
      await program.until(() => index() !== -1);
      return index() + 1;
    }

    test('2.9 a client that resets after CONNECT causes no error line', async () => {
      const { hostname, port } = new URL(program.url);
      for (let i = 0; i < 5; i++) {
        const socket = openSocket(Number(port), hostname);
        socket.on('error', () => {});
        socket.write('CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', () => socket.resetAndDestroy());
        await once(socket, 'close');
      }
      assert.equal((await send(program.url)).status, 200);
      assert.ok(!program.log.some(({ message }) => message === 'fault outside a request'));
    });

    test('2.4 two equal Host headers return 400', async () => {
      const head = 'GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\nConnection: close\r\n\r\n';
      assert.equal(parse(await raw(program.url, head))[0]?.status, 400);
    });

    test('2.4, 6.3 a Host after 98 other headers counts, and so does a second one; 101 headers return 431', async () => {
      const statuses = [];
      for (const [count, hosts] of [
        [98, ['', 'Host: x\r\n']],
        [97, ['Host: x\r\n', 'Host: y\r\n']],
        [98, ['Host: x\r\n', 'Host: y\r\n']],
        [2500, ['', 'Host: x\r\n']],
      ] as const) {
        const [first, last] = hosts;
        const head = `GET / HTTP/1.1\r\nConnection: close\r\n${first}${'a:\r\n'.repeat(count)}${last}\r\n`;
        statuses.push(parse(await raw(program.url, head))[0]?.status);
      }
      assert.deepEqual(statuses, [200, 400, 431, 431]);
    });

    test('2.2 a streamed list has chunked coding and no Content-Length', async () => {
      const response = await send(`${program.url}/users`);
      assert.equal(JSON.parse(response.body).length > 2500, true);
      const { headers } = response;
      assert.deepEqual(
        [headers.get('content-length'), headers.get('transfer-encoding')],
        [null, 'chunked'],
      );
    });

    for (const { why, fields } of [
      { why: 'two Hosts', fields: 'Host: x\r\nHost: y\r\n' },
      { why: 'two equal Hosts', fields: 'Host: x\r\nHost: x\r\n' },
      { why: 'an invalid Host', fields: 'Host: x/y\r\n' },
      {
        why: 'two Host headers and keep-alive',
        fields: 'Connection: keep-alive\r\nHost:\r\nhost: x\r\n',
      },
    ]) {
      test(`2.4 HTTP/1.0 with ${why} returns 400 and closes the connection`, async () => {
        const head = `GET /users/1 HTTP/1.0\r\n${fields}\r\n`;
        const responses = parse(await raw(program.url, head + head));
        assert.deepEqual(
          responses.map(({ status, headers }) => [status, headers.get('connection')]),
          [[400, 'close']],
        );
      });
    }

    test('2.4 HTTP/1.0 with one Host is served', async () => {
      const responses = parse(await raw(program.url, 'GET /users/1 HTTP/1.0\r\nHost: x\r\n\r\n'));
      assert.deepEqual(
        responses.map(({ status }) => status),
        [200],
      );
    });

    test('2.4 HTTP/1.0 needs no Host', async () => {
      const responses = parse(await raw(program.url, 'GET /users/1 HTTP/1.0\r\n\r\n'));
      assert.deepEqual(
        responses.map(({ status, body }) => [status, JSON.parse(body).id]),
        [[200, 1]],
      );
    });

    test('2.4 HTTP/1.0 a streamed list closes the connection, and nothing after it is processed', async () => {
      const body = '{"name":"Behind","email":"behind@example.com"}';
      const list = 'GET /users HTTP/1.0\r\nConnection: keep-alive\r\n\r\n';
      const head = `POST /users HTTP/1.0\r\nContent-Type: application/json\r\n`;
      const post = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
      const [response] = parse(await raw(program.url, list + post));
      assert.equal(response?.headers.get('connection'), 'close');
      const found = await send(`${program.url}/users?email=behind@example.com`);
      assert.deepEqual([found.status, found.body], [200, '[]']);
    });

    for (const [method, target, status] of [
      ['GET', '/users/1', 304],
      ['OPTIONS', '/', 204],
    ] as const) {
      test(`2.4 HTTP/1.0 a ${status} closes the connection, and nothing after it is processed`, async () => {
        const body = JSON.stringify({ name: 'Behind', email: `behind-${status}@example.com` });
        const first = `${method} ${target} HTTP/1.0\r\nConnection: keep-alive\r\nIf-None-Match: *\r\n\r\n`;
        const head = `POST /users HTTP/1.0\r\nContent-Type: application/json\r\n`;
        const post = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
        const responses = parse(await raw(program.url, first + post));
        assert.deepEqual(
          responses.map((response) => [response.status, response.headers.get('connection')]),
          [[status, 'close']],
        );
        const found = await send(`${program.url}/users?email=behind-${status}@example.com`);
        assert.deepEqual([found.status, found.body], [200, '[]']);
      });
    }

    for (const field of ['Connection: close', 'Connection: keep-alive', 'TE: chunked']) {
      test(`2.4 HTTP/1.0 never gets chunked coding, not even with ${field}`, async () => {
        const head = `GET /users HTTP/1.0\r\n${field}\r\n\r\n`;
        const [response] = parse(await raw(program.url, head));
        assert.equal(response?.status, 200);
        assert.equal(response.headers.get('transfer-encoding'), null);
        const users = JSON.parse(Buffer.from(response.body, 'latin1').toString());
        assert.equal(users[0].email, 'ann@example.com');
        assert.equal(JSON.stringify(users), (await send(`${program.url}/users`)).body);
      });
    }
  });

  describe(`2.9 failures of the service, ${store}`, { timeout: 300_000 }, () => {
    let program: Program;
    let database: Awaited<ReturnType<typeof connect>>;
    before(async () => {
      const url = await newDatabase(store);
      program = await start({ DATABASE_URL: url });
      const body = { name: 'Ann', email: 'ann@example.com' };
      assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
      database = connect(store, url);
      await database.run('alter table users rename to gone');
    });
    after(async () => {
      await database?.close();
      await program[Symbol.asyncDispose]();
    });

    const body = { name: 'Ben', email: 'ben@example.com' };
    const requests = [
      ['GET', '/users', undefined, '/users'],
      ['GET', '/users?limit=5', undefined, '/users'],
      ['GET', '/users?email=ann@example.com', undefined, '/users'],
      ['POST', '/users', body, '/users'],
      ['GET', '/users/1', undefined, '/users/{id}'],
      ['PUT', '/users/1', body, '/users/{id}'],
      ['PATCH', '/users/1', { name: 'Ben' }, '/users/{id}'],
      ['DELETE', '/users/1', undefined, '/users/{id}'],
    ] as const;
    for (const [method, path, body, route] of requests) {
      test(`2.9 ${method} ${path} returns 500, with one log line that has the cause and the id`, async () => {
        const requestId = `fails-${method}-${path.replace(/[^a-z0-9]/g, '-')}`;
        const headers = { 'x-request-id': requestId };
        const response = await send(program.url + path, { method, body, headers });
        assert.deepEqual([response.status, response.body], [500, 'Internal Server Error']);
        assert.equal(response.headers.get('content-length'), '21');
        assert.equal(response.headers.get('x-request-id'), requestId);
        assertError(response);
        assertCommon(response);
        const lines = () => program.log.filter((line) => line.requestId === requestId);
        await program.until(() => lines().length >= 2);
        assert.deepEqual(
          lines()
            .map(({ level, status }) => [level, status])
            .sort(),
          [
            ['error', undefined],
            ['info', 500],
          ],
        );
        const failure = lines().find(({ level }) => level === 'error');
        assert.match(JSON.stringify(failure?.cause), /users/);
        assert.equal(lines().find(({ message }) => message === 'request')?.route, route);
      });
    }

    test('2.9 the process keeps running, and works again once the cause is gone', async () => {
      assert.equal((await send(`${program.url}/users/1`)).status, 500);
      assert.equal((await send(program.url)).status, 200);
      await database.run('alter table gone rename to users');
      const response = await send(`${program.url}/users/1`);
      await database.run('alter table users rename to gone');
      assert.equal(response.status, 200);
      assert.equal(response.body, '{"id":1,"name":"Ann","email":"ann@example.com"}');
      assert.equal(program.process.exitCode, null);
    });
  });
}

/** Checks for plain text: the status text or one sentence, without internal words. */
function assertError({ status, headers, body }: HttpResponse): void {
  assert.equal(headers.get('content-type'), TEXT);
  if (body === STATUS_CODES[status]) return;
  assert.match(body, /^[^\s<>][^\r\n<>]{2,300}$/);
  assert.doesNotMatch(body, INTERNALS);
}

/** Checks the headers of every response. */
function assertCommon({ headers }: HttpResponse): void {
  assert.equal(headers.get('x-content-type-options'), 'nosniff');
  assert.match(String(headers.get('x-request-id')), /^[A-Za-z0-9._-]{1,128}$/);
}

/** Splits raw bytes into responses. Each has a Content-Length, or ends with the connection. */
function parse(text: string): HttpResponse[] {
  const responses: HttpResponse[] = [];
  let rest = text;
  while (rest) {
    const end = rest.indexOf('\r\n\r\n');
    const [line, ...fields] = rest.slice(0, end).split('\r\n');
    assert.match(String(line), /^HTTP\/1\.1 \d{3} /);
    const headers = new Headers(
      fields.map((field) => field.split(/: (.*)/s).slice(0, 2) as [string, string]),
    );
    const length = Number(headers.get('content-length') ?? Number.POSITIVE_INFINITY);
    responses.push({
      status: Number(line?.slice(9, 12)),
      headers,
      body: rest.slice(end + 4).slice(0, length),
    });
    rest = rest.slice(end + 4 + length);
  }
  return responses;
}

/** Sends the bytes on a connection that already had a response. Resolves when it closes. */
async function afterOneResponse(url: string, bytes: Buffer): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = openSocket(Number(port), hostname).setEncoding('latin1');
  let text = '';
  socket.on('data', (part) => {
    text += part;
  });
  socket.on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await Promise.race([once(socket, 'data'), closed]);
  socket.write(bytes);
  await closed;
  return text;
}

/** Opens the test's own connection to the program's database. */
function connect(store: StoreName, url: string) {
  if (store === 'sqlite') {
    const database = new DatabaseSync(url.slice('sqlite:'.length));
    return { run: async (sql: string) => database.exec(sql), close: async () => database.close() };
  }
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  return { run: (text: string) => sql.unsafe(text), close: () => sql.end({ timeout: 5 }) };
}
