// Memory, CPU and event-loop delay of the process.
import assert from 'node:assert/strict';
import { cpuUsage, memoryUsage } from 'node:process';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Runtime } from '../../src/ops/runtime.ts';

function value(families: readonly string[], start: string): number {
  const line = families.join('').match(new RegExp(`^${start} (.*)$`, 'm'))?.[1];
  assert.ok(line, start);
  return Number(line);
}

function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test('memory is in bytes and CPU in seconds', (t) => {
  const runtime = new Runtime();
  t.after(() => runtime.close());
  const before = cpuUsage().user / 1e6;
  block(50);
  const families = runtime.families();
  const user = value(families, 'process_cpu_time_seconds_total\\{cpu_mode="user"\\}');
  assert.ok(user > before && user <= cpuUsage().user / 1e6, `${user}`);
  assert.ok(value(families, 'process_cpu_time_seconds_total\\{cpu_mode="system"\\}') > 0);
  const share = value(families, 'process_memory_usage_bytes') / memoryUsage.rss();
  assert.ok(share > 0.5 && share < 2, `${share}`);
});

test('a blocked event loop shows in the next page, and not in the one after it', async (t) => {
  const runtime = new Runtime();
  t.after(() => runtime.close());
  const max = () => value(runtime.families(), 'nodejs_eventloop_delay_max_seconds');
  max();
  // A delay is between two samples, so wait for one.
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
  const runtime = new Runtime();
  t.after(() => runtime.close());
  for (let i = 0; i < 2; i++) {
    const families = runtime.families();
    for (const which of ['p50', 'p99', 'max']) {
      assert.ok(value(families, `nodejs_eventloop_delay_${which}_seconds`) >= 0, which);
    }
    await pause(100);
  }
});
