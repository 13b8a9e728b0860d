// The schema: numbered SQL files in db/, one folder per engine. Published files never change; a new
// schema is a new file. A file may begin with the line `-- oldest service: N`: the database still
// works for a service whose own newest migration is N. Such a migration keeps everything that the
// older service reads and writes: it adds a nullable column or one with a default, a table or an index.
import { readdirSync, readFileSync } from 'node:fs';

interface Migration {
  /** Counted from 1 without gaps. */
  readonly version: number;
  /** Version of the newest migration that a service must know to run on the result. */
  readonly oldestService: number;
  readonly sql: string;
}

/** What a database records about its schema. */
export type Schema = Pick<Migration, 'version' | 'oldestService'>;

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
 * Returns the migrations that the database lacks. There are none if its schema is newer and allows
 * this service.
 * @throws UnusableDatabase if the schema needs a newer service (5.3)
 */
export function missing(all: readonly Migration[], schema: Schema): readonly Migration[] {
  const { version, oldestService } = schema;
  const known = all.length;
  if (version > known && oldestService > known) {
    throw new UnusableDatabase(
      `the database has schema version ${version} and needs a service that knows version ${oldestService} or later; this service knows ${known}: run a newer service, or restore a backup from before the upgrade`,
    );
  }
  return all.slice(version);
}
