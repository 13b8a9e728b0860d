// Copies the SQLite file while the service runs (contract 6.19).
import { rmSync } from 'node:fs';
import { dirname } from 'node:path';
import process from 'node:process';
import { createFile, sync } from './sqlite-file.ts';

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
    createFile(target, 'wx'); // never over an existing file
    isCreated = true;
    await sqlite.backup(db, target, { rate: ALL_PAGES });
    for (const place of [target, dirname(target)]) sync(place);
  } catch (err) {
    if (isCreated) rmSync(target, { force: true });
    throw new Error(`cannot copy ${path} to ${target}: ${(err as Error).message}`, { cause: err });
  }
}
