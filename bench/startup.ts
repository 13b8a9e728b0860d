// Time from the spawn of a process to its first 200, and memory of an idle process, relative to the
// smallest possible node:http server.
import { setTimeout as sleep } from 'node:timers/promises';
import { CONTESTANTS, type Contestant, start } from './contestants.ts';
import type { Database } from './database.ts';
import { memoryMb } from './machine.ts';
import { newDatabase, type Setup } from './measure.ts';

const IDLE_MS = 500;

/** Names of the contestants; the first is the baseline. */
export const STARTS = [
  ...['bare', 'express', 'fastify', 'hono', 'elysia', 'go', 'axum', 'pocketbase'],
  ...['ours', 'ours-sqlite', 'source', 'image'],
];

/** One start. */
export interface StartSample {
  readonly startMs: number;
  /** Resident memory half a second after the first response. */
  readonly idleMb: number;
}

/** The samples of a row, one per round, or the reason why there are none. */
export interface StartResult {
  readonly name: string;
  readonly samples: readonly StartSample[];
  readonly failure?: string;
}

interface Entry {
  readonly name: string;
  readonly contestant: Contestant;
  readonly database: Database;
  readonly samples: StartSample[];
  failure?: string;
}

/** Starts each of them once per round. All rounds use the same stores. */
export async function startup(names: readonly string[], setup: Setup): Promise<StartResult[]> {
  const entries: Entry[] = [];
  for (const name of names) {
    const contestant = CONTESTANTS[name];
    if (contestant === undefined) throw new Error(`no contestant ${name}`);
    const database = await newDatabase('start', name, contestant, setup.postgres);
    entries.push({ name, contestant, database, samples: [] });
  }
  // Round 0 is not counted. It fills the page cache and creates the tables.
  for (let round = setup.isSmoke ? 1 : 0; round <= setup.rounds; round++) {
    for (const entry of entries.filter(({ failure }) => failure === undefined)) {
      try {
        const sample = await once(entry, setup.cores.server);
        if (round > 0) entry.samples.push(sample);
      } catch (err) {
        entry.failure = String(err);
      }
    }
  }
  for (const { database } of entries) await database.drop();
  return entries.map(({ name, samples, failure }) =>
    failure === undefined ? { name, samples } : { name, samples: [], failure },
  );
}

async function once({ contestant, database }: Entry, cores: string): Promise<StartSample> {
  const running = await start(contestant, cores, { DATABASE_URL: database.url });
  await sleep(IDLE_MS);
  const idleMb = memoryMb(running.pid, 'VmRSS');
  await running.stop();
  return { startMs: running.startMs, idleMb };
}
