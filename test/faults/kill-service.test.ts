// Kills the service with SIGKILL at random moments under 16 writers. After the next start, every
// acknowledged write exists once, and no id is reused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { newDatabase, newFolder, STORES, start } from '../support/program.ts';
import { report, TIMES } from './results.ts';
import { Ledger, Writers } from './writers.ts';

const WRITERS = 16;
const LANES = 4; // services killed in parallel, each with its own database
const KILLS = TIMES.serviceKills / LANES;
const LOAD_MS = 100; // maximum random delay of a kill after the first request
const CHECK_EVERY = 10; // kills; then the database is compared with the ledger

const NODE_COMPILE_CACHE = newFolder();

for (const store of STORES) {
  test(`kill -9 of the service (${store})`, { timeout: 900_000 }, async (t) => {
    // Starts take most of the time. A cache of compiled code makes them faster.
    const program = await start({ NODE_COMPILE_CACHE });
    await program.stop();
    let acknowledged = 0;
    let healMs = 0;
    const lane = async () => {
      const DATABASE_URL = await newDatabase(store);
      const ledger = new Ledger();
      for (let kill = 1; kill <= KILLS; kill++) {
        const began = performance.now();
        await using program = await start({ DATABASE_URL, NODE_COMPILE_CACHE });
        const writers = new Writers(ledger, program.url, WRITERS);
        if (kill > 1) {
          await writers.progress(1);
          healMs = Math.max(healMs, performance.now() - began);
        }
        await pause(Math.random() * LOAD_MS);
        program.process.kill('SIGKILL');
        const [exit] = await Promise.all([program.exited, writers.stop()]);
        assert.deepEqual(exit, { code: null, signal: 'SIGKILL' });
        assert.equal(writers.refused, 0);
        if (kill % CHECK_EVERY > 0 && kill < KILLS) continue;
        assert.deepEqual(await ledger.check(DATABASE_URL), []);
      }
      acknowledged += ledger.acknowledged;
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    report(t, LANES * KILLS, acknowledged, healMs);
  });
}
