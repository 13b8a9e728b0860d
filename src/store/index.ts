// Opens the store that the settings name. Only that engine's driver is loaded.
import type { UserStore } from '../user.ts';
import { openPostgres } from './postgres.ts';
import { openSqlite } from './sqlite.ts';
import type { Database } from './url.ts';

/** An open store, and what an operator wants to know of it. */
export interface Store extends UserStore {
  /** Connections at work and ready for it; absent where a store has none, as SQLite. */
  readonly connections?: { readonly used: number; readonly idle: number };
}

/** What both stores are given. */
export interface StoreOptions {
  /** Postgres connections. */
  readonly poolSize: number;
  /** The longest that a call waits, in milliseconds. */
  readonly timeoutMs: number;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
  /** Called once when the store cannot be reached any more, and once when it can again. */
  readonly onUnavailable: (cause: unknown) => void;
  readonly onAvailable: () => void;
  /** What a maintainer wants to know. */
  readonly debug: (message: string, fields: Readonly<Record<string, string>>) => void;
  /** The database can never be used by this version of the service. */
  readonly onFatal: (err: Error) => void;
}

/**
 * Opens a store. SQLite is ready then; Postgres connects by itself, however long it takes.
 * @throws an Error in one line when a SQLite file cannot be opened
 */
export async function openStore(database: Database, options: StoreOptions): Promise<Store> {
  // 5.0
  if (database.engine === 'sqlite') return openSqlite(database.path, options);
  return openPostgres(database, options);
}
