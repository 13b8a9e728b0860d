// Replaces processes that share one port, with and without the kernel's `tcp_migrate_req`. Runs in
// a network namespace, so that the machine's own setting does not change.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Seen } from './replacement.ts';
import { report, TIMES } from './results.ts';

const PROGRAM = join(import.meta.dirname, 'replacement.ts');
const SKIP = reasonToSkip();

test('with tcp_migrate_req, processes on one port lose no connection', {
  skip: SKIP,
  timeout: 300_000,
}, (t) => {
  const seen = replace(t, '1');
  assert.equal(seen.failed, 0);
  assert.equal(seen.failedByKill, 0);
});

test('without tcp_migrate_req, a lost connection was never read', {
  skip: SKIP,
  timeout: 300_000,
}, (t) => {
  const seen = replace(t, '0');
  assert.equal(seen.doneAlthoughFailed, 0);
  // Without the setting, the kernel resets the queue of a killed process. This proves that the
  // setting makes the difference.
  assert.ok(seen.failedByKill > 0);
});

function replace(t: TestContext, migrate: '0' | '1'): Seen {
  // The loopback interface of a new namespace is down.
  const script = 'ip link set lo up && exec "$@"';
  const command = [
    'unshare',
    '--net',
    'sh',
    '-c',
    script,
    'sh',
    process.execPath,
    PROGRAM,
    migrate,
  ];
  const [file, ...args] = command as [string, ...string[]];
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const seen: Seen = JSON.parse(execFileSync(file, args, { encoding: 'utf8', env }));
  assert.equal(seen.replaced, 2 * TIMES.network);
  assert.ok(seen.acknowledged > 0);
  assert.equal(seen.refused, 0);
  assert.equal(seen.lost, 0);
  t.diagnostic(`${seen.failed} connections reset, ${seen.failedByKill} of 64 by a kill`);
  report(t, {
    fault: `replacement of a process on a shared port, tcp_migrate_req=${migrate}`,
    ...{ store: 'postgres', injected: seen.replaced, acknowledged: seen.acknowledged },
    ...{ lost: seen.lost, duplicated: 0 },
  });
  return seen;
}

/** Returns the reason to skip the tests, in one line; false if nothing is missing. */
function reasonToSkip(): string | false {
  const attempt = 'ip link set lo up && echo 1 > /proc/sys/net/ipv4/tcp_migrate_req';
  try {
    execFileSync('unshare', ['--net', 'sh', '-c', attempt], { stdio: 'pipe' });
    return false;
  } catch {
    return 'needs root, iproute2 and Linux 5.14 for a network namespace with tcp_migrate_req';
  }
}
