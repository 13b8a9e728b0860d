// Ends all our connections repeatedly with pg_terminate_backend under 50 writers. Afterwards the
// pool has its full size, no request fails, and the throughput is the same.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { Ledger } from './ledger.ts';
import { report, secondsSince, TIMES } from './results.ts';
import { usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 50;
const POOL_SIZE = 10;
/** Number of times that a storm ends all connections, each time under writes. */
const GUSTS = 10;
/** Responses per throughput measurement, and number of measurements. */
const SAMPLE = 2000;
const MEASUREMENTS = 5;
const LEAST_THROUGHPUT = 0.8;
const HEAL_SECONDS = 5;

test('storms of pg_terminate_backend under load', { timeout: 600_000 }, async (t) => {
  await using server = await Server.create();
  const DATABASE_URL = await createDatabase(server.url);
  const ours = `from pg_stat_activity where application_name = 'notes-users'
    and datname = '${new URL(DATABASE_URL).pathname.slice(1)}'`;
  const startOn = (url: string) =>
    start({ DATABASE_URL: url, DATABASE_POOL_SIZE: String(POOL_SIZE) });
  await using program = await startOn(DATABASE_URL);
  await using bystander = await startOn(await createDatabase(server.url));
  const ledger = new Ledger();
  const writers = new Writers(ledger, program.url, WRITERS);
  const before = await throughput();
  await untilWhole();

  let ended = 0;
  let healSeconds = 0;
  for (let storm = 0; storm < TIMES.storms; storm++) {
    for (let gust = 0; gust < GUSTS; gust++) {
      const rows = await server.query(`select pg_terminate_backend(pid) as "isEnded" ${ours}`);
      const count = rows.filter(({ isEnded }) => isEnded).length;
      // The pool is complete before the first gust.
      if (gust === 0) assert.equal(count, POOL_SIZE);
      ended += count;
      await writers.progress(WRITERS / 2);
    }
    const began = performance.now();
    await untilWhole();
    healSeconds = Math.max(healSeconds, secondsSince(began));
    await writers.settled();
    const failures = writers.count(500);
    await writers.progress(SAMPLE);
    assert.equal(writers.count(500), failures);
  }
  assert.ok(healSeconds < HEAL_SECONDS, `whole after ${healSeconds} s`);
  const least = TIMES.storms * GUSTS * 2;
  assert.ok(ended > least, `only ${ended} connections were ended`);

  const afterwards = await throughput();
  const found = `${afterwards} responses to each one of a service without storms, before ${before}`;
  assert.ok(afterwards >= LEAST_THROUGHPUT * before, found);
  t.diagnostic(found);
  await writers.stop();
  assert.deepEqual([writers.surprises, writers.broken], [[], 0]);
  const findings = ledger.check(await usersIn(DATABASE_URL));
  assert.deepEqual(findings, { lost: [], duplicated: [] });
  report(t, {
    fault: 'storm of pg_terminate_backend',
    ...{ store: 'postgres', injected: TIMES.storms, acknowledged: ledger.acknowledged },
    ...{ lost: 0, duplicated: 0, healSeconds },
  });

  /** Throughput relative to a service without storms, because a slow machine slows both. */
  async function throughput(): Promise<number> {
    const others = new Writers(new Ledger(), bystander.url, WRITERS);
    await others.progress(SAMPLE);
    const ratios: number[] = [];
    for (let i = 0; i < MEASUREMENTS; i++) {
      const { acknowledged } = others;
      await writers.progress(SAMPLE);
      ratios.push(SAMPLE / (others.acknowledged - acknowledged));
    }
    await others.stop();
    return median(ratios);
  }

  /** Resolves once the pool has exactly its full number of connections and all respond. */
  async function untilWhole(): Promise<void> {
    for (;;) {
      const [row] = await server.query(`select count(*)::int as count ${ours}`);
      const count = Number(row!.count);
      assert.ok(count <= POOL_SIZE, `${count} connections`);
      if (count === POOL_SIZE) return;
      await writers.progress(1);
    }
  }
});

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
