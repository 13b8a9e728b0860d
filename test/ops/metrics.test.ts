// The metrics of requests, store operations and the process (contract 7.3), and Prometheus' text format.
import assert from 'node:assert/strict';
import { closeSync, openSync } from 'node:fs';
import { cpuUsage, memoryUsage } from 'node:process';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { family, Histograms, Metrics } from '../../src/ops/metrics.ts';
import { routes } from '../../src/routes.ts';
import * as domain from '../../src/user.ts';
import { collect } from '../support/garbage.ts';
import { Page } from '../support/metrics.ts';
import { blockEventLoop, until } from '../support/until.ts';

type Pool = ConstructorParameters<typeof Metrics>[2];

const API = {
  ...{ maxConnections: 10, heldBytes: 0, budgetBytes: 99 },
  ...{ states: { idle: 0 }, closed: { room: 0 } },
};

function metricsOf(t: TestContext, pool: Pool = {}): Metrics {
  const metrics = new Metrics(routes, pool.connections ? 'postgres' : 'sqlite', pool);
  t.after(() => metrics[Symbol.dispose]());
  return metrics;
}

const pageOf = (metrics: Metrics) => new Page(metrics.exposition(API, 0));
const value = ({ values }: Page, name: string) => values.get(name)!;

test('a family has its help, its type and a line per sample', () => {
  const all = family('a', 'gauge', 'Some.', [
    ['', { b: 'x', c: 'y' }, 1.5],
    ['_sum', {}, 1e21],
    ['', { b: '', c: 'd' }, 1],
  ]);
  const lines = ['# HELP a Some.', '# TYPE a gauge', 'a{b="x",c="y"} 1.5', 'a_sum 1e+21'];
  assert.equal(all, [...lines, 'a{c="d"} 1', ''].join('\n'));
  assert.match(family('a', 'gauge', 'Some.', 0), /\na 0\n$/);
  assert.equal(family('a', 'gauge', 'Some.', undefined), '');
});

test('a histogram has a series for each combination of labels, with what is up to each bound', () => {
  const histograms = new Histograms([0.5, 1], ['x', 'y']);
  assert.deepEqual(histograms.samples(), []);
  histograms.record(1, 'a', '');
  for (const each of [2, 0.25, 1, 0.5, 0, 0.75, 1.25]) histograms.record(each, '', 'a');
  const expected = [
    { x: 'a', y: '', counts: [0, 1, 1], sum: 1 },
    { x: '', y: 'a', counts: [3, 5, 7], sum: 5.75 },
  ].map(({ counts, sum, ...labels }) => [
    ...['0.5', '1', '+Inf'].map((le, i) => ['_bucket', { ...labels, le }, counts[i]]),
    ['_sum', labels, sum],
    ['_count', labels, counts[2]],
  ]);
  assert.deepEqual(histograms.samples(), expected.flat());
});

const TIMEOUT_MS = 100;

describe('the store', () => {
  for (const [err, ms, type] of [
    [new domain.EmailTaken(), TIMEOUT_MS, ''],
    [new domain.CallerLeft(), 1, ''],
    [new domain.StoreUnavailable('gone'), TIMEOUT_MS - 1, 'unavailable'],
    [new domain.StoreUnavailable('late'), TIMEOUT_MS, 'timeout'],
    [new TypeError('x'), 1, '_OTHER'],
  ] as const) {
    test(`7.3 a call that fails with ${err.name} after ${ms} ms is a failure: ${type || 'no'}`, async (t) => {
      const pool = { connections: { used: 0, idle: 0, limit: 4, waiting: 0 } };
      const metrics = metricsOf(t, pool);
      const clock = { ms: 0 };
      const find = () => {
        clock.ms += ms;
        return Promise.reject(err);
      };
      const calls = { find } as unknown as domain.UserStore;
      const store = metrics.measure(calls, TIMEOUT_MS, () => clock.ms);
      await assert.rejects(store.find(1), (thrown) => thrown === err);
      const sums = pageOf(metrics).series('db_client_operation_duration_seconds_sum');
      const labels = `db_system_name="postgresql",db_operation_name="find"`;
      const failure = type && `,error_type="${type}"`;
      assert.deepEqual(sums, { [labels + failure]: ms / 1000 });
    });
  }

  test('7.3 a file that can no longer be read only leaves its size out', (t) => {
    const state = {
      get walBytes(): number {
        throw new Error('EIO');
      },
    };
    const sizes = [{}, state, { walBytes: 0 }].map((pool: Pool) =>
      pageOf(metricsOf(t, pool)).values.get('sqlite_wal_size_bytes'),
    );
    assert.deepEqual(sizes, [undefined, undefined, 0]);
  });
});

describe('the process', () => {
  test('7.3 memory is in bytes; CPU, times and durations in seconds', (t) => {
    const metrics = metricsOf(t);
    const before = cpuUsage();
    blockEventLoop(50);
    metrics.begin('GET');
    metrics.end({ method: 'GET', route: '/', status: 200 }, 250);
    const page = new Page(metrics.exposition(API, 3, 1_500));
    for (const mode of ['user', 'system'] as const) {
      const seconds = value(page, `process_cpu_time_seconds_total{cpu_mode="${mode}"}`);
      const us = Math.round(1e6 * seconds);
      assert.ok(us >= before[mode] && us <= cpuUsage()[mode], `${us}`);
    }
    const heap = (which: string) => value(page, `nodejs_heap_size_${which}_bytes`);
    assert.ok(heap('used') > 1e6 && heap('used') < heap('total'));
    const { rss, external } = memoryUsage();
    const resident = value(page, 'process_memory_usage_bytes') / rss;
    const outside = value(page, 'nodejs_external_memory_bytes') / external;
    for (const share of [resident, outside]) assert.ok(share > 0.5 && share < 2, `${share}`);
    assert.equal(value(page, 'process_start_time_seconds'), performance.timeOrigin / 1e3);
    const requests = page.series('http_server_request_duration_seconds_sum');
    assert.deepEqual(Object.values(requests), [0.25]);
    assert.equal(value(page, 'tls_certificate_not_after_timestamp_seconds'), 1.5);
    assert.equal(value(page, 'log_dropped_lines_total'), 3);
    assert.doesNotMatch(metrics.exposition(API, 3), /tls_/);
  });

  test('7.3 open files are counted', (t) => {
    const metrics = metricsOf(t);
    const count = (name: string) => value(pageOf(metrics), name);
    const before = count('process_open_fds');
    const files = Array.from({ length: 50 }, () => openSync(import.meta.filename, 'r'));
    assert.equal(count('process_open_fds') - before, 50);
    assert.ok(count('process_max_fds') > before + 50);
    for (const file of files) closeSync(file);
  });

  test('7.3 collections are counted by kind until the metrics are closed', async (t) => {
    const metrics = metricsOf(t);
    const began = performance.now();
    const gc = (what: string) =>
      pageOf(metrics).values.get(`nodejs_gc_duration_seconds_${what}{kind="major"}`) ?? 0;
    collect();
    await until(() => pageOf(metrics).text.includes('gc_duration_seconds_sum')); // in a later turn
    assert.ok(gc('sum') > 0 && gc('sum') < (performance.now() - began) / 1000);
    metrics[Symbol.dispose]();
    const last = gc('count');
    collect();
    await pause(100);
    const page = pageOf(metrics);
    assert.equal(value(page, 'nodejs_gc_duration_seconds_count{kind="major"}'), last);
    assert.equal(value(page, 'nodejs_eventloop_delay_max_seconds'), 0);
  });

  test('7.3 a blocked event loop shows in the next page, and not in the one after it', async (t) => {
    const metrics = metricsOf(t);
    const delay = () => {
      const page = pageOf(metrics);
      const all = ['p50', 'p99', 'max'].map((which) =>
        value(page, `nodejs_eventloop_delay_${which}_seconds`),
      );
      assert.ok(all[0]! >= 0 && all[0]! < 0.3);
      return Math.min(...all.slice(1));
    };
    await until(() => pause(100).then(() => delay() < 0.015)); // without the 20 ms between samples
    // A delay is measured between two samples, and the median is that of many.
    await pause(200);
    blockEventLoop(400);
    await pause(200);
    const seen = delay();
    assert.ok(seen > 0.3, `${seen}`);
    const later = delay(); // at once, before another sample
    assert.ok(later < seen - 0.1, `${later} after ${seen}`);
  });
});
