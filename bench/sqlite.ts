// A SQLite file for one contestant, in a folder of its own. Both contestants create the table
// themselves; unique emails differ from run to run, so nothing is emptied between runs.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Database } from './database.ts';
import { newFolder, remove } from './temp.ts';

/** A database in a new file. */
export function sqliteFile(): Database {
  const folder = newFolder();
  const path = join(folder, 'bench.db');
  return {
    url: `sqlite:${path}`,
    async reset() {},
    async count() {
      const db = new DatabaseSync(path, { readOnly: true });
      try {
        return Number(db.prepare('select count(*) as n from users').get()?.n);
      } finally {
        db.close();
      }
    },
    async drop() {
      remove(folder);
    },
  };
}

/** What a scenario without users gives to a contestant that insists on a store. */
export const NO_DATABASE: Database = {
  url: 'sqlite::memory:',
  async reset() {},
  count: async () => 0,
  async drop() {},
};
