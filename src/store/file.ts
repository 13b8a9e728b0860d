// The SQLite file: how it is opened and gets its schema. SQLite's own waiting for a lock would stop
// the event loop, so it is switched off, and what finds the file locked is tried again from outside
// until its time is over.
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { getgid, getuid } from 'node:process';
import type * as Sqlite from 'node:sqlite';
import type { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { migrations, missing } from './migrate.ts';

/** Owner and group read and write; others may not even read. */
const FILE_MODE = 0o660; // 5.2

/** Pause before a locked file is tried again. */
const RETRY_MS = 20;

/** How long a start waits for another process that is making the schema. */
const OPEN_TIMEOUT_MS = 10_000;

// SQLite's result codes (sqlite.org/rescode.html).
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;

/**
 * Opens the file, creates it and its folder where they are missing, brings the schema up to date,
 * and hands it to `use`.
 * @throws an Error in one line that says what an operator can do
 */
export async function openFile<T>(
  path: string,
  now: () => number,
  use: (db: DatabaseSync) => T,
): Promise<T> {
  // Loaded where it is chosen.
  const sqlite: typeof Sqlite = createRequire(import.meta.url)('node:sqlite');
  let db: DatabaseSync | undefined;
  try {
    if (path !== ':memory:') {
      makeFolder(dirname(path));
      // SQLite silently opens a file read-only that it may not write.
      if (existsSync(path)) accessSync(path, constants.W_OK);
      else createFile(path);
    }
    const opened = new sqlite.DatabaseSync(path, { timeout: 0 }); // 5.2
    db = opened;
    await retry(() => migrate(opened), now() + OPEN_TIMEOUT_MS, now);
    return use(db);
  } catch (err) {
    db?.close();
    throw new Error(explain(path, err as NodeJS.ErrnoException), { cause: err });
  }
}

/** Not mkdirSync's own recursion: node 26 never ends where a parent cannot be made (/proc/a/b). */
function makeFolder(path: string): void {
  // 5.2
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  try {
    mkdirSync(path);
  } catch (err) {
    // Another start has made it meanwhile; SQLite says what is wrong with anything but a folder.
    if ((err as { code?: string }).code !== 'EEXIST') throw err;
  }
}

/** SQLite would create it for all to read. It gives `-wal` and `-shm` the mode of the file. */
function createFile(path: string): void {
  // 5.2
  closeSync(openSync(path, 'a', FILE_MODE));
  // The umask may have taken the group's rights.
  chmodSync(path, FILE_MODE);
}

/** Does the action, again and again while another process holds a lock on the file. */
// 4.13
export async function retry<T>(action: () => T, expires: number, now: () => number): Promise<T> {
  for (;;) {
    try {
      return action();
    } catch (err) {
      if (!isLocked(err)) throw err;
      await sleep(RETRY_MS);
      // This process may have stood still meanwhile (contract 4.13).
      if (now() >= expires) throw err;
    }
  }
}

/** Whether another process has a lock on the file, so that nothing was done. */
export function isLocked(err: unknown): boolean {
  return [SQLITE_BUSY, SQLITE_LOCKED].includes(primaryCode(err));
}

/** The lower eight bits of SQLite's result code, 0 for an error that is not SQLite's. */
export function primaryCode(err: unknown): number {
  return ((err as { errcode?: number }).errcode ?? 0) & 0xff;
}

function migrate(db: DatabaseSync): void {
  // 5.3
  // 5.2
  db.exec('pragma journal_mode = wal; pragma synchronous = full; pragma temp_store = memory');
  const all = migrations('sqlite');
  const version = () => Number(db.prepare('pragma user_version').get()?.user_version);
  if (missing(all, version()).length === 0) return;
  db.exec('begin immediate');
  try {
    // Another process may have been first.
    for (const migration of missing(all, version())) {
      db.exec(`${migration.sql}; pragma user_version = ${migration.version}`);
    }
    db.exec('commit');
  } catch (err) {
    if (db.isTransaction) db.exec('rollback');
    throw err;
  }
}

/** What an operator can do about a file that cannot be opened. */
function explain(path: string, err: NodeJS.ErrnoException): string {
  // 5.2
  const fault = `cannot open the database ${path}: ${err.message}`;
  const owner = `${getuid?.()}:${getgid?.()}`;
  const folder = resolve(dirname(path));
  if (err.code === 'EACCES' && err.syscall === 'mkdir') {
    return `${fault}; create it: mkdir -p ${folder} && chown ${owner} ${folder}`;
  }
  for (const place of [folder, resolve(path)]) {
    try {
      accessSync(place, constants.W_OK);
    } catch (found) {
      const { code } = found as NodeJS.ErrnoException;
      if (code === 'EROFS') return `${fault}; the file system of ${place} is read-only`;
      if (code !== 'EACCES') continue;
      return `${fault}; ${place} is not writable by uid ${getuid?.()}: chown ${owner} ${place}`;
    }
  }
  return fault;
}
