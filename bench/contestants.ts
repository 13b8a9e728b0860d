// Who takes part, and how each is started: one process on the server's core, the same settings for
// all, as environment variables.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../test/support/postgres.ts';
import { on } from './machine.ts';
import { killAtExit } from './temp.ts';

const HERE = import.meta.dirname;
const BUN = join(HERE, 'node_modules/.bin/bun');
const PEERS = join(HERE, 'peers');
/** In node_modules, so that the peers' imports are found there and no tool reads the files. */
const BUILD = join(HERE, 'node_modules/.peers');
const START_TIMEOUT_MS = 20_000;

/** The heap limits that ours has as it is shipped: those of `npm start` and of the image. */
const LIMITS: readonly string[] = JSON.parse(
  readFileSync(join(HERE, '../package.json'), 'utf8'),
).scripts.start.match(/--\S+/g);

/** The settings that every contestant gets. */
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
  /** The driver creates the table for the peers; ours creates its own. */
  readonly isOurs?: boolean;
}

/** A contestant that answers. */
export interface Running {
  readonly url: string;
  readonly pid: number;
  /** From the spawn to the first 200. */
  readonly startMs: number;
  readonly stop: () => Promise<void>;
}

/** All contestants by name. `ours` is the build where `npm run build` made one. */
export const CONTESTANTS: Readonly<Record<string, Contestant>> = {
  raw: peer('raw'),
  'raw-pg': peer('raw-pg'),
  'raw-sqlite': peer('raw-sqlite'),
  bare: { command: [process.execPath, join(PEERS, 'bare.cjs')] },
  express: peer('express'),
  fastify: peer('fastify'),
  'fastify-pg': { ...peer('fastify'), env: { PEER_DRIVER: 'pg' } },
  hono: peer('hono'),
  elysia: { command: [BUN, join(PEERS, 'elysia.ts')] },
  ours: ours({}),
  'ours-log': ours({ LOG_LEVEL: 'info' }),
};

/** Names that cannot run here, with the reason in a plain line. */
export function unavailable(): Record<string, string> {
  return existsSync(BUN) ? {} : { elysia: 'skipped: bun is not installed' };
}

/** Strips the types of the peers once, so that no contestant pays for that at its start. */
export function buildPeers(): void {
  mkdirSync(BUILD, { recursive: true });
  for (const file of readdirSync(PEERS).filter((name) => name.endsWith('.ts'))) {
    const code = stripTypeScriptTypes(readFileSync(join(PEERS, file), 'utf8'));
    writeFileSync(join(BUILD, file.replace(/ts$/, 'mjs')), code);
  }
}

/** Starts the contestant on those cores and waits for the first 200 of `GET /`. */
export async function start(
  { command, env = {} }: Contestant,
  cores: string,
  extra: Readonly<Record<string, string>>,
): Promise<Running> {
  const port = await freePort();
  const [file, ...args] = on(cores, command);
  const startedAt = performance.now();
  const child = spawn(file, args, {
    env: {
      PATH: process.env.PATH,
      NODE_ENV: 'production',
      HOST: '127.0.0.1',
      PORT: String(port),
      ...SETTINGS,
      ...env,
      ...extra,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  killAtExit(child);
  const errors: string[] = [];
  child.stdout.resume();
  child.stderr.on('data', (chunk) => errors.push(String(chunk)));
  const url = `http://127.0.0.1:${port}`;
  try {
    await firstAnswer(`${url}/`, child);
  } catch (err) {
    child.kill('SIGKILL');
    throw new Error(`${command.join(' ')} did not start: ${err}\n${errors.join('')}`);
  }
  return {
    url,
    pid: Number(child.pid),
    startMs: performance.now() - startedAt,
    async stop() {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
    },
  };
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

function ours(env: Record<string, string>): Contestant {
  const built = join(HERE, '../dist/main.cjs');
  const entry = existsSync(built) ? built : join(HERE, '../src/main.ts');
  return {
    command: [process.execPath, ...LIMITS, entry],
    env: { LOG_LEVEL: 'silent', ...env },
    isOurs: true,
  };
}
