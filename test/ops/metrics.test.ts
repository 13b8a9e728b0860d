// The metrics of requests, store operations and the process.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { cpuUsage, memoryUsage, uptime } from 'node:process';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Metrics } from '../../src/ops/metrics.ts';
import { routes } from '../../src/routes.ts';
import type { UserStore } from '../../src/user.ts';
import { newUser } from '../support/users.ts';

type Pool = ConstructorParameters<typeof Metrics>[2];

/** The connections of a listener without any. */
const API = {
  maxConnections: 10,
  heldBytes: 0,
  budgetBytes: 99,
  states: { idle: 0 },
  closed: { room: 0 },
};

function metricsOf(t: TestContext, pool: Pool = {}): Metrics {
  const metrics = new Metrics(routes, pool.connections ? 'postgres' : 'sqlite', pool);
  t.after(() => metrics.close());
  return metrics;
}

/** Returns the lines that begin with the name. */
function lines(metrics: Metrics, name: string): string[] {
  return metrics
    .exposition(API, 0)
    .split('\n')
    .filter((line) => line.startsWith(name));
}

const COUNT = 'http_server_request_duration_seconds_count';
const ACTIVE = 'http_server_active_requests';
const DURATION = 'db_client_operation_duration_seconds';

describe('requests', () => {
  for (const { why, responded, labels } of [
    {
      why: 'a route is its pattern',
      responded: { method: 'GET', route: '/users/{id}', status: 200 },
      labels: 'http_request_method="GET",http_route="/users/{id}",http_response_status_code="200"',
    },
    {
      why: 'HEAD is its own method',
      responded: { method: 'HEAD', route: '/', status: 200 },
      labels: 'http_request_method="HEAD",http_route="/",http_response_status_code="200"',
    },
    {
      why: 'OPTIONS follows from the table too',
      responded: { method: 'OPTIONS', route: '/', status: 204 },
      labels: 'http_request_method="OPTIONS",http_route="/",http_response_status_code="204"',
    },
    {
      why: 'without a route there is no route label',
      responded: { method: 'GET', route: '', status: 404 },
      labels: 'http_request_method="GET",http_response_status_code="404"',
    },
    {
      why: 'a method outside the table is _OTHER',
      responded: { method: 'PROPFIND', route: '/', status: 405 },
      labels: 'http_request_method="_OTHER",http_route="/",http_response_status_code="405"',
    },
    {
      why: 'so is input that is not a request',
      responded: { method: '', route: '', status: 400 },
      labels: 'http_request_method="_OTHER",http_response_status_code="400"',
    },
    {
      why: 'the highest status has its own series',
      responded: { method: 'DELETE', route: '/users/{id}', status: 599 },
      labels:
        'http_request_method="DELETE",http_route="/users/{id}",http_response_status_code="599"',
    },
  ]) {
    test(why, (t) => {
      const metrics = metricsOf(t);
      for (let i = 0; i < 2; i++) {
        metrics.begin(responded.method);
        metrics.end(responded, 1);
      }
      assert.deepEqual(lines(metrics, COUNT), [`${COUNT}{${labels}} 2`]);
    });
  }

  test('milliseconds become seconds', (t) => {
    const metrics = metricsOf(t);
    metrics.end({ method: 'GET', route: '/', status: 200 }, 250);
    const [sum] = lines(metrics, 'http_server_request_duration_seconds_sum');
    assert.match(sum!, / 0\.25$/);
  });

  test('a request is active from its start to its end, by method', (t) => {
    const metrics = metricsOf(t);
    const active = () => lines(metrics, ACTIVE).filter((line) => !line.endsWith(' 0'));
    metrics.begin('GET');
    metrics.begin('GET');
    metrics.begin('BREW');
    assert.deepEqual(active(), [
      `${ACTIVE}{http_request_method="_OTHER"} 1`,
      `${ACTIVE}{http_request_method="GET"} 2`,
    ]);
    metrics.end({ method: 'GET', route: '/', status: 200 }, 1);
    metrics.end({ method: 'BREW', route: '', status: 404 }, 1);
    assert.deepEqual(active(), [`${ACTIVE}{http_request_method="GET"} 1`]);
  });

  test('the number of series does not grow with methods', (t) => {
    const metrics = metricsOf(t);
    for (let i = 0; i < 10_000; i++) {
      metrics.begin(`M${i}`);
      metrics.end({ method: `M${i}`, route: '', status: 404 }, 1);
    }
    assert.equal(lines(metrics, COUNT).length, 1);
    assert.equal(lines(metrics, ACTIVE).length, 8);
  });
});

describe('the store', () => {
  test('an operation has its engine, its name and, if it failed, its error type', async (t) => {
    const metrics = metricsOf(t, { connections: { used: 0, idle: 0, limit: 4, waiting: 0 } });
    const find = async (id: number) => {
      if (id === 0) throw new TypeError();
    };
    const store = metrics.measure({ find, create: find } as unknown as UserStore, 100, () => 0);
    await store.find(1);
    await assert.rejects(store.find(0), TypeError);
    await store.create(newUser({ name: 'Ada', email: 'a@b' }));
    const label = (text: string) => `${DURATION}_count{db_system_name="postgresql",${text}} 1`;
    assert.deepEqual(lines(metrics, `${DURATION}_count`), [
      label('db_operation_name="find"'),
      label('db_operation_name="find",error_type="_OTHER"'),
      label('db_operation_name="create"'),
    ]);
  });

  test('each page counts connections by state', (t) => {
    const pool = { connections: { used: 1, idle: 3, limit: 5, waiting: 7 } };
    const metrics = metricsOf(t, pool);
    const state = (name: string) =>
      `db_client_connections{db_system_name="postgresql",db_client_connection_state="${name}"}`;
    const connections = () => lines(metrics, 'db_client_connections');
    assert.deepEqual(connections(), [`${state('idle')} 3`, `${state('used')} 1`]);
    pool.connections = { used: 4, idle: 0, limit: 5, waiting: 8 };
    assert.deepEqual(connections(), [`${state('idle')} 0`, `${state('used')} 4`]);
    assert.deepEqual(lines(metrics, 'db_client_connection_'), [
      'db_client_connection_max 5',
      'db_client_connection_pending_requests 8',
    ]);
  });

  test('a file that can no longer be read only leaves its size out', (t) => {
    const state = {
      get walBytes(): number {
        throw new Error('EIO');
      },
    };
    assert.deepEqual(lines(metricsOf(t, state), 'sqlite_wal_size_bytes'), []);
    assert.deepEqual(lines(metricsOf(t, { walBytes: 0 }), 'sqlite_'), ['sqlite_wal_size_bytes 0']);
  });

  test('a store without connections and without a file has no lines for them', (t) => {
    assert.deepEqual(lines(metricsOf(t), 'db_client_connection'), []);
    assert.deepEqual(lines(metricsOf(t), 'sqlite_'), []);
  });
});

describe('the process', () => {
  function value(exposition: string, start: string): number {
    const line = exposition.match(new RegExp(`^${start} (.*)$`, 'm'))?.[1];
    assert.ok(line, start);
    return Number(line);
  }

  function block(ms: number): void {
    const end = performance.now() + ms;
    while (performance.now() < end);
  }

  test('memory is in bytes and CPU in seconds', (t) => {
    const metrics = metricsOf(t);
    const before = cpuUsage().user / 1e6;
    block(50);
    const exposition = metrics.exposition(API, 0);
    const user = value(exposition, 'process_cpu_time_seconds_total\\{cpu_mode="user"\\}');
    assert.ok(user > before && user <= cpuUsage().user / 1e6, `${user}`);
    assert.ok(value(exposition, 'process_cpu_time_seconds_total\\{cpu_mode="system"\\}') > 0);
    const share = value(exposition, 'process_memory_usage_bytes') / memoryUsage.rss();
    assert.ok(share > 0.5 && share < 2, `${share}`);
  });

  test('a certificate, dropped lines and the start have their own values', (t) => {
    const page = metricsOf(t).exposition(API, 3, 1_500);
    assert.equal(value(page, 'tls_certificate_not_after_timestamp_seconds'), 1.5);
    assert.equal(value(page, 'log_dropped_lines_total'), 3);
    const startedMs = Date.now() - uptime() * 1000;
    const difference = value(page, 'process_start_time_seconds') * 1000 - startedMs;
    assert.ok(Math.abs(difference) < 2_000, `${difference}`);
    assert.doesNotMatch(metricsOf(t).exposition(API, 3), /tls_/);
  });

  test('open files are counted', { skip: process.platform !== 'linux' && 'needs /proc' }, (t) => {
    const metrics = metricsOf(t);
    const open = () => value(metrics.exposition(API, 0), 'process_open_fds');
    const before = open();
    const files = Array.from({ length: 50 }, () => openSync(import.meta.filename, 'r'));
    const after = open();
    for (const file of files) closeSync(file);
    assert.equal(after - before, 50);
    const max = execFileSync('/bin/sh', ['-c', 'ulimit -n'], { encoding: 'utf8' });
    assert.ok(value(metrics.exposition(API, 0), 'process_max_fds') >= Number(max));
  });

  test('collections are counted by kind until the metrics are closed', async (t) => {
    const metrics = metricsOf(t);
    const count = () => {
      const name = 'nodejs_gc_duration_seconds_count{kind="minor"}';
      return Number(lines(metrics, name)[0]?.slice(name.length) ?? 0);
    };
    const collect = async () => {
      for (let i = 0; i < 100; i++) Array.from({ length: 100_000 }, (_, n) => ({ n }));
      await pause(20); // for the observer
    };
    while (count() === 0) await collect();
    metrics.close();
    const last = count();
    await collect();
    assert.equal(count(), last);
  });

  test('a blocked event loop shows in the next page, and not in the one after it', async (t) => {
    const metrics = metricsOf(t);
    const max = () => value(metrics.exposition(API, 0), 'nodejs_eventloop_delay_max_seconds');
    max();
    // A delay is measured between two samples, so wait for one.
    await pause(50);
    block(400);
    await pause(50);
    const seen = max();
    assert.ok(seen > 0.3 && seen < 2, `${seen}`);
    await pause(50);
    const later = max();
    assert.ok(later < seen - 0.1, `${later} after ${seen}`);
  });

  test('before the first sample and in an idle loop a delay is not negative', async (t) => {
    const metrics = metricsOf(t);
    for (let i = 0; i < 2; i++) {
      const exposition = metrics.exposition(API, 0);
      for (const which of ['p50', 'p99', 'max']) {
        assert.ok(value(exposition, `nodejs_eventloop_delay_${which}_seconds`) >= 0, which);
      }
      await pause(100);
    }
  });
});
