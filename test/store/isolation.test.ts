// Writes that wait for each other on a real Postgres, which decides what the simulation assumes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ALWAYS, EmailTaken, StoreUnavailable } from '../../src/user.ts';
import { connectTo, open, statistics, untilOneWaits } from '../support/open-store.ts';
import { createDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { newUser } from '../support/users.ts';

for (const limit of [1, 2, 3]) {
  test(`5.9 ${limit} of 4 connections exist: reads work under a lock if there are two`, async (t) => {
    const url = new URL(await createDatabase());
    const direct = connectTo(t, url.href);
    const name = url.pathname.slice(1);
    await direct.unsafe(`
      create role ${name} login password 'p' connection limit ${limit};
      alter database ${name} owner to ${name}; grant all on schema public to ${name}`);
    Object.assign(url, { username: name, password: 'p' });
    const store = await open(t, url.href, { timeoutMs: 2000 });
    const { id } = await store.create(newUser({ name: 'a', email: 'a@h' }));
    await until(() => store.connections?.idle === limit);
    await direct.unsafe('begin; lock table users in share mode');
    const writes = [
      store.create(newUser({ name: 'b', email: 'b@h' })),
      store.update(id, { name: 'b' }, ALWAYS),
      store.delete(id, ALWAYS),
    ];
    await until(() => (store.connections?.used ?? 0) >= Math.max(1, limit - 1));
    const found = await store.find(id).catch((err) => err);
    if (limit > 1) assert.equal(found.name, 'a');
    else assert.ok(found instanceof StoreUnavailable);
    for (const { status } of await Promise.allSettled(writes)) assert.equal(status, 'rejected');
    await direct.unsafe('rollback');
    await until(async () => (await store.find(id).catch(() => undefined))?.name === 'a');
  });
}

test('5.6 two replicas that create and change the same users in different orders do not deadlock', async (t) => {
  const url = await createDatabase();
  const stores = [await open(t, url), await open(t, url)];
  const old = await Promise.all(
    Array.from({ length: 200 }, (_, n) => stores[0]!.create(newUser({ email: `${n}@x` }))),
  );
  for (let round = 0; round < 10; round++) {
    const emails = old.map((_, n) => `${round}.${n}@x`);
    const settled = await Promise.allSettled(
      stores.flatMap((store) => [
        ...shuffled(emails).map((email) => store.create(newUser({ email }))),
        ...shuffled(old).map(({ id }) => store.update(id, { name: `${round}` }, ALWAYS)),
      ]),
    );
    const failed = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason.name] : []));
    assert.deepEqual(failed, Array(emails.length).fill('EmailTaken'));
  }
  assert.equal((await statistics(connectTo(t, url))).deadlocks, 0);
});

function shuffled<T>(items: readonly T[]): T[] {
  const keyed = items.map((item) => ({ item, key: Math.random() }));
  return keyed.toSorted((a, b) => a.key - b.key).map(({ item }) => item);
}

test('5.6 a call that the server rolled back to resolve a deadlock is retried', async (t) => {
  const url = await createDatabase();
  const store = await open(t, url);
  const user = await store.create(newUser({ email: 'before@z' }));
  const sql = connectTo(t, url);
  await sql.unsafe(`set deadlock_timeout = '60s'`);
  await sql.unsafe('begin');
  await sql.unsafe(`insert into users (name, email) values ('Bob', 'after@z')`);
  // The update waits for our email, then we wait for its user. Its check for deadlocks runs
  // before ours, so Postgres rolls it back.
  const changed = store.update(user.id, { email: 'after@z' }, ALWAYS);
  const settled = changed.then(
    () => 'done',
    (err: Error) => err.name,
  );
  await untilOneWaits(sql);
  await sql.unsafe(`update users set name = 'Eve' where id = ${user.id}`);
  await sql.unsafe('commit');
  assert.equal(await settled, 'EmailTaken');
});

for (const level of ['repeatable read', 'serializable']) {
  test(`5.6 a database whose default isolation is ${level}: no race of two writers fails`, async (t) => {
    const url = await createDatabase();
    await connectTo(t, url).unsafe(
      `alter database ${new URL(url).pathname.slice(1)} set default_transaction_isolation = '${level}'`,
    );
    const stores = [await open(t, url), await open(t, url)];
    for (let i = 0; i < 20; i++) {
      const email = `${i}@h`;
      const results = await Promise.allSettled(
        stores.map((store) => store.create(newUser({ name: 'a', email }))),
      );
      const created = results.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      const refused = results.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []));
      assert.deepEqual([created.length, refused.map((err) => err.constructor)], [1, [EmailTaken]]);
      const changes = stores.map((store, n) =>
        store.update(created[0]!.id, { name: `b${n}` }, ALWAYS),
      );
      for (const user of await Promise.all(changes)) assert.notEqual(user, undefined);
    }
  });
}

test('4.13 a response that arrived while the event loop was blocked is received', async (t) => {
  const url = await createDatabase();
  const store = await open(t, url, { timeoutMs: 300 });
  await store.create(newUser({ name: 'a', email: 'a@h' }));
  await connectTo(t, url).unsafe(`
    create function wait() returns trigger language plpgsql as
      $$ begin perform pg_sleep(0.1); return new; end $$;
    create trigger wait before insert on users for each row execute function wait()`);
  const created = store.create(newUser({ name: 'b', email: 'b@h' }));
  await sleep(20); // Until the statement is sent.
  // After this, node checks its timers before its sockets.
  await new Promise((resolve) => setImmediate(resolve));
  const until = performance.now() + 600;
  while (performance.now() < until);
  assert.equal((await created).name, 'b');
});

test('4.10 a taken email rolls no batch back, and one that another session takes meanwhile does once', async (t) => {
  const url = await createDatabase();
  const direct = connectTo(t, url);
  const store = await open(t, url);
  await Promise.all(
    Array.from({ length: 500 }, (_, i) => store.create(newUser({ email: `${i}@h` }))),
  );
  await store.create(newUser({ email: 'taken@x' }));
  const users = await store.list({ after: 0, limit: 500 });
  const emails: Record<number, object> = { 100: { email: 'taken@x' }, 250: { email: 'raced@x' } };
  const start = await statistics(direct);
  let calls: Promise<string>[] = [];
  await direct.begin(async (transaction) => {
    await transaction`insert into users (name, email) values ('other', 'raced@x')`;
    calls = users.map(({ id }, i) =>
      store.update(id, { name: 'honest', ...emails[i] }, ALWAYS).then(
        () => 'done',
        (err: Error) => err.name,
      ),
    );
    await untilOneWaits(transaction);
  });
  assert.deepEqual(
    await Promise.all(calls),
    users.map((_, i) => (emails[i] ? 'EmailTaken' : 'done')),
  );
  assert.equal((await statistics(direct)).rolledBack! - start.rolledBack!, 1);
});
