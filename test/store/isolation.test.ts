// Writes that wait for each other on a real Postgres, which decides what the simulation assumes.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { openStore, type StoreOptions } from '../../src/store/index.ts';
import { parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS, EmailTaken, StoreUnavailable, type UserStore } from '../../src/user.ts';
import { createDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { newUser } from '../support/users.ts';

const OPTIONS: StoreOptions = {
  poolSize: 4,
  timeoutMs: 5000,
  now: () => performance.now(),
  onUnavailable: () => {},
  onAvailable: () => {},
  info: () => {},
  debug: () => {},
  onFatal: () => {},
};

for (const limit of [1, 2, 3]) {
  test(`5.9 ${limit} of 4 connections exist: reads work under a lock if there are two`, async (t) => {
    const url = new URL(await createDatabase());
    const direct = postgres(url.href, { max: 1, onnotice: () => {} });
    const name = url.pathname.slice(1);
    await direct.unsafe(`
      create role ${name} login password 'p' connection limit ${limit};
      alter database ${name} owner to ${name}; grant all on schema public to ${name}`);
    Object.assign(url, { username: name, password: 'p' });
    const store = await openStore(parseDatabaseUrl(url.href)!, { ...OPTIONS, timeoutMs: 2000 });
    t.after(() => Promise.all([direct.end({ timeout: 1 }), store.close()]));
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

test('5.6 batches that give emails to users and to new users in opposite orders do not deadlock', async (t) => {
  const url = await createDatabase();
  const store = await openStore(parseDatabaseUrl(url)!, OPTIONS);
  const direct = postgres(url, { max: 1, onnotice: () => {} });
  t.after(() => Promise.all([direct.end({ timeout: 1 }), store.close()]));
  const count = 200;
  const each = <Result>(make: (n: number) => Promise<Result>) =>
    Array.from({ length: count }, (_, n) => make(n));
  const email = (n: number, round: number) => `e${String(n).padStart(3, '0')}.${round}@x`;
  const users = await Promise.all(
    each((n) => store.create(newUser({ name: 'a', email: `${n}@h` }))),
  );
  const ids = users.map(({ id }) => id).sort((a, b) => a - b);
  await until(() => store.connections?.idle === OPTIONS.poolSize);
  let older: number[] = [];
  for (let round = 0; round < 30; round++) {
    const settled = await Promise.allSettled([
      ...each((n) => store.create(newUser({ name: 'b', email: email(n, round) }))),
      ...each((n) => store.update(ids[n]!, { email: email(count - 1 - n, round) }, ALWAYS)),
      ...each((n) => store.update(ids[n]!, { name: `${round}` }, ALWAYS)),
      ...older.toReversed().map((id) => store.delete(id, ALWAYS)),
      ...older.map((id, n) => store.update(id, { email: email(n, round - 1) }, ALWAYS)),
    ]);
    const reasons = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []));
    assert.deepEqual(new Set(reasons.map(({ name }) => name)), new Set(['EmailTaken']));
    assert.equal(reasons.length, count);
    older = settled
      .slice(0, count)
      .flatMap((one) =>
        one.status === 'fulfilled' && typeof one.value === 'object' ? [one.value.id] : [],
      );
  }
  // A session reports its counts when it has been idle for a second.
  await sleep(1200);
  const [row] = await direct`
    select deadlocks::int from pg_stat_database where datname = current_database()`;
  assert.equal(row?.deadlocks, 0);
});

for (const level of ['repeatable read', 'serializable']) {
  test(`5.6 a database whose default isolation is ${level}: no race of two writers fails`, async (t) => {
    const url = await createDatabase();
    const direct = postgres(url, { max: 1, onnotice: () => {} });
    t.after(() => direct.end({ timeout: 1 }));
    await direct.unsafe(
      `alter database ${new URL(url).pathname.slice(1)} set default_transaction_isolation = '${level}'`,
    );
    const stores = await Promise.all([1, 2].map(() => openStore(parseDatabaseUrl(url)!, OPTIONS)));
    t.after(() => Promise.all(stores.map((store) => store.close())));
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
  const store = await openStore(parseDatabaseUrl(url)!, { ...OPTIONS, timeoutMs: 300 });
  t.after(() => store.close());
  await store.create(newUser({ name: 'a', email: 'a@h' }));
  const direct = postgres(url, { max: 1, onnotice: () => {} });
  t.after(() => direct.end({ timeout: 1 }));
  await direct.unsafe(`
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

describe('changes to taken emails', () => {
  let direct: postgres.Sql;
  let store: UserStore;

  before(async () => {
    const url = new URL(await createDatabase());
    direct = postgres(url.href, { max: 1, onnotice: () => {} });
    store = await openStore(parseDatabaseUrl(url.href)!, OPTIONS);
    await Promise.all(
      Array.from({ length: 500 }, (_, i) => store.create(newUser({ email: `${i}@h` }))),
    );
    await store.create(newUser({ name: 'taken', email: 'taken@x' }));
  });
  after(async () => {
    await store?.close();
    await direct?.end();
  });

  /** Statements that Postgres committed and rolled back in this database so far. */
  async function counts(): Promise<{ committed: number; rolledBack: number }> {
    // A session reports its counts when it has been idle for a second.
    await new Promise((resolve) => setTimeout(resolve, 1200));
    const [row] = await direct`
      select xact_commit::int as committed, xact_rollback::int as "rolledBack"
      from pg_stat_database where datname = current_database()`;
    return row as unknown as { committed: number; rolledBack: number };
  }

  test('4.10 a taken email rolls no batch back, and one that another session takes meanwhile does once', async () => {
    const users = await store.list({ after: 0, limit: 500 });
    const emails: Record<number, object> = { 100: { email: 'taken@x' }, 250: { email: 'raced@x' } };
    const start = await counts();
    const changed = await direct.begin(async (transaction) => {
      await transaction`insert into users (name, email) values ('other', 'raced@x')`;
      const calls = users.map(({ id }, i) =>
        store.update(id, { name: 'honest', ...emails[i] }, ALWAYS).then(
          () => 'done',
          (err: Error) => err.name,
        ),
      );
      await untilOneWaits(transaction);
      return { calls };
    });
    const outcomes = await Promise.all(changed.calls);
    const end = await counts();
    assert.deepEqual(
      outcomes,
      users.map((_, i) => (emails[i] ? 'EmailTaken' : 'done')),
    );
    assert.equal(end.rolledBack - start.rolledBack, 1);
  });

  /** Resolves once a statement of another session waits for this one. */
  async function untilOneWaits(sql: postgres.TransactionSql): Promise<void> {
    for (;;) {
      const waiting = await sql`
        select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))`;
      if (waiting.length > 0) return;
    }
  }
});
