// A rolling restart of two replicas on one Postgres behind a balancer: no request fails.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, type TestContext, test } from 'node:test';
import { Daemon, find, stablePort } from '../support/daemon.ts';
import { newFolder, type Program, start } from '../support/program.ts';
import { type Ports, startBalancer } from './balancer.ts';
import { Ledger } from './ledger.ts';
import { report, TIMES } from './results.ts';
import { databaseOf, releaseServer, usersIn } from './users.ts';
import { Writers } from './writers.ts';

const PATH = find('haproxy');
const SKIP = PATH === undefined && 'haproxy is not installed: apt-get install haproxy';

const WRITERS = 16;
/** Much longer than haproxy's /ready interval of 100 ms, because the machine can be busy. */
const SHUTDOWN_DELAY_MS = '1500';

after(releaseServer);

test('rolling restart of two replicas behind haproxy', { skip: SKIP, timeout: 300_000 }, (t) =>
  restart(t, 'haproxy', startHaproxy),
);

test('rolling restart of two replicas behind our own balancer', { timeout: 300_000 }, (t) =>
  restart(t, 'our own balancer', startBalancer),
);

async function restart(t: TestContext, name: string, startIn: typeof startBalancer): Promise<void> {
  const DATABASE_URL = await databaseOf('postgres');
  const ports = [await newPorts(), await newPorts()];
  const replica = ([port, adminPort]: Ports) =>
    start({
      ...{ DATABASE_URL, SHUTDOWN_DELAY_MS },
      ...{ PORT: String(port), ADMIN_PORT: String(adminPort) },
    });
  const replicas = await Promise.all(ports.map(replica));
  const ledger = new Ledger();
  let landed = 0;
  try {
    await using balancer = await startIn(ports);
    const writers = new Writers(ledger, `http://127.0.0.1:${balancer.port}`, WRITERS);
    await Promise.all(replicas.map(serves));
    for (let i = 0; i < TIMES.network; i++) {
      for (const [j, old] of replicas.entries()) {
        await writers.progress(WRITERS);
        if (writers.inFlight > 0) landed++;
        assert.deepEqual(await old.stop(), { code: 0, signal: null });
        replicas[j] = await replica(ports[j]!);
        await serves(replicas[j]!);
      }
    }
    await writers.stop();
    assert.deepEqual([writers.surprises, writers.cutOff, writers.broken], [[], [], 0]);
    assert.equal(writers.count(500), 0);
  } finally {
    await Promise.all(replicas.map((program) => program[Symbol.asyncDispose]()));
  }
  assert.equal(landed, 2 * TIMES.network);
  assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), { lost: [], duplicated: [] });
  report(t, {
    ...{ fault: `rolling restart behind ${name} (no request failed)`, injected: landed },
    ...{ store: 'postgres', acknowledged: ledger.acknowledged, lost: 0, duplicated: 0 },
  });
}

/** Returns ports for the API and the admin listener, which stay the same after each restart. */
async function newPorts(): Promise<Ports> {
  return [await stablePort(), await stablePort()];
}

/** Resolves once the balancer sends requests to the program. */
function serves(program: Program): Promise<void> {
  return program.until(({ stdout }) => stdout.includes('"message":"request"'));
}

async function startHaproxy(ports: readonly Ports[]): Promise<Daemon> {
  const port = await stablePort();
  const servers = ports.map(
    ([api, admin], i) =>
      `  server replica${i} 127.0.0.1:${api} check port ${admin} inter 100ms fall 1 rise 1`,
  );
  const folder = newFolder();
  chmodSync(folder, 0o755);
  const file = join(folder, 'haproxy.cfg');
  writeFileSync(
    file,
    `defaults
  mode http
  option redispatch
  retries 3
  timeout connect 5s
  timeout check 5s
  timeout client 60s
  timeout server 60s
frontend api
  bind 127.0.0.1:${port}
  default_backend replicas
backend replicas
  option httpchk GET /ready
${servers.join('\n')}
`,
  );
  return new Daemon(port, PATH!, ['-db', '-f', file]).listening();
}
