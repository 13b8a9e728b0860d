// The load: closed-loop connections from a separate core. Uses wrk if it is installed, otherwise
// autocannon. A request is a template; `{id}`, `{n}`, `{run}` and `{token}` in it vary.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { has, on } from './machine.ts';
import { killAtExit, newFolder, remove } from './temp.ts';
import { script } from './wrk.ts';

/**
 * A request template. `{id}`: a random user; `{n}`: 1, 2, 3 … within a run; `{run}`: differs from
 * run to run; `{token}`: the next of `tokens`.
 */
export interface Traffic {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly tokens?: readonly string[];
}

/** One run of one template. */
export interface Job {
  readonly url: string;
  readonly traffic: Traffic;
  readonly connections: number;
  readonly seconds: number;
  /** `{id}` is a number from 1 to this. */
  readonly rows: number;
  readonly run: string;
}

/** The figures of the load generator. Errors are responses from 400 on, resets and timeouts. */
export interface Seen {
  readonly requests: number;
  readonly seconds: number;
  readonly errors: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** The two generators. `wrk` takes much less CPU time of the core that it shares with Postgres. */
export type Generator = 'wrk' | 'autocannon';

/** The generator that this machine has. */
export const GENERATOR: Generator = has('wrk') ? 'wrk' : 'autocannon';
/** Time beyond its duration after which a run is killed. */
const GRACE_MS = 20_000;

/** Runs the job on those cores. An aborted `signal` ends it early, with the figures so far. */
export async function load(
  job: Job,
  generator: Generator,
  cores: string,
  signal?: AbortSignal,
): Promise<Seen> {
  const folder = newFolder();
  try {
    const command = generator === 'wrk' ? wrk(job, folder) : autocannon(job, folder);
    return JSON.parse(await run(on(cores, command), job.seconds * 1000, signal));
  } finally {
    remove(folder);
  }
}

function wrk(job: Job, folder: string): string[] {
  const file = join(folder, 'job.lua');
  writeFileSync(join(folder, 'tokens'), (job.traffic.tokens ?? []).join('\n'));
  writeFileSync(file, script(job, join(folder, 'tokens')));
  // One second more than needed. `run` ends the load after exactly the right time.
  const duration = `-d${Math.ceil(job.seconds) + 1}s`;
  return ['wrk', '-t1', `-c${job.connections}`, duration, '--timeout=10s', '-s', file, job.url];
}

function autocannon(job: Job, folder: string): string[] {
  const file = join(folder, 'job.json');
  writeFileSync(file, JSON.stringify(job));
  return [process.execPath, join(import.meta.dirname, 'autocannon.ts'), file];
}

/** Ends the program by SIGINT after `ms`, because wrk's own clock has only whole seconds. */
async function run(
  [file, ...args]: readonly [string, ...string[]],
  ms: number,
  signal?: AbortSignal,
): Promise<string> {
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  killAtExit(child);
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    output += chunk;
  });
  const stop = () => child.kill('SIGINT');
  signal?.addEventListener('abort', stop, { once: true });
  const stopTimer = setTimeout(stop, ms);
  const killTimer = setTimeout(() => child.kill('SIGKILL'), ms + GRACE_MS);
  try {
    await once(child, 'close');
  } finally {
    clearTimeout(stopTimer);
    clearTimeout(killTimer);
    signal?.removeEventListener('abort', stop);
  }
  const result = /^RESULT (.*)$/m.exec(output)?.[1];
  if (result === undefined) throw new Error(`${file} ${args.join(' ')} printed:\n${output}`);
  return result;
}
