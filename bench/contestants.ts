// The contestants and their commands. Each is one process on the server's core by default, with the
// same settings in environment variables.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../test/support/postgres.ts';
import { has, on } from './machine.ts';
import { killAtExit } from './temp.ts';

const HERE = import.meta.dirname;
const ROOT = join(HERE, '..');
const BUN = join(HERE, 'node_modules/.bin/bun');
const PEERS = join(HERE, 'peers');
/** Folder in node_modules, so that the peers' imports resolve and other tools ignore the files. */
const BUILD = join(HERE, 'node_modules/.peers');
/** Output of compilers, kept between runs. */
const COMPILED = join(HERE, 'dist');
const COMPILERS: Readonly<Record<string, readonly [compiler: string, ...args: string[]]>> = {
  go: ['go', 'build', '-o', join(COMPILED, 'go'), '.'],
  axum: ['cargo', 'build', '--release', '--quiet', '--target-dir', join(COMPILED, 'axum')],
  pocketbase: ['go', 'build', '-o', join(COMPILED, 'pocketbase'), '.'],
};
const START_TIMEOUT_MS = 20_000;

/** The settings of every contestant. */
export const SETTINGS = {
  AUTH_USER: 'admin',
  AUTH_PASSWORD: 'correct horse battery',
  AUTH_NAME: 'Administrator',
  SIGNING_SECRET: 'a signing secret for the benchmark only',
  NOTE_TITLE: 'Welcome',
  NOTE_CONTENTS: 'This note is what a valid token opens.',
} as const;

/** The variables that the image sets, with a free port instead of 3001. */
function imageEnvironment(): Record<string, string> {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8').replaceAll(/\\\n\s*/g, '');
  const lines = [...text.matchAll(/^ENV (.*)$/gm)].map(([, line]) => line!);
  const pairs = lines.flatMap((line) => line.match(/\w+=\S+/g) ?? []);
  const { DATABASE_URL: _, ...env } = Object.fromEntries(pairs.map((pair) => pair.split('=', 2)));
  return { ...env, ADMIN_PORT: '0' };
}

/** One program to measure. */
export interface Contestant {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Its store. Default: Postgres. */
  readonly store?: 'sqlite';
  /** True if the contestant creates its table. Otherwise the benchmark does. */
  readonly createsTable?: boolean;
  /** Name of its table in SQLite, if not `users`. */
  readonly table?: string;
  /** True to stop it with SIGTERM instead of SIGKILL, so that it can write its profile. */
  readonly isGraceful?: boolean;
  /** The checks that it makes of a request: none, only those of its statement, or all. */
  readonly checks?: 'nothing' | 'statement' | 'all';
}

/** A running contestant. */
export interface Running {
  readonly url: string;
  readonly pid: number;
  /** Time from the spawn to the first 200. */
  readonly startMs: number;
  readonly stop: () => Promise<void>;
}

/** All contestants by name. */
export const CONTESTANTS: Readonly<Record<string, Contestant>> = {
  raw: { ...peer('raw'), checks: 'nothing' },
  'raw-pg': { ...peer('raw-pg'), checks: 'statement' },
  'raw-sqlite': {
    ...{ ...peer('raw-sqlite'), checks: 'statement' },
    ...{ store: 'sqlite', createsTable: true },
  },
  bare: { command: [process.execPath, join(PEERS, 'bare.cjs')] },
  express: peer('express'),
  fastify: peer('fastify'),
  hono: peer('hono'),
  elysia: { command: [BUN, join(PEERS, 'elysia.ts')] },
  go: { command: [compiled('go')], env: { POOL_SIZE: '16' } },
  axum: { command: [compiled('axum')], env: { POOL_SIZE: '8' } },
  pocketbase: {
    command: [compiled('pocketbase')],
    ...{ store: 'sqlite', createsTable: true, table: 'people' },
  },
  ours: { ...built(), env: { LOG_LEVEL: 'silent' } },
  'ours-sqlite': { ...built(), env: { LOG_LEVEL: 'silent' }, store: 'sqlite' },
  'ours-log': built(),
  'ours-sqlite-log': { ...built(), store: 'sqlite' },
  'ours-pool-1': { ...built(), env: { LOG_LEVEL: 'silent', DATABASE_POOL_SIZE: '1' } },
  'ours-pool-2': { ...built(), env: { LOG_LEVEL: 'silent', DATABASE_POOL_SIZE: '2' } },
  'ours-pool-8': { ...built(), env: { LOG_LEVEL: 'silent', DATABASE_POOL_SIZE: '8' } },
  source: { ...shipped(ROOT), env: { LOG_LEVEL: 'silent' } },
  'source-log': shipped(ROOT),
  image: { ...image(), env: { ...imageEnvironment(), LOG_LEVEL: 'silent' }, store: 'sqlite' },
  'image-log': { ...image(), env: imageEnvironment(), store: 'sqlite' },
};

/** Returns the command of `npm start` in that checkout, with its defaults. */
export function shipped(checkout: string): Contestant {
  const { scripts } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8'));
  // "exec node --flag … src/main.ts"
  const [, , ...words]: string[] = scripts.start.split(' ');
  const args = words.map((word) => (word.startsWith('-') ? word : join(checkout, word)));
  return { command: [process.execPath, ...args], createsTable: true };
}

/** Returns the command for the output of `npm run build`, with the flags of `npm start`. */
function built(): Contestant {
  const [node = '', ...args] = shipped(ROOT).command;
  const flags = args.filter((arg) => arg.startsWith('-'));
  return { command: [node, ...flags, join(ROOT, 'dist/main.cjs')], createsTable: true };
}

/** Returns the contestants that can't run on this machine, by name, with the reason. */
export function unavailable(): Record<string, string> {
  const missing = { ...notBuilt };
  if (!existsSync(BUN)) missing.elysia = 'skipped: bun is not installed';
  return missing;
}

const notBuilt: Record<string, string> = {};

/** Strips the types of the peers once, so that no contestant does that at its start. */
export function stripPeers(): void {
  mkdirSync(BUILD, { recursive: true });
  for (const file of readdirSync(PEERS).filter((name) => name.endsWith('.ts'))) {
    const code = stripTypeScriptTypes(readFileSync(join(PEERS, file), 'utf8'));
    writeFileSync(join(BUILD, file.replace(/ts$/, 'mjs')), code);
  }
}

/** Builds all peers that this machine can build. Those in Go and Rust need their compilers. */
export function buildPeers(): void {
  stripPeers();
  for (const [name, [compiler, ...args]] of Object.entries(COMPILERS)) {
    if (!has(compiler)) {
      notBuilt[name] = `skipped: ${compiler} is not installed`;
      continue;
    }
    try {
      execFileSync(compiler, args, { cwd: join(PEERS, name), stdio: 'pipe' });
    } catch (err) {
      const said = String((err as { stderr?: Buffer }).stderr ?? err);
      notBuilt[name] = `skipped: not built: ${said.trim().split('\n').at(-1)}`;
    }
  }
}

/** Starts the contestant on those cores and waits for the first 200 of `GET /`. */
export async function start(
  { command, env = {}, isGraceful = false }: Contestant,
  cores: string,
  extra: Readonly<Record<string, string>>,
): Promise<Running> {
  const port = await freePort();
  const [file, ...args] = on(cores, command);
  const startedAt = performance.now();
  const errors: string[] = [];
  const child = spawn(file, args, {
    env: {
      PATH: process.env.PATH,
      NODE_ENV: 'production',
      PORT: String(port),
      ...SETTINGS,
      ...env,
      ...extra,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  killAtExit(child);
  child.stdout.resume();
  child.stderr.on('data', (chunk) => errors.push(String(chunk)));
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(isGraceful ? 'SIGTERM' : 'SIGKILL');
    await once(child, 'exit');
  };
  const url = `http://127.0.0.1:${port}`;
  try {
    await firstAnswer(`${url}/`, child);
  } catch (err) {
    await stop();
    throw new Error(`${command.join(' ')} did not start: ${err}\n${errors.join('')}`);
  }
  return { url, pid: Number(child.pid), startMs: performance.now() - startedAt, stop };
}

async function firstAnswer(url: string, child: ChildProcess): Promise<void> {
  const end = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < end) {
    if (child.exitCode !== null) throw new Error(`exit status ${child.exitCode}`);
    try {
      const res = await fetch(url, { headers: { connection: 'close' } });
      await res.text();
      if (res.status === 200) return;
    } catch {
      // Not listening yet.
    }
    await sleep(1);
  }
  throw new Error(`no 200 within ${START_TIMEOUT_MS} ms`);
}

function peer(name: string): Contestant {
  return { command: [process.execPath, join(BUILD, `${name}.mjs`)] };
}

function compiled(name: string): string {
  return join(COMPILED, name === 'axum' ? 'axum/release/axum' : name);
}

/** Returns the image's command, with this machine's folders. */
function image(): Contestant {
  const file = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  const text = /^ENTRYPOINT (\[.*?\])/ms.exec(file)?.[1]?.replaceAll('\\\n', '') ?? '[]';
  const [, ...args]: string[] = JSON.parse(text);
  const here = (arg: string) => arg.replace('/app/', `${ROOT}/`).replace('/data/', `${tmpdir()}/`);
  return { command: [process.execPath, ...args.map(here)], createsTable: true };
}
