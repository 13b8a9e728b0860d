// Copies the SQLite file while the service runs (contract 6.19).
import { chmodSync, closeSync, fsyncSync, openSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import process from 'node:process';

const FILE_MODE = 0o660; // as that of the database (5.2)
// All pages in one step. SQLite begins a copy in several steps again at each commit of another connection.
const ALL_PAGES = 2 ** 31 - 1;

/**
 * Copies the database at `path` to the new file `target`. Resolves once the copy is durable; if it fails, no
 * file is left.
 * @throws an Error with one line, also if `target` exists
 */
export async function backup(path: string, target: string): Promise<void> {
  const sqlite = process.getBuiltinModule('node:sqlite');
  let isCreated = false;
  try {
    using db = new sqlite.DatabaseSync(path, { readOnly: true });
    closeSync(openSync(target, 'wx', FILE_MODE)); // never over an existing file
    isCreated = true;
    chmodSync(target, FILE_MODE); // The umask may have removed the group's permissions.
    await sqlite.backup(db, target, { rate: ALL_PAGES });
    for (const place of [target, dirname(target)]) sync(place);
  } catch (err) {
    if (isCreated) rmSync(target, { force: true });
    throw new Error(`cannot copy ${path} to ${target}: ${(err as Error).message}`, { cause: err });
  }
}

function sync(path: string): void {
  const file = openSync(path, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
