// Section 7 of the contract: the admin listener.
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { test } from 'node:test';
import { exchange, outcomes, TEXT } from '../support/bytes.ts';
import { basic, send, statusesOf } from '../support/client.ts';
import { Page, promtool, WITHOUT_PROMTOOL } from '../support/metrics.ts';
import { newDatabase, PASSWORD, STORES, USER } from '../support/program.ts';
import { create, lockWrites, pathOf, serve } from '../support/service.ts';
import { until } from '../support/until.ts';

const REQUESTS = 'http_server_request_duration_seconds_count';
const ACTIVE = 'http_server_active_requests';
const JSON_TYPE = { 'content-type': 'application/json' };

const program = await serve();

for (const [path, type, body] of [
  ['/live', TEXT, /^live\n$/],
  ['/ready', TEXT, /^ready\n$/],
  ['/metrics', 'text/plain; version=0.0.4; charset=utf-8', /^# HELP [\s\S]*\n$/],
] as const) {
  test(`7.1, 7.2 and 7.3 GET ${path} returns 200 with any query, HEAD too, and POST 405`, async () => {
    for (const method of ['GET', 'HEAD']) {
      const response = await send(`${program.adminUrl}${path}?of=a+scraper`, { method });
      assert.equal(response.status, 200);
      assert.equal(response.headers.get('content-type'), type);
      assert.equal(response.headers.get('cache-control'), 'no-store');
      assert.ok(!response.headers.has('x-request-id'));
      assert.equal(response.headers.get('x-content-type-options'), 'nosniff'); // 2.2
      assert.match(response.body, method === 'HEAD' ? /^$/ : body);
    }
    const refused = await send(program.adminUrl + path, { method: 'POST' });
    const found = ['allow', 'cache-control'].map((name) => refused.headers.get(name));
    const expected = ['GET, HEAD', 'no-store', 'Method Not Allowed', 405];
    assert.deepEqual([...found, refused.body, refused.status], expected);
    assert.equal((await send(program.url + path)).status, 404);
    // Without `send`: openapi.json declares only the API's responses.
    assert.equal((await fetch(`${program.adminUrl}/users`)).status, 404);
  });
}

test('7.1, 7.2 and 7.3 the admin listener checks hosts and codings as the API does', async () => {
  for (const [bytes, status] of [
    ['NONSENSE /live HTTP/1.1\r\n\r\n', 400],
    ['GET /live HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n', 400],
    ['GET /live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n', 400],
    ['GET HTTP://x/live?a HTTP/1.0\r\n\r\n', 200],
  ] as const) {
    const responses = await exchange(program.adminUrl, bytes);
    assert.deepEqual(outcomes(responses), [`${status} close`], bytes);
    assert.match([...responses[0]!.headers.values(), responses[0]!.body].join(), /,nosniff,\w/);
  }
});

test('7.3 the counts equal the number of requests sent, and no label has a value from a request; none of the admin listener is logged', async () => {
  await using program = await serve();
  const sent: string[] = [];
  const user = { name: 'NEEDLE', email: 'needle@example.com' };
  for (const [method, path, route, status, times, init = {}] of [
    ['GET', '/?needle=needle', '/', 200, 30],
    ['HEAD', '/', '/', 200, 4],
    ['OPTIONS', '/', '/', 204, 3],
    ['PROPFIND', '/', '/', 405, 3],
    ['GET', '/needle/here', '', 404, 5, { 'x-request-id': 'NEEDLE' }],
    ['GET', '/%zz', '', 400, 2],
    ['GET', '/protected', '/protected', 401, 2, { authorization: basic(USER, 'NEEDLE') }],
    ['POST', '/token', '/token', 200, 1, JSON_TYPE],
    ['POST', '/users', '/users', 201, 1, JSON_TYPE],
    ['POST', '/users', '/users', 400, 7, JSON_TYPE],
    ['POST', '/users', '/users', 415, 2, { 'content-type': 'text/csv' }],
    ['GET', '/users/1', '/users/{id}', 200, 20],
    ['GET', '/users/needle', '/users/{id}', 404, 1],
  ] as const) {
    const json = JSON.stringify(path === '/token' ? { id: USER, pw: PASSWORD } : user);
    const body = method === 'POST' ? json : undefined;
    const requests = Array.from({ length: times }, () =>
      send(program.url + path, { method, headers: init as Record<string, string>, body }),
    );
    const statuses = (await Promise.all(requests)).map((response) => response.status);
    assert.deepEqual(statuses, Array(times).fill(status), `${method} ${path}`);
    const known = method === 'PROPFIND' ? '_OTHER' : method;
    sent.push(`${known} ${route && `${route} `}${status} ${times}`);
  }
  for (const [method, bytes, status] of [
    ['_OTHER', 'NEEDLE /needle HTTP/1.1\r\n\r\n', 400],
    ['_OTHER', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'y'.repeat(20_000)}\r\n\r\n`, 431],
    ['_OTHER', 'CONNECT needle:1 HTTP/1.1\r\n\r\n', 405],
    ['POST', 'POST / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    ['OPTIONS', 'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 204],
  ] as const) {
    assert.deepEqual(statusesOf(await exchange(program.url, bytes)), [status]);
    sent.push(`${method} ${status} 1`);
  }
  const page = await Page.of(program.adminUrl);
  const counted = Object.entries(page.series(REQUESTS)).map(([labels, count]) => {
    const values = labels.matchAll(/(?:method|route|code)="(.*?)"/g).map(([, value]) => value);
    return [...values, count].join(' ');
  });
  assert.deepEqual(counted.sort(), sent.sort());
  assert.deepEqual(new Set(Object.values(page.series(ACTIVE))), new Set([0]));
  assert.doesNotMatch(page.text, RegExp(`needle|eyJ|127[.]0[.]0[.]1|${PASSWORD}|${USER}`, 'i'));
  const total = Object.values(page.series(REQUESTS)).reduce((sum, count) => sum + count);
  await program.until(({ log }) => log.length > total);
  assert.equal(program.log.length, 1 + total, 'admin requests are not logged');
});

for (const store of STORES) {
  test(`7.3 promtool accepts the page (${store})`, { skip: WITHOUT_PROMTOOL }, async () => {
    await using program = await serve({ DATABASE_URL: await newDatabase(store) });
    for (const path of ['/', '/users', '/users/1', '/x', '/']) {
      assert.equal(promtool(['check', 'metrics'], (await Page.of(program.adminUrl)).text), '');
      await send(program.url + path);
    }
  });

  test(`7.3 the page has the version, and metrics of its own for each store (${store})`, async () => {
    const url = await newDatabase(store);
    await using program = await serve({ DATABASE_URL: url, DATABASE_POOL_SIZE: '3' });
    await create(program);
    const page = await Page.of(program.adminUrl);
    const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
    assert.deepEqual(page.series('build_info'), { [`version="${version}"`]: 1 });
    const walBytes = store === 'sqlite' ? statSync(`${pathOf(url)}-wal`).size : undefined;
    assert.notEqual(walBytes, 0);
    assert.equal(page.values.get('sqlite_wal_size_bytes'), walBytes);
    assert.equal(page.values.get('db_client_connection_max'), store === 'sqlite' ? undefined : 3);
  });
}

test('1 DATABASE_POOL_SIZE: connections in use, calls that wait for one, and active requests are counted (7.3)', async () => {
  const url = await newDatabase('postgres');
  const settings = { DATABASE_POOL_SIZE: '1', DATABASE_TIMEOUT_MS: '60000' };
  await using program = await serve({ DATABASE_URL: url, ...settings });
  /** The connections that are idle and in use, the calls that wait, and the active requests. */
  const counts = async () => {
    const page = await Page.of(program.adminUrl);
    const waiting = page.values.get('db_client_connection_pending_requests');
    const active = page.series(ACTIVE)['http_request_method="DELETE"'];
    return [...Object.values(page.series('db_client_connections')), waiting, active];
  };
  assert.deepEqual(await counts(), [1, 0, 0, 0]);
  await using lock = await lockWrites(url);
  const requests = [];
  for (let id = 1; id < 6; id++) {
    requests.push(send(`${program.url}/users/${id}`, { method: 'DELETE' }));
    if (id === 1) await until(async () => (await counts())[1] === 1);
  }
  await until(async () => (await counts())[2] === 4);
  assert.deepEqual(await counts(), [0, 1, 4, 5]);
  await lock.release();
  await Promise.all(requests);
  assert.deepEqual(await counts(), [1, 0, 0, 0]);
});
