// Kills the service with SIGKILL at random moments under 16 writers. After the next start, every
// acknowledged write exists once, and no id is reused.
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { newFolder, STORES, start } from '../support/program.ts';
import { Ledger } from './ledger.ts';
import { report, secondsSince, TIMES } from './results.ts';
import { databaseOf, releaseServer, usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 16;
/** Services killed in parallel, each with its own database. */
const LANES = 4;
/** Maximum random delay of a kill after the first request. */
const LOAD_MS = 100;
/** The database is compared with the ledger after this many kills, and after the last. */
const CHECK_EVERY = 10;

const NODE_COMPILE_CACHE = newFolder();

after(releaseServer);

for (const store of STORES) {
  describe(`kill -9 of the service (${store})`, () => {
    test('no acknowledged write is lost or done twice', { timeout: 900_000 }, async (t) => {
      // Starts take most of the time. A cache of compiled code makes them faster.
      const program = await start({ NODE_COMPILE_CACHE });
      await program.stop();
      const lanes = Array.from({ length: LANES }, () => lane(TIMES.serviceKills / LANES));
      const results = await Promise.all(lanes);
      const sum = (key: keyof (typeof results)[0]) =>
        results.reduce((total, result) => total + result[key], 0);
      // The fault counts if a write was in flight.
      assert.equal(sum('landed'), TIMES.serviceKills);
      const healSeconds = Math.max(...results.map(({ startSeconds }) => startSeconds));
      const acknowledged = sum('acknowledged');
      report(t, {
        ...{ fault: 'kill -9 of the service', store, injected: sum('landed'), acknowledged },
        ...{ lost: 0, duplicated: 0, healSeconds },
      });
    });

    async function lane(kills: number) {
      const DATABASE_URL = await databaseOf(store);
      const ledger = new Ledger();
      let landed = 0;
      let startSeconds = 0;
      for (let kill = 1; kill <= kills; kill++) {
        const began = performance.now();
        await using program = await start({ DATABASE_URL, NODE_COMPILE_CACHE });
        const writers = new Writers(ledger, program.url, WRITERS);
        if (kill > 1) {
          await writers.progress(1);
          startSeconds = Math.max(startSeconds, secondsSince(began));
        }
        await pause(Math.random() * LOAD_MS);
        if (writers.inFlight > 0) landed++;
        program.process.kill('SIGKILL');
        const [exit] = await Promise.all([program.exited, writers.stop()]);
        assert.deepEqual(exit, { code: null, signal: 'SIGKILL' });
        assert.deepEqual(writers.surprises, []);
        assert.equal(writers.count(500), 0);
        if (kill % CHECK_EVERY > 0 && kill < kills) continue;
        const nothing = { lost: [], duplicated: [] };
        assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), nothing);
      }
      return { landed, startSeconds, acknowledged: ledger.acknowledged };
    }
  });
}
