// Section 2 of the contract: the order of checks, paths, methods and queries. One case of each class:
// the vectors of targets are in test/http/router.test.ts, those of queries in test/vectors/users.ts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchange, request } from '../support/bytes.ts';
import { token } from '../support/login.ts';
import { start } from '../support/program.ts';

const LARGE = 'x'.repeat(16_385);
const STALE = 'If-Match: "x"\r\n';
const BOTH = `${STALE}If-Match: "1-1"\r\n`;
const TYPE = 'Content-Type: application/json\r\n';
const TAKEN = 'taken+1@example.com';

/** The methods of paths, one of each kind. A path with GET has HEAD, and every path has OPTIONS. */
const METHODS = {
  '/': 'GET, HEAD, OPTIONS',
  '/token': 'POST, OPTIONS',
  '/users': 'GET, HEAD, POST, OPTIONS',
  '/users/1': 'GET, HEAD, PUT, PATCH, DELETE, OPTIONS',
};

type Options = { readonly type?: string; readonly fields?: string };

/** Requests with faults, with PROTECT_USERS. Of two, the earlier check sets the status. */
const ORDER: [why: string, status: number, route: string, body: string, options?: Options][] = [
  ['404 path before 405', 404, 'DELETE /nowhere', ''],
  ['404 of * with another method than OPTIONS', 404, 'GET *', ''],
  ['405 before 401', 405, 'PUT /users', ''],
  ['OPTIONS before 413', 204, 'OPTIONS /users', LARGE, { type: '' }],
  ['401 before 413', 401, 'POST /users', LARGE],
  ['413 before 415', 413, 'POST /token', LARGE, { type: 'text/plain' }],
  ['415 before 400 syntax', 415, 'POST /token', '{', { type: 'text/plain' }],
  ['415 of two types, also if both are the same (2.8)', 415, 'POST /token', '{}', { fields: TYPE }],
  ['400 syntax before 404 user', 400, 'PUT /users/999999', '{'],
  ['400 fields before 404 user', 400, 'PUT /users/999999', '{"name":""}'],
  ['400 fields before 412', 400, 'PATCH /users/1', '{"name":1}', { fields: STALE }],
  ['404 user before 412', 404, 'PATCH /users/999999', '{}', { fields: STALE }],
  ['404 user before 412, DELETE', 404, 'DELETE /users/999999', '', { fields: STALE }],
  ['412 before 400 taken email', 412, 'PATCH /users/1', `{"email":"${TAKEN}"}`, { fields: STALE }],
  ['two lines of If-Match are one list (4.8)', 200, 'PATCH /users/1', '{}', { fields: BOTH }],
  ['400 taken email at the end', 400, 'PATCH /users/1', `{"email":"${TAKEN}"}`],
  ['404 path before 400 query', 404, 'OPTIONS /nowhere?%zz', ''],
  ['405 before 400 query', 405, 'PUT /users?%zz', ''],
  ['OPTIONS before 400 query', 204, 'OPTIONS /users?%zz', ''],
  ['401 before 400 query', 401, 'GET /notes?%zz', ''],
  ['415 before 400 query', 415, 'POST /token?%zz', 'x', { type: 'text/plain' }],
  ['400 query before 404 user', 400, 'DELETE /users/999999?a=%FF', ''],
  ['400 query that no handler reads', 400, 'HEAD /docs?x=%E2&y=%82%AC', ''],
];

const program = await start({ PROTECT_USERS: 'true' });
const bearer = `Authorization: Bearer ${await token(program)}\r\n`;
for (const [i, email] of ['ann@example.com', TAKEN].entries()) {
  const body = JSON.stringify({ name: `User ${i + 1}`, email });
  assert.equal((await ask('POST /users', { fields: bearer }, body)).status, 201);
}
const one = (await ask('GET /users/1', { fields: bearer })).body; // user 1 as JSON

/** Sends a request with exactly that target, which `fetch` would normalize. */
async function ask(route: string, { type = 'application/json', fields = '' } = {}, body = '') {
  const options = { type: body && type, fields: `Connection: close\r\n${fields}` };
  const [response, ...others] = await exchange(program.url, request(route, body, options));
  assert.deepEqual(others, []);
  return response!;
}

test('2.5 2.7 the earlier of two checks sets the status', async () => {
  for (const [why, status, route, body, { type, fields = '' } = {}] of ORDER) {
    const access = status === 401 ? '' : bearer;
    const response = await ask(route, { ...(type && { type }), fields: fields + access }, body);
    assert.equal(response.status, status, `${why}: ${response.body}`);
    assert.equal(response.headers.get('www-authenticate') !== null, status === 401);
    assert.equal(response.headers.get('allow') !== null, [204, 405].includes(status));
  }
  assert.equal((await ask('GET /users/1', { fields: bearer })).body, one);
});

for (const [path, methods] of Object.entries(METHODS)) {
  test(`2.2 2.6 ${path} has ${methods}: 405 with Allow for others, 204 with Allow and Accept-Patch for OPTIONS`, async () => {
    const all = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'PROPFIND', 'LOCK'];
    const others = all.filter((method) => !methods.split(', ').includes(method));
    assert.ok(others.length >= 4);
    for (const method of others) {
      const { status, headers, body } = await ask(`${method} ${path}`);
      assert.equal(status, 405, method);
      assert.equal(headers.get('allow'), methods);
      assert.equal(body, method === 'HEAD' ? '' : 'Method Not Allowed');
    }
    const { status, headers, body } = await ask(`OPTIONS ${path}`);
    assert.deepEqual([status, body], [204, '']);
    const framing = ['content-length', 'transfer-encoding', 'content-type'];
    assert.ok(!framing.some((name) => headers.has(name)));
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
    assert.equal(headers.get('allow'), methods);
    const patch = methods.includes('PATCH') && 'application/json, application/merge-patch+json';
    assert.equal(headers.get('accept-patch') ?? false, patch);
  });
}

test('2.6 OPTIONS * returns 204 with the methods of all paths', async () => {
  const { status, headers, body } = await ask('OPTIONS *');
  assert.deepEqual([status, body], [204, '']);
  assert.equal(headers.get('allow'), 'GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE');
});
