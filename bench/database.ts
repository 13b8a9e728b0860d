// The databases of the benchmark. All contestants use one durable Postgres with a database each,
// refilled before every run. Also emulates a slow fsync.
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { startPostgres } from '../test/support/postgres.ts';
import { has, move } from './machine.ts';
import { newFolder, removeAtExit } from './temp.ts';

const FSYNC_DELAY_US = '2000';
/** Time for our service to create its table after it listens. */
const SCHEMA_TIMEOUT_MS = 10_000;

/** A running Postgres with default durability (`fsync` and `synchronous_commit` on). */
export interface Server {
  readonly version: string;
  /** Creates an empty database. `withTable` also creates the table of the peers. */
  readonly create: (name: string, withTable: boolean) => Promise<Database>;
  readonly stop: () => Promise<void>;
}

/** One contestant's database. */
export interface Database {
  readonly url: string;
  /** Fills the emptied table with users 1 to `rows`. Checkpoints, so that all runs start alike. */
  readonly reset: (rows: number) => Promise<void>;
  readonly count: () => Promise<number>;
  readonly drop: () => Promise<void>;
}

/** Returns an environment that makes each fsync take 2 ms longer; undefined without gcc. */
export function slowFsync(): Record<string, string> | undefined {
  if (!has('gcc')) return undefined;
  const folder = newFolder();
  chmodSync(folder, 0o755); // Postgres runs as another user.
  const library = join(folder, 'fsync.so');
  const source = join(import.meta.dirname, 'fsync.c');
  execFileSync('gcc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl']);
  return { LD_PRELOAD: library, FSYNC_DELAY_US };
}

/** Starts a new Postgres on those cores, with `env` added to its environment. */
export async function startServer(
  cores: string,
  env: Record<string, string> = {},
): Promise<Server> {
  // The server inherits this process's environment, because its helper can't pass another.
  Object.assign(process.env, env);
  const server = await startPostgres().finally(() => {
    for (const name of Object.keys(env)) delete process.env[name];
  });
  removeAtExit(server.dataDir);
  const pid = Number(readFileSync(join(server.dataDir, 'postmaster.pid'), 'utf8').split('\n')[0]);
  move(pid, cores); // Later backends inherit the cores.
  const admin = postgres(server.url, { max: 1, onnotice: () => {} });
  const [row] = await admin`show server_version`;
  return {
    version: String(row?.server_version),
    create: (name, withTable) => createDatabase(admin, server.url, name, withTable),
    async stop() {
      await admin.end({ timeout: 5 });
      await server.stop();
    },
  };
}

async function createDatabase(
  admin: postgres.Sql,
  serverUrl: string,
  name: string,
  withTable: boolean,
): Promise<Database> {
  await admin.unsafe(`create database ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const sql = postgres(url.href, { max: 1, onnotice: () => {} });
  if (withTable) {
    await sql`create table users (
      id integer generated always as identity primary key,
      name varchar(100) not null,
      email varchar(100) not null unique)`;
  }
  return {
    url: url.href,
    async reset(rows) {
      await tableExists(sql);
      await sql`truncate users restart identity`;
      await sql`insert into users (name, email)
        select 'Name of user ' || i, 'user-' || i || '@bench.example.org'
        from generate_series(1, ${rows}) i`;
      await sql`vacuum analyze users`;
      await sql`checkpoint`;
    },
    async count() {
      const [row] = await sql`select count(*)::int as n from users`;
      return Number(row?.n);
    },
    async drop() {
      await sql.end({ timeout: 5 });
      await admin.unsafe(`drop database ${name} with (force)`);
    },
  };
}

async function tableExists(sql: postgres.Sql): Promise<void> {
  const end = Date.now() + SCHEMA_TIMEOUT_MS;
  while (Date.now() < end) {
    const [row] = await sql`select to_regclass('users') is not null as ready`;
    if (row?.ready) return;
    await sleep(50);
  }
  throw new Error('no table users in the database');
}
