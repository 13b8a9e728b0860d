// Sessions behind a pooler, with a wrong clock, and on failing hosts, and how the pool replaces them. A proxy on
// loopback acts as the pooler, and as the host that no longer responds.
import assert from 'node:assert/strict';
import dns from 'node:dns';
import { getEventListeners, once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { SURROUNDINGS } from '../../src/store/pool.ts';
import { UnusableDatabase } from '../../src/store/schema.ts';
import { afterPoll, type SessionOptions } from '../../src/store/session.ts';
import { type PostgresDatabase, parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS } from '../../src/user.ts';
import { keyPair, NO_OPENSSL } from '../support/certificate.ts';
import { freePort } from '../support/daemon.ts';
import { usedBytes } from '../support/garbage.ts';
import { connectTo, open, QUIET, untilOneWaits } from '../support/open-store.ts';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/postgres-server.ts';
import { newFolder } from '../support/program.ts';
import { execute, sessions, untilLeft } from '../support/service.ts';
import { TcpProxy, through } from '../support/tcp-proxy.ts';
import { blockEventLoop, until } from '../support/until.ts';
import { newUser, storedUser } from '../support/users.ts';

const BACKEND_KEY_DATA = Buffer.from([0x4b, 0, 0, 0, 12]);

/** Returns the URL of a proxy that gives the client another process id than the server's, as a pooler does. */
async function throughPooler(t: TestContext, url: string): Promise<string> {
  const proxy = await proxyTo(t, url);
  proxy.onResponse = (bytes) => {
    const start = bytes.indexOf(BACKEND_KEY_DATA);
    if (start !== -1) bytes.writeInt32BE(1, start + BACKEND_KEY_DATA.length);
  };
  return through(url, proxy.port);
}

async function proxyTo(t: TestContext, url: string): Promise<TcpProxy> {
  const proxy = await TcpProxy.listen(Number(new URL(url).port));
  t.after(() => proxy[Symbol.asyncDispose]());
  return proxy;
}

/** Listens on a port of localhost or a path. Calls `respond` once a connection has asked for TLS or begun without. */
async function listen(
  t: TestContext,
  respond: (socket: Socket, bytes: Buffer) => void,
  path?: string,
): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {}); // The store resets it.
    socket.once('data', (bytes: Buffer) => respond(socket, bytes));
  }).listen(path ?? { port: 0, host: 'localhost' });
  t.after(() => server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Opens one session of the service to the first host of a DATABASE_URL, until the end of the test. */
async function openOne(
  t: TestContext,
  url: string,
  { connectTimeoutMs = QUIET.timeoutMs, schema = (): string | undefined => 'public' } = {},
) {
  const database = { ...(parseDatabaseUrl(url) as PostgresDatabase), connectTimeoutMs };
  const [host] = database.hosts;
  const session = await SURROUNDINGS.openSession({
    ...QUIET,
    ...{ database, host: host!, isSecondPass: false, signal: t.signal, schema },
  });
  t.after(() => session.destroy());
  return session;
}

test('2.9 4.13 5.1 once the database can never be used, calls that wait fail with the reason, and those that run in time', async (t) => {
  const openSession = (async ({ host: { host } }: SessionOptions) => {
    if (host === 'b') throw new UnusableDatabase('why');
    const never = () => new Promise(() => {});
    return { query: never, closed: never(), destroy: () => {}, end: async () => {} };
  }) as never as typeof SURROUNDINGS.openSession;
  const store = await open(t, 'postgres://a,b/', { poolSize: 2, timeoutMs: 300 }, { openSession });
  await until(() => store.connections?.idle === 2);
  const first = assert.rejects(store.find(1));
  await sleep(150);
  const second = assert.rejects(store.find(2));
  await sleep(20);
  const isSaid = ({ cause }: Error) => String(cause) === 'UnusableDatabase: why';
  await Promise.all([first, second, assert.rejects(store.find(3), isSaid)]);
});

test('5.7 6.1 7.2 the pauses between attempts to connect grow to a second at most, with jitter, and the fault of each host is reported', async (t) => {
  let fault = 'refused';
  const openSession = async ({ host: { port } }: SessionOptions) => {
    throw new Error(port === 1 ? fault : `b:2 ${fault}`);
  };
  const onUnavailable = t.mock.fn((err: unknown) => String(err));
  const sleep = t.mock.fn((_ms: number) => nextTurn());
  const debug = t.mock.fn();
  const random = t.mock.fn(() => 1);
  random.mock.mockImplementationOnce(() => 0, 7);
  const around = { openSession, sleep, random };
  const store = await open(t, 'postgres://a:1,b:2/', { debug, onUnavailable }, around);
  await until(() => sleep.mock.callCount() > 7);
  const pauses = sleep.mock.calls.slice(0, 8).map(({ arguments: [ms] }) => ms);
  assert.deepEqual(pauses, [25, 50, 100, 200, 400, 800, 1000, 500]);
  const attempt = ['cannot connect', { host: 'a:1', cause: 'Error: refused' }];
  assert.deepEqual(debug.mock.calls[0]!.arguments, attempt);
  const faults = 'StoreUnavailable: a:1: refused; b:2 refused';
  assert.equal(onUnavailable.mock.calls[0]!.result, faults);
  fault = 'full';
  const said = async () => store.ping().catch(({ message, cause }) => `${message}: ${cause}`);
  const newest = 'no connection to the database: StoreUnavailable: a:1: full; b:2 full'; // 7.2
  await until(async () => (await said()) === newest);
});

for (const isLate of [false, true]) {
  const when = isLate ? 'since a write that it refused' : 'when it connected';
  test(`5.1 once a server can write, no connection stays with one that could not ${when}`, async (t) => {
    let nowMs = 0;
    const ends: (() => void)[] = [];
    const query = () =>
      Promise.reject(Object.assign(Error(), { code: '25006', severity: 'ERROR' }));
    const openSession = (async () => {
      const { promise: closed, resolve } = Promise.withResolvers<void>();
      const isReadOnly = ends.push(resolve) <= QUIET.poolSize && !isLate;
      return { isReadOnly, query, serverTime: String, closed, destroy() {}, end() {} };
    }) as never as typeof SURROUNDINGS.openSession;
    const store = await open(t, 'postgres:///', { now: () => nowMs }, { openSession });
    await until(() => store.connections?.idle === QUIET.poolSize);
    nowMs = 1_000;
    if (isLate) await assert.rejects(store.create(newUser()), { name: 'StoreUnavailable' });
    else ends[0]!();
    await until(() => ends.length === 2 * QUIET.poolSize);
  });
}

test('5.3 after an outage, a database without our tables gets them again', async (t) => {
  const url = await createDatabase();
  const proxy = await proxyTo(t, url);
  proxy.delayMs = 100; // A new connection takes longer than the ends of the old ones.
  const store = await open(t, through(url, proxy.port));
  await until(() => store.connections?.idle === QUIET.poolSize);
  await sleep(150); // Connections that end sooner are failed attempts, with a pause after them.
  await execute(url, 'drop table users, notes_users_schema');
  const ours = "application_name = 'notes-users' and datname = current_database()";
  await execute(url, `select pg_terminate_backend(pid) from pg_stat_activity where ${ours}`);
  await until(async () => (await store.find(1).catch(() => 'failed')) === undefined);
});

test('1 DATABASE_URL: target_session_attrs says which server is used; a connection to another is closed', async (t) => {
  const url = await createDatabase();
  const { port } = await proxyTo(t, url); // It ends a connection that is left.
  const withAttribute = (name: string) => `${through(url, port)}?target_session_attrs=${name}`;
  const anyway = ['any', 'primary', 'prefer-standby'];
  for (const [isReadOnly, others, refused] of [
    ['off', ['read-write'], ['standby', 'read-only']],
    ['on', ['read-only'], ['standby', 'read-write']],
  ] as const) {
    const setting = `default_transaction_read_only = ${isReadOnly}`;
    await execute(url, `alter database ${new URL(url).pathname.slice(1)} set ${setting}`);
    for (const name of [...anyway, ...others]) {
      const onUnavailable = () => assert.fail(`no server qualifies for ${name}`);
      const store = await open(t, withAttribute(name), { poolSize: 1, onUnavailable });
      await store.ping();
      await store.close();
    }
    for (const name of refused) {
      await assert.rejects(openOne(t, withAttribute(name)), /does not match/);
    }
  }
  await untilLeft(url);
});

test('5.1 5.5 behind a pooler quotes and backslashes in values are kept, and a temporary table of another client is not taken for ours', async (t) => {
  const url = await createDatabase();
  const pooler = await throughPooler(t, url);
  const store = await open(t, pooler, { poolSize: 1 });
  const names = ["'", '\\', "\\'", "'; drop table users; --", '$1 $2', '\\u0041'];
  for (const [i, name] of names.entries()) {
    const email = `o'${name.replaceAll(' ', '')}\\${i}@x`;
    const user = await store.create(newUser({ name, email }));
    assert.deepEqual(await store.find(user.id), storedUser({ id: user.id, name, email }));
    assert.deepEqual(await store.findByEmail(email), user);
    const updated = await store.update(user.id, { name: `${name}\\` }, ALWAYS);
    assert.deepEqual(updated, { ...user, name: `${name}\\`, version: 2 });
  }
  // No statement is prepared, and no setting outlives its statement.
  const [session] = await sessions(url);
  const text = /^set local statement_timeout = 10000; set local .*;\s+update users .* E'/s;
  assert.match(String(session?.query), text);
  const other = await openOne(t, pooler);
  await other.query('create temporary table users as select 0 as id; select', []);
  assert.deepEqual(await other.query('select id from users where id = 1', []), [{ id: 1 }]);
});

test('5.1 5.3 behind a pooler the tables are found in a schema whose name needs quotes, without the search_path', async (t) => {
  const url = await createDatabase();
  const sql = connectTo(t, url);
  const database = new URL(url).pathname.slice(1);
  const schema = `"My ""Note's"`;
  const objects = `create schema ${schema}; alter database ${database} set search_path = ${schema};
    create view notes_users_schema as select 1; create temporary table notes_users_schema ()`;
  await sql.unsafe(objects);
  const pooler = await throughPooler(t, url);
  const store = await open(t, pooler);
  const ada = await store.create(newUser({ name: 'Ada', email: 'ada@x' }));
  await sql.unsafe(`alter database ${database} set search_path = nowhere`);
  const other = await open(t, pooler, { poolSize: 2 });
  const found = await Promise.all([other.find(ada.id), other.find(ada.id)]);
  assert.deepEqual(found, [ada, ada]);
  assert.equal((await sql.unsafe(`select id from ${schema}.users`)).length, 1);
});

for (const isPooler of [false, true]) {
  const place = isPooler ? 'behind a pooler' : 'directly';
  test(`2.9 4.6 4.13 settings of the database and columns of others change no statement, hide no warning and close no idle connection, ${place}`, async (t) => {
    const url = await createDatabase();
    const alter = `alter database ${new URL(url).pathname.slice(1)} set`;
    const altered = `${alter} client_min_messages = error; ${alter} array_nulls = off; ${alter} extra_float_digits = -15;
      ${alter} idle_session_timeout = '1h'`;
    const sql = connectTo(t, url);
    await sql.unsafe(altered);
    const [limit] = await sql`select from pg_settings where name = 'transaction_timeout'`;
    if (limit) await sql.unsafe(`${alter} transaction_timeout = 900`); // since Postgres 17
    const client = isPooler ? await throughPooler(t, url) : url;
    const session = await openOne(t, client);
    const lost = {
      tcp_keepalives_idle: '30',
      tcp_keepalives_interval: '10',
      tcp_keepalives_count: '3',
    };
    const idle = { idle_session_timeout: isPooler ? '1h' : '0' };
    const settings = { statement_timeout: '10s', ...idle, ...(isPooler ? {} : lost) };
    for (const [name, value] of Object.entries({ client_min_messages: 'warning', ...settings })) {
      assert.deepEqual(await session.query(`show ${name}`, []), [{ [name]: value }]);
    }
    const time = session.serverTime(performance.now());
    const text = 'select abs(extract(epoch from now()) - $1::float8) < 3600 as right';
    const [read] = await session.query(text, [time]);
    assert.deepEqual(read, { right: true }, `the server's clock is read as ${time}`);

    await session.query('select pg_sleep(1)', []);
    const store = await open(t, client);
    const ada = await store.create(newUser({ name: 'Ada', email: 'ada@x' }));
    await sql.unsafe('alter table users add one_of text, add is_taken text, add is_repeated text');
    const moved = { ...ada, email: 'ada@y', version: 2 };
    assert.deepEqual(await store.update(ada.id, { email: 'ada@y' }, ALWAYS), moved);
  });

  test(`4.9 5.6 a call that waits while the table is rewritten finds its user under any default isolation, ${place}`, async (t) => {
    const url = await createDatabase();
    const sql = connectTo(t, url);
    const alter = `alter database ${new URL(url).pathname.slice(1)} set`;
    await sql.unsafe(`${alter} default_transaction_isolation = serializable`);
    const store = await open(t, isPooler ? await throughPooler(t, url) : url, { poolSize: 1 });
    const ada = await store.create(newUser({ name: 'Ada', email: 'ada@x' }));
    const rewritten = async <T>(call: () => Promise<T>) => {
      await sql.unsafe('begin; alter table users alter name type text using trim(name)');
      const result = call();
      await untilOneWaits(sql);
      await sql`commit`;
      return result;
    };
    assert.deepEqual(await rewritten(() => store.find(ada.id)), ada);
    assert.deepEqual(await rewritten(() => store.delete(ada.id, ALWAYS)), ada);
  });
}

for (const sslMode of ['prefer', 'require', 'verify-full']) {
  test(`1 DATABASE_URL: sslmode=${sslMode} names the host to the server, as libpq does`, async (t) => {
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    const port = await listen(t, (socket) => {
      socket.write('S', () => socket.once('data', resolve));
    });
    await open(t, `postgres://localhost:${port}/?sslmode=${sslMode}`);
    assert.ok((await promise).includes('localhost'));
  });
}

test('1 DATABASE_URL: libpq environment variables such as PGPASSWORD are ignored', async (t) => {
  const url = new URL(await createDatabase());
  const { env } = process;
  const others = { PGTARGETSESSIONATTRS: 'standby', PGHOST: 'nowhere.invalid' };
  process.env = { ...env, ...others, PGPASSWORD: url.password };
  t.after(() => Object.assign(process, { env }));
  await openOne(t, url.href);
  url.password = '';
  await assert.rejects(openOne(t, url.href), /password/);
});

const PASSWORD = ' pass "w\'rd\\ pässwörd密码😀';

test('1 DATABASE_URL: a password is used as it is, however it is stored and asked', async (t) => {
  await using server = await Server.create();
  const literal = `E'${PASSWORD.replace(/['\\]/g, '\\$&')}'`;
  // No closure may capture the server: node 24.0 would never dispose it (nodejs/node#58744).
  const { port, dataDir } = server;
  const path = join(dataDir, 'pg_hba.conf');
  for (const [role, stored, asked] of [
    ['a', 'scram-sha-256', 'scram-sha-256'],
    ['b', 'scram-sha-256', 'password'],
    ['c', 'md5', 'md5'],
  ]) {
    const created = `create role ${role} login password ${literal}`;
    await server.query(`set password_encryption = '${stored}'; ${created}`);
    writeFileSync(path, `host all ${role} 127.0.0.1/32 ${asked}\n${readFileSync(path, 'utf8')}`);
    await server.query('select pg_reload_conf()');
    const url = (password: string) =>
      `postgres://${role}:${encodeURIComponent(password)}@127.0.0.1:${port}/postgres`;
    await openOne(t, url(PASSWORD));
    await assert.rejects(openOne(t, url(`${PASSWORD}x`)), { code: '28P01' }, asked);
  }
});

test('1 DATABASE_URL: a host that starts with / is the folder of a Unix socket, without TLS', async (t) => {
  const folder = newFolder();
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  await listen(t, (_socket, bytes) => resolve(bytes), join(folder, '.s.PGSQL.7'));
  await open(t, `postgres:///none?host=${folder}&port=7&sslmode=verify-full&application_name=me`);
  assert.ok((await promise).includes('application_name\0me\0'));
});

for (const [name, end] of Object.entries({
  Postgres: (socket: Socket) => socket.end(),
  'PgBouncer 1.25': () => {},
})) {
  test(`1 DATABASE_URL: sslmode=require to a ${name} without TLS fails with a sentence`, async (t) => {
    const port = await listen(t, (socket) => {
      socket.write('N', () => socket.once('data', () => end(socket)));
    });
    const url = `postgres://localhost:${port}/?sslmode=require`;
    const attempt = openOne(t, url, { connectTimeoutMs: 500 });
    await assert.rejects(attempt, { message: /did not start TLS: if it has none/ });
  });
}

test('9.4 no error follows the end of TLS before a write', { skip: NO_OPENSSL }, async (t) => {
  const keys = keyPair();
  const port = await listen(t, (socket) => {
    socket.write('S');
    new TLSSocket(socket, { ...keys, isServer: true }).on('error', () => {}).resume();
  });
  const store = await open(t, `postgres://localhost:${port}/`);
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  const { setImmediate } = globalThis; // The driver uses it to ask for TLS, then for its first message.
  let writes = 0;
  t.mock.method(globalThis, 'setImmediate', (action: () => void) => {
    if (++writes === 2) setImmediate(() => store.close().then(resolve));
    return setImmediate(action);
  });
  await closed;
  await nextTurn();
});

test('4.13 a write that the server gets after its deadline, in its own time, is not done: our clock is an hour late', async (t) => {
  const { now } = Date;
  t.mock.method(Date, 'now', () => now() - 3_600_000);
  const url = await createDatabase();
  const inTime = await open(t, url);
  const ada = await inTime.create(newUser({ email: 'ada@x' }));
  const openSession = async (options: SessionOptions) => {
    const session = await SURROUNDINGS.openSession(options);
    return { ...session, serverTime: () => session.serverTime(performance.now() - 1) };
  };
  const store = await open(t, url, {}, { openSession });
  for (const write of [
    () => store.create(newUser({ email: 'eve@x' })),
    () => store.update(ada.id, { name: 'Eve' }, ALWAYS),
    () => store.update(ada.id, { email: 'eve@x' }, ALWAYS),
    () => store.delete(ada.id, ALWAYS),
    () => store.delete(ada.id, { ...ALWAYS }),
  ]) {
    const isLate = ({ cause }: Error) => /the statement did not start in time/.test(String(cause));
    await assert.rejects(write, isLate);
  }
  assert.deepEqual(await store.list({ after: 0, limit: 10 }), [ada]);
  assert.deepEqual(await inTime.delete(ada.id, ALWAYS), ada);
});

test('5.9 on a read-only server, writes replace a connection once a second at most', async (t) => {
  const url = await createDatabase();
  await (await open(t, url)).list({ after: 0, limit: 1 });
  const alter = `alter database ${new URL(url).pathname.slice(1)} set`;
  await connectTo(t, url).unsafe(`${alter} default_transaction_read_only = on`);
  let nowMs = 0;
  let lost = 0;
  const debug = (message: string) => {
    if (message === 'connection lost') lost++;
  };
  const store = await open(t, url, { poolSize: 1, now: () => nowMs, debug });
  const lostAfter: number[] = [];
  for (const at of [0, 999, 1000, 1999, 2000]) {
    nowMs = at;
    await assert.rejects(store.create(newUser()), { name: 'StoreUnavailable' });
    assert.equal(await store.find(1), undefined);
    lostAfter.push(lost);
  }
  assert.deepEqual(lostAfter, [0, 0, 1, 1, 2]);
});

test('7.2 a server that has become read-only is not ready, if the URL asks for read-write', async (t) => {
  const openSession = t.mock.fn(SURROUNDINGS.openSession);
  const url = `${await createDatabase()}?target_session_attrs=read-write`;
  const store = await open(t, url, { poolSize: 1 }, { openSession });
  const session = await openSession.mock.calls[0]!.result!;
  await session.query('begin read only', []); // as a standby is behind a pooler
  await assert.rejects(store.ping(), ({ cause }: Error) => /is read-only/.test(String(cause)));
  await store.ping(); // A new connection is not read-only.
});

test('4.9 a statement that failed after its first rows leaves no holes in the next result', async (t) => {
  const session = await openOne(t, await createDatabase());
  const text = 'select 1 / (3 - n) as quotient from generate_series(1, $1::int) n';
  await assert.rejects(session.query(text, ['9']), /division by zero/);
  assert.deepEqual(await session.query(text, ['2']), [{ quotient: 0 }, { quotient: 1 }]);
});

test('behind a pooler a statement that failed is freed, with its values, and so are warnings', async (t) => {
  const session = await openOne(t, await throughPooler(t, await createDatabase()));
  const before = usedBytes();
  for (let i = 0; i < 20; i++) {
    await session.query("do $$ begin raise warning '%', repeat('x', 1000000); end $$; select", []);
    const query = session.query('select 1 / 0, $1', [String(i).padEnd(1e6)]);
    await assert.rejects(query, /division by zero/);
  }
  const keptMb = (usedBytes() - before) / 1e6;
  assert.ok(keptMb < 3, `${keptMb} MB are kept`);
});

test('5.7 a start that takes longer than the connect timeout still reports the cause of the failure', async (t) => {
  const url = `postgres://127.0.0.1:${await freePort()}/none`;
  const attempt = openOne(t, url, { connectTimeoutMs: 10 });
  // The driver sets its timer for the connect in a microtask.
  for (let i = 0; i < 10; i++) await undefined;
  blockEventLoop(50);
  await assert.rejects(attempt, { code: 'ECONNREFUSED' });
});

test('5.7 what arrives in the turn of a deadline still cancels it', async () => {
  const cancel = afterPoll(1, () => assert.fail('it was cancelled'));
  const soon = sleep(1);
  blockEventLoop(10);
  await soon;
  cancel();
  await nextTurn();
});

// The steps are TLS or not, the password request, ready, the probe, the schema, and two of a migration.
for (const how of ['silence', 'fin', 'rst'] as const) {
  test(`5.7 an attempt ends at any step of connecting, and leaves nothing: ${how}`, async (t) => {
    const url = await createDatabase();
    const proxy = await proxyTo(t, url);
    const listeners = () => getEventListeners(t.signal, 'abort').length;
    const before = listeners();
    for (const response of [0, 1, 2, 3, 4, 5, 6]) {
      proxy.failure = { how, response };
      const own = { connectTimeoutMs: how === 'silence' ? 500 : 10_000, schema: () => undefined };
      const attempt = openOne(t, through(url, proxy.port), own);
      // During a migration the server ends the transaction.
      const isOver = how === 'silence' && response < 5;
      await assert.rejects(attempt, ({ message }: Error) => {
        assert.equal(message === 'timed out while connecting', isOver, `${response}: ${message}`);
        return true;
      });
    }
    assert.equal(listeners(), before);
  });
}

test('4.13 5.7 connecting can take longer than a host may send nothing, and makes no deadline late', async (t) => {
  const url = await createDatabase();
  const proxy = await proxyTo(t, url);
  proxy.delayMs = 300; // of each half of five round trips
  const session = await openOne(t, through(url, proxy.port), { connectTimeoutMs: 2000 });
  proxy.delayMs = 0;
  const text = 'select clock_timestamp() > to_timestamp($1::float8) as "isOver"';
  const [read] = await session.query(text, [session.serverTime(performance.now())]);
  assert.deepEqual(read, { isOver: true });
});

test('5.7 an attempt to connect that finds the record locked leaves no statement in the server', async (t) => {
  const url = await createDatabase();
  await (await open(t, url)).create(newUser());
  const sql = connectTo(t, url);
  await sql.unsafe('begin; lock table notes_users_schema');
  const connecting = openOne(t, url, { schema: () => undefined });
  await assert.rejects(connecting, /due to lock timeout$/);
});

test('5.7 a connect that nothing replies to times out, and one that fails at once reports its error', async (t) => {
  t.mock.method(dns, 'lookup', () => {});
  const attempt = openOne(t, 'postgres://silent.example/', { connectTimeoutMs: 10 });
  await assert.rejects(attempt, { message: 'timed out while connecting' });
  const tooLong = openOne(t, `postgres:///?host=/${'x'.repeat(200)}`);
  await assert.rejects(tooLong, { syscall: 'connect' });
});

test('5.7 9.4 an attempt makes one connection, and none once its pool is closed', async (t) => {
  let connections = 0;
  const port = await listen(t, (socket) => {
    connections++;
    socket.destroy();
  });
  const url = `postgres://localhost:${port}/`;
  await (await open(t, url)).close();
  const { promise: pause, resolve: endPause } = Promise.withResolvers<void>();
  const openSession = t.mock.fn(SURROUNDINGS.openSession);
  const attempts = () => openSession.mock.calls.map(({ result }) => result!);
  const store = await open(t, url, {}, { openSession, sleep: () => pause });
  await assert.rejects(attempts()[0]!, { message: 'connection lost' });
  await store.close();
  endPause();
  await until(() => attempts().length === 2);
  await assert.rejects(attempts()[1]!, { name: 'AbortError' });
  assert.equal(connections, 1);
});
