// GET /users with a million rows: time to the first byte, time of the whole list, peak memory, and
// latency of other requests meanwhile.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { CONTESTANTS, type Running, start } from './contestants.ts';
import { load } from './load.ts';
import { memoryMb } from './machine.ts';
import { newDatabase, type Setup } from './measure.ts';

/** Connections that request single users without a pause during the list. */
const OTHER_CONNECTIONS = 8;
const ROWS = 1_000_000;
const SMOKE_ROWS = 20_000;
const PEER_ROUNDS = 3; // At most: each takes about 15 s. The service has as many as in the other scenarios.
const LIST_TIMEOUT_MS = 120_000;

/** Names of the contestants. */
export const MILLION = [
  ...['raw-pg', 'express', 'fastify', 'hono', 'elysia', 'go', 'axum', 'ours', 'ours-sqlite'],
];

/** Figures of a fresh process: first only the list, then the list with other requests. */
export interface MillionSample {
  readonly firstByteMs: number;
  readonly totalMs: number;
  readonly firstByteBusyMs: number;
  readonly totalBusyMs: number;
  /** Latency of the other requests. */
  readonly otherP50Ms: number;
  readonly otherP99Ms: number;
  readonly peakMb: number;
}

/** The samples of a contestant, one per round, or the reason why there are none. */
export interface MillionResult {
  readonly name: string;
  readonly samples: readonly MillionSample[];
  readonly failure?: string;
}

/** Measures these contestants one at a time, peers for at most PEER_ROUNDS. */
export async function million(names: readonly string[], setup: Setup): Promise<MillionResult[]> {
  const results: MillionResult[] = [];
  for (const name of names) {
    try {
      results.push({ name, samples: await rounds(name, setup) });
    } catch (err) {
      results.push({ name, samples: [], failure: String(err) });
    }
  }
  return results;
}

/** Starts a fresh process per round, so that the peak memory is the round's own. */
async function rounds(name: string, setup: Setup): Promise<MillionSample[]> {
  const contestant = CONTESTANTS[name];
  if (contestant === undefined) throw new Error(`no contestant ${name}`);
  const rows = setup.isSmoke ? SMOKE_ROWS : ROWS;
  const database = await newDatabase('million', name, contestant, setup.postgres);
  const samples: MillionSample[] = [];
  try {
    const count = name.startsWith('ours') ? setup.rounds : Math.min(PEER_ROUNDS, setup.rounds);
    for (let round = 0; round < count; round++) {
      const running = await start(contestant, setup.cores.server, { DATABASE_URL: database.url });
      try {
        if (round === 0) await database.reset(rows);
        samples.push(await sample(running, rows, setup));
      } finally {
        await running.stop();
      }
    }
  } finally {
    await database.drop();
  }
  return samples;
}

async function sample(
  { url, pid }: Running,
  rows: number,
  { generator, cores }: Setup,
): Promise<MillionSample> {
  const alone = await list(`${url}/users`, rows);
  const stop = new AbortController();
  const others = load(
    {
      url,
      traffic: { method: 'GET', path: '/users/{id}', headers: {} },
      connections: OTHER_CONNECTIONS,
      seconds: LIST_TIMEOUT_MS / 1000,
      rows,
      run: 'million',
    },
    generator,
    cores.load,
    stop.signal,
  );
  others.catch(() => {}); // Awaited below.
  await sleep(500); // Until the other requests are running.
  const beside = await list(`${url}/users`, rows).finally(() => stop.abort());
  const seen = await others;
  assert.equal(seen.errors, 0, 'other requests failed meanwhile');
  return {
    firstByteMs: alone.firstByteMs,
    totalMs: alone.totalMs,
    firstByteBusyMs: beside.firstByteMs,
    totalBusyMs: beside.totalMs,
    otherP50Ms: seen.p50Ms,
    otherP99Ms: seen.p99Ms,
    peakMb: memoryMb(pid, 'VmHWM'),
  };
}

/** Reads the list to its end, and counts its users by their emails. */
async function list(
  url: string,
  rows: number,
): Promise<{ readonly firstByteMs: number; readonly totalMs: number }> {
  const startedAt = performance.now();
  const req = get(url, { agent: false, signal: AbortSignal.timeout(LIST_TIMEOUT_MS) });
  const [res]: IncomingMessage[] = await once(req, 'response');
  assert(res);
  assert.equal(res.statusCode, 200);
  let firstByteMs = 0;
  let users = 0;
  let last = '';
  for await (const chunk of res) {
    firstByteMs ||= performance.now() - startedAt;
    users += countOf('@', chunk);
    last = String.fromCharCode(chunk.at(-1));
  }
  assert.equal(users, rows, 'users in the list');
  assert.equal(last, ']', 'the last byte of the list');
  return { firstByteMs, totalMs: performance.now() - startedAt };
}

/** Counts a character. Counting `@` counts users: every email has one, and no name has any. */
function countOf(character: string, chunk: Buffer): number {
  const code = character.charCodeAt(0);
  let count = 0;
  for (let at = chunk.indexOf(code); at !== -1; at = chunk.indexOf(code, at + 1)) count += 1;
  return count;
}
