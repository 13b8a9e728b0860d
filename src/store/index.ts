// Opens the store of DATABASE_URL. Each engine loads its driver on first use.
import type { Store, StoreOptions } from './options.ts';
import { openPostgres } from './postgres.ts';
import { openSqlite } from './sqlite.ts';
import type { Database } from './url.ts';

export type { Store, StoreOptions };

/**
 * Opens one of the two stores (5.0). Postgres keeps connecting in the background.
 * @throws an Error with one line if a SQLite file can't be opened
 */
export async function openStore(database: Database, options: StoreOptions): Promise<Store> {
  if (database.engine === 'sqlite') return openSqlite(database, options);
  return openPostgres(database, options);
}
