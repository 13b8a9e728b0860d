// Writes users to a SQLite store, as the service does, and appends all users to the file `acks` after each
// response. node disk-writer.ts FOLDER STEPS SYNCHRONOUS
import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { DatabaseSync } from 'node:sqlite';
import { openSqlite } from '../../src/store/sqlite.ts';
import { ALWAYS } from '../../src/user.ts';
import { QUIET } from '../support/open-store.ts';
import { newUser } from '../support/users.ts';
import { Time } from './time.ts';

const [folder = '', steps = '', synchronous = 'full'] = process.argv.slice(2);
const path = join(folder, 'service.db');
const { random } = new Time(Number(steps));
const below = (n: number) => Math.floor(random() * n);

// A planted fault: commits that are not synced.
const { exec } = DatabaseSync.prototype;
DatabaseSync.prototype.exec = function (sql) {
  exec.call(this, sql.replace('synchronous = full', `synchronous = ${synchronous}`));
};

const open = () => openSqlite({ engine: 'sqlite', path, autocheckpoint: true }, QUIET);

let store = await open();
const acks = openSync(join(folder, 'acks'), 'w');
for (let step = 0; step < Number(steps); step++) {
  // Calls of one turn share a commit.
  const calls = Array.from({ length: 1 + below(4) }, (_, n) => {
    const name = `${step} ${n} ${'x'.repeat(below(90))}`;
    const email = `${below(60)}@${'y'.repeat(1 + below(90))}`;
    const id = 1 + below(60);
    if (below(4) === 0) return store.delete(id, ALWAYS);
    return below(2)
      ? store.create(newUser({ name, email }))
      : store.update(id, { name, email }, ALWAYS);
  });
  await Promise.allSettled(calls);
  writeSync(acks, `${JSON.stringify(await store.list({ after: 0, limit: 1000 }))}\n`);
  if (step % 100 === 50) {
    await store.close();
    store = await open();
  }
  if (below(20) > 0 || step > 200) continue; // From then on, SQLite chooses when to copy its log.
  using other = new DatabaseSync(path);
  const mode = ['passive', 'restart', 'truncate'][below(3)];
  other.exec('pragma synchronous = full');
  other.exec(`pragma wal_checkpoint(${mode})`);
}
await store.close();
closeSync(acks);
