// Section 2 of the contract: the order of checks, paths, methods and queries.
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import { items, TEXT } from '../support/bytes.ts';
import { basic, type HttpResponse, raw, send } from '../support/client.ts';
import { newDatabase, PASSWORD, type Program, start, USER } from '../support/program.ts';

const LARGE = 'x'.repeat(102_401);
const JSON_TYPE = { 'content-type': 'application/json' };
const TEXT_TYPE = { 'content-type': 'text/plain' };
const STALE = { ...JSON_TYPE, 'if-match': '"x"' };

/** A request with two faults. The earlier check sets the status. */
type Order = readonly [
  why: string,
  status: number,
  method: string,
  path: string,
  headers: Record<string, string>,
  body: string,
];

/** The methods of each path. A path with GET has HEAD, and every path has OPTIONS. */
const METHODS: readonly (readonly [path: string, methods: readonly string[]])[] = [
  ['/', ['GET', 'HEAD', 'OPTIONS']],
  ['/token', ['OPTIONS', 'POST']],
  ['/notes', ['GET', 'HEAD', 'OPTIONS']],
  ['/protected', ['GET', 'HEAD', 'OPTIONS']],
  ['/users', ['GET', 'HEAD', 'OPTIONS', 'POST']],
  ['/users/1', ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'PUT']],
  ['/users/999999', ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'PUT']],
  ['/users/no-id', ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'PUT']],
];

/** With PROTECT_USERS. */
const ORDER: readonly Order[] = [
  ['404 path before 405', 404, 'DELETE', '/nowhere', {}, ''],
  ['404 path before 413', 404, 'POST', '/nowhere', JSON_TYPE, LARGE],
  ['404 path before 415', 404, 'POST', '/users/1/x', TEXT_TYPE, 'x'],
  ['405 before 401', 405, 'DELETE', '/notes', {}, ''],
  ['405 before 401, on a protected path', 405, 'PUT', '/users', {}, ''],
  ['405 before 413', 405, 'PUT', '/token', JSON_TYPE, LARGE],
  ['405 before 415', 405, 'PUT', '/token', TEXT_TYPE, 'x'],
  ['401 before 413', 401, 'POST', '/users', JSON_TYPE, LARGE],
  ['401 before 415', 401, 'POST', '/users', TEXT_TYPE, 'x'],
  ['401 before 400 syntax', 401, 'POST', '/users', JSON_TYPE, '{'],
  ['401 before 400 fields', 401, 'POST', '/users', JSON_TYPE, '{"name":""}'],
  ['401 before 404 user', 401, 'GET', '/users/999999', {}, ''],
  ['413 before 415', 413, 'POST', '/token', TEXT_TYPE, LARGE],
  ['413 before 400 syntax', 413, 'POST', '/token', JSON_TYPE, LARGE],
  ['415 before 400 syntax', 415, 'POST', '/token', TEXT_TYPE, '{'],
];

/** TAKEN is replaced by another user's email. */
const USERS_ORDER: readonly Order[] = [
  ['413 before 415', 413, 'POST', '/users', TEXT_TYPE, LARGE],
  ['413 before 404 user', 413, 'PUT', '/users/999999', JSON_TYPE, LARGE],
  ['415 before 400 syntax', 415, 'POST', '/users', TEXT_TYPE, '{'],
  ['415 before 404 user', 415, 'PUT', '/users/999999', TEXT_TYPE, 'x'],
  ['400 syntax before 404 user', 400, 'PUT', '/users/999999', JSON_TYPE, '{'],
  ['400 syntax before 412', 400, 'PUT', '/users/1', STALE, '{'],
  ['400 fields before 404 user', 400, 'PUT', '/users/999999', JSON_TYPE, '{"name":""}'],
  ['400 fields before 404 user, PATCH', 400, 'PATCH', '/users/999999', JSON_TYPE, '{"name":null}'],
  ['400 fields before 404 of no id', 400, 'PUT', '/users/no-id', JSON_TYPE, '{"name":""}'],
  ['400 fields before 412', 400, 'PATCH', '/users/1', STALE, '{"name":1}'],
  ['404 user before 412', 404, 'PATCH', '/users/999999', STALE, '{}'],
  ['404 user before 412, DELETE', 404, 'DELETE', '/users/999999', { 'if-match': '"x"' }, ''],
  [
    '404 user before 400 taken email',
    404,
    'PATCH',
    '/users/999999',
    JSON_TYPE,
    '{"email":"TAKEN"}',
  ],
  ['412 before 400 taken email', 412, 'PATCH', '/users/1', STALE, '{"email":"TAKEN"}'],
  ['400 taken email at the end', 400, 'PATCH', '/users/1', JSON_TYPE, '{"email":"TAKEN"}'],
];

/**
 * Targets of GET, exactly as in the request line, one of each class: the vectors are in
 * test/http/router.test.ts. The last column is the body.
 */
const TARGETS: readonly (readonly [target: string, status: number, why: string, body?: string])[] =
  [
    ['/users/', 200, 'one trailing slash', 'LIST'],
    ['/%75%73%65%72%73/%31', 200, 'an encoded path and id', 'ONE'],
    ['/?/users', 200, 'a path in the query', 'GREETING'],
    ['/users/1?/../2', 200, 'dot segments in the query', 'ONE'],
    ['/users/1?_method=DELETE', 200, 'a method in the query', 'ONE'],
    ['/users?a=1?b=2', 200, 'a second question mark', 'LIST'],
    ['//', 404, 'two slashes'],
    ['//users', 404, 'two slashes first'],
    ['/users//1', 404, 'two slashes between'],
    ['/users/1//', 404, 'two slashes last'],
    ['/users%2F1', 404, 'an encoded slash'],
    ['/users/1%2F', 404, 'an encoded slash behind an id', 'NO_USER'],
    ['/users/%2531', 404, 'an id encoded twice', 'NO_USER'],
    ['/users/..', 404, 'two dots as id', 'NO_USER'],
    ['/notes/../users', 404, 'two dots'],
    ['/%2e%2e/users', 404, 'encoded dots'],
    ['/users%3Flimit=1', 404, 'an encoded question mark'],
    ['/Users', 404, 'another case'],
    ['/__proto__', 404, 'a name of Object.prototype'],
    ['/users/%3', 400, 'one digit'],
    ['/%zz', 400, 'no digits'],
    ['/%C0%AF', 400, 'no UTF-8'],
  ];

describe(`2 paths`, { timeout: 300_000 }, () => {
  let program: Program;
  const bodies: Record<string, string> = {};
  const taken = 'taken+1@example.com';
  before(async () => {
    program = await start();
    for (const [i, email] of ['ann@example.com', taken].entries()) {
      const body = { name: `User ${i + 1}`, email };
      const response = await send(`${program.url}/users`, { method: 'POST', body });
      assert.deepEqual([response.status, JSON.parse(response.body).id], [201, i + 1]);
    }
    bodies.GREETING = (await send(program.url)).body;
    bodies.LIST = (await send(`${program.url}/users`)).body;
    bodies.NO_USER = (await send(`${program.url}/users/999999`)).body;
    bodies.ONE = '{"id":1,"name":"User 1","email":"ann@example.com"}';
    assert.equal(JSON.parse(bodies.LIST).length, 2);
  });
  after(() => program[Symbol.asyncDispose]());

  for (const [why, status, method, path, headers, body] of USERS_ORDER) {
    test(`2.5 ${why}: ${method} ${path}`, async () => {
      const response = await ask(program, method, path, headers, body.replace('TAKEN', taken));
      assert.equal(response.status, status, response.body);
      assert.equal(response.headers.get('content-type'), TEXT);
      assert.equal((await send(`${program.url}/users/1`)).body, bodies.ONE);
    });
  }

  test('2.6 an unknown path returns 404 for any method', async () => {
    for (const method of ['GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS', 'PROPFIND']) {
      for (const path of ['/nowhere', '/users/1/2', '/token/x']) {
        const { status, headers, body } = await ask(program, method, path);
        const seen = [status, headers.get('content-type'), headers.get('allow'), body];
        assert.deepEqual(seen, [404, TEXT, null, method === 'HEAD' ? '' : 'Not Found']);
      }
    }
  });

  for (const [path, methods] of METHODS) {
    test(`2.6 ${path} with another method returns 405 with Allow`, async () => {
      const all = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'PROPFIND', 'LOCK'];
      const others = all.filter((method) => !methods.includes(method));
      assert.ok(others.length >= 4);
      for (const method of others) {
        const response = await ask(program, method, path);
        assert.equal(response.status, 405, method);
        assert.deepEqual(items(response.headers.get('allow')), lower(methods));
        assert.equal(response.headers.get('content-type'), TEXT);
        assert.equal(response.headers.get('www-authenticate'), null);
        assert.equal(response.body, method === 'HEAD' ? '' : 'Method Not Allowed');
      }
    });

    test(`2.6 OPTIONS ${path} returns 204 with Allow, and Accept-Patch if it has PATCH`, async () => {
      const response = await ask(program, 'OPTIONS', path);
      assert.deepEqual([response.status, response.body], [204, '']);
      assert.deepEqual(items(response.headers.get('allow')), lower(methods));
      assert.deepEqual(
        items(response.headers.get('accept-patch')),
        methods.includes('PATCH') ? ['application/json', 'application/merge-patch+json'] : [''],
      );
    });
  }

  test('2.6 OPTIONS * returns 204 with the methods of all paths', async () => {
    const response = await ask(program, 'OPTIONS', '*');
    assert.deepEqual([response.status, response.body], [204, '']);
    const all = [...new Set(METHODS.flatMap(([, methods]) => methods))].sort();
    assert.deepEqual(items(response.headers.get('allow')), lower(all));
  });

  const heads = [
    ['/', 200, {}, 'the greeting'],
    ['/notes', 200, 'bearer', 'with a token'],
    ['/notes', 401, {}, 'without a token'],
    ['/protected', 200, { authorization: basic(USER, PASSWORD) }, 'with credentials'],
    ['/protected', 401, { authorization: basic(USER, 'wrong') }, 'with wrong credentials'],
    ['/users', 200, {}, 'a streamed list'],
    ['/users?limit=1', 200, {}, 'a page'],
    ['/users?limit=0', 400, {}, 'a bad query'],
    ['/users/1', 200, {}, 'a user'],
    ['/users/1', 304, 'etag', 'with the tag'],
    ['/users/999999', 404, {}, 'an unknown user'],
    ['/nowhere', 404, {}, 'an unknown path'],
  ] as const;
  for (const [path, status, given, why] of heads) {
    test(`2.6 HEAD ${path} (${why}) returns ${status} with the headers of GET and no body`, async () => {
      const headers =
        given === 'bearer'
          ? { authorization: `Bearer ${await token(program)}` }
          : given === 'etag'
            ? {
                'if-none-match': String((await send(`${program.url}/users/1`)).headers.get('etag')),
              }
            : given;
      const get = await ask(program, 'GET', path, headers);
      const head = await ask(program, 'HEAD', path, headers);
      assert.deepEqual([get.status, head.status], [status, status]);
      assert.deepEqual(comparable(head), comparable(get));
      // The raw response would show bytes after the head.
      const fields = Object.entries({ ...headers, host: 'x', connection: 'close' });
      const text = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
      assert.match(
        await raw(program.url, `HEAD ${path} HTTP/1.1\r\n${text}\r\n`),
        /^[\s\S]*?\r\n\r\n$/,
      );
    });
  }

  for (const [target, status, why, body] of TARGETS) {
    test(`2.7 GET ${target} returns ${status} (${why})`, async () => {
      const response = await ask(program, 'GET', target);
      assert.equal(response.status, status, response.body);
      if (body !== undefined) assert.equal(response.body, bodies[body]);
      if (status === 404) assert.equal(response.body, bodies[body ?? ''] ?? 'Not Found');
      if (status !== 200) assert.equal(response.headers.get('content-type'), TEXT);
    });
  }

  test('2.7 a target in absolute form is routed by its path (RFC 9112 3.2.2)', async () => {
    const response = await ask(program, 'GET', 'http://elsewhere.example/users/1?x');
    assert.deepEqual([response.status, response.body], [200, bodies.ONE]);
  });

  test('2.7 the parts of a query are percent-decoded once, and + is a plus sign', async () => {
    for (const [query, count] of [
      ['?%65mail=%74aken+1%40example.com', 1],
      ['?email=taken%2B1@example.com', 1],
      ['?email=taken%252B1@example.com', 0],
    ] as const) {
      const { status, body } = await ask(program, 'GET', `/users${query}`);
      const found = [{ id: 2, name: 'User 2', email: taken }].slice(0, count);
      assert.deepEqual([status, JSON.parse(body)], [200, found], query);
    }
  });

  for (const [method, path, status, why] of [
    ['GET', '/users?email=%zz', 400, 'in a known parameter'],
    ['GET', '/?%zz', 400, 'on a route that reads no query'],
    ['HEAD', '/docs?%', 400, 'for HEAD'],
    ['DELETE', '/users/1?a=%FF', 400, 'on a write'],
    ['GET', '/users?limit=5&x=%zz', 400, 'in a parameter that is not known'],
    ['GET', '/users?limit=5&x=%E2&y=%82%AC', 400, 'a character in two parameters'],
    ['GET', '/nowhere?%zz', 404, 'behind an unknown path'],
    ['PUT', '/users?%zz', 405, 'with another method'],
    ['OPTIONS', '/users?%zz', 400, 'for OPTIONS'],
    ['GET', '/notes?%zz', 401, 'without a token'],
    ['POST', '/token?%zz', 415, 'with text'],
  ] as const) {
    test(`2.5, 2.7 invalid encoding in a query ${why}: ${method} ${path} returns ${status}`, async () => {
      const headers = { 'content-type': 'text/plain' };
      const body = method === 'POST' ? 'x' : '';
      const response = await ask(program, method, path, headers, body);
      assert.deepEqual([response.status, response.headers.get('content-type')], [status, TEXT]);
    });
  }

  test('2.7 a query never changes which route matches, on routes that take none', async () => {
    assert.equal((await ask(program, 'GET', '/notes?path=/users')).status, 401);
    assert.equal((await ask(program, 'DELETE', '/users?id=1')).status, 405);
    assert.equal((await ask(program, 'POST', '/token?id=admin&pw=x')).status, 401);
  });
});

describe(`2.5 order of checks on protected users`, { timeout: 300_000 }, () => {
  let program: Program;
  before(async () => {
    program = await start({ PROTECT_USERS: 'true' });
  });
  after(() => program[Symbol.asyncDispose]());

  for (const [why, status, method, path, headers, body] of ORDER) {
    test(`2.5 ${why}: ${method} ${path}`, async () => {
      const response = await ask(program, method, path, headers, body);
      assert.equal(response.status, status, response.body);
      assert.equal(response.headers.get('content-type'), TEXT);
      assert.equal(response.headers.get('www-authenticate') !== null, status === 401);
      assert.equal(response.headers.get('allow') !== null, status === 405);
    });
  }
});

describe(`2.5 a store that fails`, { timeout: 300_000 }, () => {
  let program: Program;
  before(async () => {
    const url = await newDatabase('sqlite');
    program = await start({ DATABASE_URL: url });
    using database = new DatabaseSync(url.slice('sqlite:'.length));
    database.exec('drop table users');
  });
  after(() => program[Symbol.asyncDispose]());

  test('2.5 field checks do not need the store', async () => {
    const rows = [
      ['POST', '/users', '{"name":"","email":"x"}', 400],
      ['PUT', '/users/1', '{"name":"Ann"}', 400],
      ['PATCH', '/users/1', '{"email":null}', 400],
      ['GET', '/users?limit=0', '', 400],
      ['GET', '/users/no-id', '', 404],
      ['PATCH', '/users/1', '{"name":"Ann"}', 500],
    ] as const;
    for (const [method, path, body, status] of rows) {
      const response = await ask(program, method, path, body ? JSON_TYPE : {}, body);
      assert.equal(response.status, status, `${method} ${path}`);
      assert.equal(response.headers.get('content-type'), TEXT);
    }
  });
});

/** Sends a request with exactly that target, which `fetch` would normalize. */
function ask(
  program: Program,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body = '',
): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    const req = request(program.url, { method, path, headers, agent: false });
    if (body) req.setHeader('content-length', Buffer.byteLength(body));
    req.on('error', reject).on('response', async (res) => {
      const chunks = await res.setEncoding('utf8').toArray();
      const fields = Object.entries(res.headers).map(([name, value]) => [name, String(value)]);
      const status = res.statusCode ?? 0;
      resolve({
        status,
        headers: new Headers(fields as [string, string][]),
        body: chunks.join(''),
      });
    });
    req.end(body);
  });
}

async function token(program: Program): Promise<string> {
  const body = { id: USER, pw: PASSWORD };
  return JSON.parse((await send(`${program.url}/token`, { method: 'POST', body })).body).token;
}

const lower = (words: readonly string[]) => words.map((word) => word.toLowerCase());

/** Returns the headers except those that differ between responses and framings. */
function comparable({ headers }: HttpResponse): Record<string, string> {
  const others = ['date', 'x-request-id', 'transfer-encoding', 'connection', 'keep-alive'];
  return Object.fromEntries([...headers].filter(([name]) => !others.includes(name)));
}
