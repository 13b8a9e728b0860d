// Users in Postgres (14 and later). All replicas create users in the order of their emails, so creates
// can't deadlock. Updates can, because they lock by id and by email. The server then rolls one back
// after its deadlock_timeout, and it runs again.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { StoreUnavailable } from '../user.ts';
import { distinctKeys, Queue, type QueueOptions, samePage } from './batch.ts';
import type { Store, StoreOptions } from './index.ts';
import { migrations, missing, type Schema } from './migrate.ts';
import { Pool } from './pool.ts';
import { NotReplicated, type Session } from './session.ts';
import {
  createUsers,
  deleteUsers,
  find,
  findByEmail,
  list,
  outcomeAfter,
  UNIQUE_VIOLATION,
  updateUsers,
} from './statement.ts';
import type { PostgresDatabase } from './url.ts';

// Under synchronous replication a session that commits waits for the standby, even after its client
// has gone. After a wait of 2 seconds we assume that no standby confirms.
const PING = `
  select count(*),
    current_setting('transaction_read_only')::bool as "isReadOnly",
    exists (
      select from pg_stat_activity
      where wait_event = 'SyncRep' and usename = current_user
        and query_start < clock_timestamp() - interval '2 s'
    ) as "isStuck"
  from (select from users limit 1) u`;

export function openPostgres(database: PostgresDatabase, options: StoreOptions): Store {
  const { sslRootCert } = database;
  const authorities = sslRootCert === undefined ? undefined : readFileSync(sslRootCert, 'utf8');
  const pool = new Pool({ ...options, database, authorities, migrate });

  /** Returns a function that queues a call. */
  function batched<Item, Result>(
    statement: QueueOptions<Session, Item, Result>['statement'],
    rules: Pick<QueueOptions<Session, Item, Result>, 'newBatch' | 'takesTurns' | 'writes'> = {},
  ): Queue<Session, Item, Result>['call'] {
    const { schedule } = pool;
    return new Queue({ ...options, ...rules, statement, outcomeAfter, schedule }).call;
  }

  const update = batched(updateUsers, {
    newBatch: distinctKeys(({ id, email }) => (email === undefined ? [id] : [id, email])),
    writes: true,
  });
  const remove = batched(deleteUsers, { newBatch: distinctKeys(({ id }) => [id]), writes: true });
  /** Checks that users can be read, and that the server reports no fault that stops writes (7.2). */
  const ping = batched<undefined, undefined>(async (session, calls) => {
    const [state] = await session.query<{ isReadOnly: boolean; isStuck: boolean }>(PING, []);
    if (state!.isStuck) throw new NotReplicated('a commit waits for a synchronous standby');
    // This error replaces the connection, so the pool looks for another host before a write fails.
    if (state!.isReadOnly && database.sessionAttributes === 'read-write') {
      throw new StoreUnavailable('the server is read-only');
    }
    return calls;
  });
  return {
    create: batched(createUsers, { newBatch: distinctKeys(({ email }) => [email]), writes: true }),
    find: batched(find),
    findByEmail: batched(findByEmail),
    list: batched(list, { newBatch: samePage, takesTurns: true }),
    update: (id, change, condition, caller) => update({ id, ...change, condition }, caller),
    delete: (id, condition, caller) => remove({ id, condition }, caller),
    get connections() {
      return pool.connections;
    },
    async ping() {
      const { used, idle } = pool.connections;
      if (used + idle === 0) throw new StoreUnavailable('no connection to the database');
      await ping(undefined);
    },
    close: (graceMs) => pool.close(graceMs),
  };
}

// SQLSTATE (PostgreSQL manual, appendix A).
const UNDEFINED_TABLE = '42P01';
const LOCK_NOT_AVAILABLE = '55P03';

// An arbitrary number that nothing else locks in this database.
const LOCK = 'select pg_advisory_xact_lock(7236128401)';

// Time that a migration waits for a lock, for example of a backup, before it tries again. Meanwhile,
// requests of other replicas queue behind it.
const LOCK_TIMEOUT_MS = 250; // 5.8
const LOCK_RETRY_MS = 1_000;

// Older databases have the table without oldest_service.
const CREATE_RECORD = `
  create table if not exists schema_migrations (
    version integer primary key,
    applied_at timestamptz not null default now()
  );
  alter table schema_migrations add column if not exists oldest_service integer`;

// to_jsonb() because the column may be missing.
const RECORDED_SCHEMA = `
  select max(version) as version,
    max(coalesce((to_jsonb(m) ->> 'oldest_service')::int, version)) as "oldestService"
  from schema_migrations m`;

/** Applies the missing migrations (5.3). If replicas start at once, one of them applies each. */
async function migrate(sql: Sql, prolong: () => void): Promise<void> {
  const all = migrations('postgres');
  if (missing(all, await recordedSchema(sql)).length === 0) return;
  prolong();
  await underLock(sql, CREATE_RECORD);
  for (const { version, oldestService, sql: text } of missing(all, await recordedSchema(sql))) {
    const record = `insert into schema_migrations (version, oldest_service) values (${version}, ${oldestService})`;
    try {
      await underLock(sql, `${record}; ${text}`);
    } catch (err) {
      // Another replica applied it first.
      const { code, table_name: table } = err as { code?: string; table_name?: string };
      if (code !== UNIQUE_VIOLATION || table !== 'schema_migrations') throw err;
    }
  }
}

/** Runs statements under the lock, in one message, which the server runs as one transaction. */
async function underLock(sql: Sql, statements: string): Promise<void> {
  const settings = `set local statement_timeout = 0; set local lock_timeout = ${LOCK_TIMEOUT_MS}`;
  for (;;) {
    try {
      await sql.unsafe(`${settings}; ${LOCK}; ${statements}`);
      return;
    } catch (err) {
      if ((err as { code?: string }).code !== LOCK_NOT_AVAILABLE) throw err;
      // The loop ends with the connection, which is destroyed if the migration takes too long.
      await sleep(LOCK_RETRY_MS, undefined, { ref: false });
    }
  }
}

/** Returns version 0 for a database without our tables. */
async function recordedSchema(sql: Sql): Promise<Schema> {
  try {
    const [row] = await sql.unsafe(RECORDED_SCHEMA);
    return { version: Number(row!.version), oldestService: Number(row!.oldestService) };
  } catch (err) {
    if ((err as { code?: string }).code !== UNDEFINED_TABLE) throw err;
    return { version: 0, oldestService: 0 };
  }
}
