// A Patroni cluster under writers, by how it replicates. Each fault meets two loads at once: one whose
// URL has three hosts, and one that goes through HAProxy. Every acknowledged write is accounted for.
import assert from 'node:assert/strict';
import { after, before, describe, type TestContext, test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { Cluster, type Member, type Replication } from './cluster.ts';
import { Load, type Seen } from './load.ts';
import { ABSENT, IS_FULL } from './programs.ts';
import { report } from './report.ts';

const TIMES = IS_FULL ? 2 : 1;

/** Puts a fault and returns what ends it. */
type Fault = (cluster: Cluster, leader: Member) => Promise<() => void>;

const switchover: Fault = async (cluster, leader) => {
  await cluster.switchover(leader);
  return () => {};
};

const killPostgres: Fault = async (_cluster, leader) => {
  assert.ok(leader.killPostgres() > 1);
  return () => {};
};

/** Its Postgres stays, and nobody fences it. */
const killPatroni: Fault = async (_cluster, leader) => {
  await leader.killPatroni();
  return () => {
    assert.ok(leader.postgresProcesses > 1, 'Postgres has ended');
    leader.startPatroni();
  };
};

const freezePrimary: Fault = async (_cluster, leader) => {
  assert.ok(leader.freeze() > 2);
  return () => leader.thaw();
};

const freezeStandby: Fault = async (cluster, leader) => {
  const standby = await cluster.synchronousStandby(leader);
  assert.ok(standby.freeze() > 2);
  return () => standby.thaw();
};

const FAULTS = new Map<string, Fault>([
  ['switchover', switchover],
  ['kill -9 of Postgres', killPostgres],
  ['kill -9 of Patroni alone', killPatroni],
  ['primary frozen, then thawed', freezePrimary],
  ['synchronous standby frozen', freezeStandby],
]);

/** Which faults each mode gets; HA=full asks for all that it can have. */
const MODES: Record<Replication, readonly Fault[]> = {
  synchronous: [...FAULTS.values()],
  quorum: IS_FULL ? [...FAULTS.values()] : [freezeStandby],
  asynchronous: IS_FULL ? [switchover, killPostgres, killPatroni, freezePrimary] : [killPatroni],
};

/** How the service reaches the primary. */
const TOPOLOGIES: Readonly<Record<string, (cluster: Cluster) => string>> = {
  'three hosts': ({ members }) => members.map(({ port }) => `127.0.0.1:${port}`).join(','),
  HAProxy: ({ balancerPort }) => `127.0.0.1:${balancerPort}`,
};

for (const [replication, faults] of Object.entries(MODES) as [Replication, Fault[]][]) {
  describe(`${replication} replication`, { skip: ABSENT, timeout: 3_000_000 }, () => {
    let cluster: Cluster;
    before(async () => {
      cluster = await Cluster.start(replication);
    });
    after(() => cluster?.[Symbol.asyncDispose]());
    for (const [name, fault] of FAULTS) {
      if (!faults.includes(fault)) continue;
      test(`4.13 5.1 5.5 ${name}`, async (t) => {
        for (let i = 0; i < TIMES; i++) await failover(t, cluster, name, fault);
      });
    }
  });
}

async function failover(
  t: TestContext,
  cluster: Cluster,
  name: string,
  fault: Fault,
): Promise<void> {
  const { replication } = cluster;
  const leader = await cluster.whole();
  await using loads = new AsyncDisposableStack();
  const runs: { readonly topology: string; readonly database: string; readonly load: Load }[] = [];
  for (const [topology, hostsOf] of Object.entries(TOPOLOGIES)) {
    const database = new URL(await createDatabase(leader.url)).pathname;
    const url = `postgres://postgres:test@${hostsOf(cluster)}${database}`;
    runs.push({ topology, database, load: loads.use(await Load.start(url)) });
  }
  const progress = (when: string) => Promise.all(runs.map(({ load }) => load.progress(when)));
  for (const { load } of runs) assert.ok(load.inFlight > 0);
  const end = await fault(cluster, leader);
  const hasNewLeader = fault !== freezeStandby;
  if (hasNewLeader) await cluster.newLeader(leader);
  await progress('after the fault');
  end();
  const last = await cluster.whole();
  assert.equal(last !== leader, hasNewLeader);
  for (const { load } of runs) load.mark();
  await progress('after the cluster was whole again');
  for (const { topology, database, load } of runs) {
    const url = new URL(last.url);
    url.pathname = database;
    const seen = await load.stop(url.href);
    report(t, { replication, fault: name, topology, ...seen });
    check(seen, replication, fault, topology);
  }
}

function check(seen: Seen, replication: Replication, fault: Fault, topology: string): void {
  // What is written once the cluster is whole again is safe in every mode.
  assert.deepEqual(seen.sinceMark, { lost: [], duplicated: [] });
  const isWaitedFor = replication === 'quorum' ? fault !== killPatroni : fault === switchover;
  if (replication === 'synchronous' || isWaitedFor) {
    const { surprises, lost, duplicated } = seen;
    assert.deepEqual([surprises, lost, duplicated], [[], [], []]);
  }
  // The old primary goes on without standbys, and a pool that knows its address stays with it.
  const isStaying = replication === 'asynchronous' && fault === killPatroni;
  if (isStaying && topology === 'three hosts') assert.notDeepEqual(seen.lost, []);
}
