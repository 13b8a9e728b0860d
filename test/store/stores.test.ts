// The guarantees of a UserStore on both engines, and the creation of each engine's schema.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs, { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { openStore, type StoreOptions } from '../../src/store/index.ts';
import { migrations, missing, parseMigration, UnusableDatabase } from '../../src/store/schema.ts';
import { openFile } from '../../src/store/sqlite-file.ts';
import { parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS, type Condition, type User, type UserStore } from '../../src/user.ts';
import { createDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';

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

const iff = (condition: Partial<Condition>): Condition => ({ ...ALWAYS, ...condition });

for (const [engine, newDatabase] of Object.entries(ENGINES)) {
  describe(engine, () => {
    let store: UserStore;
    before(async () => {
      store = await open(await newDatabase());
    });
    after(() => store.close());

    const create = (email = newEmail(), name = 'Ada') => store.create({ name, email });

    test('the first user has id 1, and a created user is at version 1', async () => {
      const email = newEmail();
      assert.deepEqual(await create(email), { id: 1, name: 'Ada', email, version: 1 });
    });

    test('a user has exactly these members in this order', async () => {
      const user = await create();
      const results = [
        user,
        await store.find(user.id),
        await store.findByEmail(user.email),
        (await store.list({ after: user.id - 1, limit: 1 }))[0],
        await store.update(user.id, { name: 'B' }, ALWAYS),
        await store.delete(user.id, ALWAYS),
      ];
      for (const result of results) {
        assert.deepEqual(Object.keys(result as User), ['id', 'name', 'email', 'version']);
      }
    });

    test('a created user is found by id, by email and in a list', async () => {
      const user = await create();
      assert.deepEqual(await store.find(user.id), user);
      assert.deepEqual(await store.findByEmail(user.email), user);
      assert.deepEqual(await store.list({ after: user.id - 1, limit: 10 }), [user]);
    });

    test('ids ascend', async () => {
      const ids = [(await create()).id, (await create()).id, (await create()).id];
      assert.deepEqual(
        ids,
        ids.toSorted((a, b) => a - b),
      );
      assert.equal(new Set(ids).size, 3);
    });

    for (const { why, id } of [
      { why: 'an id that was not assigned yet', id: 1_000_000 },
      { why: 'the largest id', id: Number.MAX_SAFE_INTEGER },
      { why: '0', id: 0 },
    ]) {
      test(`${why} finds, changes and removes nothing`, async () => {
        assert.equal(await store.find(id), undefined);
        assert.equal(await store.update(id, { name: 'x' }, ALWAYS), undefined);
        assert.equal(await store.update(id, { name: 'x' }, iff({ oneOf: [1] })), undefined);
        assert.equal(await store.delete(id, ALWAYS), undefined);
        assert.equal(await store.delete(id, iff({ noneOf: 'any' })), undefined);
      });
    }

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
          assert.deepEqual(user, { id: user.id, name, email, version: 1 });
          assert.deepEqual(await store.find(user.id), user);
          assert.deepEqual(await store.findByEmail(email), user);
          const other = `${[...name].slice(1).join('')}x`;
          const changed = await store.update(user.id, { name: other }, ALWAYS);
          assert.equal((changed as User).name, other);
        });
      }
    });

    describe('emails are unique', () => {
      test('a taken email is refused, and nothing is created', async () => {
        const user = await create();
        await assert.rejects(create(user.email, 'Other'), { name: 'EmailTaken' });
        assert.deepEqual(await store.list({ after: user.id, limit: 10 }), []);
        assert.deepEqual(await store.findByEmail(user.email), user);
      });

      test('emails are compared exactly', async () => {
        const email = newEmail();
        const others = [email.toUpperCase(), `${email}.`, `e\u0301${email}`, `\u00e9${email}`];
        for (const other of [email, ...others]) assert.equal((await create(other)).email, other);
        assert.equal(await store.findByEmail(`E\u0301${email}`), undefined);
      });

      test('a change to a taken email is refused and changes nothing', async () => {
        const [ada, bob] = [await create(), await create()];
        const change = store.update(bob.id, { name: 'B', email: ada.email }, ALWAYS);
        await assert.rejects(change, { name: 'EmailTaken' });
        assert.deepEqual(await store.find(bob.id), bob);
        assert.deepEqual(await store.find(ada.id), ada);
      });

      test('a change to the user’s own email changes nothing', async () => {
        const user = await create();
        assert.deepEqual(await store.update(user.id, { email: user.email }, ALWAYS), user);
      });

      test('a stale change to a taken email is stale', async () => {
        const [ada, bob] = [await create(), await create()];
        const change = store.update(bob.id, { email: ada.email }, iff({ oneOf: [9] }));
        assert.equal(await change, 'stale');
      });

      test('a change of a missing user to a taken email finds no user', async () => {
        const ada = await create();
        assert.equal(await store.update(999_999, { email: ada.email }, ALWAYS), undefined);
      });

      test('the email of a removed or changed user is free', async () => {
        const [ada, bob] = [await create(), await create()];
        await store.delete(ada.id, ALWAYS);
        await store.update(bob.id, { email: newEmail() }, ALWAYS);
        assert.equal((await create(ada.email)).version, 1);
        assert.equal((await create(bob.email)).version, 1);
      });

      test('of ten concurrent creations with one email, one succeeds', async () => {
        const email = newEmail();
        const racers = Array.from({ length: 10 }, (_, i) => store.create({ name: `${i}`, email }));
        const settled = await Promise.allSettled(racers);
        const won = settled.filter((result) => result.status === 'fulfilled');
        const lost = settled.filter((result) => result.status === 'rejected');
        assert.equal(won.length, 1);
        assert.deepEqual(
          lost.map(({ reason }) => reason.name),
          Array(9).fill('EmailTaken'),
        );
        assert.deepEqual(await store.findByEmail(email), won[0]!.value);
      });

      test('of ten concurrent changes to one email, one succeeds', async () => {
        const email = newEmail();
        const users = await Promise.all(Array.from({ length: 10 }, () => create()));
        const settled = await Promise.allSettled(
          users.map(({ id }) => store.update(id, { email }, ALWAYS)),
        );
        assert.equal(settled.filter(({ status }) => status === 'fulfilled').length, 1);
        const all = await store.list({ after: users[0]!.id - 1, limit: 20 });
        assert.equal(all.filter((user) => user.email === email).length, 1);
        assert.equal(all.length, 10);
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
    });

    test('an id is never reused, not even the last after its user was removed', async () => {
      const ids = new Set<number>();
      for (let i = 0; i < 5; i++) {
        const { id } = await create();
        assert.ok(!ids.has(id));
        ids.add(id);
        await store.delete(id, ALWAYS);
      }
    });

    describe('changes', () => {
      for (const { why, change, isNew } of [
        { why: 'the name', change: { name: 'B' }, isNew: true },
        { why: 'the name in another case', change: { name: 'ada' }, isNew: true },
        { why: 'nothing', change: {}, isNew: false },
        { why: 'the same name', change: { name: 'Ada' }, isNew: false },
      ]) {
        test(`${why}: the version ${isNew ? 'grows by one' : 'stays'}`, async () => {
          const user = await create();
          const expected = { ...user, ...change, version: isNew ? 2 : 1 };
          assert.deepEqual(await store.update(user.id, change, ALWAYS), expected);
          assert.deepEqual(await store.find(user.id), expected);
        });
      }

      test('only the email, then both', async () => {
        const user = await create();
        const [first, second] = [newEmail(), newEmail()];
        const one = await store.update(user.id, { email: first }, ALWAYS);
        assert.deepEqual(one, { ...user, email: first, version: 2 });
        const both = await store.update(user.id, { name: 'B', email: second }, ALWAYS);
        assert.deepEqual(both, { id: user.id, name: 'B', email: second, version: 3 });
      });

      test('concurrent changes of two users each reach their own user', async () => {
        const [ada, bob] = [await create(), await create()];
        const changed = await Promise.all([
          store.update(bob.id, { name: 'B' }, ALWAYS),
          store.update(ada.id, { name: 'A' }, ALWAYS),
        ]);
        assert.deepEqual(changed, [
          { ...bob, name: 'B', version: 2 },
          { ...ada, name: 'A', version: 2 },
        ]);
      });

      test('100 changes of one user at once are done one after the other', async () => {
        const user = await create();
        const changes = Array.from({ length: 100 }, (_, i) =>
          store.update(user.id, { name: `n${i}` }, ALWAYS),
        );
        const versions = (await Promise.all(changes)).map((changed) => (changed as User).version);
        assert.deepEqual(
          versions.toSorted((a, b) => a - b),
          Array.from({ length: 100 }, (_, i) => i + 2),
        );
      });

      test('of ten concurrent changes of one version, one is done', async () => {
        const user = await create();
        const changes = Array.from({ length: 10 }, (_, i) =>
          store.update(user.id, { name: `n${i}` }, iff({ oneOf: [1] })),
        );
        const results = await Promise.all(changes);
        const stale = results.filter((result) => result === 'stale');
        const done = results.filter((result) => result !== 'stale');
        assert.equal(stale.length, 9);
        assert.deepEqual(await store.find(user.id), done[0]);
      });
    });

    test('a removed user is returned as it was, and is gone', async () => {
      const user = await create();
      const changed = await store.update(user.id, { name: 'B' }, ALWAYS);
      assert.deepEqual(await store.delete(user.id, ALWAYS), changed);
      assert.equal(await store.find(user.id), undefined);
      assert.equal(await store.findByEmail(user.email), undefined);
      assert.equal(await store.delete(user.id, ALWAYS), undefined);
    });

    test('of ten concurrent removals, one is done', async () => {
      const user = await create();
      const removed = await Promise.all(
        Array.from({ length: 10 }, () => store.delete(user.id, ALWAYS)),
      );
      assert.deepEqual(
        removed.filter((result) => result !== undefined),
        [user],
      );
    });

    describe('conditions on a user at version 2', () => {
      for (const { condition, isMet } of [
        { condition: {}, isMet: true },
        { condition: { oneOf: [2] }, isMet: true },
        { condition: { oneOf: [1, 2, 3] }, isMet: true },
        { condition: { oneOf: [] }, isMet: false },
        { condition: { oneOf: [1] }, isMet: false },
        { condition: { oneOf: [12, 20, 22] }, isMet: false },
        { condition: { oneOf: [Number.MAX_SAFE_INTEGER] }, isMet: false },
        { condition: { noneOf: [] }, isMet: true },
        { condition: { noneOf: [1, 3] }, isMet: true },
        { condition: { noneOf: [12, 20, 22] }, isMet: true },
        { condition: { noneOf: [2] }, isMet: false },
        { condition: { noneOf: [1, 2] }, isMet: false },
        { condition: { noneOf: 'any' }, isMet: false },
        { condition: { oneOf: [2], noneOf: [1] }, isMet: true },
        { condition: { oneOf: [2], noneOf: [2] }, isMet: false },
        { condition: { oneOf: [1], noneOf: [3] }, isMet: false },
      ] as { condition: Partial<Condition>; isMet: boolean }[]) {
        test(`${JSON.stringify(condition)}: ${isMet ? 'done' : 'stale, and nothing changes'}`, async () => {
          const { id } = await create();
          const user = (await store.update(id, { name: 'B' }, ALWAYS)) as User;
          const wanted = { ...user, name: 'C', version: 3 };
          const changed = await store.update(id, { name: 'C' }, iff(condition));
          assert.deepEqual(changed, isMet ? wanted : 'stale');
          const other = (await store.update((await create()).id, { name: 'B' }, ALWAYS)) as User;
          const removed = await store.delete(other.id, iff(condition));
          assert.deepEqual(removed, isMet ? other : 'stale');
          assert.deepEqual(await store.find(id), isMet ? wanted : user);
          assert.deepEqual(await store.find(other.id), isMet ? undefined : other);
        });
      }
    });

    describe('lists', () => {
      test('a list is by ascending id, after an id, and has at most the requested number', async () => {
        const users: User[] = [];
        for (let i = 0; i < 5; i++) users.push(await create());
        const after = users[0]!.id - 1;
        assert.deepEqual(await store.list({ after, limit: 3 }), users.slice(0, 3));
        assert.deepEqual(await store.list({ after, limit: 1 }), users.slice(0, 1));
        assert.deepEqual(await store.list({ after: users[2]!.id, limit: 1000 }), users.slice(3));
        assert.deepEqual(await store.list({ after: users[4]!.id, limit: 1000 }), []);
      });

      test('a list after the largest id is empty', async () => {
        assert.deepEqual(await store.list({ after: Number.MAX_SAFE_INTEGER, limit: 1001 }), []);
      });

      test('concurrent reads of different pages get their own page', async () => {
        const users = await Promise.all(Array.from({ length: 20 }, () => create()));
        const sorted = users.toSorted((a, b) => a.id - b.id);
        const pages = await Promise.all(
          sorted.map(({ id }, i) => store.list({ after: id - 1, limit: (i % 3) + 1 })),
        );
        assert.deepEqual(
          pages,
          sorted.map((_, i) => sorted.slice(i, i + (i % 3) + 1)),
        );
      });
    });

    test('a writer with its result reads its own write', async () => {
      await Promise.all(
        Array.from({ length: 20 }, async () => {
          const user = await create();
          const [found, listed] = await Promise.all([
            store.find(user.id),
            store.list({ after: user.id - 1, limit: 1 }),
          ]);
          assert.deepEqual([found, listed[0]], [user, user]);
          const changed = await store.update(user.id, { name: 'B' }, ALWAYS);
          assert.deepEqual(await store.findByEmail(user.email), changed);
          assert.deepEqual((await store.list({ after: user.id - 1, limit: 1 }))[0], changed);
          await store.delete(user.id, ALWAYS);
          assert.equal(await store.find(user.id), undefined);
        }),
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
        store.create({ name: 'Ada', email: one }),
        store.create({ name: 'x'.repeat(101), email: newEmail() }),
        store.create({ name: 'Bob', email: two }),
      ]);
      assert.deepEqual(
        settled.map(({ status }) => status),
        ['fulfilled', 'rejected', 'fulfilled'],
      );
      assert.equal((settled[1] as PromiseRejectedResult).reason.name, 'StoreUnavailable');
      assert.equal((await store.findByEmail(one))?.name, 'Ada');
      assert.equal((await store.findByEmail(two))?.name, 'Bob');
    });

    test('ping resolves', () => store.ping());
  });
}

for (const engine of ['SQLite in a file', 'Postgres'] as const) {
  describe(`the schema of ${engine}`, () => {
    test('a reopened store has the written users', async () => {
      const url = await ENGINES[engine]();
      const first = await open(url);
      const user = await first.create({ name: 'Ada', email: newEmail() });
      await first.close();
      const second = await open(url);
      assert.deepEqual(await second.find(user.id), user);
      await second.close();
    });

    test('ten stores opened at once on an empty database all work', async () => {
      const url = await ENGINES[engine]();
      const stores = await Promise.all(
        Array.from({ length: 10 }, () => open(url, { poolSize: 2 })),
      );
      const users = await Promise.all(
        stores.map((store) => store.create({ name: 'Ada', email: newEmail() })),
      );
      assert.equal(new Set(users.map(({ id }) => id)).size, 10);
      const lists = await Promise.all(stores.map((store) => store.list({ after: 0, limit: 100 })));
      assert.ok(lists.every((list) => list.length === 10));
      await Promise.all(stores.map((store) => store.close()));
    });

    test('of two stores with one email, one succeeds', async () => {
      const url = await ENGINES[engine]();
      const stores = [await open(url), await open(url)];
      for (let i = 0; i < 20; i++) {
        const email = newEmail();
        const settled = await Promise.allSettled(
          [...stores, ...stores].map((store) => store.create({ name: 'Ada', email })),
        );
        assert.equal(settled.filter(({ status }) => status === 'fulfilled').length, 1);
      }
      await Promise.all(stores.map((store) => store.close()));
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
  const create = () => store.create({ name: 'Ada', email: newEmail() });
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
  const create = () => store.create({ name: 'Ada', email: newEmail() });
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

test('closing aborts connection attempts', async () => {
  // Accepts connections and sends nothing.
  const silent = createServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const store = await open(`postgres://u:p@127.0.0.1:${port}/d`);
  const [socket] = await once(silent, 'connection');
  socket.resume().on('error', () => {});
  const began = performance.now();
  await Promise.all([store.close(), once(socket, 'close')]);
  // Without close(), the attempt would take 2 s.
  assert.ok(performance.now() - began < 1000);
  silent.close();
});

test('closing fails the calls that wait', async () => {
  const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const store = await open(`postgres://u:p@127.0.0.1:${port}/d`);
  const waits = assert.rejects(store.find(1), { name: 'StoreUnavailable' });
  await store.close();
  await waits;
  silent.close();
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
  const created = store.create({ name: 'Ada', email: newEmail() });
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
  const stuck = store.create({ name: 'Ada', email });
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
  assert.equal((await store.create({ name: 'Bob', email })).name, 'Bob');
  assert.equal((await store.list({ after: 0, limit: 10 })).length, 1);
  assert.deepEqual([gone, back], [1, 1]);
  await store.close();
});

test('5.2 calls for one page in one turn share a SQLite read, calls for others do not', async () => {
  const store = await openStore(parseDatabaseUrl('sqlite::memory:')!, QUIET);
  await store.create({ name: 'Ada', email: newEmail() });
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

test('5.5 a SQLite read after an acknowledged write sees it', async () => {
  const store = await openStore(parseDatabaseUrl('sqlite::memory:')!, QUIET);
  const page = { after: 0, limit: 1000 };
  const reader = async (count: number) => {
    const users = await store.list(page);
    assert.ok(users.length >= count, `${users.length} of ${count} users`);
  };
  const reads: Promise<void>[] = [];
  for (let count = 1; count <= 100; count++) {
    // A later read must not share the result of a queued read that has already run.
    reads.push(reader(count - 1));
    const write = store.create({ name: 'Ada', email: newEmail() });
    if (count % 2 === 0) await reader(count - 1);
    const user = await write;
    reads.push(reader(count));
    assert.deepEqual(await store.find(user.id), user);
  }
  await Promise.all(reads);
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
    Array.from({ length: 1000 }, () => store.create({ name: 'Ada', email: newEmail() })),
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
  const writing = store.create({ name: 'Bob', email: newEmail() });
  assert.equal((await writing).id, 1001);
  assert.ok(done < 1000, 'a write waited for all pages');
  await Promise.all(pages);
  assert.equal(done, 1000);
  await store.close();
});

test('5.2 each read sees what another process has committed before it', async () => {
  const path = join(folder, 'turns.db');
  const store = await open(`sqlite:${path}`);
  const other = new DatabaseSync(path);
  const { id } = await store.create({ name: 'Ada', email: newEmail() });
  for (const name of ['Bob', 'Cy']) {
    other.prepare('update users set name = ? where id = ?').run(name, id);
    // In the same turn of the event loop.
    assert.equal((await store.find(id))?.name, name);
  }
  other.close();
  await store.close();
});

test('5.2 a change by another program that leaves version alone raises it', async () => {
  const path = join(folder, 'outside.db');
  const store = await open(`sqlite:${path}`);
  const { id } = await store.create({ name: 'Ada', email: newEmail() });
  using other = new DatabaseSync(path);
  const versionAfter = async (set: string) => {
    other.exec(`update users set ${set} where id = ${id}`);
    return (await store.find(id))?.version;
  };
  assert.equal(await versionAfter("name = 'Bob'"), 2);
  assert.equal(await versionAfter("email = 'bob@example.com'"), 3);
  assert.equal(await versionAfter("name = 'Cy', version = version + 1"), 4);
  const changed = await store.update(id, { name: 'Dan' }, ALWAYS);
  assert.deepEqual(changed, { id, name: 'Dan', email: 'bob@example.com', version: 5 });
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
        store.create({ name: 'A'.repeat(100), email: newEmail() }),
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
  const first = store.create({ name: 'Ada', email: newEmail() });
  clock.ms = 200;
  const later = ['Bob', 'Cy'].map((name) => store.create({ name, email: newEmail() }));
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
  const call = store.create({ name: 'Ada', email: newEmail() });
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
