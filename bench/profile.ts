// Profiles the CPU time of the service under the benchmark's load, with V8's sampling profiler.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONTESTANTS } from './contestants.ts';
import { newFolder } from './machine.ts';
import { measure, type Plan } from './measure.ts';
import { SCENARIOS } from './scenarios.ts';
import { median, table } from './table.ts';

const BUILT = join(import.meta.dirname, '../dist/main.cjs');
const INTERVAL_US = 200;
const PARTS = [
  ...['writes to sockets', "node's C++", 'garbage', "node's JavaScript", '`postgres`'],
  ...['`http/`, `app.ts`', '`auth/`', '`store/`', 'own, other'],
] as const;
type Part = (typeof PARTS)[number];

/** A V8 profile. Native functions have no URL. */
interface Profile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

interface Frame {
  readonly functionName: string;
  readonly url: string;
  readonly lineNumber: number;
}

/** Prints the CPU time per request of each scenario and store, by part of the program. */
export async function profile(isWanted: (id: string) => boolean, plan: Plan): Promise<void> {
  const rows: string[][] = [];
  const wanted = Object.entries(SCENARIOS).filter(([id]) => isWanted(id));
  for (const [, scenario] of wanted) {
    for (const name of ['ours', 'ours-sqlite'] as const) {
      if (!scenario.contestants.includes(name)) continue;
      const folder = newFolder();
      const [node, ...args] = CONTESTANTS[name].command;
      const flags = ['--cpu-prof', `--cpu-prof-dir=${folder}`];
      const command = [node!, ...flags, `--cpu-prof-interval=${INTERVAL_US}`, ...args];
      const contestant = { ...CONTESTANTS[name], command, isGraceful: true };
      const samples = (await measure(scenario, { [name]: contestant }, plan))[name]!;
      const cpuUs = median(samples.map((sample) => sample.cpuUs));
      const [file] = globSync('*.cpuprofile', { cwd: folder });
      if (file === undefined) throw new Error(`${scenario.title}: ${name} wrote no profile`);
      const shares = sharesOf(JSON.parse(readFileSync(join(folder, file), 'utf8')));
      const cells = [1, ...PARTS.map((part) => shares.get(part) ?? 0)];
      const figures = cells.map((share) => (cpuUs * share).toFixed(1));
      rows.push([`${scenario.title}: ${name}`, ...figures]);
    }
  }
  console.log(table(['CPU µs/request', 'all', ...PARTS], rows));
}

function sharesOf({ nodes, samples, timeDeltas }: Profile): Map<Part, number> {
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

/** Returns the part of the program that a frame belongs to; undefined for idle time. */
function partOf({ functionName, url, lineNumber }: Frame): Part | undefined {
  if (functionName === '(idle)' || functionName === '(root)') return undefined;
  if (functionName === '(garbage collector)') return 'garbage';
  if (url === '') return /^write/.test(functionName) ? 'writes to sockets' : "node's C++";
  if (url.startsWith('node:')) return "node's JavaScript";
  if (url.includes('node_modules/postgres/')) return '`postgres`';
  const source = url.includes(BUILT) ? sourceAt(lineNumber) : '';
  if (source.startsWith('auth/')) return '`auth/`';
  if (source.startsWith('store/')) return '`store/`';
  return /^(?:http\/|app\.ts)/.test(source) ? '`http/`, `app.ts`' : 'own, other';
}

let heads: [line: number, source: string][] | undefined;

/** Returns the source file of a line of the built file, from the comment above each module. */
function sourceAt(line: number): string {
  heads ??= readFileSync(BUILT, 'utf8')
    .split('\n')
    .flatMap((text, i) => {
      const source = /^\/\/ src\/(\S+\.ts)$/.exec(text)?.[1];
      return source === undefined ? [] : [[i, source] as [number, string]];
    });
  return heads.findLast(([head]) => head <= line)?.[1] ?? '';
}
