// A SQLite file for one contestant, in its own folder. The contestant creates the table.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Database } from './database.ts';
import { newFolder, remove } from './temp.ts';

const BUSY_TIMEOUT_MS = 10_000;

/** Returns a database in a new file, with its users in that table. */
export function sqliteFile(table = 'users'): Database {
  const folder = newFolder();
  const path = join(folder, 'data.db');
  const using = <T>(action: (db: DatabaseSync) => T) => {
    const db = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
    try {
      return action(db);
    } finally {
      db.close();
    }
  };
  return {
    url: `sqlite:${path}`,
    async reset(rows) {
      using((db) => {
        db.exec(`begin immediate; delete from ${table}`);
        const counter = "select 1 from sqlite_master where name = 'sqlite_sequence'";
        if (db.prepare(counter).get()) db.exec('delete from sqlite_sequence');
        db.exec(`
          with recursive n (i) as (select 1 where ${rows} > 0 union all select i + 1 from n where i < ${rows})
          insert into ${table} (id, name, email)
          select i, 'Name of user ' || i, 'user-' || i || '@bench.example.org' from n;
          commit;
          pragma wal_checkpoint(truncate);
        `);
      });
    },
    async count() {
      return using((db) => Number(db.prepare(`select count(*) as n from ${table}`).get()?.n));
    },
    async drop() {
      remove(folder);
    },
  };
}

/** A store for a contestant that requires one, in a scenario without users. */
export const NO_DATABASE: Database = {
  url: 'sqlite::memory:',
  async reset() {},
  count: async () => 0,
  async drop() {},
};
