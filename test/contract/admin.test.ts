// Section 7 of the contract: the admin listener.
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import { open, outcomes, request, TEXT } from '../support/bytes.ts';
import { basic, raw, responsesIn, send } from '../support/client.ts';
import { Page, promtool, WITHOUT_PROMTOOL } from '../support/metrics.ts';
import { newDatabase, PASSWORD, type Program, STORES, start, USER } from '../support/program.ts';
import { create, execute, lockWrites, pathOf, serve } from '../support/service.ts';
import { until } from '../support/until.ts';

const REQUESTS = 'http_server_request_duration_seconds_count';
const ACTIVE = 'http_server_active_requests';
const OPERATIONS = 'db_client_operation_duration_seconds_count';
const JSON_TYPE = { 'content-type': 'application/json' };

describe('7 the admin listener', () => {
  let program: Program;
  before(async () => {
    program = await serve();
  });

  for (const [path, type, body] of [
    ['/live', TEXT, /^live\n$/],
    ['/ready', TEXT, /^ready\n$/],
    ['/metrics', 'text/plain; version=0.0.4; charset=utf-8', /^# HELP [\s\S]*\n$/],
  ] as const) {
    test(`7.1, 7.2 and 7.3 GET ${path} returns 200 with any query, HEAD too, and POST 405`, async () => {
      for (const [method, query] of [
        ['GET', ''],
        ['GET', '?of=a+scraper'],
        ['HEAD', ''],
      ] as const) {
        const response = await send(program.adminUrl + path + query, { method });
        assert.equal(response.status, 200);
        assert.equal(response.headers.get('content-type'), type);
        assert.equal(response.headers.get('cache-control'), 'no-store');
        assert.match(response.body, method === 'HEAD' ? /^$/ : body);
      }
      const refused = await send(program.adminUrl + path, { method: 'POST' });
      assert.deepEqual([refused.status, refused.body], [405, 'Method Not Allowed']);
      assert.equal(refused.headers.get('allow'), 'GET, HEAD');
      assert.equal((await send(program.url + path)).status, 404);
      // Without `send`: openapi.json declares only the API's responses.
      assert.equal((await fetch(`${program.adminUrl}/users`)).status, 404);
    });
  }

  test('7.1, 7.2 and 7.3 the admin listener checks versions, hosts and codings as the API does', async () => {
    for (const [bytes, status] of [
      ['no request\r\n\r\n', 400],
      ['GET /live HTTP/2.0\r\nHost: x\r\n\r\n', 505],
      ['GET /live HTTP/1.1\r\n\r\n', 400],
      ['GET /live HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n', 400],
      ['GET /live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n', 400],
      ['GET /live HTTP/1.0\r\n\r\n', 200],
    ] as const) {
      await using client = await open(program.adminUrl);
      await client.write(bytes);
      await client.closed;
      const responses = responsesIn(client.text());
      assert.deepEqual(outcomes(responses), [`${status} close`], bytes);
      assert.match(responses[0]!.body, /^\w/);
    }
  });

  test('7.3 the counts equal the number of requests sent, and no label has a value from a request', async () => {
    await using program = await serve();
    const sent: Record<string, number> = {};
    const count = (method: string, route: string, status: number, times: number) => {
      const path = route && `http_route="${route}",`;
      const labels = `http_request_method="${method}",${path}http_response_status_code="${status}"`;
      sent[labels] = (sent[labels] ?? 0) + times;
    };
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
      count(method === 'PROPFIND' ? '_OTHER' : method, route, status, times);
    }
    for (const [method, bytes, status] of [
      ['_OTHER', 'NEEDLE /needle HTTP/1.1\r\n\r\n', 400],
      ['_OTHER', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'y'.repeat(20_000)}\r\n\r\n`, 431],
      ['_OTHER', 'CONNECT needle:1 HTTP/1.1\r\nHost: x\r\n\r\n', 405],
      ['GET', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
      ['OPTIONS', 'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 204],
    ] as const) {
      assert.match(await raw(program.url, bytes), new RegExp(`^HTTP/1.1 ${status} `));
      count(method, '', status, 1);
    }
    const page = await Page.of(program.adminUrl);
    assert.deepEqual(page.series(REQUESTS), sent);
    assert.deepEqual(new Set(Object.values(page.series(ACTIVE))), new Set([0]));
    assert.doesNotMatch(page.text, /needle|eyJ|127\.0\.0\.1/i);
    for (const secret of [PASSWORD, USER]) assert.ok(!page.text.includes(secret));
  });

  test('7.3 a request is active until its response, or until its client disconnects, and counts once', async () => {
    await using program = await start();
    const active = async () =>
      (await Page.of(program.adminUrl)).series(ACTIVE)['http_request_method="POST"'];
    const bytes = request('POST /token', '{}');
    assert.equal(await active(), 0);
    for (const isFinished of [true, false]) {
      await using client = await open(program.url);
      await client.write(bytes.slice(0, -2));
      await until(async () => (await active()) === 1);
      if (isFinished) await client.write('{}');
      else client.socket.destroy();
      await until(async () => (await active()) === 0);
    }
    assert.deepEqual(Object.values((await Page.of(program.adminUrl)).series(REQUESTS)), [1, 1]);
  });
});

for (const store of STORES) {
  describe(`7 the store (${store})`, () => {
    test('7.1, 7.2 and 7.3 without the store /live returns 200, /ready 503 with the reason, and failures are counted by type', async () => {
      const url = await newDatabase(store);
      await using program = await serve({ DATABASE_URL: url, DATABASE_TIMEOUT_MS: '1000' });
      const users = `${program.url}/users`;
      const lock = await lockWrites(url);
      const init = { method: 'POST', body: { name: 'Ada', email: 'ada@example.com' } };
      assert.equal((await send(users, init)).status, 500);
      await lock.release();
      await execute(url, 'alter table users rename column name to title');
      for (let i = 0; i < 2; i++) assert.equal((await send(`${users}/1`)).status, 500);
      const { status, body } = await send(`${program.adminUrl}/ready`);
      const why = { sqlite: 'no such column: name', postgres: 'column "name" does not exist' }[
        store
      ];
      assert.deepEqual([status, body], [503, `not ready: store unavailable: ${why}\n`]);
      assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
      const page = await Page.of(program.adminUrl);
      const system = { sqlite: 'sqlite', postgres: 'postgresql' }[store];
      const failures = (name: string, type: string) =>
        page.series(OPERATIONS)[
          `db_system_name="${system}",db_operation_name="${name}",error_type="${type}"`
        ];
      assert.deepEqual([failures('create', 'timeout'), failures('find', 'unavailable')], [1, 2]);
      assert.deepEqual(page.series(REQUESTS), {
        'http_request_method="POST",http_route="/users",http_response_status_code="500"': 1,
        'http_request_method="GET",http_route="/users/{id}",http_response_status_code="500"': 2,
      });
    });

    test('7.3 the page has the version, and metrics of its own for each store', async () => {
      const url = await newDatabase(store);
      await using program = await serve({ DATABASE_URL: url, DATABASE_POOL_SIZE: '3' });
      await create(program);
      const connections = { sqlite: 0, postgres: 3 }[store];
      let page!: Page;
      await until(async () => {
        page = await Page.of(program.adminUrl);
        const counts = Object.values(page.series('db_client_connections'));
        return counts.reduce((sum, count) => sum + count, 0) === connections;
      });
      const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
      assert.deepEqual(page.series('build_info'), { [`version="${version}"`]: 1 });
      const walBytes = store === 'sqlite' ? statSync(`${pathOf(url)}-wal`).size : undefined;
      assert.notEqual(walBytes, 0);
      assert.equal(page.values.get('sqlite_wal_size_bytes'), walBytes);
      assert.equal(page.values.get('db_client_connection_max'), connections || undefined);
    });

    test('7.3 promtool finds no problem', { skip: WITHOUT_PROMTOOL }, async () => {
      await using program = await start({ DATABASE_URL: await newDatabase(store) });
      for (const path of ['/live', '/', '/users', '/users/1', '/x']) {
        if (path !== '/live') await send(program.url + path);
        const { text } = await Page.of(program.adminUrl);
        assert.deepEqual(promtool(['check', 'metrics'], text), { status: 0, output: '' });
      }
    });
  });
}

test('1 DATABASE_POOL_SIZE: connections in use and calls that wait for one are counted (7.3)', async () => {
  const url = await newDatabase('postgres');
  const settings = { DATABASE_POOL_SIZE: '1', DATABASE_TIMEOUT_MS: '60000' };
  await using program = await serve({ DATABASE_URL: url, ...settings });
  const value = async (name: string) => (await Page.of(program.adminUrl)).values.get(name);
  const waiting = () => value('db_client_connection_pending_requests');
  const used =
    'db_client_connections{db_system_name="postgresql",db_client_connection_state="used"}';
  assert.deepEqual([await value(used), await waiting()], [0, 0]);
  const lock = await lockWrites(url);
  const requests = [];
  for (let id = 1; id < 6; id++) {
    requests.push(send(`${program.url}/users/${id}`, { method: 'DELETE' }));
    if (id === 1) await until(async () => (await value(used)) === 1);
  }
  await until(async () => (await waiting()) === 4);
  await lock.release();
  await Promise.all(requests);
  assert.equal(await waiting(), 0);
});
