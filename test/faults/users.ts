// Access to the databases of the fault tests without the service.
import { createDatabase } from '../support/postgres.ts';
import { newDatabase, type StoreName } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { execute } from '../support/service.ts';
import type { Row } from './ledger.ts';

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
  const numbers = ['id', 'version'].map((column) => `cast(${column} as integer) as ${column}`);
  const users = await execute(databaseUrl, `select ${numbers}, name, email from users order by id`);
  return users as unknown as Row[];
}

/** Returns the URL with another port of 127.0.0.1. */
export function through(port: number, databaseUrl: string): string {
  const url = new URL(databaseUrl);
  url.port = String(port);
  return url.href;
}
