// Stops and starts: SIGTERM under load, ten first starts at once on an empty database, a start
// without Postgres.
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { createDatabase } from '../support/postgres.ts';
import { STORES, start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { HEAL_SECONDS } from './campaign.ts';
import { type Entry, Ledger } from './ledger.ts';
import { pipeline, queue } from './pipeline.ts';
import { report, secondsSince, TIMES } from './results.ts';
import { databaseOf, releaseServer, usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 16;
const PIPELINES = 8;
/** Connections queued in the kernel while the service is frozen. */
const QUEUED = 100;
/** Maximum time from the last response to the exit. */
const LAST_SECONDS = 1;
const FIRST_STARTS = 10;
const NOTHING = { lost: [], duplicated: [] };

after(releaseServer);

for (const store of STORES) {
  describe(`stopping and starting (${store})`, { timeout: 300_000 }, () => {
    test('SIGTERM under load of keep-alive and pipelining clients', async (t) => {
      const DATABASE_URL = await databaseOf(store);
      const ledger = new Ledger();
      let lastSeconds = 0;
      let landed = 0;
      const untaken: Entry[] = [];
      for (let i = 0; i < TIMES.network * 3; i++) {
        await using program = await start({ DATABASE_URL });
        const writers = new Writers(ledger, program.url, WRITERS);
        const pipelines = Array.from({ length: PIPELINES }, () => pipeline(program));
        await writers.progress(2 * WRITERS);
        await pause(Math.random() * 50);
        if (writers.inFlight > 0) landed++;
        const exit = program.exited.then((status) => ({ ...status, endedMs: Date.now() }));
        program.process.kill('SIGTERM');
        // A client that gets `Connection: close` reconnects. It ends when it is refused.
        await writers.ended;
        const responses = await Promise.all(pipelines);
        // 0: within SHUTDOWN_TIMEOUT_MS.
        const { endedMs, ...status } = await exit;
        assert.deepEqual(status, { code: 0, signal: null });
        const respondedMs = program.log
          .filter(({ message }) => message === 'request')
          .map(({ time }) => Date.parse(String(time)));
        lastSeconds = Math.max(lastSeconds, (endedMs - Math.max(...respondedMs)) / 1000);
        assert.deepEqual([writers.surprises, writers.cutOff], [[], []]);
        untaken.push(...writers.untaken);
        for (const { taken, responded } of responses) assert.equal(responded, taken);
        const responded = responses.reduce((sum, response) => sum + response.responded, 0);
        assert.ok(responded > 0);
      }
      assert.equal(landed, TIMES.network * 3);
      assert.ok(lastSeconds < LAST_SECONDS, `ended ${lastSeconds} s after the last response`);
      const rows = await usersIn(DATABASE_URL);
      assert.deepEqual(ledger.check(rows), NOTHING);
      // Requests after the listener closed were not done, so a client can send them elsewhere.
      const versions = new Map(rows.map(({ email, version }) => [email, version]));
      assert.deepEqual(
        untaken.map(({ email }) => versions.get(email)),
        untaken.map(({ id, changes }) => (id === undefined ? undefined : changes + 1)),
      );
      const { acknowledged } = ledger;
      const fault = 'SIGTERM under load';
      report(t, { fault, store, injected: landed, acknowledged, lost: 0, duplicated: 0 });
    });

    test('connections that the kernel queued before SIGTERM are served', async () => {
      await using program = await start({ DATABASE_URL: await databaseOf(store) });
      const waiting = await queue(program, QUEUED);
      program.process.kill('SIGTERM');
      program.process.kill('SIGCONT');
      assert.deepEqual(await waiting.statuses(), Array(QUEUED).fill('HTTP/1.1 200'));
      assert.deepEqual(await program.exited, { code: 0, signal: null });
    });

    test('ten first starts at once on an empty database', async (t) => {
      const DATABASE_URL = await databaseOf(store);
      const ledger = new Ledger();
      const programs = await Promise.all(
        Array.from({ length: FIRST_STARTS }, () => start({ DATABASE_URL })),
      );
      try {
        const writers = programs.map(({ url }) => new Writers(ledger, url, 2));
        await Promise.all(writers.map((some) => some.progress(20)));
        await Promise.all(writers.map((some) => some.stop()));
        assert.deepEqual(
          writers.flatMap((some) => [...some.counts.keys()]).filter((status) => status >= 300),
          [],
        );
      } finally {
        await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
      }
      assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), NOTHING);
      const { acknowledged } = ledger;
      const fault = 'ten first starts at once';
      report(t, { fault, store, injected: FIRST_STARTS, acknowledged, lost: 0, duplicated: 0 });
    });
  });
}

test('a start without Postgres', { timeout: 60_000 }, async (t) => {
  await using server = await Server.create();
  const DATABASE_URL = await createDatabase(server.url);
  await server.stop();
  await using program = await start({ DATABASE_URL, DATABASE_TIMEOUT_MS: '500' });
  const ledger = new Ledger();
  const writers = new Writers(ledger, program.url, WRITERS);
  await writers.until(() => writers.count(500) >= 2 * WRITERS);
  await server.start();
  const began = performance.now();
  await writers.progress(1);
  const healSeconds = secondsSince(began);
  await writers.progress(WRITERS);
  await writers.stop();
  assert.deepEqual(writers.surprises, []);
  assert.ok(healSeconds < HEAL_SECONDS, `served ${healSeconds} s after Postgres`);
  assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), NOTHING);
  report(t, {
    ...{ fault: 'start without Postgres', store: 'postgres', injected: 1, lost: 0, duplicated: 0 },
    ...{ acknowledged: ledger.acknowledged, healSeconds },
  });
});
