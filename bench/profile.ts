// Profiles the CPU time of the service under the benchmark's load, with V8's sampling profiler.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONTESTANTS } from './contestants.ts';
import { measure, type Setup } from './measure.ts';
import { table } from './report.ts';
import { SCENARIOS } from './scenarios.ts';
import { newFolder, remove } from './temp.ts';

const PROFILED = [
  ...['greeting', 'protected', 'notes', 'notes-20k', 'token', 'user-by-id', 'list-100', 'create'],
  ...['put', 'patch', 'delete'],
];
const BUILT = join(import.meta.dirname, '../dist/main.cjs');
const INTERVAL_US = 200;

const PARTS = {
  write: 'system calls that write to a socket',
  program: "node's C++: reading, parsing, polling, timers",
  garbage: 'garbage collection',
  node: "node's JavaScript",
  driver: 'the driver `postgres`',
  http: 'the service: `http/`, pipeline',
  auth: 'the service: `auth/`',
  store: 'the service: `store/`',
  other: 'the service: the rest',
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

/** Runs each scenario; returns a table of the shares of the CPU time, in percent. */
export async function profile(setup: Setup): Promise<string> {
  const columns: [title: string, shares: Map<Part, number>][] = [];
  for (const id of PROFILED) {
    const scenario = SCENARIOS[id]!; // PROFILED names only scenarios.
    const folder = newFolder();
    const [node = '', ...args] = CONTESTANTS.ours!.command;
    const flags = ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-interval=${INTERVAL_US}`];
    const ours = { ...CONTESTANTS.ours!, command: [node, ...flags, ...args], isGraceful: true };
    const [result] = await measure(`profile_${id}`, scenario, { ours }, setup);
    if (result?.failure !== undefined) throw new Error(`${id}: ${result.failure}`);
    const [file] = globSync('*.cpuprofile', { cwd: folder });
    if (file === undefined) throw new Error(`${id}: node wrote no profile`);
    columns.push([scenario.title, shares(JSON.parse(readFileSync(join(folder, file), 'utf8')))]);
    remove(folder);
  }
  const percent = (value = 0) => (100 * value).toFixed(0);
  const parts = Object.entries(PARTS) as [Part, string][];
  return table(
    ['CPU time, %', ...columns.map(([title]) => title)],
    parts.map(([part, title]) => [title, ...columns.map(([, all]) => percent(all.get(part)))]),
  );
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
  const source = moduleAt(lineNumber);
  if (source.startsWith('auth/')) return 'auth';
  if (source.startsWith('store/')) return 'store';
  return source.startsWith('http/') || source === 'app.ts' ? 'http' : 'other';
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
