// Section 2 of the contract: headers of every response, refusals of input that reached no route,
// and failures of the service. Paths are in paths.test.ts, bodies in bodies.test.ts.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { STATUS_CODES } from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import {
  exchange,
  GET,
  items,
  open,
  request,
  responsesIn,
  statusesOf,
  TEXT,
} from '../support/bytes.ts';
import { basic, type HttpResponse, raw, send } from '../support/client.ts';
import { newDatabase, PASSWORD, type Program, start, USER } from '../support/program.ts';
import { until } from '../support/until.ts';
import { CLASSES, REFUSED } from '../vectors/messages.ts';

const CLOSE = 'Connection: close\r\n';
const get = (path: string, fields = '', version = '1.1') =>
  `GET ${path} HTTP/${version}\r\n${version === '1.1' ? 'Host: x\r\n' : ''}${fields}\r\n`;
const post = (email: string, version = '1.1') =>
  request('POST /users', JSON.stringify({ name: 'Ben', email }), { version });

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

describe('2 every response', { timeout: 300_000 }, () => {
  let program: Program;
  let authorization: string;
  let database: DatabaseSync;
  before(async () => {
    const url = await newDatabase('sqlite');
    program = await start({ DATABASE_URL: url });
    const body = { name: 'Ann', email: 'ann@example.com' };
    assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
    const init = { method: 'POST', body: { id: USER, pw: PASSWORD } };
    authorization = `Bearer ${JSON.parse((await send(`${program.url}/token`, init)).body).token}`;
    database = new DatabaseSync(url.slice('sqlite:'.length));
    // Enough users for a list of several pages.
    database.exec(`with recursive n(i) as (select 1 union all select i + 1 from n where i < 2500)
      insert into users (name, email) select 'Many', i || '@example.com' from n`);
  });
  after(async () => {
    database?.close();
    await program[Symbol.asyncDispose]();
  });

  const exchanged = (...bytes: string[]) => exchange(program.url, ...bytes);
  /** Each response's status and Connection. */
  const seen = (responses: readonly HttpResponse[]) =>
    responses.map(({ status, headers }) => `${status} ${headers.get('connection')}`);
  const isUser = async (email: string) =>
    (await send(`${program.url}/users?email=${email}`)).body !== '[]';

  for (const [method, path, status, why, init] of REFUSALS) {
    test(`2.1 ${method} ${path} (${why}) returns ${status} in plain text`, async () => {
      const response = await send(program.url + path, { method, ...init });
      assert.equal(response.status, status);
      assertError(response);
    });
  }

  test('2.1, 2.2 successful JSON is application/json, text is text/plain, each with its length', async () => {
    let id = 0;
    for (const [method, path, status, body] of JSON_SUCCESSES) {
      const target = program.url + path.replace('ID', String(id));
      const response = await send(target, { method, body, headers: { authorization } });
      assert.equal(response.status, status, `${method} ${path}`);
      assert.equal(response.headers.get('content-type'), 'application/json', `${method} ${path}`);
      assertCommon(response, path === '/users' && method === 'GET');
      id = JSON.parse(response.body).id ?? id;
    }
    for (const path of ['/', '/protected']) {
      const headers = { authorization: basic(USER, PASSWORD) };
      const response = await send(program.url + path, { headers });
      assert.deepEqual([response.status, response.headers.get('content-type')], [200, TEXT]);
      assertCommon(response);
    }
  });

  test('2.2 204 and 304 have no Content-Length, no content and no Transfer-Encoding', async () => {
    const etag = (await send(`${program.url}/users/1`)).headers.get('etag');
    assert.match(String(etag), /^"/);
    for (const [status, init] of [
      [204, { method: 'OPTIONS' }],
      [304, { headers: { 'if-none-match': String(etag) } }],
    ] as const) {
      const response = await send(`${program.url}/users/1`, init);
      assert.deepEqual([response.status, response.body], [status, '']);
      for (const name of ['transfer-encoding', 'content-type']) {
        assert.equal(response.headers.get(name), null, `${name} of ${response.status}`);
      }
      assertCommon(response, true);
    }
  });

  for (const id of ['a', 'x'.repeat(128), 'ABCXYZabcxyz0189._-']) {
    test(`2.2 the request's X-Request-Id ${id} is kept in success, error and log`, async () => {
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

  for (const ids of [[''], ['x'.repeat(129)], ['a b'], ['a/b'], ['caf\xc3\xa9'], ['a', 'b'], []]) {
    test(`2.2 X-Request-Id is new for each request with ${JSON.stringify(ids)}, also in the log`, async () => {
      const fields = ids.map((id) => `X-Request-Id: ${id}\r\n`).join('');
      const made = [];
      for (let i = 0; i < 2; i++) {
        const [response] = await exchanged(get('/', CLOSE + fields));
        assert.equal(response?.status, 200);
        const id = String(response.headers.get('x-request-id'));
        assert.match(id, /^[A-Za-z0-9._-]{8,128}$/);
        assert.ok(!ids.includes(id));
        await program.until(({ log }) => log.some((line) => line.requestId === id));
        made.push(id);
      }
      assert.notEqual(made[0], made[1]);
    });
  }

  for (const [bytes, status, why] of REFUSED) {
    test(`2.2, 2.4, 2.10 ${why} returns ${status}, closes, and nothing after it is processed`, async () => {
      const responses = await exchanged(bytes);
      assert.deepEqual(seen(responses), [`${status} close`]);
      assertError(responses[0]!);
      const id = responses[0]!.headers.get('x-request-id');
      await program.until(({ log }) => log.some((line) => line.requestId === id));
    });
  }

  for (const [i, [bytes, status, why]] of CLASSES.entries()) {
    test(`2.2, 2.4 ${why} on a connection already used returns ${status}`, async () => {
      await using client = await open(program.url);
      await client.write(GET);
      await client.received(/\r\n\r\n./);
      await client.write(bytes);
      await client.closed;
      const responses = responsesIn(client.text());
      assert.deepEqual(statusesOf(responses), [200, status]);
      assertError(responses[1]!);
    });

    test(`2.3, 2.11 ${why} after requests is refused after all their responses, and nothing after it is processed`, async () => {
      const responses = await exchanged(get('/users/1').repeat(3) + bytes + GET);
      assert.deepEqual(seen(responses).slice(2), ['200 keep-alive', `${status} close`]);
      assert.equal(JSON.parse(responses[0]!.body).id, 1);
    });

    for (const isClosed of [false, true]) {
      const side = isClosed ? ', although the client has closed its side' : '';
      test(`2.3 2.16 ${why} after a write that waits for the store is refused after its response${side}`, async () => {
        database.exec('begin immediate');
        await using client = await open(program.url, { allowHalfOpen: true });
        await client.write(post(`waits-${i}-${isClosed}@example.com`) + bytes);
        if (isClosed) client.socket.end();
        // All have arrived once later connections have their responses.
        for (let i = 0; i < 3; i++) assert.equal((await send(program.url)).status, 200);
        database.exec('rollback');
        await once(client.socket, 'end');
        client.socket.end();
        assert.deepEqual(statusesOf(responsesIn(client.text())), [201, status]);
      });
    }
  }

  test('2.14 an Expect that is not 100-continue is ignored: the same headers, and no close', async () => {
    const expect = 'Expect: the-impossible\r\n';
    const responses = await exchanged(get('/', expect) + get('/', expect + CLOSE));
    assert.deepEqual(seen(responses), ['200 keep-alive', '200 close']);
    assertCommon(responses[0]!);
  });

  test('2.3 a refusal is never sent inside a streamed list', async () => {
    const text = await raw(program.url, get('/users'), 'nonsense\r\n\r\n');
    assert.match(text, /^HTTP\/1\.1 200 /);
    const [list, refusal] = text.split('HTTP/1.1 400 ');
    assert.ok(list!.endsWith('0\r\n\r\n'), list!.slice(-100));
    assert.match(String(refusal), /Bad Request$/);
  });

  test('2.4 a request with one Host is served, also with an empty one, and of HTTP/1.0 without one', async () => {
    for (const head of [
      `GET /users/1 HTTP/1.1\r\nHost: example.com\r\n${CLOSE}\r\n`,
      `GET /users/1 HTTP/1.1\r\nHost:\r\n${CLOSE}\r\n`,
      get('/users/1', 'Host: x\r\n', '1.0'),
      get('/users/1', '', '1.0'),
    ]) {
      const responses = await exchanged(head);
      assert.deepEqual(
        responses.map(({ status, body }) => [status, JSON.parse(body).id]),
        [[200, 1]],
        head,
      );
    }
  });

  for (const fields of [
    'Host: x\r\nHost: y\r\n',
    'Host: x\r\nHost: x\r\n',
    'Host: x/y\r\n',
    'Connection: keep-alive\r\nHost:\r\nhost: x\r\n',
  ]) {
    test(`2.4 HTTP/1.0 with ${JSON.stringify(fields)} returns 400 and closes the connection`, async () => {
      const head = get('/users/1', fields, '1.0');
      assert.deepEqual(seen(await exchanged(head + head)), ['400 close']);
    });
  }

  test('2.4, 6.3 a Host after 98 other headers counts, and so does a second one; 101 headers return 431', async () => {
    const statuses = [];
    for (const [count, first, last] of [
      [98, '', 'Host: x\r\n'],
      [97, 'Host: x\r\n', 'Host: y\r\n'],
      [98, 'Host: x\r\n', 'Host: y\r\n'],
      [2500, '', 'Host: x\r\n'],
    ] as const) {
      const head = `GET / HTTP/1.1\r\n${CLOSE}${first}${'a:\r\n'.repeat(count)}${last}\r\n`;
      statuses.push(...statusesOf(await exchanged(head)));
    }
    assert.deepEqual(statuses, [200, 400, 431, 431]);
  });

  test('2.11 a request pipelined after a write sees its result', async () => {
    const created = await send(`${program.url}/users`, {
      method: 'POST',
      body: { name: 'a', email: 'in-order@example.com' },
    });
    const path = `/users/${JSON.parse(created.body).id}`;
    const put = request(`PUT ${path}`, '{"name":"b","email":"in-order@example.com"}');
    const remove = get(path).replace('GET', 'DELETE');
    const responses = await exchanged(put + get(path).repeat(2) + remove + get(path, CLOSE));
    assert.deepEqual(
      responses.map(({ status, body }) => [status, /"name":"(\w)"/.exec(body)?.[1]]),
      [...Array(4).fill([200, 'b']), [404, undefined]],
    );
  });

  test('2.11 the pipeline of a client that does not read is not processed to its end', async () => {
    const count = 800;
    await using client = await open(program.url);
    client.socket.pause();
    const list = '/users?limit=1000';
    const requests = Array.from({ length: count }, (_, i) =>
      get(list, `X-Request-Id: unread-${i}\r\n`),
    );
    client.socket.write(requests.join(''));
    await program.until(({ log }) => log.some(({ requestId }) => requestId === 'unread-0'));
    // All have arrived once later requests have used the store.
    for (const id of ['later-0', 'later-1', 'later-2']) {
      const headers = { 'x-request-id': id };
      assert.equal((await send(program.url + list, { headers })).status, 200);
      await program.until(({ log }) => log.some(({ requestId }) => requestId === id));
    }
    const done = program.log.filter(({ requestId }) => String(requestId).startsWith('unread-'));
    assert.ok(done.length < count, `${done.length} of ${count}`);
    client.socket.destroy();
    // Waits for the log lines of its processed requests, before the next test reads the log.
    const idle = /^http_server_active_requests\{http_request_method="GET"\} 0$/m;
    await until(async () => idle.test((await send(`${program.adminUrl}/metrics`)).body));
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
    const body = { id: USER, pw: PASSWORD };
    const login = await send(`${program.url}/token`, { method: 'POST', body });
    assert.equal(login.headers.get('cache-control'), 'no-store');
    for (const path of ['/openapi.json', '/docs']) {
      const { headers } = await send(program.url + path);
      assert.equal(headers.get('cache-control'), 'no-cache');
    }
    const [refusal] = await exchanged('nonsense\r\n\r\n');
    assert.equal(refusal?.headers.get('cache-control'), 'private, no-cache');
  });

  test('2.12 CONNECT returns 405 with Allow and closes', async () => {
    const responses = await exchanged('CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n');
    assert.deepEqual(seen(responses), ['405 close']);
    const allowed = items(responses[0]!.headers.get('allow'));
    assert.deepEqual(allowed, ['delete', 'get', 'head', 'options', 'patch', 'post', 'put']);
    assertError(responses[0]!);
  });

  for (const bytes of ['CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', 'nonsense\r\n\r\n']) {
    test(`2.10 after a last request ${JSON.stringify(bytes)} is not a request, not even in the log`, async () => {
      for (const path of ['/', '/users/1']) {
        const from = await logged();
        assert.deepEqual(statusesOf(await exchanged(get(path, CLOSE) + bytes)), [200]);
        const to = await logged();
        const lines = program.log.slice(from, to);
        const expected = Array(2).fill(['GET', 200]);
        assert.deepEqual(
          lines.map(({ method, status }) => [method, status]),
          expected,
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
    for (let i = 0; i < 5; i++) {
      const { socket, closed } = await open(program.url);
      const bytes = 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n';
      socket.write(bytes, () => socket.resetAndDestroy());
      await closed;
    }
    assert.equal((await send(program.url)).status, 200);
    assert.ok(!program.log.some(({ message }) => message === 'fault outside a request'));
  });

  test('2.2 a streamed list has chunked coding and no Content-Length', async () => {
    const { body, headers } = await send(`${program.url}/users`);
    assert.ok(JSON.parse(body).length > 2500);
    const coding = [headers.get('content-length'), headers.get('transfer-encoding')];
    assert.deepEqual(coding, [null, 'chunked']);
  });

  for (const [first, status] of [
    [get('/users', 'Connection: keep-alive\r\n', '1.0'), 200],
    [get('/users/1', 'Connection: keep-alive\r\nIf-None-Match: *\r\n', '1.0'), 304],
    ['OPTIONS / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n', 204],
  ] as const) {
    test(`2.4 HTTP/1.0 a ${status} without length closes the connection, and nothing after it is processed`, async () => {
      const email = `behind-${status}@example.com`;
      const [response] = await exchanged(first + post(email, '1.0'));
      assert.deepEqual(seen([response!]), [`${status} close`]);
      assert.equal(await isUser(email), false);
    });
  }

  for (const field of ['Connection: close', 'Connection: keep-alive', 'TE: chunked']) {
    test(`2.4 HTTP/1.0 never gets chunked coding, not even with ${field}`, async () => {
      const [response] = await exchanged(get('/users', `${field}\r\n`, '1.0'));
      assert.equal(response?.status, 200);
      assert.equal(response.headers.get('transfer-encoding'), null);
      assert.equal(response.body, (await send(`${program.url}/users`)).body);
    });
  }
});

describe('2.9 failures of the service', { timeout: 300_000 }, () => {
  let program: Program;
  let database: DatabaseSync;
  before(async () => {
    const url = await newDatabase('sqlite');
    program = await start({ DATABASE_URL: url });
    const body = { name: 'Ann', email: 'ann@example.com' };
    assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
    database = new DatabaseSync(url.slice('sqlite:'.length));
    database.exec('alter table users rename to gone');
  });
  after(async () => {
    database?.close();
    await program[Symbol.asyncDispose]();
  });

  const user = { name: 'Ben', email: 'ben@example.com' };
  for (const [method, path, body, route] of [
    ['GET', '/users', undefined, '/users'],
    ['GET', '/users?limit=5', undefined, '/users'],
    ['GET', '/users?email=ann@example.com', undefined, '/users'],
    ['POST', '/users', user, '/users'],
    ['GET', '/users/1', undefined, '/users/{id}'],
    ['PUT', '/users/1', user, '/users/{id}'],
    ['PATCH', '/users/1', { name: 'Ben' }, '/users/{id}'],
    ['DELETE', '/users/1', undefined, '/users/{id}'],
  ] as const) {
    test(`2.9 ${method} ${path} returns 500, with one log line that has the cause and the id`, async () => {
      const requestId = `fails-${method}-${path.replace(/[^a-z0-9]/g, '-')}`;
      const headers = { 'x-request-id': requestId };
      const response = await send(program.url + path, { method, body, headers });
      assert.deepEqual([response.status, response.body], [500, 'Internal Server Error']);
      assert.equal(response.headers.get('x-request-id'), requestId);
      assertError(response);
      const lines = () => program.log.filter((line) => line.requestId === requestId);
      await program.until(() => lines().length >= 2);
      const [failure, line, ...others] = lines().sort((a, b) => a.level.localeCompare(b.level));
      assert.deepEqual([failure?.level, line?.status, line?.route], ['error', 500, route]);
      assert.match(JSON.stringify(failure?.cause), /users/);
      assert.deepEqual(others, []);
    });
  }

  test('2.9 the process keeps running, and works again once the cause is gone', async () => {
    assert.equal((await send(`${program.url}/users/1`)).status, 500);
    assert.equal((await send(program.url)).status, 200);
    database.exec('alter table gone rename to users');
    const response = await send(`${program.url}/users/1`);
    database.exec('alter table users rename to gone');
    assert.equal(response.status, 200);
    assert.equal(response.body, '{"id":1,"name":"Ann","email":"ann@example.com"}');
  });
});

/** Checks for plain text: the status text or one sentence, without internal words. */
function assertError(response: HttpResponse): void {
  const { status, headers, body } = response;
  assertCommon(response);
  assert.equal(headers.get('content-type'), TEXT);
  if (body === STATUS_CODES[status]) return;
  assert.match(body, /^[^\s<>][^\r\n<>]{2,300}$/);
  assert.doesNotMatch(body, INTERNALS);
}

/** Checks the headers of every response. */
function assertCommon({ headers, body }: HttpResponse, isWithoutLength = false): void {
  assert.equal(headers.get('x-content-type-options'), 'nosniff');
  assert.match(String(headers.get('x-request-id')), /^[A-Za-z0-9._-]{1,128}$/);
  const length = isWithoutLength ? null : String(Buffer.byteLength(body));
  assert.equal(headers.get('content-length'), length);
}
