// A Patroni cluster in synchronous mode under writers: five faults, through a URL of three hosts and
// through HAProxy. No acknowledged write is lost or done twice, and the service needs no restart.
import assert from 'node:assert/strict';
import { after, before, describe, type TestContext, test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { Cluster, type Member } from './cluster.ts';
import { Load } from './load.ts';
import { ABSENT, IS_FULL } from './programs.ts';
import { report } from './report.ts';

const TIMES = IS_FULL ? 3 : 1;

/** Puts a fault and returns what ends it. */
type Fault = (
  cluster: Cluster,
  leader: Member,
) => Promise<{
  /** Whether another member becomes the leader. */
  readonly moves: boolean;
  readonly end: () => void;
}>;

const FAULTS: Readonly<Record<string, Fault>> = {
  switchover: async (cluster, leader) => {
    await cluster.switchover(leader);
    return { moves: true, end: () => {} };
  },
  'kill -9 of Postgres': async (_cluster, leader) => {
    assert.ok(leader.killPostgres() > 1);
    return { moves: true, end: () => {} };
  },
  'kill -9 of Patroni alone': async (_cluster, leader) => {
    await leader.killPatroni();
    assert.ok(leader.postgresProcesses > 1);
    return {
      moves: true,
      end: () => {
        assert.ok(leader.postgresProcesses > 1, 'somebody fenced it');
        leader.startPatroni();
      },
    };
  },
  'frozen primary, then thawed': async (_cluster, leader) => {
    assert.ok(leader.freeze() > 2);
    return { moves: true, end: () => leader.thaw() };
  },
  'frozen synchronous standby': async (cluster, leader) => {
    const standby = await cluster.synchronousStandby(leader);
    assert.ok(standby.freeze() > 2);
    return { moves: false, end: () => standby.thaw() };
  },
};

/** How the service reaches the primary. */
const TOPOLOGIES: Readonly<Record<string, (cluster: Cluster) => string>> = {
  'three hosts in the URL': ({ members }) =>
    members.map(({ port }) => `127.0.0.1:${port}`).join(','),
  HAProxy: ({ balancerPort }) => `127.0.0.1:${balancerPort}`,
};

for (const [topology, hostsOf] of Object.entries(TOPOLOGIES)) {
  describe(`synchronous mode, ${topology}`, { skip: ABSENT, timeout: 3_000_000 }, () => {
    let cluster: Cluster;
    before(async () => {
      cluster = await Cluster.start('synchronous');
    });
    after(() => cluster?.[Symbol.asyncDispose]());
    for (const [fault, inject] of Object.entries(FAULTS)) {
      test(fault, async (t) => {
        for (let i = 0; i < TIMES; i++) await failover(t, cluster, hostsOf(cluster), inject);
      });
    }
  });
}

async function failover(t: TestContext, cluster: Cluster, hosts: string, inject: Fault) {
  const leader = await cluster.whole();
  const database = new URL(await createDatabase(leader.url)).pathname;
  await using load = await Load.start(`postgres://postgres:test@${hosts}${database}`);
  assert.ok(load.inFlight > 0);
  const { moves, end } = await inject(cluster, leader);
  if (moves) await cluster.newLeader(leader);
  await load.progress('after the fault');
  end();
  const last = await cluster.whole();
  assert.equal(last === leader, !moves);
  await load.progress('after the cluster was whole again');
  const url = new URL(last.url);
  url.pathname = database;
  const { lost, duplicated, surprises, ...seen } = await load.stop(url.href);
  report(t, { fault: t.name, lost: lost.length, duplicated: duplicated.length, ...seen });
  assert.deepEqual([surprises, lost, duplicated], [[], [], []]);
}
