// The guarantees of a UserStore on both engines, and the creation of each engine's schema.
import assert from 'node:assert/strict';
import fs, { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { openStore, type StoreOptions } from '../../src/store/index.ts';
import { migrations, missing, parseMigration, UnusableDatabase } from '../../src/store/schema.ts';
import { openFile } from '../../src/store/sqlite-file.ts';
import { parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS, type User, type UserStore } from '../../src/user.ts';
import { createDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { newUser, storedUser } from '../support/users.ts';

const folder = mkdtempSync(join(tmpdir(), 'notes-users-stores-'));
after(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
let emails = 0;
const newEmail = () => `user${++emails}@example.org`;

/** URLs of new, empty databases. */
const ENGINES = {
  'SQLite in a file': async () => `sqlite:${join(folder, `${++files}.db`)}`,
  'SQLite in memory': async () => 'sqlite::memory:',
  Postgres: () => createDatabase(),
} as const;

const QUIET: StoreOptions = {
  poolSize: 4,
  timeoutMs: 10_000,
  now: () => performance.now(),
  onUnavailable: () => {},
  onAvailable: () => {},
  info: () => {},
  debug: () => {},
  onFatal: () => {},
};

async function open(url: string, options: Partial<StoreOptions> = {}): Promise<UserStore> {
  return plainly(await openStore(parseDatabaseUrl(url)!, { ...QUIET, ...options }));
}

/** Makes the store return plain objects and arrays, because drivers have their own prototypes. */
function plainly(store: UserStore): UserStore {
  return {
    create: (user) => store.create(user).then(plain),
    find: (id) => store.find(id).then(plain),
    findByEmail: (email) => store.findByEmail(email).then(plain),
    list: (page) => store.list(page).then((users) => Array.from(users, plain)),
    update: (id, change, condition) => store.update(id, change, condition).then(plain),
    delete: (id, condition) => store.delete(id, condition).then(plain),
    ping: () => store.ping(),
    close: () => store.close(),
  };
}

function plain<Result>(result: Result): Result {
  return typeof result === 'object' ? { ...result } : result;
}

for (const [engine, newDatabase] of Object.entries(ENGINES)) {
  describe(engine, () => {
    let store: UserStore;
    before(async () => {
      store = await open(await newDatabase());
    });
    after(() => store.close());

    const create = (email = newEmail(), name = 'Ada') => store.create(newUser({ name, email }));

    describe('texts are stored unchanged', () => {
      for (const { why, name } of [
        { why: 'quotes, backslashes and braces', name: `"'\\{},""\\"\\\\ null NULL` },
        { why: 'the word null', name: 'NULL' },
        { why: 'SQL', name: `'); drop table users; --` },
        { why: 'a parameter’s name', name: '$1 :name ? @x' },
        { why: 'control characters', name: '\u0001\t\n\r\u007f\u0085' },
        { why: 'a space', name: ' ' },
        { why: 'characters of every UTF-8 length', name: '$¢€😀\u{10ffff}' },
        { why: 'two normal forms', name: '\u00e9 e\u0301' },
        { why: 'non-characters and a byte order mark', name: '\ufeff\uffff\ufdd0' },
        { why: '100 characters of four bytes', name: '😀'.repeat(100) },
        { why: 'a number with zeros', name: '007' },
        { why: 'commas', name: ',,1,,' },
      ]) {
        test(why, async () => {
          const email = `${name.replace(/[\s\p{Cc}@]/gu, '').slice(0, 20)}${newEmail()}`;
          const user = await create(email, name);
          assert.deepEqual(user, storedUser({ id: user.id, name, email }));
          assert.deepEqual(await store.find(user.id), user);
          assert.deepEqual(await store.findByEmail(email), user);
          const other = `${[...name].slice(1).join('')}x`;
          const changed = await store.update(user.id, { name: other }, ALWAYS);
          assert.equal((changed as User).name, other);
        });
      }
    });

    test('500 users are created at once', async () => {
      const users = await Promise.all(Array.from({ length: 500 }, () => create()));
      assert.equal(new Set(users.map(({ id }) => id)).size, 500);
      const first = Math.min(...users.map(({ id }) => id));
      const listed = await store.list({ after: first - 1, limit: 1000 });
      assert.deepEqual(
        listed,
        users.toSorted((a, b) => a.id - b.id),
      );
    });

    test('concurrent lookups find their users, also repeated and missing ones', async () => {
      const [ada, bob] = [await create(), await create()];
      const found = await Promise.all(
        [bob.id, 999_999, ada.id, bob.id].map((id) => store.find(id)),
      );
      assert.deepEqual(found, [bob, undefined, ada, bob]);
      const emails = [bob.email, 'nobody@x', ada.email, bob.email];
      const byEmail = await Promise.all(emails.map((email) => store.findByEmail(email)));
      assert.deepEqual(byEmail, [bob, undefined, ada, bob]);
    });

    test('a call that violates a constraint fails no other call of its turn', async () => {
      const [one, two] = [newEmail(), newEmail()];
      const settled = await Promise.allSettled([
        store.create(newUser({ name: 'Ada', email: one })),
        store.create(newUser({ name: 'x'.repeat(101), email: newEmail() })),
        store.create(newUser({ name: 'Bob', email: two })),
      ]);
      assert.deepEqual(
        settled.map(({ status }) => status),
        ['fulfilled', 'rejected', 'fulfilled'],
      );
      assert.equal((settled[1] as PromiseRejectedResult).reason.name, 'StoreUnavailable');
      assert.equal((await store.findByEmail(one))?.name, 'Ada');
      assert.equal((await store.findByEmail(two))?.name, 'Bob');
    });
  });
}

test('a SQLite file of a newer service is refused', async () => {
  const path = join(folder, 'newer.db');
  const db = new DatabaseSync(path);
  db.exec('create table notes_users_schema (version, oldest_service)');
  db.exec('insert into notes_users_schema values (999, 999)');
  db.close();
  await assert.rejects(open(`sqlite:${path}`), {
    message: `cannot open the database ${path}: the database has schema version 999 and needs a service that knows version 999 or later; this service knows ${migrations('sqlite').length}: run a newer service, or restore a backup from before the upgrade`,
  });
});

test('a Postgres database of a newer service is refused, once', async () => {
  const url = await createDatabase();
  await (await ready(url)).close();
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  await sql`insert into notes_users_schema values (999, 999)`;
  await sql.end();
  const faults: Error[] = [];
  const fault = Promise.withResolvers<Error>();
  const store = await open(url, {
    onFatal: (err) => {
      faults.push(err);
      fault.resolve(err);
    },
  });
  const waiting = store.find(1);
  const err = await fault.promise;
  assert.ok(err instanceof UnusableDatabase);
  await assert.rejects(waiting, { name: 'StoreUnavailable' }); // 4.13
  assert.match(
    err.message,
    /^the database has schema version 999 and needs .* version 999 or later; this service knows \d+: /,
  );
  await store.close();
  assert.equal(faults.length, 1);
});

test('Postgres calls that arrive while a large batch runs share the next one', async (t) => {
  const url = await createDatabase();
  const store = await open(url);
  const sql = postgres(url, { max: 1 });
  t.after(() => Promise.all([sql.end(), store.close()]));
  const create = () => store.create(newUser({ email: newEmail() }));
  // Waits until the pool is complete. With one connection, calls would always share.
  await until(async () => {
    await create();
    const sessions = await sql`
      select from pg_stat_activity
      where datname = current_database() and application_name = 'notes-users'`;
    return sessions.length === QUIET.poolSize;
  });
  let shared = 0;
  for (let i = 0; i < 20; i++) {
    const calls: Promise<User>[] = [];
    for (const count of [8, 1, 1]) {
      for (let call = 0; call < count; call++) calls.push(create());
      await new Promise((resolve) => setImmediate(resolve));
    }
    const ids = (await Promise.all(calls)).map(({ id }) => id);
    const commits = await sql`select distinct xmin::text from users where id in ${sql(ids)}`;
    if (commits.length === 2) shared++;
  }
  // Not in every run, because the batch can end between two turns.
  assert.ok(shared > 0);
});

test('a Postgres batch that waits for a lock does not delay others for long', async (t) => {
  const url = await createDatabase();
  const store = await open(url);
  const sql = postgres(url, { max: 1 });
  t.after(() => Promise.all([sql.end(), store.close()]));
  const create = () => store.create(newUser({ email: newEmail() }));
  const other = await create();
  const locked = await Promise.all(Array.from({ length: 8 }, create));
  let isDone = false;
  await sql.begin(async (transaction) => {
    await transaction`select from users where id = ${locked[0]!.id} for update`;
    const waiting = locked.map(({ id }) => store.update(id, { name: 'Eve' }, ALWAYS));
    void Promise.allSettled(waiting).then(() => {
      isDone = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    await store.update(other.id, { name: 'Eve' }, ALWAYS);
    assert.equal(isDone, false);
  });
});

test('a migration that has been applied is not applied again', async () => {
  const url = await createDatabase();
  for (let i = 0; i < 3; i++) await (await ready(url)).close();
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  const rows = await sql`select version from notes_users_schema order by version`;
  assert.deepEqual(
    rows.map(({ version }) => version),
    migrations('postgres').map(({ version }) => version),
  );
  await sql.end();
});

test('5.2 5.3 a folder that another start creates at the same moment causes no error', async (t) => {
  const { mkdirSync } = fs;
  const made: string[] = [];
  const mock = t.mock.method(fs, 'mkdirSync', (path: string) => {
    mkdirSync(path);
    made.push(path);
    mkdirSync(path);
  });
  syncBuiltinESMExports();
  const path = join(folder, 'raced', 'deeply');
  const opened = open(`sqlite:${path}/service.db`).finally(() => {
    mock.mock.restore();
    syncBuiltinESMExports();
  });
  await (await opened).close();
  assert.deepEqual(made, [dirname(path), path]);
});

test('5.2 a SQLite file has the durable settings', async () => {
  const path = join(folder, 'durable.db');
  const store = await open(`sqlite:${path}`);
  const db = new DatabaseSync(path);
  assert.equal(db.prepare('pragma journal_mode').get()?.journal_mode, 'wal');
  db.close();
  await store.close();
  // This setting belongs to the connection, so other connections can't read it.
  const own = await openFile(path, QUIET.now, (opened) => opened);
  const FULL = 2;
  assert.equal(own.prepare('pragma synchronous').get()?.synchronous, FULL);
  own.close();
});

test('another process’s lock on a SQLite file does not block the event loop', async () => {
  const path = join(folder, 'locked.db');
  const store = await open(`sqlite:${path}`);
  const other = new DatabaseSync(path);
  other.exec('begin immediate');
  const created = store.create(newUser({ email: newEmail() }));
  let turns = 0;
  while (turns < 50) {
    await new Promise((resolve) => setImmediate(resolve));
    turns++;
  }
  // Readers do not wait for it.
  assert.deepEqual(await store.list({ after: 0, limit: 1 }), []);
  other.exec('commit');
  assert.equal((await created).id, 1);
  other.close();
  await store.close();
});

test('a write that finds a SQLite file locked for too long fails and is not done later', async () => {
  const path = join(folder, 'stuck.db');
  const clock = { ms: 0 };
  let gone = 0;
  let back = 0;
  const store = await open(`sqlite:${path}`, {
    timeoutMs: 100,
    now: () => clock.ms,
    onUnavailable: () => gone++,
    onAvailable: () => back++,
  });
  const other = new DatabaseSync(path);
  other.exec('begin immediate');
  const email = newEmail();
  const stuck = store.create(newUser({ name: 'Ada', email }));
  // It was tried and waits.
  await new Promise((resolve) => setImmediate(resolve));
  clock.ms = 100;
  await assert.rejects(stuck, { name: 'StoreUnavailable' });
  // Working reads don't end a failure to write.
  assert.deepEqual(await store.list({ after: 0, limit: 10 }), []);
  assert.equal(await store.find(1), undefined);
  assert.deepEqual([gone, back], [1, 0]);
  other.exec('commit');
  other.close();
  assert.equal((await store.create(newUser({ name: 'Bob', email }))).name, 'Bob');
  assert.equal((await store.list({ after: 0, limit: 10 })).length, 1);
  assert.deepEqual([gone, back], [1, 1]);
  await store.close();
});

test('5.2 calls for one page in one turn share a SQLite read, calls for others do not', async () => {
  const store = await openStore(parseDatabaseUrl('sqlite::memory:')!, QUIET);
  await store.create(newUser({ email: newEmail() }));
  const page = { after: 0, limit: 10 };
  const [one, same, other] = await Promise.all([
    store.list(page),
    store.list({ ...page }),
    store.list({ ...page, limit: 11 }),
  ]);
  assert.equal(one, same);
  assert.notEqual(one, other);
  assert.deepEqual(one, other);
  assert.notEqual(await store.list(page), one);
  await store.close();
});

test('5.2 while 1,000 pages wait for SQLite, other work runs after each millisecond of reading', async () => {
  // The clock advances by 0.3 ms at each call, so a turn has time for only a few reads.
  const clock = { ms: 0 };
  const now = () => {
    clock.ms += 0.3;
    return clock.ms;
  };
  const timeoutMs = 1_000_000;
  const store = await openStore(parseDatabaseUrl('sqlite::memory:')!, { ...QUIET, now, timeoutMs });
  await Promise.all(
    Array.from({ length: 1000 }, () => store.create(newUser({ email: newEmail() }))),
  );
  let done = 0;
  const pages = Array.from({ length: 1000 }, async (_, after) => {
    assert.equal((await store.list({ after, limit: 10 }))[0]?.id, after + 1);
    done++;
  });
  assert.equal((await store.find(1000))?.id, 1000);
  assert.equal(done, 0);
  // Other requests need one turn of the event loop each.
  for (let turn = 1; turn <= 100; turn++) {
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(done > 0 && done <= 4 * turn, `${done} pages in ${turn} turns`);
    assert.equal((await store.find(turn))?.id, turn);
  }
  const writing = store.create(newUser({ name: 'Bob', email: newEmail() }));
  assert.equal((await writing).id, 1001);
  assert.ok(done < 1000, 'a write waited for all pages');
  await Promise.all(pages);
  assert.equal(done, 1000);
  await store.close();
});

test('5.2 a change by another program that leaves version alone raises it', async () => {
  const path = join(folder, 'outside.db');
  const store = await open(`sqlite:${path}`);
  const { id } = await store.create(newUser({ email: newEmail() }));
  using other = new DatabaseSync(path);
  const versionAfter = async (set: string) => {
    other.exec(`update users set ${set} where id = ${id}`);
    return (await store.find(id))?.version;
  };
  assert.equal(await versionAfter("name = 'Bob'"), 2);
  assert.equal(await versionAfter("email = 'bob@example.com'"), 3);
  assert.equal(await versionAfter("name = 'Cy', version = version + 1"), 4);
  const changed = await store.update(id, { name: 'Dan' }, ALWAYS);
  assert.deepEqual(changed, storedUser({ id, name: 'Dan', email: 'bob@example.com', version: 5 }));
  assert.deepEqual(await store.find(id), changed);
  await store.close();
});

test('5.2 the write-ahead log shrinks once no reader keeps it', async () => {
  const path = join(folder, 'log.db');
  const store = await open(`sqlite:${path}`);
  const megabytes = () => statSync(`${path}-wal`).size / 2 ** 20;
  const write = () =>
    Promise.all(
      Array.from({ length: 4000 }, () =>
        store.create(newUser({ name: 'A'.repeat(100), email: newEmail() })),
      ),
    );
  using reader = new DatabaseSync(path);
  await write();
  reader.exec('begin; select count(*) from users');
  while (megabytes() <= 12) await write();
  reader.exec('commit');
  // One turn of writes fills the log's part that is written back, another one reuses the log.
  for (let turn = 0; turn < 3; turn++) await write();
  assert.ok(megabytes() <= 8, `${megabytes()} MiB`);
  await store.close();
});

test('4.13 5.2 under a lock each call has its own deadline, not that of the first in its turn', async () => {
  const path = join(folder, 'shared.db');
  const clock = { ms: 0 };
  let gone = 0;
  let back = 0;
  const store = await open(`sqlite:${path}`, {
    timeoutMs: 300,
    now: () => clock.ms,
    onUnavailable: () => gone++,
    onAvailable: () => back++,
  });
  const other = new DatabaseSync(path);
  other.exec('begin immediate');
  const first = store.create(newUser({ email: newEmail() }));
  clock.ms = 200;
  const later = ['Bob', 'Cy'].map((name) => store.create(newUser({ name, email: newEmail() })));
  // The batch has started before the first call expires.
  await new Promise((resolve) => setImmediate(resolve));
  clock.ms = 300;
  await assert.rejects(first, { name: 'StoreUnavailable' });
  clock.ms = 450;
  other.exec('rollback');
  other.close();
  const users = await Promise.all(later);
  assert.deepEqual(
    users.map(({ name }) => name),
    ['Bob', 'Cy'],
  );
  assert.deepEqual(await store.list({ after: 0, limit: 10 }), users);
  assert.deepEqual([gone, back], [1, 1]);
  await store.close();
});

test('4.13 a call that waited for a lock is not done late after the process was suspended', async () => {
  const path = join(folder, 'late.db');
  const clock = { ms: 0 };
  const store = await open(`sqlite:${path}`, { timeoutMs: 300, now: () => clock.ms });
  const other = new DatabaseSync(path);
  other.exec('begin immediate');
  const call = store.create(newUser({ email: newEmail() }));
  // It was tried and waits.
  await new Promise((resolve) => setImmediate(resolve));
  other.exec('rollback');
  other.close();
  clock.ms = 300;
  await assert.rejects(call, { name: 'StoreUnavailable' });
  assert.deepEqual(await store.list({ after: 0, limit: 10 }), []);
  await store.close();
});

describe('migrations', () => {
  for (const engine of ['sqlite', 'postgres'] as const) {
    test(`those of ${engine} are numbered from 1 without gaps and contain SQL`, () => {
      const all = migrations(engine);
      assert.ok(all.length >= 1);
      assert.deepEqual(
        all.map(({ version }) => version),
        all.map((_, i) => i + 1),
      );
      assert.ok(all.every(({ sql }) => sql.trim() !== ''));
    });
  }

  test('5.3 both engines have the same versions for the same services', () => {
    const [sqlite, postgres] = (['sqlite', 'postgres'] as const).map((engine) =>
      migrations(engine).map(({ version, oldestService }) => ({ version, oldestService })),
    );
    assert.deepEqual(sqlite, postgres);
  });

  const all = [1, 2, 3].map((version) => ({
    version,
    oldestService: Math.max(version - 1, 1),
    sql: `select ${version}`,
  }));

  for (const { version, oldestService, count } of [
    { version: 0, oldestService: 0, count: 3 },
    { version: 2, oldestService: 2, count: 1 },
    { version: 3, oldestService: 2, count: 0 },
    { version: 4, oldestService: 3, count: 0 },
    { version: 9, oldestService: 1, count: 0 },
  ]) {
    test(`5.3 version ${version}, oldest service ${oldestService}: ${count} of 3 are missing`, () =>
      assert.deepEqual(missing(all, { version, oldestService }), all.slice(3 - count)));
  }

  for (const [version, oldestService] of [
    [4, 4],
    [9, 5],
  ] as const) {
    test(`5.3 version ${version}, oldest service ${oldestService}: a service that knows 3 is refused`, () =>
      assert.throws(() => missing(all, { version, oldestService }), {
        name: 'UnusableDatabase',
        message: `the database has schema version ${version} and needs a service that knows version ${oldestService} or later; this service knows 3: run a newer service, or restore a backup from before the upgrade`,
      }));
  }

  for (const { header, oldestService } of [
    { header: '', oldestService: 3 },
    { header: '-- oldest service: 1\n', oldestService: 1 },
    { header: '-- Adds a table.\n-- oldest service: 3\n', oldestService: 3 },
  ]) {
    test(`5.3 a third migration with ${JSON.stringify(header)} allows service ${oldestService}`, () => {
      const sql = `${header}select 1`;
      const migration = parseMigration(3, sql);
      const record = `(version, oldest_service) values (3, ${oldestService})`;
      assert.deepEqual(migration, {
        ...{ version: 3, oldestService },
        sql: `${sql}\n; insert into notes_users_schema ${record};`,
      });
    });
  }

  for (const value of ['0', '4', '1.5', '-1', 'x', '']) {
    test(`5.3 a third migration that declares "${value}" allows no older service`, () => {
      const { oldestService } = parseMigration(3, `-- oldest service: ${value}\n`);
      assert.equal(oldestService, 3);
    });
  }

  for (const engine of ['sqlite', 'postgres']) {
    test(`5.3 the files of db/${engine} have their numbers, and valid declarations`, () => {
      const files = readdirSync(join(import.meta.dirname, '../../db', engine)).sort();
      for (const [i, name] of files.entries()) {
        assert.equal(Number.parseInt(name, 10), i + 1, name);
        const sql = readFileSync(join(import.meta.dirname, '../../db', engine, name), 'utf8');
        const lines = sql.split('\n').filter((line) => /oldest service/.test(line));
        const { oldestService } = parseMigration(i + 1, sql);
        const valid = lines.length === 0 ? [] : [`-- oldest service: ${oldestService}`];
        assert.deepEqual(lines, valid, name);
      }
    });
  }
});

/** A store of the URL that has connected. */
async function ready(url: string): Promise<UserStore> {
  const store = await open(url);
  await store.list({ after: 0, limit: 1 });
  return store;
}
