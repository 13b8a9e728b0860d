// The schema: numbered SQL files in db/, one folder per engine, and a record of those that a database has.
// Published files never change; a new schema is a new file. A file may begin with the line `-- oldest
// service: N`: the database still works for a service whose own newest migration is N. Such a migration
// keeps everything that the older service reads and writes: it adds a nullable column or one with a
// default, a table or an index.
import { readdirSync, readFileSync } from 'node:fs';
import type { Sql } from 'postgres';
import { sleep } from '../clock.ts';

/** What a database records about its schema. */
interface Schema {
  readonly version: number; // of its newest migration, counted from 1 without gaps
  readonly oldestService: number; // newest migration that a service must know to use the database
}

type Migration = Schema & { readonly sql: string };

/** This service can never use the database. The message says what to do. */
export class UnusableDatabase extends Error {
  override readonly name = 'UnusableDatabase';
}

/** Reads all migrations of an engine in order (5.3). */
export function migrations(engine: 'sqlite' | 'postgres'): readonly Migration[] {
  const folder = new URL(`../../db/${engine}/`, import.meta.url);
  const files = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');
  return files.sort().map((name, i) => parseMigration(i + 1, read(name)));
}

/** Without a valid `-- oldest service` line, a migration allows no older service. A test checks the files. */
export function parseMigration(version: number, sql: string): Migration {
  const [, declared = version] = /^-- oldest service: ([1-9][0-9]*)$/m.exec(sql) ?? [];
  return { version, oldestService: Math.min(Number(declared), version), sql };
}

/**
 * Returns the migrations that the database lacks: none if its schema is newer and allows this service.
 * @throws UnusableDatabase if the schema needs a newer service (5.3)
 */
export function missing(all: readonly Migration[], { version, oldestService }: Schema) {
  const known = all.length;
  if (version > known && oldestService > known) {
    throw new UnusableDatabase(
      `the database has schema version ${version} and needs a service that knows version ${oldestService} or later; this service knows ${known}: run a newer service, or restore a backup from before the upgrade`,
    );
  }
  return all.slice(version);
}

// A migration waits this long for a lock, for example of a backup, before it tries again. Meanwhile,
// requests of other replicas queue behind it.
const LOCK_TIMEOUT_MS = 250; // 5.8
const LOCK_RETRY_MS = 1_000;

// The number is arbitrary; nothing else locks it in this database.
const LOCK = `
  set local statement_timeout = 0; set local lock_timeout = ${LOCK_TIMEOUT_MS};
  select pg_advisory_xact_lock(7236128401)`;

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
export async function migratePostgres(sql: Sql, prolong: () => void): Promise<void> {
  const readMissing = async () => missing(migrations('postgres'), await schemaOf(sql));
  let lacking = await readMissing();
  if (lacking.length > 0) prolong();
  for (; lacking.length > 0; lacking = await readMissing()) {
    const { version, oldestService, sql: text } = lacking[0]!;
    const record = `insert into schema_migrations (version, oldest_service) values (${version}, ${oldestService})`;
    try {
      // Each message is one transaction. Only the first locks the table of records, so others can read it
      // during the migration.
      await sql.unsafe(`${LOCK}; ${CREATE_RECORD}`);
      await sql.unsafe(`${LOCK}; ${record}; ${text}`);
    } catch (err) {
      const { code, table_name: table } = err as { code?: string; table_name?: string };
      // unique_violation: another replica applied it first.
      if (code === '23505' && table === 'schema_migrations') continue;
      if (code !== '55P03') throw err; // lock_not_available
      // The loop ends with the connection, which is destroyed if the migration takes too long.
      await sleep(LOCK_RETRY_MS, undefined, { ref: false });
    }
  }
}

/** Returns version 0 for a database without our tables. */
async function schemaOf(sql: Sql): Promise<Schema> {
  try {
    const [row] = await sql.unsafe(RECORDED_SCHEMA);
    return { version: Number(row!.version), oldestService: Number(row!.oldestService) };
  } catch (err) {
    if ((err as { code?: string }).code !== '42P01') throw err; // undefined_table
    return { version: 0, oldestService: 0 };
  }
}
