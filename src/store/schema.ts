// The schema: numbered SQL files in db/, one folder per engine, and a record of those that a database has.
// Published files never change; a new schema is a new file. A file may begin with the line `-- oldest
// service: N`: the database still works for a service whose own newest migration is N. Such a migration
// keeps everything that the older service reads and writes: it adds a nullable column or one with a
// default, a table or an index.
import { readdirSync, readFileSync } from 'node:fs';
import type { Sql } from 'postgres';
import { StoreUnavailable } from '../user.ts';

/** What a database records about its schema. */
export interface Schema {
  readonly version: number | null; // of its newest migration, counted from 1 without gaps; null without any
  readonly oldestService: number; // newest migration that a service must know to use the database
}

/** This service can never use the database. The message says what to do. */
export class UnusableDatabase extends Error {
  override readonly name = 'UnusableDatabase';
}

/** Reads the SQL of all migrations of an engine in order (5.3). Each also records itself. */
export function migrations(engine: 'sqlite' | 'postgres'): readonly string[] {
  const folder = new URL(`../../db/${engine}/`, import.meta.url);
  const files = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');
  return files.sort().map((name, i) => withRecord(i + 1, read(name)));
}

/** Without a valid `-- oldest service` line, a migration allows no older service. A test checks the files. */
export function withRecord(version: number, sql: string): string {
  const [, oldest = version] = /^-- oldest service: ([1-9][0-9]*)$/m.exec(sql) ?? [];
  return `${sql}\n; insert into notes_users_schema (version, oldest_service) values (${version}, ${oldest});`;
}

/**
 * Returns the migrations that the database lacks: none if its schema is newer and allows this service.
 * @throws UnusableDatabase if the schema needs a newer service (5.3)
 */
export function missing(all: readonly string[], { version, oldestService }: Schema) {
  const known = all.length;
  if (version === null) {
    throw new UnusableDatabase('the table notes_users_schema has no rows: restore them too');
  }
  if (oldestService > known) {
    throw new UnusableDatabase(
      `the database has schema version ${version} and needs a service that knows version ${oldestService} or later; this service knows ${known}: run a newer service, or restore a backup from before the upgrade`,
    );
  }
  return all.slice(version);
}

/**
 * Says in the error that a migration failed. If Postgres would refuse it again, throws UnusableDatabase: another
 * attempt would only lock the tables.
 */
export function failMigration(err: unknown): never {
  const fault = err as Error & { code?: string };
  fault.message = `a migration failed: ${fault.message}`;
  // Classes of SQLSTATE: features, data, constraints, dependent objects, names except privileges, limits.
  const isFinal = /^(0A|22|23|2B|42(?!501)|54)/.test(fault.code ?? '');
  throw isFinal ? new UnusableDatabase(fault.message) : fault; // 5.3
}

// A migration waits this long for a lock, for example of a backup. Meanwhile, requests of other replicas queue
// behind it. Then the attempt to connect has failed, and the pool makes another. Reading the record has the same limit:
// otherwise its statement would wait in the server after the attempt.
const LOCK_TIMEOUT_MS = 250; // 5.8
const IDLE_TIMEOUT_MS = 1_000;

// The number is arbitrary; nothing else locks it in this database. The statements after it must see what the
// previous holder committed, so they can't share a snapshot with it. If this client is lost between two
// statements, the server ends the transaction, so that others get the lock. Postgres 14 to 16 have no
// transaction_timeout.
const BEGIN = `
  begin isolation level read committed;
  set local statement_timeout = 0; set local lock_timeout = ${LOCK_TIMEOUT_MS};
  set local idle_in_transaction_session_timeout = ${IDLE_TIMEOUT_MS};
  select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout';
  select pg_advisory_xact_lock(7236128401)`;

// Finds our record in any schema. Every role can read the catalog, so it also finds a schema that the role
// may not use. Without a record, a new schema would be the current one. One snapshot for all, so that another
// replica's new tables don't seem foreign.
const FIND_RECORD = `
  select count(*) filter (where ours) as count,
    coalesce(
      string_agg(quote_ident(nspname), ', ') filter (where ours),
      quote_ident(current_schema())
    ) as schema,
    bool_or(relname = 'users' and nspname = current_schema()) as "isTaken",
    bool_and(
      (select bool_and(has_table_privilege(u.oid, kind))
       from pg_class u, unnest('{select,insert,update,delete}'::text[]) kind
       where u.relname = 'users' and u.relnamespace = c.relnamespace)
    ) filter (where ours) as "isAllowed"
  from (
    select *, relname = 'notes_users_schema' and relkind = 'r' as ours
    from pg_class join pg_namespace n on n.oid = relnamespace
    where relname in ('notes_users_schema', 'users') and relpersistence <> 't'
    order by nspname
  ) c`;

/**
 * Finds the schema of our tables, and applies the missing migrations (5.3). If replicas start at once, one of
 * them applies each.
 * @returns the schema, as an SQL identifier
 * @throws UnusableDatabase, or StoreUnavailable if the role lacks a schema or privileges
 */
export async function migratePostgres(sql: Sql, prolong: () => void): Promise<string> {
  for (;;) {
    const found = await inspect(sql);
    if (found.lacking.length === 0) return found.schema;
    prolong();
    await sql.unsafe(BEGIN);
    const { schema, lacking } = await inspect(sql);
    const next = lacking[0] ?? ''; // Another replica may have applied it before we got the lock.
    await sql
      .unsafe(`set local search_path = ${schema}, pg_temp; ${next} commit`)
      .catch(failMigration);
  }
}

/** Finds the schema that is ours, or will be, and the migrations that it lacks. */
async function inspect(sql: Sql) {
  const all = migrations('postgres');
  const [place] = await sql.unsafe(FIND_RECORD);
  const { count, isTaken, isAllowed } = place!;
  const schema: string | null = place!.schema;
  if (schema === null) {
    throw new StoreUnavailable('the role has no schema for tables: create one in its search_path');
  }
  if (count > 1) {
    throw new UnusableDatabase(
      `the tables of this service are in several schemas of the database: ${schema}; expected one: drop or move the others`,
    );
  }
  if (count === 0 && isTaken) {
    throw new UnusableDatabase(
      `the schema ${schema} has a table users that this service did not create; nothing was changed: use another database, or a role with a schema of its own`,
    );
  }
  if (count === 0) return { schema, lacking: all };
  const record = `
    set local lock_timeout = ${LOCK_TIMEOUT_MS}; set local row_security = off;
    select max(version) as version, max(oldest_service) as "oldestService"
    from ${schema}.notes_users_schema`;
  const [newest] = (await sql.unsafe(record)).at(-1)!;
  const lacking = missing(all, newest as Schema);
  if (isAllowed) return { schema, lacking };
  throw new StoreUnavailable(
    `the table ${schema}.users is missing, or the role may not select, insert, update and delete in it`,
  );
}
