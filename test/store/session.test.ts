// Sessions behind a pooler, with a wrong clock, and on failing hosts. A relay on loopback acts as
// the pooler, and as the host that no longer responds.
import assert from 'node:assert/strict';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { describe, type TestContext, test } from 'node:test';
import { getHeapSpaceStatistics } from 'node:v8';
import postgres from 'postgres';
import { openStore, type Store, type StoreOptions } from '../../src/store/index.ts';
import { type Target, updateUsers } from '../../src/store/postgres.ts';
import { openSession } from '../../src/store/session.ts';
import { type PostgresDatabase, parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS } from '../../src/user.ts';
import { collect, collectYoung } from '../support/garbage.ts';
import { createDatabase, freePort } from '../support/postgres.ts';
import { newUser, storedUser } from '../support/users.ts';

const TIMEOUT_MS = 10_000;
const BACKEND_KEY_DATA = Buffer.from([0x4b, 0, 0, 0, 12]);

/** A relay to a server. */
interface Relay {
  readonly port: number;
  /** Stops forwarding, on old and new connections. */
  freeze(): void;
}

async function relay(t: TestContext, url: string, isPooler = false): Promise<Relay> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  let isFrozen = false;
  const server: Server = createServer((client) => {
    sockets.add(client);
    client.on('error', () => {});
    if (isFrozen) return;
    const upstream = connect(Number(port), hostname);
    sockets.add(upstream);
    client.on('close', () => upstream.destroy());
    upstream.on('error', () => {}).on('close', () => client.destroy());
    client.on('data', (bytes) => isFrozen || upstream.write(bytes));
    upstream.on('data', (bytes: Buffer) => {
      if (isPooler) replaceProcessId(bytes);
      if (!isFrozen) client.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const address = server.address() as { port: number };
  return {
    port: address.port,
    freeze() {
      isFrozen = true;
    },
  };
}

/** Gives the client another process id than the server's, as a pooler does. */
function replaceProcessId(bytes: Buffer): void {
  const start = bytes.indexOf(BACKEND_KEY_DATA);
  if (start !== -1) bytes.writeInt32BE(1, start + BACKEND_KEY_DATA.length);
}

/** An open store, and what it logs. */
async function open(t: TestContext, url: string, options: Partial<StoreOptions> = {}) {
  const log: string[] = [];
  const store: Store = await openStore(parseDatabaseUrl(url)!, {
    poolSize: 1,
    timeoutMs: TIMEOUT_MS,
    now: () => performance.now(),
    onUnavailable: () => {},
    onAvailable: () => {},
    info: () => {},
    onFatal: (err) => assert.fail(err),
    debug: (message, { host, cause }) => log.push(`${message} ${host} ${cause ?? ''}`.trim()),
    ...options,
  });
  t.after(() => store.close());
  return { store, log };
}

/** Resolves when all connections of the pool are idle. */
async function untilIdle(t: TestContext, store: Store, count: number): Promise<void> {
  while (store.connections?.idle !== count) {
    t.signal.throwIfAborted();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function onPort(url: string, ...ports: number[]): string {
  const { username, password, pathname } = new URL(url);
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
  return `postgres://${username}:${password}@${hosts}${pathname}?target_session_attrs=any`;
}

for (const { seconds, isOpen } of [
  { seconds: '0', isOpen: false },
  { seconds: '1', isOpen: false },
  { seconds: '30', isOpen: true },
]) {
  test(`5.7 connect_timeout=${seconds}: the first attempt ${isOpen ? 'still waits' : 'has ended'} during the third`, async (t) => {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket.on('error', () => {}).resume());
      if (sockets.length === 3) resolve(!sockets[0]!.closed);
    });
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    t.after(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    const { port } = server.address() as { port: number };
    await open(t, `postgres://127.0.0.1:${port}/d?connect_timeout=${seconds}`, { poolSize: 3 });
    assert.equal(await promise, isOpen);
  });
}

test('5.1 behind a pooler quotes and backslashes in values are kept', async (t) => {
  const url = await createDatabase();
  const { port } = await relay(t, url, true);
  const { store } = await open(t, onPort(url, port));
  for (const [i, name] of [
    "'",
    '\\',
    "\\'",
    "'; drop table users; --",
    '$1 $2',
    '\\u0041',
  ].entries()) {
    const email = `o'${name.replaceAll(' ', '')}\\${i}@x`;
    const user = await store.create(newUser({ name, email }));
    assert.deepEqual(await store.find(user.id), storedUser({ id: user.id, name, email }));
    assert.deepEqual(await store.findByEmail(email), user);
    const updated = await store.update(user.id, { name: `${name}\\` }, ALWAYS);
    assert.deepEqual(updated, { ...user, name: `${name}\\`, version: 2 });
  }
});

test('5.1 5.3 behind a pooler the tables are found in their schema, without the search_path', async (t) => {
  const url = await createDatabase();
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  t.after(() => sql.end({ timeout: 1 }));
  const database = new URL(url).pathname.slice(1);
  await sql.unsafe(`create schema a; alter database ${database} set search_path = a`);
  const { port } = await relay(t, url, true);
  const { store } = await open(t, onPort(url, port));
  const ada = await store.create(newUser({ name: 'Ada', email: 'ada@x' }));
  await sql.unsafe(`alter database ${database} set search_path = nowhere`);
  const { store: other } = await open(t, onPort(url, port), { poolSize: 2 });
  const found = await Promise.all([other.find(ada.id), other.find(ada.id)]);
  assert.deepEqual(found, [ada, ada]);
  assert.deepEqual([...(await sql`select id from a.users`)].length, 1);
});

test('5.1 behind a pooler no statement is prepared and no setting outlives its statement', async (t) => {
  const url = await createDatabase();
  const { port } = await relay(t, url, true);
  const { store } = await open(t, onPort(url, port));
  await store.list({ after: 0, limit: 1 });
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  t.after(() => sql.end({ timeout: 1 }));
  const [session] = await sql`
    select query from pg_stat_activity
    where application_name = 'notes-users' and datname = current_database()`;
  assert.match(
    session?.query,
    /^set local statement_timeout = 10000; set local .*; select .* id > E'0'/,
  );
});

for (const isPooler of [false, true]) {
  const place = isPooler ? 'behind a pooler' : 'directly';
  test(`4.13 warnings are sent although the database hides them, ${place}`, async (t) => {
    const url = await createDatabase();
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    t.after(() => sql.end({ timeout: 1 }));
    await sql.unsafe(
      `alter database ${new URL(url).pathname.slice(1)} set client_min_messages = error`,
    );
    const { port } = await relay(t, url, isPooler);
    const session = await openSession({
      database: parseDatabaseUrl(onPort(url, port)) as PostgresDatabase,
      ...{ host: { host: '127.0.0.1', port }, authorities: undefined, isSecondPass: false },
      ...{ timeoutMs: TIMEOUT_MS, connectTimeoutMs: TIMEOUT_MS, now: () => performance.now() },
      ...{ signal: t.signal, schema: 'public', info: () => {} },
    });
    t.after(() => session.destroy());
    const rows = await session.query('show client_min_messages', []);
    assert.deepEqual(Array.from(rows), [{ client_min_messages: 'warning' }]);
  });
}

describe('4.13 the deadline of a write is in the time of the server', () => {
  for (const hours of [-1, 1]) {
    test(`our clock is ${hours} h off: writes work`, async (t) => {
      const { now } = Date;
      t.mock.method(Date, 'now', () => now() + hours * 3_600_000);
      const { store } = await open(t, await createDatabase());
      const user = await store.create(newUser({ name: 'Ada', email: 'ada@x' }));
      assert.deepEqual(await store.delete(user.id, ALWAYS), user);
    });
  }
});

test('4.13 a write that the server gets after its deadline is not done', async (t) => {
  const url = new URL(await createDatabase());
  const { store } = await open(t, url.href);
  await store.list({ after: 0, limit: 1 });
  const session = await openSession({
    database: parseDatabaseUrl(url.href) as PostgresDatabase,
    ...{ host: { host: url.hostname, port: Number(url.port) }, isSecondPass: false },
    ...{ authorities: undefined, timeoutMs: TIMEOUT_MS, connectTimeoutMs: TIMEOUT_MS },
    ...{ now: () => performance.now(), signal: t.signal, schema: 'public', info: () => {} },
  });
  t.after(() => session.destroy());
  const expires = performance.now() - 1;
  const target: Target = { id: 1, name: 'Eve', condition: ALWAYS };
  for (const items of [[target], [{ ...target, email: 'e@x' }]]) {
    await assert.rejects(updateUsers(session, items, expires), { code: '22012' });
  }
});

test('5.1 a connection whose server turned read-only is replaced', async (t) => {
  const url = await createDatabase();
  const { store, log } = await open(t, url);
  await store.list({ after: 0, limit: 1 });
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  t.after(() => sql.end({ timeout: 1 }));
  await sql.unsafe(`
    create function refuse() returns trigger language plpgsql as
      $$ begin raise exception 'cannot execute INSERT' using errcode = '25006'; end $$;
    create trigger refuse before insert on users execute function refuse()`);
  const created = store.create(newUser({ email: 'ada@x' }));
  await assert.rejects(created, { name: 'StoreUnavailable' });
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(log.some((line) => line.startsWith('connection lost') && /cannot execute/.test(line)));
});

test('5.1 two connections to one host that time out together advance the pool by one host', async (t) => {
  const url = await createDatabase();
  const first = await relay(t, url);
  const second = await relay(t, url);
  const { store, log } = await open(t, onPort(url, first.port, second.port), {
    poolSize: 2,
    timeoutMs: 3000,
  });
  await store.list({ after: 0, limit: 1 });
  await untilIdle(t, store, 2);
  const logged = log.length;
  first.freeze();
  await Promise.allSettled([store.find(1), store.findByEmail('ada@x')]);
  await store.list({ after: 0, limit: 1 });
  await untilIdle(t, store, 2);
  const lost = `connection lost 127.0.0.1:${first.port} no response within 3000 ms`;
  const connected = `connected 127.0.0.1:${second.port}`;
  assert.deepEqual(log.slice(logged).sort(), [connected, connected, lost, lost]);
});

test('a collection of the young objects frees the rows of a query', async (t) => {
  const url = new URL(await createDatabase());
  const session = await openSession({
    database: parseDatabaseUrl(url.href) as PostgresDatabase,
    ...{ host: { host: url.hostname, port: Number(url.port) }, isSecondPass: false },
    ...{ authorities: undefined, timeoutMs: TIMEOUT_MS, connectTimeoutMs: TIMEOUT_MS },
    ...{ now: () => performance.now(), signal: t.signal, schema: 'public', info: () => {} },
  });
  t.after(() => session.destroy());
  const text = "select n as id, 'name ' || n as name from generate_series(1, 500) n";
  const read = async () => {
    for (let i = 0; i < 200; i++) await session.query(text, []);
  };
  const oldBytes = () =>
    getHeapSpaceStatistics().find((space) => space.space_name === 'old_space')!.space_used_size;
  await read();
  collect();
  const before = oldBytes();
  await read(); // 10 MB
  collectYoung();
  collectYoung();
  const keptMb = (oldBytes() - before) / 1e6;
  assert.ok(keptMb < 3, `${keptMb} MB are kept`);
});

test('5.7 a start that takes longer than the connect timeout still reports the cause of the failure', async () => {
  const attempt = openSession({
    database: parseDatabaseUrl('postgres://127.0.0.1/none') as PostgresDatabase,
    host: { host: '127.0.0.1', port: await freePort() },
    authorities: undefined,
    timeoutMs: TIMEOUT_MS,
    connectTimeoutMs: 10,
    isSecondPass: false,
    now: () => performance.now(),
    signal: new AbortController().signal,
    schema: 'public',
    info: () => {},
  });
  // The driver sets its timer for the connect in a microtask.
  for (let i = 0; i < 10; i++) await undefined;
  const until = performance.now() + 50;
  while (performance.now() < until);
  await assert.rejects(attempt, { code: 'ECONNREFUSED' });
});
