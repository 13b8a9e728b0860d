// Section 7 of the contract: the admin listener.
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { open, TEXT } from '../support/bytes.ts';
import { basic, raw, send } from '../support/client.ts';
import { Page, promtool, WITHOUT_PROMTOOL } from '../support/metrics.ts';
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

const REQUESTS = 'http_server_request_duration_seconds';
const ACTIVE = 'http_server_active_requests';
const OPERATIONS = 'db_client_operation_duration_seconds';
const SYSTEMS = { sqlite: 'sqlite', postgres: 'postgresql' };
const TIMEOUT_MS = 1_000;
const JSON_TYPE = { 'content-type': 'application/json' };

describe('7 the admin listener', { timeout: 300_000 }, () => {
  describe('pages', () => {
    let program: Program;
    before(async () => {
      program = await start();
      await ready(program);
    });
    after(() => program?.[Symbol.asyncDispose]());

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
  });

  test('7.1, 7.2 and 7.3 input that is not a request returns 400 and closes the connection', async () => {
    await using program = await start();
    await using client = await open(program.adminUrl);
    await client.write('no request\r\n\r\n');
    await client.closed;
    const text = client.text();
    assert.match(text, /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*\r\n\r\nBad Request$/);
    assert.match(text, /^Connection: close\r$/m);
  });

  test('7.1 and 7.2 during a stop /live returns 200, and /ready 503 with the reason', async () => {
    await using program = await start({ SHUTDOWN_DELAY_MS: '60000' });
    program.process.kill('SIGTERM');
    await program.logged('stopping');
    const response = await send(`${program.adminUrl}/ready`);
    assert.deepEqual([response.status, response.body], [503, 'not ready: stopping\n']);
    assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
  });

  test('7.3 the counts equal the number of requests sent', async () => {
    await using program = await start();
    await ready(program);
    const { url } = program;
    const sent: Record<string, number> = {};
    const count = (method: string, route: string, status: number, times: number) => {
      const path = route && `http_route="${route}",`;
      const labels = `http_request_method="${method}",${path}http_response_status_code="${status}"`;
      sent[labels] = (sent[labels] ?? 0) + times;
    };
    const user = { name: 'Ada', email: 'ada@example.com' };
    for (const [method, path, route, status, times, init = {}] of [
      ['GET', '/?a=b', '/', 200, 30],
      ['HEAD', '/', '/', 200, 4],
      ['OPTIONS', '/', '/', 204, 3],
      ['PROPFIND', '/', '/', 405, 3],
      ['GET', '/nothing/here', '', 404, 5],
      ['GET', '/%zz', '', 400, 2],
      ['GET', '/protected', '/protected', 401, 2, { authorization: basic(USER, 'wrong') }],
      ['POST', '/users', '/users', 201, 1, JSON_TYPE],
      ['POST', '/users', '/users', 400, 7, JSON_TYPE],
      ['POST', '/users', '/users', 415, 2, { 'content-type': 'text/csv' }],
      ['GET', '/users/1', '/users/{id}', 200, 20],
      ['GET', '/users/x', '/users/{id}', 404, 1],
    ] as const) {
      const body = method === 'POST' ? JSON.stringify(user) : undefined;
      const requests = Array.from({ length: times }, () =>
        send(`${url}${path}`, { method, headers: init as Record<string, string>, body }),
      );
      const statuses = (await Promise.all(requests)).map((response) => response.status);
      assert.deepEqual(statuses, Array(times).fill(status), `${method} ${path}`);
      count(method === 'PROPFIND' ? '_OTHER' : method, route, status, times);
    }
    for (const [method, bytes, status] of [
      ['_OTHER', 'no request\r\n\r\n', 400],
      ['_OTHER', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'y'.repeat(20_000)}\r\n\r\n`, 431],
      ['_OTHER', 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n', 405],
      ['GET', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
      ['OPTIONS', 'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 204],
    ] as const) {
      assert.match(await raw(url, bytes), new RegExp(`^HTTP/1.1 ${status} `));
      count(method, '', status, 1);
    }
    const page = await Page.of(program.adminUrl);
    assert.deepEqual(page.series(`${REQUESTS}_count`), sent);
    const active = Object.values(page.series(ACTIVE));
    assert.ok(active.length > 0);
    assert.deepEqual(active, Array(active.length).fill(0));
  });

  test('7.3 a request is active until its response, or until its client disconnects, and counts once', async () => {
    await using program = await start();
    const label = 'http_request_method="POST"';
    const active = async () => (await Page.of(program.adminUrl)).series(ACTIVE)[label];
    const head = 'POST /token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
    assert.equal(await active(), 0);
    for (const isFinished of [true, false]) {
      await using client = await open(program.url);
      await client.write(`${head}Content-Length: 2\r\n\r\n`);
      await until(async () => (await active()) === 1);
      if (isFinished) await client.write('{}');
      else client.socket.destroy();
      await until(async () => (await active()) === 0);
    }
    const counts = (await Page.of(program.adminUrl)).series(`${REQUESTS}_count`);
    assert.equal(
      Object.values(counts).reduce((sum, count) => sum + count),
      2,
    );
  });

  test('7.3 no label has a value from a request, except those of the route table', async () => {
    await using program = await start();
    await ready(program);
    const body = { name: 'NEEDLE', email: 'needle@example.com' };
    const headers = { authorization: basic(USER, 'NEEDLE'), 'x-request-id': 'NEEDLE' };
    await send(`${program.url}/users`, { method: 'POST', body, headers });
    await send(`${program.url}/needle?needle=needle`, { headers });
    await send(`${program.url}/users/needle?needle`, { headers });
    await send(`${program.url}/protected`, { headers });
    await send(`${program.url}/`, { method: 'NEEDLE', headers }).catch(() => {});
    await raw(program.url, 'NEEDLE /needle HTTP/1.1\r\n\r\n');
    await send(`${program.url}/token`, { method: 'POST', body: { id: USER, pw: PASSWORD } });
    const { text } = await Page.of(program.adminUrl);
    assert.match(text, /http_route="\/users\/\{id\}"/);
    assert.doesNotMatch(text, /needle|eyJ|127\.0\.0\.1/i);
    for (const secret of [PASSWORD, USER]) assert.ok(!text.includes(secret));
  });
});

for (const store of STORES) {
  describe(`7 the store (${store})`, { timeout: 300_000 }, () => {
    test('7.1 and 7.2 without the store /live returns 200, and /ready 503 with the reason', async () => {
      const url = await newDatabase(store);
      await using program = await start({ DATABASE_URL: url });
      await ready(program);
      await takeAway(url, store);
      let response = await send(`${program.adminUrl}/ready`);
      await until(async () => {
        response = await send(`${program.adminUrl}/ready`);
        return response.status !== 200;
      });
      assert.equal(response.status, 503);
      const reason = store === 'sqlite' ? 'no such table: users' : '[^\n]+';
      assert.match(response.body, new RegExp(`^not ready: store unavailable: ${reason}\n$`));
      assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
    });

    test('7.3 store operations are counted by name, and a taken email is not a failure', async () => {
      await using program = await start({ DATABASE_URL: await newDatabase(store) });
      await ready(program);
      const earlier = await operations(program, store);
      const users = `${program.url}/users`;
      const body = { name: 'Ada', email: 'ada@example.com' };
      assert.equal((await send(users, { method: 'POST', body })).status, 201);
      for (let i = 0; i < 2; i++) {
        assert.equal((await send(users, { method: 'POST', body })).status, 400);
      }
      for (let i = 0; i < 4; i++) assert.equal((await send(`${users}/1`)).status, 200);
      assert.equal((await send(`${users}?email=ada@example.com`)).status, 200);
      assert.equal((await send(`${users}?limit=5`)).status, 200);
      assert.equal((await send(`${users}/1`, { method: 'PUT', body })).status, 200);
      assert.equal((await send(`${users}/1`, { method: 'DELETE' })).status, 200);
      assert.equal((await send(`${program.adminUrl}/ready`)).status, 200);
      assert.deepEqual(await operations(program, store), {
        ...earlier,
        create: 3,
        find: 4,
        findByEmail: 1,
        list: 1,
        update: 1,
        delete: 1,
        ping: earlier.ping! + 1,
      });
    });

    test('7.3 a store failure is counted by operation and error type', async () => {
      const url = await newDatabase(store);
      await using program = await start({
        DATABASE_URL: url,
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      });
      await ready(program);
      const users = `${program.url}/users`;
      const body = { name: 'Ada', email: 'ada@example.com' };
      const unlock = await lock(url, store);
      assert.equal((await send(users, { method: 'POST', body })).status, 500);
      await unlock();
      await execute(url, store, 'drop table users');
      for (let i = 0; i < 2; i++) assert.equal((await send(`${users}/1`)).status, 500);
      const { ping: _, 'ping unavailable': __, ...counted } = await operations(program, store);
      assert.deepEqual(counted, { 'create timeout': 1, 'find unavailable': 2 });
      const counts = (await Page.of(program.adminUrl)).series(`${REQUESTS}_count`);
      assert.deepEqual(counts, {
        'http_request_method="POST",http_route="/users",http_response_status_code="500"': 1,
        'http_request_method="GET",http_route="/users/{id}",http_response_status_code="500"': 2,
      });
    });

    test('7.3 the page has the version, and metrics of its own for each store', async () => {
      const url = await newDatabase(store);
      await using program = await start({ DATABASE_URL: url, DATABASE_POOL_SIZE: '3' });
      await ready(program);
      const body = { name: 'Ada', email: 'ada@example.com' };
      await send(`${program.url}/users`, { method: 'POST', body });
      const connections = { sqlite: 0, postgres: 3 }[store];
      const total = async () => {
        const states = (await Page.of(program.adminUrl)).series('db_client_connections');
        return Object.values(states).reduce((sum, value) => sum + value, 0);
      };
      await until(async () => (await total()) === connections);
      const page = await Page.of(program.adminUrl);
      const { version } = JSON.parse(
        readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
      );
      assert.deepEqual(page.series('build_info'), { [`version="${version}"`]: 1 });
      const walBytes =
        store === 'sqlite' ? statSync(`${url.slice('sqlite:'.length)}-wal`).size : undefined;
      assert.notEqual(walBytes, 0);
      assert.equal(page.values.get('sqlite_wal_size_bytes'), walBytes);
      assert.equal(page.values.get('db_client_connection_max'), connections || undefined);
      for (const name of [
        ...['process_memory_usage_bytes', 'process_start_time_seconds', 'log_dropped_lines_total'],
        ...['nodejs_heap_size_used_bytes', 'nodejs_eventloop_delay_p99_seconds'],
        ...['process_cpu_time_seconds_total', 'nodejs_gc_duration_seconds_count'],
        ...(process.platform === 'linux' ? ['process_open_fds'] : []),
      ]) {
        await until(async () => (await Page.of(program.adminUrl)).names.has(name));
      }
    });

    test('7.3 calls that wait for a connection are counted', {
      skip: store === 'sqlite',
    }, async () => {
      const url = await newDatabase(store);
      const settings = { DATABASE_POOL_SIZE: '1', DATABASE_TIMEOUT_MS: '60000' };
      await using program = await start({ DATABASE_URL: url, ...settings });
      await ready(program);
      const waiting = async () => {
        const { values } = await Page.of(program.adminUrl);
        return values.get('db_client_connection_pending_requests');
      };
      assert.equal(await waiting(), 0);
      const unlock = await lock(url, store);
      const requests = [send(`${program.url}/users/1`)];
      const used =
        'db_client_connections{db_system_name="postgresql",db_client_connection_state="used"}';
      await until(async () => (await Page.of(program.adminUrl)).values.get(used) === 1);
      for (let id = 2; id < 6; id++) requests.push(send(`${program.url}/users/${id}`));
      await until(async () => (await waiting()) === 4);
      await unlock();
      await Promise.all(requests);
      assert.equal(await waiting(), 0);
    });

    test('7.3 promtool finds no problem', { skip: WITHOUT_PROMTOOL }, async () => {
      await using program = await start({ DATABASE_URL: await newDatabase(store) });
      const fresh = await Page.of(program.adminUrl);
      assert.deepEqual(promtool(['check', 'metrics'], fresh.text), { status: 0, output: '' });
      await ready(program);
      await Promise.all(['/', '/users', '/users/1', '/x'].map((path) => send(program.url + path)));
      const used = await Page.of(program.adminUrl);
      assert.deepEqual(promtool(['check', 'metrics'], used.text), { status: 0, output: '' });
      const broken = used.text.replaceAll('_total', '');
      assert.match(promtool(['check', 'metrics'], broken).output, /process_cpu_time_seconds /);
    });
  });
}

/** Returns counts by operation. Failures have the key `NAME FAILURE`. */
async function operations(program: Program, store: StoreName): Promise<Record<string, number>> {
  const series = (await Page.of(program.adminUrl)).series(`${OPERATIONS}_count`);
  const labels = `db_system_name="${SYSTEMS[store]}",db_operation_name="(\\w+)"(?:,error_type="(\\w+)")?`;
  return Object.fromEntries(
    Object.entries(series).map(([text, value]) => {
      const [, name, failure] = new RegExp(`^${labels}$`).exec(text)!;
      return [failure ? `${name} ${failure}` : name, value];
    }),
  );
}

async function ready(program: Program): Promise<void> {
  await until(async () => (await send(`${program.adminUrl}/ready`)).status === 200);
}

async function execute(url: string, store: StoreName, ...statements: string[]): Promise<void> {
  if (store === 'sqlite') {
    using db = new DatabaseSync(url.slice('sqlite:'.length));
    for (const statement of statements) db.exec(statement);
    return;
  }
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  for (const statement of statements) await sql.unsafe(statement);
  await sql.end();
}

/** Makes the store fail. */
function takeAway(url: string, store: StoreName): Promise<void> {
  if (store === 'sqlite') return execute(url, store, 'drop table users');
  const name = new URL(url).pathname.slice(1);
  return execute(
    process.env.TEST_DATABASE_URL!,
    store,
    `alter database ${name} allow_connections false`,
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`,
  );
}

/** Blocks writers. @returns a function that releases them */
async function lock(url: string, store: StoreName): Promise<() => Promise<void>> {
  if (store === 'sqlite') {
    const db = new DatabaseSync(url.slice('sqlite:'.length));
    db.exec('begin immediate');
    return async () => db.close();
  }
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  await sql.unsafe('begin; lock table users in access exclusive mode');
  return () => sql.end();
}
