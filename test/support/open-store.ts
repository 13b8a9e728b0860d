// Opens stores in the process of the tests, with options that log nothing, and connections beside them.
import type { TestContext } from 'node:test';
import postgres from 'postgres';
import type { Store, StoreOptions } from '../../src/store/options.ts';
import { SURROUNDINGS } from '../../src/store/pool.ts';
import { openPostgres } from '../../src/store/postgres.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import { parseDatabaseUrl } from '../../src/store/url.ts';
import { until } from './until.ts';

export const QUIET: StoreOptions = {
  poolSize: 4,
  timeoutMs: 10_000,
  now: () => performance.now(),
  onUnavailable: () => {},
  onAvailable: () => {},
  debug: () => {},
  onFatal: () => {},
};

/** Opens the store of a DATABASE_URL until the end of the test, perhaps with other surroundings of its pool. */
export async function open(
  t: TestContext,
  url: string,
  options: Partial<StoreOptions> = {},
  surroundings: Partial<typeof SURROUNDINGS> = {},
): Promise<Store> {
  const database = parseDatabaseUrl(url)!;
  const all = { ...QUIET, ...options };
  const store =
    database.engine === 'sqlite'
      ? await openSqlite(database, all)
      : openPostgres(database, all, { ...SURROUNDINGS, ...surroundings });
  t.after(() => store.close());
  return store;
}

/** Connects to the database without the service, until the end of the test. */
export function connectTo(t: TestContext, url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  t.after(() => sql.end({ timeout: 1 }));
  return sql;
}

/** Resolves once a statement of another session waits for this one, or with `false` once none does. */
export function untilOneWaits(
  sql: postgres.Sql | postgres.TransactionSql,
  isWaiting = true,
): Promise<void> {
  return until(async () => {
    const waiting = await sql`
      select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))`;
    return waiting.length > 0 === isWaiting;
  });
}
