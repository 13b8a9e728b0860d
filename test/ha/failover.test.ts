// Faults of a Patroni cluster under load, in each replication mode. Each fault hits two loads at
// once: one has three hosts in its URL, the other goes through HAProxy. Compares every acknowledged
// write with the database. A failed assertion is a fault of the service and fails .ci/run. Anything
// that a slow machine can cause is an Error, which doesn't.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { requireTools } from '../support/tools.ts';
import { Cluster, type Member, type Replication } from './cluster.ts';
import { Load, type Seen } from './load.ts';
import type { Topology } from './page.ts';
import { ABSENT, IS_FULL } from './programs.ts';

const TIMES = IS_FULL ? 2 : 1;

/** Injects a fault. If it returns a function, that ends it. */
type Fault = (cluster: Cluster, leader: Member) => Promise<unknown>;

const FAULTS = {
  switchover: (cluster, leader) => cluster.switchover(leader),
  'kill -9 of Postgres': async (_, leader) => assert.ok(leader.killPostgres() > 1),
  // Its Postgres keeps running, and nothing fences it.
  'kill -9 of Patroni alone': async (_, leader) => {
    await leader.killPatroni();
    return () => {
      const processes = leader.postgresProcesses;
      leader.startPatroni();
      assert.ok(processes > 1, 'Postgres has ended');
    };
  },
  // Before its lock expires, as a supervisor does.
  'kill -9 of Patroni, started again': async (_, leader) => {
    await leader.killPatroni();
    leader.startPatroni();
  },
  'primary frozen, then thawed': async (_, leader) => {
    assert.ok(leader.freeze() > 2);
    return () => leader.thaw();
  },
  'synchronous standby frozen': async (cluster, leader) => {
    const standby = await cluster.synchronousStandby(leader);
    assert.ok(standby.freeze() > 2);
    return () => standby.thaw();
  },
} satisfies Record<string, Fault>;
type Name = keyof typeof FAULTS;
const ALL = Object.keys(FAULTS) as Name[];

/** Faults that don't change the leader, and faults that lose no write in any mode. */
const STAYING: readonly Name[] = [
  'kill -9 of Patroni, started again',
  'synchronous standby frozen',
];
const HARMLESS: readonly Name[] = ['switchover', 'kill -9 of Patroni, started again'];

/** The faults of each mode; HA=full runs all that apply to it. */
const MODES: Record<Replication, readonly Name[]> = {
  synchronous: ALL,
  quorum: IS_FULL ? ALL : ['synchronous standby frozen'],
  asynchronous: IS_FULL
    ? ALL.filter((name) => name !== 'synchronous standby frozen')
    : ['kill -9 of Patroni alone'],
};

const TOPOLOGIES: readonly Topology[] = ['three hosts', 'HAProxy'];

requireTools(ABSENT);

for (const [replication, faults] of Object.entries(MODES) as [Replication, Name[]][]) {
  describe(`${replication} replication`, { skip: ABSENT, timeout: 3_000_000 }, () => {
    let cluster: Cluster;
    before(async () => {
      cluster = await Cluster.start(replication);
    });
    after(() => cluster?.[Symbol.asyncDispose]());
    for (const name of faults) {
      test(`4.13 5.1 5.5 ${name}`, async (t) => {
        for (let i = 0; i < TIMES; i++) {
          for (const result of await failover(cluster, name)) {
            t.diagnostic(rowOf(result, `${replication} | ${name}`));
            check(result, replication, name);
          }
        }
      });
    }
  });
}

interface Result extends Seen {
  readonly topology: Topology;
}

/** Injects the fault once; returns the result for each topology. */
async function failover(cluster: Cluster, fault: Name): Promise<Result[]> {
  const leader = await cluster.whole();
  await using loads = new AsyncDisposableStack();
  const runs: { readonly topology: Topology; readonly database: string; readonly load: Load }[] =
    [];
  for (const topology of TOPOLOGIES) {
    const database = await cluster.createDatabase(leader);
    const load = loads.use(await Load.start(cluster.settings(topology, database)));
    runs.push({ topology, database, load });
  }
  const progress = (when: string) => Promise.all(runs.map(({ load }) => load.progress(when)));
  for (const { load } of runs) assert.ok(load.inFlight > 0);
  const end = await (FAULTS[fault] as Fault)(cluster, leader);
  const hasNewLeader = !STAYING.includes(fault);
  try {
    if (hasNewLeader) await cluster.newLeader(leader);
    await progress('after the fault');
  } finally {
    if (typeof end === 'function') end();
  }
  const last = await cluster.whole();
  if ((last !== leader) !== hasNewLeader) throw new Error(`the leader is ${last.name} now`);
  for (const { load } of runs) load.mark();
  await progress('after the cluster was whole again');
  const results: Result[] = [];
  for (const { topology, database, load } of runs) {
    const url = new URL(last.url);
    url.pathname = `/${database}`;
    results.push({ topology, ...(await load.stop(url.href)) });
  }
  return results;
}

function check({ topology, ...seen }: Result, replication: Replication, fault: Name): void {
  // Writes to the recovered cluster are safe in every mode.
  assert.deepEqual(seen.sinceMark, { lost: [], duplicated: [] });
  const isUnfenced = replication === 'asynchronous' && fault === 'kill -9 of Patroni alone';
  if (isUnfenced && topology === 'three hosts') {
    // The old primary accepts writes without standbys, and a pool that knows its address keeps it.
    if (seen.lost.length === 0) throw new Error('nothing was lost: the page says otherwise');
    return;
  }
  const isSafe =
    replication === 'synchronous' ||
    (replication === 'quorum' && fault !== 'kill -9 of Patroni alone') ||
    isUnfenced || // HAProxy has closed the connections.
    HARMLESS.includes(fault);
  if (!isSafe) return;
  const { surprises, lost, duplicated } = seen;
  assert.deepEqual([surprises, lost, duplicated], [[], [], []]);
}

/** A row of the table in docs/results/high-availability.md. */
function rowOf(
  { topology, acknowledged, lost, duplicated, ...seen }: Result,
  fault: string,
): string {
  const counts = [acknowledged, lost.length, duplicated.length];
  const times = [seen.gapSeconds, seen.unreadySeconds].map((seconds) => `${seconds.toFixed(1)} s`);
  return `| ${[fault, topology, ...counts, ...times].join(' | ')} |`;
}
