// Profiles the CPU time of the service under the benchmark's load, with V8's sampling profiler.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONTESTANTS, type Contestant } from './contestants.ts';
import { measure, type Setup } from './measure.ts';
import { median, table } from './report.ts';
import { SCENARIOS } from './scenarios.ts';
import { newFolder, remove } from './temp.ts';

const PROFILED = [
  ...['greeting', 'protected', 'notes', 'notes-20k', 'token', 'user-by-id', 'list-100', 'create'],
  ...['put', 'patch', 'delete'],
];
const LOGGED = ['greeting', 'user-by-id'];
const BUILT = join(import.meta.dirname, '../dist/main.cjs');
const INTERVAL_US = 200;
const EXITS_ON_SIGTERM = "data:text/javascript,process.once('SIGTERM',()=>process.exit())";

const PARTS = {
  write: 'writes to sockets',
  program: "node's C++",
  garbage: 'garbage',
  node: "node's JavaScript",
  driver: '`postgres`',
  http: '`http/`, `server/`, `pipeline.ts`',
  auth: '`auth/`',
  store: '`store/`',
  other: 'own, other',
};
type Part = keyof typeof PARTS;

/** A frame of a V8 profile. Native functions have no URL. */
interface Frame {
  readonly functionName: string;
  readonly url: string;
  readonly lineNumber: number;
}

interface Profile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** A contestant's CPU time per request in microseconds: all, and by part. */
interface Cost {
  readonly cpuUs: number;
  readonly shares: Map<Part, number>;
}

/**
 * Runs each scenario with its baseline and the service, interleaved. Returns a table of the CPU time
 * per request in microseconds, by part.
 */
export async function profile(setup: Setup): Promise<string> {
  const parts = Object.keys(PARTS) as Part[];
  const rows: string[][] = [];
  for (const id of PROFILED) {
    const scenario = SCENARIOS[id]!; // PROFILED names only scenarios.
    const names = [scenario.baseline, 'ours', ...(scenario.hasUsers ? ['ours-sqlite'] : [])];
    if (LOGGED.includes(id)) names.push('ours-log');
    const costs = await costsOf(id, names, setup);
    for (const [name, { cpuUs, shares }] of costs) {
      const cells = parts.map((part) => cpuUs * (shares.get(part) ?? 0));
      rows.push([`${scenario.title}: ${name}`, ...[cpuUs, ...cells].map((us) => us.toFixed(1))]);
    }
  }
  return table(['CPU µs/request', 'all', ...Object.values(PARTS)], rows);
}

async function costsOf(id: string, names: string[], setup: Setup): Promise<[string, Cost][]> {
  const folders = new Map(names.map((name) => [name, newFolder()]));
  const profiled = names.map((name) => [name, withProfile(name, folders.get(name)!)]);
  const results = await measure(
    `profile_${id}`,
    SCENARIOS[id]!,
    Object.fromEntries(profiled),
    setup,
  );
  return results.map(({ name, samples, failure }) => {
    if (failure !== undefined) throw new Error(`${id}: ${failure}`);
    const folder = folders.get(name)!;
    const [file] = globSync('*.cpuprofile', { cwd: folder });
    if (file === undefined) throw new Error(`${id}: ${name} wrote no profile`);
    const parts = shares(JSON.parse(readFileSync(join(folder, file), 'utf8')));
    remove(folder);
    return [name, { cpuUs: median(samples.map(({ cpuUs }) => cpuUs)), shares: parts }];
  });
}

/** Returns the contestant with a profile that it writes into the folder at its end. */
function withProfile(name: string, folder: string): Contestant {
  const contestant = CONTESTANTS[name]!; // Callers pass only contestants.
  const [node = '', ...args] = contestant.command;
  const flags = ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-interval=${INTERVAL_US}`];
  // A baseline has no graceful stop: SIGTERM would end it without a profile.
  if (!name.startsWith('ours')) flags.push('--import', EXITS_ON_SIGTERM);
  return { ...contestant, command: [node, ...flags, ...args], isGraceful: true };
}

function shares({ nodes, samples, timeDeltas }: Profile): Map<Part, number> {
  const parts = new Map(nodes.map(({ id, callFrame }) => [id, partOf(callFrame)]));
  const spent = new Map<Part, number>();
  let total = 0;
  samples.forEach((id, i) => {
    const part = parts.get(id);
    if (part === undefined) return;
    const time = timeDeltas[i + 1] ?? 0;
    spent.set(part, (spent.get(part) ?? 0) + time);
    total += time;
  });
  return new Map([...spent].map(([part, time]) => [part, time / total]));
}

/** Returns the part of the service that a frame belongs to; undefined for idle time. */
function partOf({ functionName, url, lineNumber }: Frame): Part | undefined {
  if (functionName === '(idle)' || functionName === '(root)') return undefined;
  if (functionName === '(garbage collector)') return 'garbage';
  if (url === '') return /^write/.test(functionName) ? 'write' : 'program';
  if (url.startsWith('node:')) return 'node';
  if (url.includes('node_modules/postgres/')) return 'driver';
  if (!url.includes(BUILT)) return 'other';
  const source = moduleAt(lineNumber);
  if (source.startsWith('auth/')) return 'auth';
  if (source.startsWith('store/')) return 'store';
  return /^(?:http|server)\/|^pipeline\.ts$/.test(source) ? 'http' : 'other';
}

let heads: [line: number, source: string][] | undefined;

/** Returns the source file of a line of the built file, from the comment above each module. */
function moduleAt(line: number): string {
  heads ??= readFileSync(BUILT, 'utf8')
    .split('\n')
    .flatMap((text, i) => {
      const source = /^\/\/ src\/(\S+\.ts)$/.exec(text)?.[1];
      return source === undefined ? [] : [[i, source] as [number, string]];
    });
  return heads.findLast(([head]) => head <= line)?.[1] ?? '';
}
