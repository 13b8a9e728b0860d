// Two versions of the service on one database, under load: upgrade, restart of the old version on the new
// schema, and rollback. No request fails. The versions are copies of the built service, with one more migration.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  COMPLETE,
  copyOf,
  newDatabase,
  newFolder,
  PROGRAM,
  Program,
  ROOT,
  SCHEMA_VERSION,
  STORES,
} from '../support/program.ts';
import { execute, serve, transaction } from '../support/service.ts';
import { until } from '../support/until.ts';
import { report } from './results.ts';
import { Ledger, Writers } from './writers.ts';

const WRITERS = 16;
const WAITING = `select from pg_locks where not granted and mode = 'AccessExclusiveLock'`;

const built = join(newFolder(), 'dist');
execFileSync(process.execPath, [join(ROOT, 'scripts/build.ts'), built], { stdio: 'ignore' });
const migration = `-- oldest service: ${SCHEMA_VERSION}
  alter table users add column added text not null default '';`;
const oldVersion = copy();
const newVersion = copy(migration);
const brokenVersion = copy(`${migration} insert into no_such_table values (1);`);

for (const store of STORES) {
  test(`5.3 5.8 upgrade and rollback while the other version runs: no request fails (${store})`, {
    timeout: 600_000,
  }, async (t) => {
    const DATABASE_URL = await newDatabase(store);
    const ledger = new Ledger();
    await using stack = new AsyncDisposableStack();
    const begin = async (command: readonly string[]) => {
      const program = stack.use(await serve({ DATABASE_URL }, command));
      return { program, writers: new Writers(ledger, program.url, WRITERS) };
    };
    type Service = Awaited<ReturnType<typeof begin>>;
    const work = (...services: Service[]) =>
      Promise.all(services.map(({ writers }) => writers.progress(4 * WRITERS)));
    const end = async ({ program, writers }: Service) => {
      await writers.stop();
      assert.deepEqual([writers.broken, writers.refused], [0, 0]);
      assert.deepEqual(await program.stop(), { code: 0, signal: null });
      // On a slow machine the first attempt to connect can time out.
      const errors = program.log.filter(
        ({ level, message }) => level === 'error' && message !== 'store unavailable',
      );
      assert.deepEqual(errors, []);
    };

    const first = await begin(oldVersion);
    await using broken = new Program({ ...COMPLETE, DATABASE_URL }, [], brokenVersion);
    assert.deepEqual(await broken.exited, { code: 1, signal: null });
    assert.match(broken.stderr, /a migration failed: .*no_such_table/);
    await work(first);
    let starting: Promise<Service> | undefined;
    if (store === 'postgres') {
      // A backup reads the table meanwhile. Only the migration has to wait.
      const lock = 'lock table users in access share mode';
      const backup = stack.use(await transaction(DATABASE_URL, lock));
      starting = begin(newVersion);
      await until(async () => (await execute(DATABASE_URL, WAITING)).length > 0);
      await work(first);
      assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION);
      await backup.release();
    }
    const second = await (starting ?? begin(newVersion));
    assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION + 1);
    await work(first, second);
    await end(first);
    const again = await begin(oldVersion);
    await work(again, second);
    await end(second);
    await work(again);
    await end(again);
    assert.deepEqual(await ledger.check(DATABASE_URL), []);
    report(t, 3, ledger.acknowledged);
  });
}

/** Copies the package's files, perhaps with one more migration; returns the command. */
function copy(migration?: string): readonly string[] {
  const { files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const folder = copyOf(files.filter((name: string) => !name.startsWith('dist/')));
  cpSync(built, join(folder, 'dist'), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  for (const engine of migration ? ['sqlite', 'postgres'] : []) {
    const number = String(SCHEMA_VERSION + 1).padStart(4, '0');
    writeFileSync(join(folder, `db/${engine}/${number}_added.sql`), migration!);
  }
  return [...PROGRAM.slice(0, -1), join(folder, 'dist/main.cjs')];
}

async function schemaVersion(databaseUrl: string): Promise<unknown> {
  const text = 'select max(version) as version from notes_users_schema';
  const [row] = await execute(databaseUrl, text);
  return row!.version;
}
