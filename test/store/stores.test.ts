// What the model of the users and the simulation can't reach: a constraint that a call violates, SQLite's file
// under locks and beside other programs, and the numbers of the migrations.
import assert from 'node:assert/strict';
import fs, { readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import type { Exchange } from '../../src/http/exchange.ts';
import { adminHandler } from '../../src/ops/admin.ts';
import { failMigration, migrations, withRecord } from '../../src/store/schema.ts';
import { openFile } from '../../src/store/sqlite-file.ts';
import { parseDatabaseUrl, type SqliteDatabase } from '../../src/store/url.ts';
import { ALWAYS, CallerLeft, EmailTaken, type UserChange, type UserStore } from '../../src/user.ts';
import { open } from '../support/open-store.ts';
import { newDatabase, newFolder, STORES } from '../support/program.ts';
import { execute, newEmail } from '../support/service.ts';
import { newUser, storedUser } from '../support/users.ts';

const newFile = () => join(newFolder(), 'service.db');
const FIRST_PAGE = { after: 0, limit: 10 };

const TRIGGER = {
  sqlite: `create trigger refuse before insert on users when new.name = 'one'
    begin select raise(rollback, 'no: users.name'); end`,
  // Its error has the code of one that ends a batch (4.13).
  postgres: `create function parse() returns trigger language plpgsql
      as $$ begin if new.name = 'one' then perform new.name::integer; end if; return new; end $$;
    create trigger parse before insert on users for each row execute function parse()`,
};
const LOG = {
  sqlite: 'create trigger log after update on users begin insert into changes values (new.id); end',
  postgres: 'create rule log as on update to users do also insert into changes values (old.id)',
};
for (const engine of STORES) {
  test(`4.17 a call whose client has left is not done (${engine})`, async (t) => {
    const store = await open(t, await newDatabase(engine));
    const left = { network: '', hasLeft: true };
    const writes = [store.create(newUser(), left), store.delete(1, ALWAYS, left)];
    const calls = [...writes, store.update(1, {}, ALWAYS, left), store.list(FIRST_PAGE, left)];
    await Promise.all(calls.map((call) => assert.rejects(call, CallerLeft)));
  });

  test(`2.9 a call that violates a constraint or makes a trigger fail fails no other call of its turn (${engine})`, async (t) => {
    const onUnavailable = () => assert.fail('its store is available');
    const url = await newDatabase(engine);
    const store = await open(t, url, { onUnavailable });
    await store.list(FIRST_PAGE);
    await execute(url, TRIGGER[engine]);
    const create = (name: string) => store.create(newUser({ name, email: newEmail() }));
    const calls = ['Ada', 'x'.repeat(101), 'Bob', 'one'].map(create);
    const outcomes = await Promise.all(calls.map((call) => call.catch((err: Error) => err)));
    const names = outcomes.map(({ name }) => name);
    assert.deepEqual(names, ['Ada', 'StoreUnavailable', 'Bob', 'StoreUnavailable']);
    const users = await store.list(FIRST_PAGE);
    assert.equal(users.map(({ name }) => name).join(), 'Ada,Bob');
  });

  test(`4.10 an email that an administrator's unique index refuses is taken; other duplicates are failures (${engine})`, async (t) => {
    const url = await newDatabase(engine);
    const store = await open(t, url);
    const create = (email: string) => store.create(newUser({ email }));
    const ada = await create('ada@x');
    await execute(url, 'create unique index lower_email on users (lower(email))');
    const [taken, bob] = await Promise.allSettled([create('ADA@x'), create('bob@x')]);
    assert.deepEqual([taken.status, bob.status], ['rejected', 'fulfilled']);
    await assert.rejects(create('ADA@x'), EmailTaken);
    await assert.rejects(store.update(ada.id, { email: 'BOB@x' }, ALWAYS), EmailTaken);
    await execute(url, `create table changes (id bigint unique); ${LOG[engine]}`);
    await store.update(ada.id, { name: 'Ada King' }, ALWAYS);
    const again = store.update(ada.id, { name: 'Eve' }, ALWAYS);
    await assert.rejects(again, { name: 'StoreUnavailable' });
    if (engine === 'sqlite') return;
    await execute(url, 'drop rule log on users');
    for (const change of ['', 'alter index users_pkey rename to users_pkey1;']) {
      await execute(url, `${change} alter table users alter id restart`);
      await assert.rejects(create('eve@x'), { name: 'StoreUnavailable' });
    }
  });
}

test('5.3 5.8 a migration waits 250 ms for a lock and 1 s for its client, and is final if refused after the time limit of connecting', async (t) => {
  const url = await newDatabase('postgres');
  const trigger = `create function refuse() returns event_trigger language plpgsql
      as $$ begin perform pg_sleep(5.5);
        raise data_exception using message = concat_ws(' ', current_setting('lock_timeout'),
          current_setting('idle_in_transaction_session_timeout')); end $$;
    create event trigger refuse on ddl_command_start execute function refuse()`;
  await execute(url, trigger);
  const { promise: fatal, resolve: onFatal, reject: onUnavailable } = Promise.withResolvers();
  await open(t, `${url}?connect_timeout=5`, { onFatal, onUnavailable });
  assert.match(String(await fatal), /^UnusableDatabase: a migration failed: 250ms 1s$/);
});

test('4.17 6.17 7.2 Postgres is not asked whether it is ready for a client that has left, and a body is dropped meanwhile', async (t) => {
  const store = await open(t, await newDatabase('postgres'));
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const ping: UserStore['ping'] = (caller) => {
    store.ping(caller).then(resolve, resolve);
    return new Promise(() => {}); // so that no response follows
  };
  const isStopping = () => false;
  const handler = adminHandler(isStopping, { ping } as UserStore, () => '');
  const on = t.mock.fn();
  const req = { method: 'GET', url: '/ready', headers: { 'content-length': '1' }, on };
  handler.handle({ req, check: () => {}, network: '', hasLeft: true } as unknown as Exchange);
  assert.ok((await promise) instanceof CallerLeft);
  assert.equal(on.mock.calls[0]?.arguments[0], 'data');
});

/** Opens a store in this folder with the mocks of node:fs. */
async function openWithMocks(t: TestContext, folder: string) {
  syncBuiltinESMExports();
  await open(t, `sqlite:${folder}/service.db`).finally(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
}

test('5.2 5.3 5.5 folders that another start creates at the same moment cause no error, and survive a power loss: their parents are synced', async (t) => {
  const { fsyncSync, fstatSync, mkdirSync } = fs;
  const synced: number[] = [];
  t.mock.method(fs, 'mkdirSync', (path: string) => {
    mkdirSync(path);
    mkdirSync(path);
  });
  t.mock.method(fs, 'fsyncSync', (file: number) => {
    synced.push(fstatSync(file).ino);
    fsyncSync(file);
  });
  const folder = newFolder();
  await openWithMocks(t, join(folder, 'new', 'deeply'));
  assert.deepEqual(synced, [statSync(folder).ino, statSync(join(folder, 'new')).ino]);
});

test('5.2 a log that another process removes meanwhile does not fail the start, and a file that it creates keeps its contents', async (t) => {
  const { existsSync, statSync } = fs;
  const folder = newFolder();
  const path = join(folder, 'service.db');
  const log = `${path}-wal`;
  fs.writeFileSync(log, '');
  let looks = 0;
  t.mock.method(fs, 'statSync', (...args: Parameters<typeof statSync>) => {
    if (args[0] === log && looks++ === 0) fs.rmSync(log);
    return statSync(...args);
  });
  t.mock.method(fs, 'existsSync', (name: string) => {
    if (name !== path) return existsSync(name);
    using other = new DatabaseSync(path);
    other.exec('pragma journal_mode = wal; create table theirs (id int)');
    return false;
  });
  await assert.rejects(openWithMocks(t, folder), /: it has a table theirs /);
  assert.ok(looks > 0);
  assert.deepEqual(readdirSync(folder), ['service.db'], 'it is closed again');
});

test('5.3 a start waits for a lock of another, and does not repeat its migrations', async (t) => {
  const path = newFile();
  const { exec } = DatabaseSync.prototype;
  const acts = [['begin immediate'], migrations('sqlite')]; // of the other, when this one wants the lock
  t.mock.method(DatabaseSync.prototype, 'exec', function (this: DatabaseSync, sql: string) {
    using other = new DatabaseSync(path);
    if (sql === 'begin immediate') for (const one of acts.shift() ?? []) exec.call(other, one);
    exec.call(this, sql);
  });
  const store = await open(t, `sqlite:${path}`);
  assert.deepEqual([await store.list(FIRST_PAGE), acts], [[], []]);
});

test('5.2 5.5 a write fails if its file is removed before its commit, in the millisecond of the last look', async (t) => {
  const path = newFile();
  const store = await open(t, `sqlite:${path}`);
  const { statSync } = fs;
  const ctimeMs = Date.now() + 1_000_000; // of the folder, all the time
  t.mock.method(fs, 'statSync', (...args: Parameters<typeof statSync>) => {
    const stats = statSync(...args);
    return stats && Object.assign(stats, { ctimeMs });
  });
  await store.create(newUser());
  const { exec } = DatabaseSync.prototype;
  t.mock.method(DatabaseSync.prototype, 'exec', function (this: DatabaseSync, sql: string) {
    if (sql === 'commit') fs.rmSync(path);
    exec.call(this, sql);
  });
  await assert.rejects(store.create(newUser({ email: newEmail() })), { name: 'StoreUnavailable' });
});

/** A store with a clock of its own, on a file that another program has locked. */
async function lockedStore(t: TestContext) {
  const path = newFile();
  const clock = { ms: 0 };
  const outages: string[] = [];
  const store = await open(t, `sqlite:${path}`, {
    timeoutMs: 300,
    now: () => clock.ms,
    onUnavailable: () => outages.push('gone'),
    onAvailable: () => outages.push('back'),
  });
  const other = new DatabaseSync(path);
  other.exec('begin immediate');
  const unlock = () => other.close();
  return { store, clock, outages, unlock };
}

test('4.13 5.2 under a lock each call has its own deadline, not that of the first in its turn', async (t) => {
  const { store, clock, outages, unlock } = await lockedStore(t);
  const first = store.create(newUser({ email: newEmail() }));
  clock.ms = 200;
  const later = ['Bob', 'Cy'].map((name) => store.create(newUser({ name, email: newEmail() })));
  // The batch has started before the first call expires.
  await turn();
  const queued = store.create(newUser({ email: newEmail() }));
  clock.ms = 300;
  await assert.rejects(first, { name: 'StoreUnavailable' });
  clock.ms = 425; // It has too little time left to run.
  await assert.rejects(queued, { name: 'StoreUnavailable' });
  clock.ms = 450;
  unlock();
  const users = await Promise.all(later);
  assert.equal(users.map(({ name }) => name).join(), 'Bob,Cy');
  assert.deepEqual(await store.list(FIRST_PAGE), users);
  assert.deepEqual(outages, ['gone', 'back']);
});

test('4.13 a call that waited for a lock is not done late after the process was suspended', async (t) => {
  const { store, clock, unlock } = await lockedStore(t);
  const call = store.create(newUser({ email: newEmail() }));
  await turn(); // It was tried and waits.
  unlock();
  clock.ms = 300;
  await assert.rejects(call, { name: 'StoreUnavailable' });
  assert.deepEqual(await store.list(FIRST_PAGE), []);
});

test('5.2 calls for one page in one turn share a SQLite read, calls for others do not, and none leaves a timer', async (t) => {
  const now = t.mock.fn(() => performance.now());
  const store = await open(t, 'sqlite::memory:', { now });
  assert.equal(store.walBytes, undefined); // 7.3
  await store.create(newUser({ email: newEmail() }));
  const [one, same, other] = await Promise.all([
    store.list(FIRST_PAGE),
    store.list({ ...FIRST_PAGE }),
    store.list({ ...FIRST_PAGE, limit: 11 }),
  ]);
  assert.equal(one, same);
  assert.notEqual(one, other);
  assert.deepEqual(one, other);
  assert.notEqual(await store.list(FIRST_PAGE), one);
  await turn();
  await turn();
  const looks = now.mock.callCount();
  await sleep(120);
  assert.equal(now.mock.callCount(), looks);
});

test('5.2 while 1,000 pages wait for SQLite, other work runs after each millisecond of reading', async (t) => {
  // The clock advances by 0.3 ms at each call, so a turn has time for only a few reads.
  const clock = { ms: 0 };
  const now = () => {
    clock.ms += 0.3;
    return clock.ms;
  };
  const store = await open(t, 'sqlite::memory:', { now, timeoutMs: 1_000_000 });
  const create = () => store.create(newUser({ email: newEmail() }));
  await Promise.all(Array.from({ length: 1000 }, create));
  let done = 0;
  const pages = Array.from({ length: 1000 }, async (_, after) => {
    assert.equal((await store.list({ after, limit: 10 }))[0]?.id, after + 1);
    done++;
  });
  assert.equal((await store.find(1000))?.id, 1000);
  assert.equal(done, 0);
  // Other requests need one turn of the event loop each.
  for (let turns = 1; turns <= 100; turns++) {
    await turn();
    assert.ok(done > 0 && done <= 4 * turns, `${done} pages in ${turns} turns`);
    assert.equal((await store.find(turns))?.id, turns);
  }
  assert.equal((await create()).id, 1001);
  assert.ok(done < 1000, 'a write waited for all pages');
  await Promise.all(pages);
  assert.equal(done, 1000);
});

test('5.2 a change by another program that leaves version alone raises it', async (t) => {
  const path = newFile();
  const store = await open(t, `sqlite:${path}`);
  const { id } = await store.create(newUser({ email: newEmail() }));
  const unchanged = await store.create(newUser({ email: newEmail() }));
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
  assert.deepEqual(await store.list(FIRST_PAGE), [changed, unchanged]);
});

test('5.2 an outage ends once each kind of access that failed works again', async (t) => {
  const path = newFile();
  const outages: unknown[] = [];
  const store = await open(t, `sqlite:${path}`, {
    onUnavailable: (cause) => outages.push(cause),
    onAvailable: () => outages.push('back'),
  });
  using other = new DatabaseSync(path);
  const find = () => store.find(1);
  t.after(async () => {
    await assert.rejects(find(), { name: 'StoreUnavailable' });
    assert.deepEqual(outages, [], 'a store that is closed has not failed');
  });
  const create = () => store.create(newUser({ email: newEmail() }));
  for (const first of [() => store.list(FIRST_PAGE), find, () => store.ping(), create]) {
    other.exec('alter table users rename to moved');
    for (const call of [first, find, create]) {
      await assert.rejects(call, ({ message, cause }: Error) => {
        assert.equal(message, 'the store failed');
        return /^no such table: users$/.test((cause as Error).message);
      });
      assert.equal(outages.length, 1);
    }
    other.exec('alter table moved rename to users');
    const fault = `${path}: no such table: users (SQLite result code 1)`;
    await find();
    assert.deepEqual(outages, [fault], 'writes have not worked yet');
    await create();
    assert.deepEqual(outages.splice(0), [fault, 'back']);
  }
});

test('5.2 7.3 a change that leaves the email alone leaves its index alone: the log of a file behind a link grows less', async (t) => {
  const link = newFile();
  symlinkSync(newFile(), link);
  const store = await open(t, `sqlite:${link}`);
  t.after(() => assert.equal(store.walBytes, undefined, 'a store that is closed merges its log'));
  const { id } = await store.create(newUser({ email: newEmail() }));
  const grownBy = async (set: UserChange) => {
    const bytes = store.walBytes!;
    await store.update(id, set, ALWAYS);
    return store.walBytes! - bytes;
  };
  assert.ok((await grownBy({ name: 'Bob' })) < (await grownBy({ email: newEmail() })));
});

for (const [parameter, pages] of Object.entries({ '': 1000, '?wal_autocheckpoint=0': 0 })) {
  test(`5.2 5.5 sqlite:PATH${parameter}: commits are synced, the log is cut, and merged after ${pages} pages`, async () => {
    const database = parseDatabaseUrl(`sqlite:${newFile()}${parameter}`) as SqliteDatabase;
    // What SQLite does with them: sqlite.org/pragma.html. On macOS, fsync leaves data in the cache of the disk.
    const expected = {
      ...{ journal_mode: 'wal', synchronous: 2, fullfsync: 1, busy_timeout: 0 },
      ...{ journal_size_limit: 8 * 2 ** 20, wal_autocheckpoint: pages },
    };
    const valuesIn = (db: DatabaseSync) =>
      Object.keys(expected).map((name) => Object.values(db.prepare(`pragma ${name}`).get()!));
    const [db, found] = await openFile(database, () => performance.now(), valuesIn);
    db.close();
    assert.deepEqual(found.flat(), Object.values(expected));
  });
}

describe('migrations', () => {
  test('5.3 a migration allows the services from its number on, unless its header names an older one', () => {
    const valid = { '-- oldest service: 1\n': 1, '-- Adds a table.\n-- oldest service: 10\n': 10 };
    const values = ['0', '1.5', '-1', 'x', ''].map((value) => `-- oldest service: ${value}\n`);
    const others = [...values, '-- Not -- oldest service: 1\n'];
    for (const header of ['', ...Object.keys(valid), ...others]) {
      const oldest = Object.hasOwn(valid, header) ? valid[header as keyof typeof valid] : 11;
      const sql = `${header}select 1`;
      const record = `(version, oldest_service) values (11, ${oldest})`;
      assert.equal(withRecord(11, sql), `${sql}\n; insert into notes_users_schema ${record};`);
    }
  });

  test('5.3 what data, views and limits refuse is final; what can pass is tried again', async () => {
    const url = await newDatabase('postgres');
    const tables = `create table wide as select string_agg(md5(i::text), '') as text from generate_series(1, 1000) i;
      create view shown as select text from wide`;
    await execute(url, tables);
    const change = 'alter table wide';
    for (const [sql, name] of [
      [`${change} add constraint short check (length(text) < 9)`, 'UnusableDatabase'],
      [`${change} alter text type varchar`, 'UnusableDatabase'],
      [`${change} drop column text`, 'UnusableDatabase'],
      ['create index on wide (text)', 'UnusableDatabase'],
      ['drop table narrow', 'UnusableDatabase'],
      [`begin read only; ${change} add number int`, 'PostgresError'],
      ['set statement_timeout = 1; select pg_sleep(9)', 'PostgresError'],
      ['set role pg_monitor; drop table wide', 'PostgresError'],
    ] as const) {
      const failed = execute(url, sql).catch(failMigration);
      await assert.rejects(failed, { name, message: /^a migration failed: / }, sql);
    }
  });

  test('5.3 the files of both engines have their numbers, and the same valid declarations', () => {
    const declarations = STORES.map((engine) => {
      const folder = join(import.meta.dirname, '../../db', engine);
      return readdirSync(folder)
        .sort()
        .map((name, i) => {
          assert.equal(Number.parseInt(name, 10), i + 1, name);
          const sql = readFileSync(join(folder, name), 'utf8');
          const lines = sql.split('\n').filter((line) => /oldest service/.test(line));
          const valid = Array.from({ length: i + 1 }, (_, n) => `-- oldest service: ${n + 1}`);
          assert.ok(lines.length <= 1 && lines.every((line) => valid.includes(line)), name);
          return lines.join();
        });
    });
    assert.deepEqual(declarations[0], declarations[1]);
  });
});
