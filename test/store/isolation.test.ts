// Writes that wait for each other on a real Postgres, which decides what the simulation assumes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SURROUNDINGS } from '../../src/store/pool.ts';
import type { SessionOptions } from '../../src/store/session.ts';
import { ALWAYS } from '../../src/user.ts';
import { connectTo, open, untilOneWaits } from '../support/open-store.ts';
import { createDatabase } from '../support/postgres.ts';
import { newEmail, untilLeft } from '../support/service.ts';
import { newUser } from '../support/users.ts';

test('5.6 two replicas that create and change the same users in opposite orders do not deadlock', async (t) => {
  const url = await createDatabase();
  const stores = [await open(t, url), await open(t, url)];
  const create = (_: unknown, n: number) => stores[0]!.create(newUser({ email: `${n}@x` }));
  const old = await Promise.all(Array.from({ length: 200 }, create));
  const inOrder = <T>(items: T[], i: number) => (i === 0 ? items : items.toReversed());
  for (let round = 0; round < 10; round++) {
    const emails = old.map((_, n) => `${round}.${n}@x`);
    const condition = round % 2 === 0 ? ALWAYS : { ...ALWAYS }; // Each has a statement of its own.
    const settled = await Promise.allSettled(
      stores.flatMap((store, i) => [
        ...inOrder(emails, i).map((email) => store.create(newUser({ email }))),
        ...inOrder(old, i).map(({ id }) => store.update(id, { name: `${round}` }, condition)),
      ]),
    );
    const failed = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason.name] : []));
    assert.deepEqual(failed, Array(emails.length).fill('EmailTaken'));
  }
  for (const store of stores) await store.close();
  const sql = connectTo(t, url);
  await untilLeft(url);
  const [row] = await sql`
    select deadlocks::int from pg_stat_database where datname = current_database()`;
  assert.deepEqual(row, { deadlocks: 0 });
});

test('4.13 a write whose commit waits for a lock is not done late', async (t) => {
  const url = await createDatabase();
  const sql = connectTo(t, url);
  const store = await open(t, url, { timeoutMs: 2000 });
  const ada = await store.create(newUser({ email: 'ada@x' }));
  await sql.unsafe(
    'create table orders (id bigint references users deferrable initially deferred)',
  );
  await sql.unsafe('begin; lock table orders');
  await assert.rejects(store.delete(ada.id, ALWAYS));
  await untilOneWaits(sql, false);
  await sql`commit`;
  assert.deepEqual(await store.find(ada.id), ada);
});

test('4.10 a taken or repeated email rolls no batch back, and one that another session takes meanwhile does once', async (t) => {
  const url = await createDatabase();
  const direct = connectTo(t, url);
  let statements = 0;
  const openSession = async (options: SessionOptions) => {
    const session = await SURROUNDINGS.openSession(options);
    const query = (...args: Parameters<typeof session.query>) => {
      statements++;
      return session.query(...args);
    };
    return { ...session, query } as typeof session;
  };
  const store = await open(t, url, {}, { openSession });
  const create = (_: unknown, i: number) => store.create(newUser({ email: `${i}@h` }));
  await Promise.all(Array.from({ length: 500 }, create));
  await store.create(newUser({ email: 'taken@x' }));
  const users = await store.list({ after: 0, limit: 500 });
  const twice = { email: 'twice@x' };
  const emails: Record<number, object> = {
    ...{ 100: { email: 'taken@x' }, 150: twice, 200: twice, 250: { email: 'raced@x' } },
  };
  let calls: Promise<string>[] = [];
  await direct.begin(async (transaction) => {
    await transaction`insert into users (name, email) values ('other', 'raced@x')`;
    calls = users.map(({ id }, i) =>
      store.update(id, { name: 'honest', ...emails[i] }, { ...ALWAYS }).then(
        () => 'done',
        (err: Error) => err.name,
      ),
    );
    await untilOneWaits(transaction);
  });
  const expected = users.map((_, i) => (emails[i] && i !== 150 ? 'EmailTaken' : 'done'));
  assert.deepEqual(await Promise.all(calls), expected);
  assert.ok(statements < 40, `${statements} statements`);
  await store.close();
  await untilLeft(url);
  const [row] = await direct`
    select xact_rollback::int from pg_stat_database where datname = current_database()`;
  assert.deepEqual(row, { xact_rollback: 1 });
});

test('4.2 calls touch few rows of a table that has grown since the server planned them', async (t) => {
  const url = await createDatabase();
  const store = await open(t, url, { poolSize: 1 });
  const sql = connectTo(t, url);
  const ids = Array.from({ length: 20 }, (_, n) => 1_000_001 + 1000 * n);
  const calls: readonly ((id: number) => Promise<unknown>)[] = [
    (id) => store.find(id),
    (id) => store.findByEmail(`${id}@x`),
    (id) => store.list({ after: id, limit: 10 }),
    () => store.create(newUser({ email: newEmail() })),
    (id) => store.update(id, { name: 'Bob' }, ALWAYS),
    (id) => store.update(id, { email: `${id}@y` }, { oneOf: [2], noneOf: [] }),
    (id) => store.delete(id, ALWAYS),
  ];
  const callAll = async () => {
    for (const call of calls) {
      await call(ids[0]!);
      await Promise.all(ids.map((id) => call(id)));
    }
  };
  await callAll();
  await sql`analyze users`;
  for (let n = 0; n < 6; n++) await callAll(); // Then the server keeps its plans.
  await sql`
    insert into users (id, name, email) overriding system value
    select i, 'n', i || '@x' from generate_series(1000001, 1020000) i`;
  await callAll();
  await store.close();
  await untilLeft(url);
  const [row] = await sql`
    select (seq_tup_read + idx_tup_fetch)::int as rows from pg_stat_user_tables where relname = 'users'`;
  const { rows } = row!; // The earlier calls found none.
  assert.ok(rows > 20 * 10 && rows < 20 * 40, `${rows} rows`);
});
