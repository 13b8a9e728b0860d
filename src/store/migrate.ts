// The schema: numbered SQL files in db/, one folder an engine, to which one only appends.
import { readdirSync, readFileSync } from 'node:fs';

/** One step of the schema. */
export interface Migration {
  /** Counted from 1 without gaps. */
  readonly version: number;
  readonly sql: string;
}

/** This version of the service can never use the database; the message says what to do. */
export class UnusableDatabase extends Error {
  override readonly name = 'UnusableDatabase';
}

/** All migrations of an engine in their order. */
export function migrations(engine: 'sqlite' | 'postgres'): readonly Migration[] {
  // 5.3
  const folder = new URL(`../../db/${engine}/`, import.meta.url);
  const files = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  return files.sort().map((name, i) => {
    const version = Number.parseInt(name, 10);
    if (version !== i + 1) throw new Error(`db/${engine}/${name}: expected number ${i + 1}`);
    return { version, sql: readFileSync(new URL(name, folder), 'utf8') };
  });
}

/**
 * The migrations that a database of this schema version lacks.
 * @throws UnusableDatabase when a newer version of the service has made it
 */
export function missing(all: readonly Migration[], found: number): readonly Migration[] {
  if (found > all.length) {
    // 5.3
    throw new UnusableDatabase(
      `the database has schema version ${found}, this service knows ${all.length}: run the newer service, or restore a backup from before the upgrade`,
    );
  }
  return all.slice(found);
}
