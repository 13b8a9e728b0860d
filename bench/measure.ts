// Runs one scenario: checks all its contestants, then measures them side by side, each once per round.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Contestant, type Running, start } from './contestants.ts';
import { type Database, NO_DATABASE, type Server, sqliteFile } from './database.ts';
import { load, type Traffic } from './load.ts';
import { cpuSeconds } from './machine.ts';
import type { Scenario } from './scenarios.ts';

/** How long to measure, and where. */
export interface Plan {
  readonly rounds: number;
  readonly seconds: number;
  readonly postgres: Server;
}

/** One run of one contestant. */
export interface Sample {
  /** Requests per second. */
  readonly rate: number;
  /** Microseconds of CPU time per request, of all threads of the server. */
  readonly cpuUs: number;
}

interface Entry {
  readonly running: Running;
  readonly database: Database;
  readonly samples: Sample[];
}

/** Fresh processes, because two processes of one program differ by 1 to 2 % for as long as they run. */
const STARTS = 4;
const CHECK_TIMEOUT_MS = 10_000;
const WARM_UP_CONNECTIONS = 64;
let runs = 0;

/**
 * Returns the samples of each contestant, one per round.
 * @throws if the first response of one is wrong, or if under load it returns an error or loses a write
 */
export async function measure(
  scenario: Scenario,
  contestants: Readonly<Record<string, Contestant>>,
  plan: Plan,
): Promise<Record<string, readonly Sample[]>> {
  const entries: Record<string, Entry> = {};
  let name = '';
  try {
    for (name of Object.keys(contestants)) {
      entries[name] = await begin(scenario, contestants[name]!, plan);
    }
    const names = Object.keys(entries);
    // Round 0 warms up and is not counted: over one connection, V8 would still compile in most of the others. Each round
    // starts with another contestant.
    const warmUp = { ...scenario, connections: WARM_UP_CONNECTIONS };
    for (let round = 0; round <= plan.rounds; round++) {
      const first = round % names.length;
      for (name of [...names.slice(first), ...names.slice(0, first)]) {
        const sample = await run(round > 0 ? scenario : warmUp, entries[name]!, plan.seconds);
        if (round > 0) entries[name]!.samples.push(sample);
      }
    }
    return Object.fromEntries(names.map((each) => [each, entries[each]!.samples]));
  } catch (cause) {
    throw new Error(`${scenario.title}: ${name} failed`, { cause });
  } finally {
    for (const { running, database } of Object.values(entries)) {
      await running.stop();
      await database.drop();
    }
  }
}

/** Returns each contestant's CPU time per request in several measurements, all with fresh processes. */
export async function measureAfresh(
  ...args: Parameters<typeof measure>
): Promise<Record<string, readonly number[]>> {
  const costs: Record<string, number[]> = {};
  for (let i = 0; i < STARTS; i++) {
    for (const [name, samples] of Object.entries(await measure(...args))) {
      costs[name] = [...(costs[name] ?? []), ...samples.map(({ cpuUs }) => cpuUs)];
    }
  }
  return costs;
}

async function begin(scenario: Scenario, contestant: Contestant, plan: Plan): Promise<Entry> {
  const { store, createsTable = false, checks } = contestant;
  const create = () => (store ? sqliteFile() : plan.postgres.create(!createsTable));
  const database = scenario.rows ? await create() : NO_DATABASE;
  const running = await start(contestant, database.url);
  await database.reset(scenario.rows?.(plan.seconds) ?? 0);
  await check(running.url, scenario, checks);
  return { running, database, samples: [] };
}

/** Sends the scenario's request, and requests that the contestant must refuse. */
async function check(
  url: string,
  { traffic, status, type, body, refused = [] }: Scenario,
  checks: Contestant['checks'],
): Promise<void> {
  const good = await send(url, traffic);
  assert.equal(good.status, status);
  if (checks === 'nothing') return;
  assert.equal(good.headers.get('content-type')?.split(';')[0], type);
  body(await good.text());
  for (const { isByStatement, status: expected, ...change } of refused) {
    if (checks === 'statement' && !isByStatement) continue;
    const bad = await send(url, { ...traffic, ...change });
    assert.equal(bad.status, expected, JSON.stringify(change));
  }
}

function send(url: string, { method, path, headers, body, tokens }: Traffic): Promise<Response> {
  const fill = (template: string) =>
    template
      .replace('{run}', 'check')
      .replace('{token}', tokens?.[0] ?? '')
      .replace(/\{(?:id|n)\}/g, '1');
  return fetch(url + fill(path), {
    method,
    headers: Object.entries(headers).map(([name, value]): [string, string] => [name, fill(value)]),
    ...(body !== undefined && { body: fill(body) }),
    signal: AbortSignal.timeout(CHECK_TIMEOUT_MS),
  });
}

async function run(scenario: Scenario, entry: Entry, seconds: number): Promise<Sample> {
  const { traffic, connections, effect } = scenario;
  const { url, pid } = entry.running;
  const rows = scenario.rows?.(seconds) ?? 0;
  if (effect !== undefined) await entry.database.reset(rows);
  const cpuBefore = cpuSeconds(pid);
  const seen = await load({ url, traffic, connections, seconds, rows, run: String(++runs) });
  const cpu = cpuSeconds(pid) - cpuBefore;
  assert.equal(seen.errors, 0, `${seen.errors} errors in ${seen.requests} requests`);
  assert(seen.requests > 0, 'no request got a response');
  if (effect !== undefined) {
    await sleep(50); // Until the requests in flight at the end of the load are done.
    const { database } = entry;
    // Of the requests that wrk made, it never sent the first, and can have ended before the last of each connection.
    const [changed, least] = effect
      ? [((await database.count('')) - rows) * effect, seen.requests]
      : [await database.count('New name '), seen.ids - connections - 1];
    assert(changed >= least, `${least} changes acknowledged, ${changed} made`);
  }
  return { rate: seen.requests / seen.seconds, cpuUs: (cpu / seen.requests) * 1e6 };
}
