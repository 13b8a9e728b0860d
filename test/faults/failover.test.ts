// The primary dies or hangs, and its synchronous standby is promoted. Both are in DATABASE_URL, so
// the service switches to the new primary. That has every acknowledged write of the old one.
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { Ledger } from './ledger.ts';
import { report, secondsSince, TIMES } from './results.ts';
import { usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 16;
const TIMEOUT_MS = 1000;
const HEAL_SECONDS = 5;

/** Faults of the primary. A hung primary accepts connections and never responds. */
const FAULTS: Record<string, (primary: Server) => number | Promise<number>> = {
  'failover, the primary killed': (primary) => primary.kill(),
  'failover, the primary hung': (primary) => primary.suspend(),
};

describe('failover to a synchronous standby', { timeout: 900_000 }, () => {
  for (const [fault, inject] of Object.entries(FAULTS)) {
    test(fault, async (t) => {
      const healed: number[] = [];
      let acknowledged = 0;
      for (let i = 0; i < TIMES.failovers; i++) {
        const result = await failover(t, inject);
        healed.push(result.healSeconds);
        acknowledged += result.acknowledged;
      }
      report(t, {
        ...{ fault, store: 'postgres', injected: TIMES.failovers, acknowledged },
        ...{ lost: 0, duplicated: 0, healSeconds: Math.max(...healed) },
      });
    });
  }

  test('prefer-standby looks for a standby again after each lost connection', async () => {
    await using primary = await Server.create();
    const direct = await createDatabase(primary.url);
    await using standby = await primary.synchronousStandby();
    {
      await using first = await start({ DATABASE_URL: direct });
      assert.equal((await fetch(`${first.url}/users`)).status, 200);
    }
    await standby.stop();
    const hosts = `127.0.0.1:${standby.port},127.0.0.1:${primary.port}`;
    const { pathname } = new URL(direct);
    await using program = await start({
      DATABASE_URL: `postgres://postgres:test@${hosts}${pathname}?target_session_attrs=prefer-standby`,
      DATABASE_POOL_SIZE: '1',
      LOG_LEVEL: 'debug',
    });
    const connected = () =>
      program.log.filter(({ message }) => message === 'connected').map(({ host }) => host);
    await program.until(() => connected().length === 1);
    await standby.start();
    // A connection that is lost within 100 ms counts as a failed attempt (MIN_LIFETIME_MS).
    await new Promise((resolve) => setTimeout(resolve, 300));
    const rows = await primary.query(
      `select pg_terminate_backend(pid) as "isEnded" from pg_stat_activity
      where application_name = 'notes-users'`,
    );
    assert.deepEqual(rows, [{ isEnded: true }]);
    await program.until(() => connected().length === 2);
    const expected = [primary, standby].map(({ port }) => `127.0.0.1:${port}`);
    assert.deepEqual(connected(), expected);
    assert.equal((await fetch(`${program.url}/users`)).status, 200);
  });
});

async function failover(t: TestContext, inject: (typeof FAULTS)[string]) {
  await using primary = await Server.create();
  const direct = await createDatabase(primary.url);
  await using standby = await primary.synchronousStandby();
  const states = await primary.query('select sync_state as state from pg_stat_replication');
  assert.deepEqual(states, [{ state: 'sync' }]);
  const { pathname } = new URL(direct);
  const hosts = `127.0.0.1:${primary.port},127.0.0.1:${standby.port}`;
  await using program = await start({
    DATABASE_URL: `postgres://postgres:test@${hosts}${pathname}?target_session_attrs=read-write`,
    DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
  });
  const ledger = new Ledger();
  const writers = new Writers(ledger, program.url, WRITERS);
  await writers.progress(20 * WRITERS);
  assert.ok(writers.inFlight > 0);
  assert.ok((await inject(primary)) > 1);
  const before = writers.count(500);
  await writers.until(() => writers.count(500) >= before + 2 * WRITERS);
  const [row] = await standby.query('select pg_promote() as "isPromoted"');
  assert.equal(row?.isPromoted, true);
  const began = performance.now();
  await writers.progress(1);
  const healSeconds = secondsSince(began);
  await writers.progress(20 * WRITERS);
  await writers.stop();
  assert.equal(program.process.exitCode, null);
  assert.deepEqual([writers.surprises, writers.broken], [[], 0]);
  assert.ok(writers.slowestMs < TIMEOUT_MS + 1000, `a response after ${writers.slowestMs} ms`);
  const url = new URL(standby.url);
  url.pathname = pathname;
  const findings = ledger.check(await usersIn(url.href));
  assert.deepEqual(findings, { lost: [], duplicated: [] });
  t.diagnostic(`writes again ${healSeconds.toFixed(2)} s after the promotion`);
  assert.ok(healSeconds < HEAL_SECONDS, `healed after ${healSeconds} s`);
  return { healSeconds, acknowledged: ledger.acknowledged };
}
