// The contestants and their commands. Each is one process on its own core, with the same settings in
// environment variables.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../test/support/daemon.ts';
import { has, killAtExit, onServerCore } from './machine.ts';

const HERE = import.meta.dirname;
const ROOT = join(HERE, '..');
const PEERS = join(HERE, 'peers');
/** In node_modules, so that the peers' imports resolve and other tools ignore the files. */
const STRIPPED = join(HERE, 'node_modules/.peers');
/** Output of the compilers, kept between runs. */
const COMPILED = join(HERE, 'dist');
const COMPILERS: Readonly<Record<string, readonly [compiler: string, ...args: string[]]>> = {
  go: ['go', 'build', '-o', join(COMPILED, 'go'), '.'],
  axum: ['cargo', 'build', '--release', '--quiet', '--target-dir', join(COMPILED, 'axum')],
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

/** One program to measure. */
export interface Contestant {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Its store. Default: Postgres. */
  readonly store?: 'sqlite';
  /** True if it creates its table. Otherwise the benchmark does. */
  readonly createsTable?: boolean;
  /** True to stop it with SIGTERM instead of SIGKILL, so that it can write its profile. */
  readonly isGraceful?: boolean;
  /** The checks that it makes of a request. Default: all. */
  readonly checks?: 'nothing' | 'statement';
}

/** A running contestant. */
export interface Running {
  readonly url: string;
  readonly pid: number;
  readonly stop: () => Promise<void>;
}

/** The output of `npm run build`. */
const built = { command: [process.execPath, join(ROOT, 'dist/main.cjs')], createsTable: true };
const SILENT = { LOG_LEVEL: 'silent' };
const sql = { ...peer('raw-sql'), checks: 'statement' } as const;

/** All contestants by name. */
export const CONTESTANTS = {
  raw: { ...peer('raw'), checks: 'nothing' },
  'raw-pg': sql,
  'raw-sqlite': { ...sql, store: 'sqlite', createsTable: true },
  fastify: peer('fastify'),
  go: { command: [join(COMPILED, 'go')] },
  axum: { command: [join(COMPILED, 'axum/release/axum')] },
  ours: { ...built, env: SILENT },
  'ours-log': built,
  'ours-sqlite': { ...built, env: SILENT, store: 'sqlite' },
} as const satisfies Readonly<Record<string, Contestant>>;

export type Name = keyof typeof CONTESTANTS;

/** Returns the command of `npm start` in that checkout, with its defaults. */
export function shipped(checkout: string): Contestant {
  const { scripts } = JSON.parse(readFileSync(join(checkout, 'package.json'), 'utf8'));
  // "exec node src/launch.js"; older checkouts have flags before the path.
  const words: string[] = scripts.start.split(' ');
  const args = words.slice(words.indexOf('node') + 1);
  const paths = args.map((word) => (word.startsWith('-') ? word : join(checkout, word)));
  return { command: [process.execPath, ...paths], createsTable: true };
}

function peer(name: string): Contestant {
  return { command: [process.execPath, join(STRIPPED, `${name}.mjs`)] };
}

/** Strips the types of the peers once, so that none does that at its start. */
export function stripPeers(): void {
  mkdirSync(STRIPPED, { recursive: true });
  for (const file of readdirSync(PEERS).filter((name) => name.endsWith('.ts'))) {
    const code = stripTypeScriptTypes(readFileSync(join(PEERS, file), 'utf8'));
    writeFileSync(join(STRIPPED, file.replace(/ts$/, 'mjs')), code);
  }
}

/** Compiles the wanted peers. @returns those without a compiler */
export function compilePeers(isWanted: (name: string) => boolean): string[] {
  return Object.entries(COMPILERS).flatMap(([name, [compiler, ...args]]) => {
    if (!isWanted(name)) return [];
    if (!has(compiler)) return [name];
    execFileSync(compiler, args, { cwd: join(PEERS, name), stdio: 'inherit' });
    return [];
  });
}

/** Starts the contestant and waits for the first 200 of `GET /`. */
export async function start(
  { command, env, isGraceful = false }: Contestant,
  databaseUrl: string,
): Promise<Running> {
  const port = await freePort();
  const [file, ...args] = onServerCore(command);
  const child = spawn(file, args, {
    env: {
      ...{ PATH: process.env.PATH, NODE_ENV: 'production', PORT: String(port) },
      ...{ ...SETTINGS, ...env, DATABASE_URL: databaseUrl },
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  killAtExit(child);
  child.stdout.resume();
  const url = `http://127.0.0.1:${port}`;
  const end = performance.now() + START_TIMEOUT_MS;
  while (!(await isUp(url))) {
    const hasEnded = child.exitCode !== null || performance.now() > end;
    if (hasEnded) throw new Error(`${command.join(' ')} did not start`);
    await sleep(5);
  }
  return {
    url,
    pid: Number(child.pid),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill(isGraceful ? 'SIGTERM' : 'SIGKILL');
      await once(child, 'exit');
    },
  };
}

async function isUp(url: string): Promise<boolean> {
  try {
    return (await fetch(`${url}/`, { headers: { connection: 'close' } })).ok;
  } catch {
    return false; // Not listening yet.
  }
}
