// Runs one scenario. Checks all its contestants first, then measures them side by side: each once
// per round, and every round starts with another contestant.
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { check } from './check.ts';
import { type Contestant, type Running, start } from './contestants.ts';
import type { Database, Server } from './database.ts';
import { type Generator, load } from './load.ts';
import { type Cores, cpuSeconds, memoryMb, stolenSeconds } from './machine.ts';
import type { Scenario } from './scenarios.ts';
import { NO_DATABASE, sqliteFile } from './sqlite.ts';

/** Settings of the whole benchmark. */
export interface Setup {
  readonly rounds: number;
  readonly seconds: number;
  readonly isSmoke: boolean;
  readonly generator: Generator;
  readonly cores: Cores;
  /** A durable server, as fast as the disk. */
  readonly postgres: Server;
  /** A server with slow fsyncs, and the environment that slows a process's fsyncs. */
  readonly slow?: { readonly postgres: Server; readonly env: Readonly<Record<string, string>> };
}

/** One run of one contestant. The load measures times. CPU and memory are the contestant's. */
export interface Sample {
  /** Requests per second. */
  readonly rate: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Microseconds of CPU time per request. */
  readonly cpuUs: number;
  /** CPU time divided by elapsed time: 1 is a whole core. */
  readonly busy: number;
  /** Share of the time of all cores that the hypervisor gave to other machines. */
  readonly stolen: number;
  readonly rssMb: number;
}

/** The samples of a contestant, one per round, or the reason why there are none. */
export interface Result {
  readonly name: string;
  readonly samples: readonly Sample[];
  readonly failure?: string;
}

interface Entry {
  readonly name: string;
  readonly scenario: Scenario;
  readonly running: Running;
  readonly database: Database;
  readonly samples: Sample[];
}

/** A run is repeated if the hypervisor took more than this share of the CPU time. */
const MAX_STOLEN = 0.02;
const MAX_ATTEMPTS = 2;

let runs = 0;

/** Measures these contestants. One that fails skips the later rounds; its result has the reason. */
export async function measure(
  id: string,
  scenario: Scenario,
  contestants: Readonly<Record<string, Contestant>>,
  setup: Setup,
): Promise<Result[]> {
  const names = Object.keys(contestants);
  const entries: Entry[] = [];
  const failures = new Map<string, string>();
  try {
    for (const [name, contestant] of Object.entries(contestants)) {
      try {
        entries.push(await begin(id, name, contestant, scenario, setup));
      } catch (err) {
        failures.set(name, String(err));
      }
    }
    // Round 0 warms up and is not counted.
    for (let round = setup.isSmoke ? 1 : 0; round <= setup.rounds; round++) {
      for (const entry of rotated(entries, round)) {
        if (failures.has(entry.name)) continue;
        try {
          const sample = await quietRun(entry, setup);
          if (round > 0) entry.samples.push(sample);
        } catch (err) {
          failures.set(entry.name, String(err));
        }
      }
    }
  } finally {
    for (const { running, database } of entries) {
      await running.stop();
      await database.drop();
    }
  }
  return names.map((name) => {
    const failure = failures.get(name);
    if (failure !== undefined) return { name, samples: [], failure };
    return { name, samples: entries.find((entry) => entry.name === name)?.samples ?? [] };
  });
}

/** Creates the contestant's own empty database. */
export async function newDatabase(
  scenario: string,
  name: string,
  { store, table, createsTable = false }: Contestant,
  postgres: Server,
): Promise<Database> {
  if (store === 'sqlite') return sqliteFile(table);
  return postgres.create(`${scenario}_${name}`.replaceAll('-', '_'), !createsTable);
}

async function begin(
  id: string,
  name: string,
  contestant: Contestant,
  scenario: Scenario,
  setup: Setup,
): Promise<Entry> {
  const { postgres, env } = (scenario.slowFsync && setup.slow) || { ...setup, env: {} };
  const database = scenario.hasUsers
    ? await newDatabase(id, name, contestant, postgres)
    : NO_DATABASE;
  let running: Running | undefined;
  try {
    const extra = { DATABASE_URL: database.url, ...(contestant.store === 'sqlite' && env) };
    running = await start(contestant, setup.cores.server, extra);
    await database.reset(rowsOf(scenario, setup));
    await check(running.url, scenario, contestant.checks ?? 'all');
    return { name, scenario, running, database, samples: [] };
  } catch (err) {
    await running?.stop();
    await database.drop();
    throw err;
  }
}

/** Repeats a run that others disturbed. Returns the one with the least stolen time. */
async function quietRun(entry: Entry, setup: Setup): Promise<Sample> {
  let best = await run(entry, setup);
  for (let i = 1; i < MAX_ATTEMPTS && best.stolen > MAX_STOLEN && !setup.isSmoke; i++) {
    const sample = await run(entry, setup);
    if (sample.stolen < best.stolen) best = sample;
  }
  return best;
}

async function run({ scenario, running, database }: Entry, setup: Setup): Promise<Sample> {
  const { traffic, connections, effect, writes } = scenario;
  const { seconds, generator, cores } = setup;
  const rows = rowsOf(scenario, setup);
  if (writes) await database.reset(rows);
  const countBefore = effect ? await database.count() : 0;
  const job = { url: running.url, traffic, connections, seconds, rows, run: String(++runs) };
  const cpuBefore = cpuSeconds(running.pid);
  const stolenBefore = stolenSeconds();
  const seen = await load(job, generator, cores.load);
  const cpu = cpuSeconds(running.pid) - cpuBefore;
  const stolen = (stolenSeconds() - stolenBefore) / (seen.seconds * availableParallelism());
  if (seen.errors > 0) throw new Error(`${seen.errors} errors in ${seen.requests} requests`);
  if (seen.requests === 0) throw new Error('no request got a response');
  await sleep(50); // Until the requests in flight at the end of the load are done.
  const changed = effect ? ((await database.count()) - countBefore) * effect : 0;
  if (effect && changed < seen.requests) {
    throw new Error(`${seen.requests} writes acknowledged, ${changed} in the table`);
  }
  return {
    rate: seen.requests / seen.seconds,
    p50Ms: seen.p50Ms,
    p99Ms: seen.p99Ms,
    cpuUs: (cpu / seen.requests) * 1e6,
    busy: cpu / seen.seconds,
    stolen,
    rssMb: memoryMb(running.pid, 'VmRSS'),
  };
}

function rowsOf({ rows = 0 }: Scenario, { seconds }: Setup): number {
  return typeof rows === 'number' ? rows : Math.ceil(rows.perSecond * seconds);
}

function rotated<T>(list: readonly T[], by: number): T[] {
  const shift = by % Math.max(1, list.length);
  return [...list.slice(shift), ...list.slice(0, shift)];
}
