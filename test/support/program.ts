// Starts the real program as an operator does: a process, an environment, signals, exit codes. Does
// not import src.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { createDatabase } from './postgres.ts';
import { DEADLINE_MS } from './until.ts';

export const ROOT = join(import.meta.dirname, '../..');
/** The program's file, without the launcher of `npm start`. */
export const ENTRY = join(ROOT, 'src/main.ts');

/** The environment without the variable with which tests in a child report to this process and not by their status. */
export const ENV = { ...process.env, NODE_TEST_CONTEXT: undefined };

/** The command to start: the source, or TEST_PROGRAM as a JSON array. */
export const PROGRAM: readonly string[] = process.env.TEST_PROGRAM
  ? JSON.parse(process.env.TEST_PROGRAM)
  : [process.execPath, join(ROOT, 'src/launch.js')];

/** The schema version that this service knows: the number of its migrations. */
export const SCHEMA_VERSION = readdirSync(join(ROOT, 'db/sqlite')).length;

/** Names of the stores that every contract test runs against. */
export const STORES = ['sqlite', 'postgres'] as const;
type StoreName = (typeof STORES)[number];

/** The default credentials and key of `start`. */
export const USER = 'admin';
export const PASSWORD = 'correct horse';
export const SECRET = 'a signing secret of 32 bytes or more';

/** One line of the program's log, as parsed from JSON. */
type LogLine = Record<string, unknown> & { level: string; message: string };

const running = new Set<ChildProcess>();

// A program that no test stops ends with its test file, which would run as long otherwise.
if (process.env.NODE_TEST_CONTEXT !== undefined) {
  after(() => {
    for (const child of running) child.kill('SIGKILL');
  });
}

export class Program {
  /** Base URL of the API without a trailing slash, known once it listens. */
  url = '';
  /** Base URL of the admin listener, known once it listens; empty without ADMIN_PORT. */
  adminUrl = '';
  stdout = '';
  stderr = '';
  readonly process: ChildProcess;
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;

  constructor(
    env: Record<string, string>,
    args: readonly string[] = [],
    [command, ...first] = PROGRAM,
  ) {
    this.process = spawn(command!, [...first, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const name of ['stdout', 'stderr'] as const) {
      this.process[name]?.setEncoding('utf8').on('data', (text: string) => {
        this[name] += text;
        this.process.emit('output');
      });
    }
    running.add(this.process);
    this.exited = once(this.process, 'close').then(([code, signal]) => {
      running.delete(this.process);
      this.process.emit('output');
      return { code, signal };
    });
  }

  /** The log lines on stdout so far. */
  get log(): LogLine[] {
    return this.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line));
  }

  /**
   * Resolves once `condition` holds. Checks it after every output. Rejects when the program ends,
   * and after DEADLINE_MS.
   */
  async until(condition: (program: Program) => boolean): Promise<void> {
    const signal = AbortSignal.timeout(DEADLINE_MS);
    const fault = (what: string) => new Error(`${what}\n${this.stdout}${this.stderr}`);
    while (!condition(this)) {
      const { exitCode, signalCode } = this.process;
      if (!running.has(this.process)) throw fault(`the program ended (${signalCode ?? exitCode}):`);
      await once(this.process, 'output', { signal }).catch(() => {
        throw fault(`never true: ${condition}`);
      });
    }
  }

  async logged(message: string): Promise<LogLine> {
    const find = () => this.log.find((line) => line.message === message);
    await this.until(() => find() !== undefined);
    return find() as LogLine;
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM') {
    this.process.kill(signal);
    return this.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill('SIGKILL');
    await this.exited;
  }
}

/**
 * Starts the program on free ports with known credentials and the given variables, and waits until
 * it listens. `DATABASE_URL` defaults to `sqlite::memory:`.
 */
export async function start(
  env: Record<string, string> = {},
  command: readonly string[] = PROGRAM,
): Promise<Program> {
  const settings = { ...COMPLETE, ADMIN_PORT: '0', AUTH_USER: USER, ...env };
  const program = new Program(settings, [], command);
  const line = await program.logged('listening');
  program.url = String(line.url);
  program.adminUrl = String(line.adminUrl ?? '');
  return program;
}

/** With these settings, a start generates no secret and leaves no file. */
export const COMPLETE = {
  PORT: '0',
  HOST: '127.0.0.1',
  DATABASE_URL: 'sqlite::memory:',
  AUTH_PASSWORD: PASSWORD,
  SIGNING_SECRET: SECRET,
};

/** Returns the variable with which node runs this code before the program. */
export function preloaded(code: string): { NODE_OPTIONS: string } {
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
}

/** Returns the path of a new file with these contents. */
export function fileOf(text: string | Uint8Array): string {
  const path = join(newFolder(), 'value');
  writeFileSync(path, text);
  return path;
}

/** Returns the DATABASE_URL of a new, empty database. A SQLite file has its own folder. */
export async function newDatabase(store: StoreName): Promise<string> {
  return store === 'postgres' ? createDatabase() : `sqlite:${join(newFolder(), 'service.db')}`;
}

/** Creates a folder that is removed when the test process ends. */
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-'));
  if (folders.length === 0) {
    process.once('exit', () => {
      for (const path of folders) rmSync(path, { recursive: true, force: true });
    });
  }
  folders.push(folder);
  return folder;
}

/** Copies parts of the tree, without installed packages, to a new folder. */
export function copyOf(names: readonly string[]): string {
  const folder = newFolder();
  const filter = (path: string) => !path.endsWith('/node_modules');
  for (const name of names)
    cpSync(join(ROOT, name), join(folder, name), { recursive: true, filter });
  return folder;
}

const folders: string[] = [];
