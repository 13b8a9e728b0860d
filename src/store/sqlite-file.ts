// Opens the SQLite file, brings its schema up to date, and copies it. SQLite itself would block the event loop while it
// waits for a lock, so the service disables this: an action that finds the file locked is retried after a pause, until
// its deadline.
import fs from 'node:fs';
import { rm } from 'node:fs/promises';
import { dirname, isAbsolute } from 'node:path';
import process from 'node:process';
import type { DatabaseSync } from 'node:sqlite';
import { sleep, unixMs } from '../clock.ts';
import { StoreUnavailable } from '../user.ts';
import type { FailedOutcome } from './queue.ts';
import { failMigration, migrations, missing, type Schema, UnusableDatabase } from './schema.ts';
import type { SqliteDatabase } from './url.ts';

const FILE_MODE = 0o660; // others have no access (5.2)
const RETRY_MS = 2; // pause before another attempt on a locked file; an import hardly leaves longer gaps
// 5.2: SQLite reuses its log after 1,000 pages (4 MiB), unless a reader keeps it. Twice that, so the log is cut
// only after such a reader.
const WAL_LIMIT_BYTES = 8 * 2 ** 20;
const OPEN_TIMEOUT_MS = 10_000; // time for another process that has locked the file
const MAX_LINKS = 40; // as in Linux
const FLUSH_DISK = 'pragma fullfsync = on'; // On macOS, fsync alone leaves data in the disk's cache.
// A copy has one step. SQLite begins one in several steps again at each commit of another connection.
const ALL_PAGES = 2 ** 31 - 1;

/** By primary result code, the lower eight bits (sqlite.org/rescode.html). */
const OUTCOMES: Readonly<Record<number, FailedOutcome>> = {
  5: 'not done', // SQLITE_BUSY
  19: 'rolled back', // SQLITE_CONSTRAINT
};

/** The file, its write-ahead log and the shared memory of its readers (sqlite.org/walformat.html). */
const filesOf = (path: string) => ['', '-wal', '-shm'].map((end) => path + end);

/**
 * Opens the file, migrates it and prepares its statements. Creates the file and its folder if missing.
 * @returns the database and what `prepare` made
 * @throws an Error with one line that says what an operator can do
 */
export async function openFile<T>(
  { path, autocheckpoint }: SqliteDatabase,
  now: () => number,
  prepare: (db: DatabaseSync) => T,
) {
  const sqlite = process.getBuiltinModule('node:sqlite'); // loaded only if the settings choose it
  const db = new sqlite.DatabaseSync(path, { timeout: 0, open: false }); // 5.2
  try {
    if (path !== ':memory:') prepareFile(path);
    db.open();
    if (!autocheckpoint) db.exec('pragma wal_autocheckpoint = 0'); // of this connection only
    await retry(() => migrate(db), now() + OPEN_TIMEOUT_MS, now);
    return [db, prepare(db)] as const;
  } catch (err) {
    if (db.isOpen) db.close();
    throw new Error(explain(path, err as NodeJS.ErrnoException), { cause: err });
  }
}

/** Creates the file if it is missing. SQLite gives `-wal` and `-shm` its mode (5.2). */
function prepareFile(name: string): void {
  const path = targetOf(name);
  const { R_OK, W_OK, X_OK } = fs.constants;
  const folder = dirname(path);
  makeFolder(folder);
  if (!fs.statSync(folder).isDirectory()) throw new Error(`${folder} is not a folder`);
  fs.accessSync(folder, R_OK | W_OK | X_OK); // SQLite opens it to make new names durable.
  for (const file of filesOf(path)) {
    try {
      if (!fs.statSync(file).isFile()) throw new Error(`${file} is not a regular file`);
      fs.accessSync(file, R_OK | W_OK); // Without permission SQLite silently opens the file read-only.
    } catch (err) {
      // The last process that closes the file removes its log at any time.
      if ((err as NodeJS.ErrnoException).code !== 'ENOENT') throw err;
    }
  }
  const sizeOf = (file: string) => fs.statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  // SQLite would delete this log. Looks at the log first: a process that creates both writes to the file first.
  if (sizeOf(`${path}-wal`) > 0 && sizeOf(path) === 0) {
    throw new Error(
      `${path} is missing or empty, but ${path}-wal has its last commits: put it back; or remove the log, then restore a backup or start without users`,
    );
  }
  if (fs.existsSync(path)) return;
  fs.writeFileSync(path, '', { flag: 'a', mode: FILE_MODE }); // SQLite would make it readable for all.
  fs.chmodSync(path, FILE_MODE); // The umask may have removed the group's permissions.
}

/** Follows links, also to a file that is missing or not accessible, as SQLite does. */
function targetOf(name: string, links = MAX_LINKS): string {
  try {
    const target = within(dirname(name), fs.readlinkSync(name));
    return links === 0 ? name : targetOf(target, links - 1);
  } catch {
    return name; // It is not a link.
  }
}

/** Not path.resolve(): it shortens `link/..`, which is the parent of what the link names. */
function within(folder: string, path: string): string {
  return isAbsolute(path) ? path : `${folder}/${path}`;
}

const absolute = (path: string) => within(process.cwd(), path);

/**
 * Copies the database at `path` to the new file `target` (6.19). Resolves once the copy is durable; if it fails,
 * no file is left.
 * @throws an Error with one line, also if `target` exists
 */
export async function backup(path: string, target: string): Promise<void> {
  const sqlite = process.getBuiltinModule('node:sqlite');
  let created: readonly string[] = [];
  try {
    // A service that stops locks the file while it merges its log.
    using db = new sqlite.DatabaseSync(path, { readOnly: true, timeout: OPEN_TIMEOUT_MS });
    // Says why the file can't be read. For a lock, `backup` says "not an error".
    db.exec('select 1 from sqlite_schema');
    fs.writeFileSync(target, '', { flag: 'wx', mode: FILE_MODE }); // never over an existing file
    created = [...filesOf(target), `${target}-journal`]; // On a full disk SQLite leaves its own.
    fs.chmodSync(target, FILE_MODE);
    // SQLite takes `:memory:` and `file:` at the start of a name for something else.
    const file = absolute(target);
    await sqlite.backup(db, file, { rate: ALL_PAGES });
    using copy = new sqlite.DatabaseSync(file);
    // Makes the name durable, not only the contents. Node's permission model allows no fsync of our own.
    copy.exec(`${FLUSH_DISK}; pragma synchronous = extra; pragma journal_mode = delete`);
  } catch (err) {
    // A disk that has become read-only keeps them.
    await Promise.allSettled(created.map((file) => rm(file)));
    throw new Error(`cannot copy ${absolute(path)} to ${target}: ${(err as Error).message}`, {
      cause: err,
    });
  }
}

/**
 * Returns a function that throws if a file is no longer the one that SQLite has open: what is committed to it
 * would be lost. SQLite itself checks this only without a write-ahead log (SQLITE_READONLY_DBMOVED).
 */
export function watchFiles(path: string): () => void {
  if (path === ':memory:') return () => {};
  const files = filesOf(path);
  const stat = (file: string) => fs.statSync(file, { throwIfNoEntry: false });
  const identityOf = (file: string) => {
    const { dev, ino } = stat(file) ?? {};
    return `${dev} ${ino}`;
  };
  const identities = files.map(identityOf);
  const folder = dirname(files[0]!);
  let unchanged: string | undefined;
  return function checkFiles() {
    // Since Linux 6.13, looking at the files themselves makes the next commit write their times too: a fifth of its CPU.
    const { dev, ino, ctimeMs = 0 } = stat(folder) ?? {};
    const state = `${dev} ${ino} ${ctimeMs}`;
    if (state === unchanged) return;
    const moved = files.find((file, i) => identityOf(file) !== identities[i]);
    if (moved !== undefined) {
      throw new StoreUnavailable(
        `${moved} was removed or replaced while in use: put it back, or stop the service and restore a backup`,
      );
    }
    // Two changes within a few milliseconds can have the same time.
    if (unixMs() - ctimeMs > 1000) unchanged = state;
  };
}

/** Makes a folder and its parents (5.2). Node 26's own recursion never ends for /proc/a/b. */
function makeFolder(path: string): void {
  if (fs.existsSync(path)) return;
  makeFolder(dirname(absolute(path))); // '.' has no parent
  try {
    fs.mkdirSync(path);
  } catch (err) {
    // Another process made it first. If it isn't a folder, SQLite reports that.
    if ((err as { code?: string }).code !== 'EEXIST') throw err;
  }
  // 5.5: node's permission model allows no fsync. In the image, the folder of the volume exists.
  if (process.permission !== undefined) return;
  const folder = fs.openSync(dirname(path), 'r');
  fs.fsyncSync(folder);
  fs.closeSync(folder);
}

/** Makes commits durable (5.2), and applies the missing migrations in one transaction (5.3). */
function migrate(db: DatabaseSync): void {
  const all = migrations('sqlite');
  missing(all, schemaOf(db)); // Throws before the file is changed.
  db.exec(`${FLUSH_DISK}; pragma journal_mode = wal; pragma synchronous = full`);
  db.exec('pragma temp_store = memory'); // The image has no folder for temporary files.
  db.exec(`pragma journal_size_limit = ${WAL_LIMIT_BYTES}`); // of this connection only
  if (missing(all, schemaOf(db)).length === 0) return; // This read makes SQLite create `-wal` and `-shm`.
  transact(db, () => {
    // Read again: another process may have migrated the file before we got the lock.
    const lacking = missing(all, schemaOf(db));
    try {
      for (const sql of lacking) db.exec(sql);
    } catch (err) {
      failMigration(err);
    }
  });
}

/** Returns version 0 for an empty file. @throws UnusableDatabase if its tables are not ours */
function schemaOf(db: DatabaseSync): Schema {
  const own = "select type, name from sqlite_schema where name not glob 'sqlite_*'";
  const listed = db.prepare(own).all();
  const first = listed[0];
  if (first === undefined) return { version: 0, oldestService: 0 };
  if (!listed.some(({ name }) => name === 'notes_users_schema')) {
    throw new UnusableDatabase(
      `it has a ${first.type} ${first.name} that this service did not create; nothing was changed: use another file`,
    );
  }
  const read = db.prepare(
    'select max(version) as version, max(oldest_service) as oldestService from notes_users_schema',
  );
  return { ...read.get() } as unknown as Schema;
}

/** Runs the action in a transaction that has the write lock from its beginning. */
export function transact<T>(db: DatabaseSync, action: () => T): T {
  db.exec('begin immediate');
  try {
    const result = action();
    db.exec('commit'); // 5.5
    return result;
  } catch (err) {
    // On a full disk SQLite may have rolled back by itself.
    if (db.isTransaction) db.exec('rollback'); // 5.2
    throw err;
  }
}

/** Runs the action. Retries until `expires` while another process holds a lock (4.13, 5.2). */
export async function retry<T>(action: () => T, expires: number, now: () => number): Promise<T> {
  for (;;) {
    try {
      return action();
    } catch (err) {
      if (outcomeAfter(err) !== 'not done') throw err;
      await sleep(RETRY_MS);
      // Checked after the pause, which is longer if this process was suspended.
      if (now() >= expires) throw err;
    }
  }
}

export function outcomeAfter(err: unknown): FailedOutcome {
  return OUTCOMES[((err as { errcode?: number }).errcode ?? 0) & 0xff] ?? 'unknown';
}

/** Adds the result code, because SQLite has few messages for the many ways in which a disk fails. */
export function messageOf(err: unknown): string {
  const { message, errcode } = err as Error & { errcode?: number };
  return errcode ? `${message} (SQLite result code ${errcode})` : message;
}

/** Returns a line that says why the file can't be opened, and how to fix it (5.2). */
function explain(path: string, err: NodeJS.ErrnoException): string {
  const fault = `cannot open the database ${path}: ${messageOf(err)}`;
  if (err.code === 'ERR_ACCESS_DENIED') return `${fault}; in the image, put it below /data`;
  if (err.code !== 'EACCES') return fault;
  const uid = process.getuid?.();
  const chown = (place: string) => `chown ${uid}:${process.getgid?.()} ${place}`;
  const place = absolute(err.path ?? path); // what is not accessible
  if (err.syscall !== 'mkdir') {
    const fix = fs.statSync(place).uid === uid ? `chmod u+rwX ${place}` : chown(place);
    return `${fault}; ${place} is not accessible to uid ${uid}: ${fix}`;
  }
  const parent = dirname(place);
  const isSearchable = fs.existsSync(`${parent}/.`);
  if (!isSearchable) return `${fault}; uid ${uid} may not search ${parent}: chmod a+x ${parent}`;
  const folder = absolute(dirname(targetOf(path)));
  return `${fault}; create it: mkdir -p ${folder} && ${chown(folder)}`;
}
