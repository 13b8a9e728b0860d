// The databases of the benchmark. Each contestant has its own, in one durable Postgres or in a SQLite
// file, refilled before every run that changes it.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { Server as Postgres } from '../test/support/postgres-server.ts';
import { newFolder } from './machine.ts';

/** Time for our service to create its table after it listens. */
const SCHEMA_TIMEOUT_MS = 10_000;
const BUSY_TIMEOUT_MS = 10_000;

/** One contestant's database. */
export interface Database {
  readonly url: string;
  /** Fills the emptied table with users 1 to `rows`. Checkpoints, so that all runs start alike. */
  readonly reset: (rows: number) => Promise<void>;
  /** Counts the users whose name begins so. */
  readonly count: (name: string) => Promise<number>;
  readonly drop: () => Promise<void>;
}

/** A running Postgres with default durability (`fsync` and `synchronous_commit` on). */
export interface Server {
  readonly version: string;
  /** Creates an empty database. `hasTable` also creates the table of the peers. */
  readonly create: (hasTable: boolean) => Promise<Database>;
  readonly stop: () => Promise<void>;
}

export async function startServer(): Promise<Server> {
  const server = await Postgres.create();
  const admin = postgres(server.url, { max: 1, onnotice: () => {} });
  const [row] = await admin`show server_version`;
  let count = 0;
  return {
    version: String(row?.server_version),
    create: (hasTable) => createDatabase(admin, server.url, `bench_${++count}`, hasTable),
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
  hasTable: boolean,
): Promise<Database> {
  await admin.unsafe(`create database ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const sql = postgres(url.href, { max: 1, onnotice: () => {} });
  if (hasTable) {
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
    async count(name) {
      const [row] = await sql`select count(*)::int as n from users where name like ${`${name}%`}`;
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

/** Returns a database in a new file. The contestant creates the table. */
export function sqliteFile(): Database {
  const folder = newFolder();
  const path = join(folder, 'data.db');
  const using = <T>(action: (db: DatabaseSync) => T) => {
    const db = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
    try {
      return action(db);
    } finally {
      db.close();
    }
  };
  return {
    url: `sqlite:${path}`,
    async reset(rows) {
      using((db) => {
        db.exec(`
          begin immediate;
          delete from users;
          delete from sqlite_sequence;
          with recursive n (i) as (select 1 where ${rows} > 0 union all select i + 1 from n where i < ${rows})
          insert into users (id, name, email)
          select i, 'Name of user ' || i, 'user-' || i || '@bench.example.org' from n;
          commit;
          pragma wal_checkpoint(truncate);
        `);
      });
    },
    count: async (name) => {
      const sql = 'select count(*) n from users where name like ?';
      return using((db) => Number(db.prepare(sql).get(`${name}%`)?.n));
    },
    drop: async () => rmSync(folder, { recursive: true }),
  };
}

/** A store for a contestant that requires one, in a scenario without users. */
export const NO_DATABASE: Database = {
  url: 'sqlite::memory:',
  reset: async () => {},
  count: async () => 0,
  drop: async () => {},
};
