// Opens the store of DATABASE_URL. Loads only that engine's driver.
import type { Turns } from '../turns.ts';
import type { UserStore } from '../user.ts';
import { openPostgres } from './postgres.ts';
import { openSqlite } from './sqlite.ts';
import type { Database } from './url.ts';

export interface Store extends UserStore {
  /** Connections in use and idle. Absent for SQLite. */
  readonly connections?: { readonly used: number; readonly idle: number };
}

export interface StoreOptions {
  /** Number of Postgres connections. */
  readonly poolSize: number;
  /** Time limit of each call, queueing included. */
  readonly timeoutMs: number;
  /** A monotonic clock in milliseconds. */
  readonly now: () => number;
  /** For reads that can take milliseconds. */
  readonly turns: Turns;
  /** Called when the store stops working, once per outage. */
  readonly onUnavailable: (cause: unknown) => void;
  /** Called when the outage ends. */
  readonly onAvailable: () => void;
  /** Logs at level debug. */
  readonly debug: (message: string, fields: Readonly<Record<string, string>>) => void;
  /** Called if this version of the service can never use the database. */
  readonly onFatal: (err: Error) => void;
}

/**
 * Opens one of the two stores (5.0). SQLite is ready when this resolves; Postgres keeps connecting in
 * the background.
 * @throws an Error with one line if a SQLite file can't be opened
 */
export async function openStore(database: Database, options: StoreOptions): Promise<Store> {
  if (database.engine === 'sqlite') return openSqlite(database.path, options);
  return openPostgres(database, options);
}
