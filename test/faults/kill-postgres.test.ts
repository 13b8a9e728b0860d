// Postgres is killed or frozen under load. The service survives, returns 500 in time, and recovers
// as soon as Postgres does.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/server.ts';
import { run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { TIMES } from './results.ts';

test('kill -9 of Postgres under load', { timeout: 600_000 }, async (t) => {
  await using server = await Server.create();
  await run(t, {
    ...{ fault: 'kill -9 of Postgres', times: TIMES.postgresKills, refuses: true },
    databaseUrl: await createDatabase(server.url),
    async inject(writers, i) {
      const before = writers.count(500);
      assert.ok((await server.kill()) > 1);
      // Every other time Postgres stays down until the writers have been refused.
      if (i % 2 === 0) await writers.until(() => writers.count(500) >= before + WRITERS);
      await server.start();
      // Now it accepts connections.
      await server.query('select 1');
    },
  });
});

test('Postgres is frozen for longer than DATABASE_TIMEOUT_MS', {
  timeout: 300_000,
}, async (t) => {
  await using server = await Server.create();
  await run(t, {
    ...{ fault: 'SIGSTOP of Postgres', times: TIMES.network, refuses: true },
    databaseUrl: await createDatabase(server.url),
    async inject(writers) {
      const before = writers.count(500);
      assert.ok(server.suspend() > 1);
      await writers.until(() => writers.count(500) >= before + WRITERS);
      // A write that got 500 can still be done until then, not later.
      await pause(2 * TIMEOUT_MS);
      server.resume();
    },
  });
});
