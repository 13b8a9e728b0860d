// Access to the databases of the fault tests without the service.
import { DatabaseSync } from 'node:sqlite';
import postgres from 'postgres';
import { createDatabase } from '../support/postgres.ts';
import { newDatabase, type StoreName } from '../support/program.ts';
import { Server } from '../support/server.ts';
import type { Row } from './ledger.ts';

const ALL = 'select id, name, email, version from users order by id';

let shared: Promise<Server> | undefined;

/** Returns the DATABASE_URL of a new database; Postgres is this test file's own server. */
export async function databaseOf(store: StoreName): Promise<string> {
  if (store === 'sqlite') return newDatabase(store);
  shared ??= Server.create();
  return createDatabase((await shared).url);
}

/** Stops the Postgres that databaseOf started. */
export async function releaseServer(): Promise<void> {
  await (await shared)?.[Symbol.asyncDispose]();
}

export async function usersIn(databaseUrl: string): Promise<Row[]> {
  if (databaseUrl.startsWith('sqlite:')) {
    const db = new DatabaseSync(databaseUrl.slice('sqlite:'.length));
    try {
      return db.prepare(ALL).all() as unknown as Row[];
    } finally {
      db.close();
    }
  }
  const types = { bigint: { to: 20, from: [20], serialize: String, parse: Number } };
  const sql = postgres(databaseUrl, { max: 1, connect_timeout: 5, types });
  try {
    return [...(await sql.unsafe<Row[]>(ALL))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Returns `state` of pg_stat_activity for each connection of the service to this database. */
export async function connectionsOf(databaseUrl: string): Promise<readonly unknown[]> {
  const rows = await query(
    databaseUrl,
    `select state from pg_stat_activity
     where datname = current_database() and application_name = 'notes-users'`,
  );
  return rows.map(({ state }) => state);
}

/** Runs the action inside a transaction that holds the locks of this SQL. */
export async function whileLocked(
  databaseUrl: string,
  lock: string,
  action: () => Promise<unknown>,
): Promise<void> {
  const sql = postgres(databaseUrl, { max: 1 });
  try {
    await sql.begin(async (transaction) => {
      await transaction.unsafe(lock);
      await action();
    });
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Returns the URL with another port of 127.0.0.1. */
export function through(port: number, databaseUrl: string): string {
  const url = new URL(databaseUrl);
  url.port = String(port);
  return url.href;
}

/** Runs SQL over a new connection. */
export async function execute(
  databaseUrl: string,
  text: string,
): Promise<Record<string, unknown>[]> {
  if (!databaseUrl.startsWith('sqlite:')) return query(databaseUrl, text);
  const db = new DatabaseSync(databaseUrl.slice('sqlite:'.length), { timeout: 5000 });
  try {
    return db.prepare(text).all();
  } finally {
    db.close();
  }
}

/** Runs SQL on Postgres over a new connection. */
export async function query(databaseUrl: string, text: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(databaseUrl, { max: 1 });
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Adds users whose emails begin with `listed`. */
export async function addUsers(databaseUrl: string, count: number): Promise<void> {
  if (databaseUrl.startsWith('sqlite:')) {
    const db = new DatabaseSync(databaseUrl.slice('sqlite:'.length), { timeout: 5000 });
    db.exec(
      `with recursive n (i) as (select 1 union all select i + 1 from n where i < ${count})
       insert into users (name, email) select 'listed', 'listed-' || i || '@example.com' from n`,
    );
    db.close();
    return;
  }
  await query(
    databaseUrl,
    `insert into users (name, email)
     select 'listed', 'listed-' || i || '@example.com' from generate_series(1, ${count}) i`,
  );
}
