// Rule 4.13 and section 5 of the contract: requests while a store fails, and the guarantees of both
// stores. The tests lock the databases, and cut and stall the connections to them.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text as textOf } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { type HttpResponse, send } from '../support/client.ts';
import { createDatabase, freePort } from '../support/postgres.ts';
import {
  type Exit,
  newDatabase,
  newFolder,
  PASSWORD,
  Program,
  SCHEMA_VERSION,
  SECRET,
  STORES,
  type StoreName,
  start,
  USER,
} from '../support/program.ts';
import { until } from '../support/until.ts';

const TEXT = 'text/plain; charset=utf-8';
const FAILED = { status: 500, type: TEXT, body: 'Internal Server Error' };
const TIMEOUT_MS = 500;
// 75 % of it is longer than the longest pause between attempts to connect (4.13, 5.7).
const LONG_TIMEOUT_MS = 2000;
const NEWER_VERSION = 9999;
const PGBOUNCER = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer'].find(existsSync);
const IS_ROOT = process.getuid?.() === 0;

/** Starts the program under that umask, which it inherits from this process. */
function startWithUmask(umask: number, env: Record<string, string>): Promise<Program> {
  const before = process.umask(umask);
  try {
    return start(env);
  } finally {
    process.umask(before);
  }
}

/** Returns the permissions of the file, its -wal and its -shm, by suffix. */
function modesOf(file: string): Record<string, string> {
  const ends = ['', '-wal', '-shm'];
  return Object.fromEntries(
    ends.map((end) => [end, (statSync(file + end).mode & 0o777).toString(8)]),
  );
}

/** A request of each kind on the users routes. User 1 exists. */
const READS: readonly Call[] = [
  { why: 'GET /users', path: '/users' },
  { why: 'GET /users with a limit', path: '/users?limit=1' },
  { why: 'GET /users with an email', path: '/users?email=a@b' },
  { why: 'GET /users/{id}', path: '/users/1' },
];
const WRITES: readonly Call[] = [
  { why: 'POST /users', path: '/users', method: 'POST', body: { name: 'New', email: 'new@x' } },
  { why: 'PUT /users/{id}', path: '/users/1', method: 'PUT', body: { name: 'B', email: 'b@x' } },
  { why: 'PATCH /users/{id}', path: '/users/1', method: 'PATCH', body: { name: 'C' } },
  { why: 'DELETE /users/{id}', path: '/users/2', method: 'DELETE' },
];

let emails = 0;

for (const store of STORES) {
  describe(`4.13 the store fails (${store})`, { timeout: 300_000 }, () => {
    let url: string;
    let program: Program;
    before(async () => {
      url = await newDatabase(store);
      program = await start({
        DATABASE_URL: url,
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
        // More connections than one test has waiting writes.
        DATABASE_POOL_SIZE: '8',
      });
      await ready(program);
      for (const email of ['a@b', 'second@x']) await create(program, email);
    });
    after(() => program?.[Symbol.asyncDispose]());

    for (const { why, path, ...init } of [...READS, ...WRITES]) {
      test(`4.13 ${why} returns 500 when its statement fails, and then works`, async () => {
        await execute(url, 'alter table users rename to users_away');
        const failed = await send(program.url + path, init);
        await execute(url, 'alter table users_away rename to users');
        assert.deepEqual(summary(failed), FAILED);
        const response = await send(program.url + path, init);
        assert.ok([200, 201].includes(response.status), response.body);
      });
    }

    test('4.13 the cause and the request id are in one log line, not in the response', async () => {
      const headers = { 'x-request-id': `fails-on-${store}` };
      await execute(url, 'alter table users rename to users_away');
      await send(`${program.url}/users/1`, { headers });
      await execute(url, 'alter table users_away rename to users');
      const find = () =>
        program.log.filter(
          (line) => line.level === 'error' && line.requestId === headers['x-request-id'],
        );
      await program.until(() => find().length > 0);
      assert.equal(find().length, 1);
      assert.match(JSON.stringify(find()[0]), /users/);
    });

    for (const { why, path, status, ...init } of [
      { why: 'wrong fields', path: '/users', method: 'POST', body: { name: '' }, status: 400 },
      { why: 'a wrong limit', path: '/users?limit=0', status: 400 },
      { why: 'an id that no store gives', path: '/users/0', status: 404 },
      { why: 'another route', path: '/', status: 200 },
    ]) {
      test(`4.13 ${why} needs no store`, async () => {
        await execute(url, 'alter table users rename to users_away');
        const response = await send(program.url + path, init);
        await execute(url, 'alter table users_away rename to users');
        assert.equal(response.status, status, response.body);
      });
    }

    test('5.5 a response is sent after its commit: another connection sees the row', async () => {
      for (let i = 0; i < 20; i++) {
        const email = newEmail();
        const { id } = await create(program, email);
        const rows = await select(url, `select id, name, email from users where id = ${id}`);
        assert.deepEqual(rows, [{ id, name: 'Ada', email }]);
      }
    });

    test('4.13 writes that wait for a lock return 500 in time, and other requests work', async () => {
      const email = newEmail();
      const { id } = await create(program, email);
      await using lock = await lockWrites(url);
      const writes = [
        { method: 'POST', path: '/users', body: { name: 'A', email: newEmail() } },
        { method: 'PUT', path: `/users/${id}`, body: { name: 'A', email: newEmail() } },
        { method: 'PATCH', path: `/users/${id}`, body: { name: 'A' } },
        { method: 'DELETE', path: `/users/${id}` },
      ];
      const order: string[] = [];
      const responses = Promise.all(
        writes.map(async ({ path, ...init }) => {
          const timed = await measured(() => send(program.url + path, init));
          order.push('write');
          return timed;
        }),
      );
      for (const path of ['/', '/users?limit=1', `/users/${id}`, '/']) {
        assert.equal((await send(program.url + path)).status, 200);
        order.push('other');
      }
      for (const { response, ms } of await responses) {
        assert.deepEqual(summary(response), FAILED);
        assert.ok(ms < TIMEOUT_MS + 1000, `${ms} ms`);
      }
      // Another write takes DATABASE_TIMEOUT_MS. By then the first is done or dropped.
      assert.deepEqual(summary(await send(`${program.url}/users`, writes[0])), FAILED);
      await lock.release();
      assert.deepEqual(order, [...Array(4).fill('other'), ...Array(4).fill('write')]);
      const now = await send(`${program.url}/users/${id}`);
      assert.equal(now.body, JSON.stringify({ id, name: 'Ada', email }));
      await create(program, newEmail());
    });

    test('4.13 a write that got 500 is not done later', async () => {
      await using lock = await lockWrites(url);
      const late = newEmail();
      const body = { name: 'Late', email: late };
      const first = await send(`${program.url}/users`, { method: 'POST', body });
      // The second write takes DATABASE_TIMEOUT_MS. By then the first is done or dropped.
      const other = { name: 'Late', email: newEmail() };
      const second = await send(`${program.url}/users`, { method: 'POST', body: other });
      await lock.release();
      assert.deepEqual([first, second].map(summary), [FAILED, FAILED]);
      // This write comes after everything that can still wait in the service or in the database.
      await create(program, newEmail());
      await create(program, newEmail());
      const found = await send(`${program.url}/users?email=${late}`);
      assert.deepEqual([found.status, found.body], [200, '[]']);
    });

    test('4.13 a write that gets its lock in time is done once', async () => {
      const [user, email] = [await create(program, newEmail()), newEmail()];
      await using lock = await lockWrites(url);
      const url1 = `${program.url}/users`;
      const waiting = [
        send(url1, { method: 'POST', body: { name: 'Waits', email } }),
        send(`${url1}/${user.id}`, { method: 'DELETE' }),
      ];
      await send(program.url);
      await lock.release();
      const responses = await Promise.all(waiting);
      assert.deepEqual(
        responses.map(({ status }) => status),
        [201, 200],
      );
      const found = await send(`${url1}?email=${email}`);
      assert.equal(found.body, `[${responses[0]?.body}]`);
    });
  });

  describe(`5 promises of both stores (${store})`, { timeout: 300_000 }, () => {
    test('5.5 no write with a 2xx is lost when the program is killed and restarted', async () => {
      const url = await newDatabase(store);
      const program = await start({ DATABASE_URL: url });
      await ready(program);
      const created: User[] = [];
      const writers = Array.from({ length: 8 }, () => writeUntilGone(program, created));
      await until(() => created.length >= 200);
      await program.stop('SIGKILL');
      await Promise.all(writers);
      assert.ok(created.length >= 200);
      await using again = await start({ DATABASE_URL: url });
      await ready(again);
      const users: User[] = JSON.parse((await send(`${again.url}/users`)).body);
      const kept = new Map(users.map((user) => [user.id, user]));
      assert.deepEqual(
        created.map(({ id }) => kept.get(id)),
        created,
      );
      assert.equal(new Set(users.map(({ email }) => email)).size, users.length);
      assert.equal((await schemaVersions(url)).length, SCHEMA_VERSION);
    });

    test('5.3 4.10 ten programs start at once on an empty database and all serve it', async () => {
      const url = await newDatabase(store);
      const programs = await Promise.all(
        Array.from({ length: 10 }, () => start({ DATABASE_URL: url })),
      );
      try {
        await Promise.all(programs.map(ready));
        const users: User[] = [];
        for (const program of programs) users.push(await create(program, newEmail()));
        for (const program of programs) {
          assert.deepEqual(JSON.parse((await send(`${program.url}/users`)).body), users);
          assert.deepEqual(
            // On a slow machine the first attempt to connect can time out.
            program.log.filter(
              ({ level, message }) => level === 'error' && message !== 'store unavailable',
            ),
            [],
          );
        }
        assert.equal((await schemaVersions(url)).length, SCHEMA_VERSION);
        // 4.10 between programs: the store decides which write was first.
        for (let round = 0; round < 5; round++) {
          const body = { name: 'Racer', email: newEmail() };
          const responses = await Promise.all(
            programs.map(({ url }) => send(`${url}/users`, { method: 'POST', body })),
          );
          const statuses = responses.map(({ status }) => status).sort();
          assert.deepEqual(statuses, [201, ...Array(9).fill(400)]);
        }
      } finally {
        await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
      }
    });

    test('5.3 5.8 the service runs on a newer database that allows it, and leaves it unchanged', async () => {
      const url = await newDatabase(store);
      const first = await start({ DATABASE_URL: url });
      await ready(first);
      const ada = await create(first, newEmail());
      // Migrates the database while the service runs.
      await addMigration(url, SCHEMA_VERSION + 1, SCHEMA_VERSION);
      const bob = await create(first, newEmail());
      await first.stop();
      await using again = await start({ DATABASE_URL: url });
      await ready(again);
      const cy = await create(again, newEmail());
      const patched = await send(`${again.url}/users/${bob.id}`, {
        method: 'PATCH',
        body: { name: 'Bob' },
      });
      assert.equal(patched.status, 200);
      assert.deepEqual(JSON.parse((await send(`${again.url}/users`)).body), [
        ada,
        { ...bob, name: 'Bob' },
        cy,
      ]);
      assert.equal((await schemaVersions(url)).at(-1), SCHEMA_VERSION + 1);
    });

    test('5.3 a newer database that does not allow this service is refused, unchanged', async () => {
      const url = await newDatabase(store);
      const first = await start({ DATABASE_URL: url });
      await ready(first);
      await first.stop();
      const newest = SCHEMA_VERSION + 2;
      await addMigration(url, SCHEMA_VERSION + 1, SCHEMA_VERSION);
      await addMigration(url, newest, SCHEMA_VERSION + 1);
      const refused = newProgram(url);
      const exit = await ended(refused);
      const said = refused.stdout + refused.stderr;
      assert.deepEqual(exit, { code: 1, signal: null }, said);
      const versions = `${newest} and needs .* version ${newest - 1} or later; this service knows ${newest - 2}:`;
      assert.match(said, new RegExp(`schema version ${versions}`));
      assert.doesNotMatch(said, /(?:\n|\\n)\s+at /);
      assert.equal((await schemaVersions(url)).at(-1), newest);
    });

    test('5.3 a database that is newer than the service is refused, unchanged', async () => {
      const url = await newDatabase(store);
      await makeNewerSchema(url);
      const refused = newProgram(url);
      const exit = await ended(refused);
      const said = refused.stdout + refused.stderr;
      assert.deepEqual(exit, { code: 1, signal: null }, said);
      assert.match(said, new RegExp(`version ${NEWER_VERSION}.*newer`));
      assert.doesNotMatch(said, /(?:\n|\\n)\s+at /);
      assert.deepEqual(await schemaVersions(url), [NEWER_VERSION]);
      assert.deepEqual(await select(url, 'select * from users'), []);
    });

    test('5.4 ids begin at 1, ascend, and are never reused', async () => {
      const url = await newDatabase(store);
      const ids: number[] = [];
      for (let i = 0; i < 2; i++) {
        await using program = await start({ DATABASE_URL: url });
        await ready(program);
        for (let j = 0; j < 2; j++) {
          for (let k = 0; k < 2; k++) ids.push((await create(program, newEmail())).id);
          for (const id of ids.slice(-2)) {
            await send(`${program.url}/users/${id}`, { method: 'DELETE' });
          }
        }
        assert.equal((await send(`${program.url}/users`)).body, '[]');
        await program.stop();
      }
      assert.deepEqual(ids, [1, 2, 3, 4, 5, 6, 7, 8]);
    });
  });
}

describe('5.0 the stores side by side', () => {
  test('5.0 both stores give the same responses byte for byte', async () => {
    const [sqlite, postgres] = await Promise.all(STORES.map(transcript));
    assert.deepEqual(sqlite, postgres);
    assert.ok((sqlite?.length ?? 0) > 40);
  });
});

/** Matches /metrics while one connection is in use. */
const USED = /db_client_connection_state="used"} 1/;

describe('5.1 Postgres', { timeout: 300_000 }, () => {
  let proxy: FaultyLink;
  let url: string;
  let program: Program;
  before(async () => {
    url = await createDatabase();
    proxy = await FaultyLink.open(url);
    program = await start({
      DATABASE_URL: proxy.url,
      DATABASE_TIMEOUT_MS: String(LONG_TIMEOUT_MS),
    });
    await ready(program);
    await create(program, newEmail());
  });
  after(async () => {
    await program?.[Symbol.asyncDispose]();
    await proxy?.close();
  });

  for (const { why, fault } of [
    { why: 'connections are reset and refused', fault: () => proxy.refuse() },
    { why: 'connections are reset when they begin', fault: () => proxy.reset() },
    { why: 'the network is a black hole', fault: () => proxy.stall() },
  ]) {
    test(`4.13 5.1 while ${why}, all routes return 500 in time, then the next request works`, async () => {
      await fault();
      const responses = await Promise.all(
        [...READS, ...WRITES].map(({ path, ...init }) =>
          measured(() => send(program.url + path, init)),
        ),
      );
      for (const { response, ms } of responses) {
        assert.deepEqual(summary(response), FAILED);
        assert.ok(ms < LONG_TIMEOUT_MS + 1000, `${ms} ms`);
      }
      await proxy.restore();
      assert.equal((await send(`${program.url}/users/1`)).status, 200);
      await create(program, newEmail());
      await untilWhole(program, url, 4);
    });
  }

  test('5.1 6.2 a stop does not wait for Postgres beyond SHUTDOWN_TIMEOUT_MS', async () => {
    await using stack = new AsyncDisposableStack();
    const link = await FaultyLink.open(await createDatabase());
    stack.defer(() => link.close());
    const env = { DATABASE_URL: link.url, SHUTDOWN_TIMEOUT_MS: '100' };
    const program = stack.use(await start(env));
    await ready(program);
    link.stall();
    const response = send(`${program.url}/users`).catch(() => undefined);
    await until(async () => USED.test((await send(`${program.adminUrl}/metrics`)).body));
    assert.deepEqual(await program.stop(), { code: 1, signal: null });
    const [stopping, stopped] = ['stopping', 'stopped'].map((message) => {
      const line = program.log.find((one) => one.message === message);
      return Date.parse(String(line?.time));
    });
    assert.ok(stopped! - stopping! < 1_000, `${stopped! - stopping!} ms`);
    await response;
  });

  test('5.1 6.2 a stop succeeds if Postgres disappears meanwhile', async () => {
    await using stack = new AsyncDisposableStack();
    const link = await FaultyLink.open(await createDatabase());
    stack.defer(() => link.close());
    const program = stack.use(await start({ DATABASE_URL: link.url }));
    await ready(program);
    await link.stall();
    // /ready runs a statement without an API request. The admin listener closes before the store.
    const ping = send(`${program.adminUrl}/ready`).catch(() => undefined);
    await until(async () => USED.test((await send(`${program.adminUrl}/metrics`)).body));
    program.process.kill('SIGTERM');
    await ping;
    await link.refuse();
    assert.deepEqual(await program.exited, { code: 0, signal: null });
    assert.equal(program.log.at(-1)?.message, 'stopped');
  });

  test('5.1 the log has one line when the store is lost and one when it is back', async () => {
    const lines = () =>
      program.log.map((line) => line.message).filter((text) => /^store /.test(text));
    const count = lines().length;
    await proxy.refuse();
    for (let i = 0; i < 3; i++) {
      assert.equal((await send(`${program.url}/users/1`)).status, 500);
    }
    await proxy.restore();
    await program.until(() => lines().length >= count + 2);
    await untilWhole(program, url, 4);
    assert.deepEqual(lines().slice(count), ['store unavailable', 'store available']);
  });

  test('5.1 no write with a 2xx is lost or done twice while backends are killed', async () => {
    const url = await createDatabase();
    await using program = await start({ DATABASE_URL: url, DATABASE_TIMEOUT_MS: '2000' });
    await ready(program);
    const tried: { email: string; response: HttpResponse }[] = [];
    let killed = 0;
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    const writer = async () => {
      for (let i = 0; i < 60; i++) {
        const email = newEmail();
        const body = { name: 'Ada', email };
        tried.push({
          email,
          response: await send(`${program.url}/users`, { method: 'POST', body }),
        });
      }
    };
    const writers = Promise.all(Array.from({ length: 8 }, writer));
    for (let i = 0; i < 10; i++) {
      const count = tried.length;
      await until(() => tried.length >= count + 20);
      killed += (
        await sql.unsafe(
          `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()`,
        )
      ).length;
    }
    await writers;
    await sql.end({ timeout: 5 });
    assert.ok(killed >= 10, `${killed} backends killed`);
    const others = tried.filter(
      ({ response }) => response.status !== 201 && response.status !== 500,
    );
    assert.deepEqual(others, []);
    const rows = await select(url, 'select id, name, email from users order by id');
    const created = tried.filter(({ response }) => response.status === 201);
    const byEmail = new Map(rows.map((row) => [row.email, JSON.stringify(row)]));
    assert.deepEqual(
      created.map(({ email }) => byEmail.get(email)),
      created.map(({ response }) => response.body),
    );
    assert.ok(created.length > 300, `${created.length} created`);
    assert.equal((await send(`${program.url}/users`)).body, JSON.stringify(rows));
    await untilWhole(program, url, 4);
  });

  test('5.1 when the first host of the URL fails, the second takes over', async () => {
    const first = await FaultyLink.open(url);
    const second = await FaultyLink.open(url);
    const both = new URL(url);
    const hosts = `127.0.0.1:${first.port},127.0.0.1:${second.port}`;
    const auth = `${both.username}:${both.password}`;
    await using program = await start({
      DATABASE_URL: `postgres://${auth}@${hosts}${both.pathname}`,
      DATABASE_TIMEOUT_MS: '3000',
    });
    try {
      await ready(program);
      for (const [down, up] of [
        [first, second],
        [second, first],
      ] as const) {
        await up.restore();
        await down.refuse();
        const responses = [];
        do {
          responses.push(await send(`${program.url}/users/1`));
        } while (responses.at(-1)?.status !== 200);
        // A request in flight may fail with its connection. Later ones don't.
        assert.ok(responses.length <= 3, `${responses.length} requests`);
        assert.ok(up.connections > 0);
      }
    } finally {
      await program.stop('SIGKILL');
      await Promise.all([first.close(), second.close()]);
    }
  });

  for (const encoding of ['SQL_ASCII', 'LATIN1']) {
    test(`5.1 a database with the encoding ${encoding} is refused`, async () => {
      const options = `encoding '${encoding}' lc_collate 'C' lc_ctype 'C' template template0`;
      const refused = newProgram(await createDatabase(undefined, options));
      const exit = await ended(refused);
      const said = refused.stdout + refused.stderr;
      assert.deepEqual(exit, { code: 1, signal: null }, said);
      assert.match(said, new RegExp(`encoding ${encoding}; this service needs UTF8`));
      assert.doesNotMatch(said, /(?:\n|\\n)\s+at /);
    });
  }

  for (const { timeoutMs, expected } of [
    { timeoutMs: 5000, expected: [2000, 2000, 2000] },
    { timeoutMs: 500, expected: [250, 500, 1000] },
  ]) {
    test(`5.7 with DATABASE_TIMEOUT_MS ${timeoutMs} connecting to a silent server times out after ${expected.join(', ')} ms`, async () => {
      const server = createServer((socket) => {
        socket.on('error', () => {}).on('data', () => {});
      }).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as { port: number };
      await using program = await start({
        DATABASE_URL: `postgres://127.0.0.1:${port}/none?sslmode=disable`,
        DATABASE_POOL_SIZE: '1',
        DATABASE_TIMEOUT_MS: String(timeoutMs),
        LOG_LEVEL: 'debug',
      });
      // Uses the times of the log. Times of the test process would vary with its load.
      const times = () =>
        program.log
          .filter(({ message }) => message === 'listening' || message === 'cannot connect')
          .map(({ time }) => Date.parse(String(time)));
      await program.until(() => times().length > expected.length);
      server.close();
      expected.forEach((ms, i) => {
        const took = times()[i + 1]! - times()[i]!;
        // The first attempt begins before the program listens, so it can seem shorter.
        assert.ok((i === 0 || took >= ms) && took < ms * 2 + 1_000, `after ${took} ms, not ${ms}`);
      });
    });
  }

  test('5.7 the pauses between attempts to connect grow to a second at most', async () => {
    const times: number[] = [];
    const server = createServer((socket) => {
      times.push(performance.now());
      socket.on('error', () => {}).resetAndDestroy();
      server.emit('tried');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    await using _program = await start({
      DATABASE_URL: `postgres://127.0.0.1:${port}/none?sslmode=disable`,
      DATABASE_POOL_SIZE: '1',
    });
    while (times.length < 9) await once(server, 'tried');
    server.close();
    const pauses = times.slice(1).map((time, i) => time - times[i]!);
    // 25 ms, doubled each time up to 1000, with up to 50 % jitter. A busy machine makes them longer.
    const least = [12, 25, 50, 100, 200, 400, 500, 500];
    assert.ok(
      pauses.every((ms, i) => ms >= least[i]! - 2),
      String(pauses),
    );
    assert.ok(pauses.at(-1)! < 1_500, String(pauses));
  });

  test('5.1 the service works behind PgBouncer in transaction mode', {
    skip: PGBOUNCER === undefined && 'install pgbouncer to run this test',
  }, async () => {
    const url = await createDatabase();
    const bouncer = await startBouncer(url);
    try {
      await using program = await start({ DATABASE_URL: bouncer.url, DATABASE_POOL_SIZE: '8' });
      await ready(program);
      const users = await Promise.all(
        Array.from({ length: 100 }, () => create(program, newEmail())),
      );
      const responses = await Promise.all(
        users.flatMap(({ id }) => [
          send(`${program.url}/users/${id}`),
          send(`${program.url}/users/${id}`, { method: 'PATCH', body: { name: 'Grace' } }),
          send(`${program.url}/users?limit=3`),
        ]),
      );
      assert.deepEqual(new Set(responses.map(({ status }) => status)), new Set([200]));
      const rows = await select(
        url,
        "select count(*)::int as count from users where name = 'Grace'",
      );
      assert.deepEqual(rows, [{ count: 100 }]);
    } finally {
      await bouncer.stop();
    }
  });
});

describe('5.2 SQLite', { timeout: 300_000 }, () => {
  test('5.2 a missing folder is created, and the file in it is in WAL mode', async () => {
    const file = join(newFolder(), 'a', 'b', 'service.db');
    await using program = await start({ DATABASE_URL: `sqlite:${file}` });
    await create(program, newEmail());
    const rows = await select(`sqlite:${file}`, 'pragma journal_mode');
    assert.deepEqual(rows, [{ journal_mode: 'wal' }]);
  });

  for (const umask of [0o000, 0o022, 0o077]) {
    test(`5.2 its files are created 0660, umask ${umask.toString(8).padStart(3, '0')}`, async () => {
      const file = join(newFolder(), 'service.db');
      await using program = await startWithUmask(umask, { DATABASE_URL: `sqlite:${file}` });
      await create(program, newEmail());
      assert.deepEqual(modesOf(file), { '': '660', '-wal': '660', '-shm': '660' });
    });
  }

  test('5.2 an existing file keeps its mode, and its -wal and -shm have it too', async () => {
    const file = join(newFolder(), 'service.db');
    writeFileSync(file, '', { mode: 0o600 });
    await using program = await startWithUmask(0, { DATABASE_URL: `sqlite:${file}` });
    await create(program, newEmail());
    assert.deepEqual(modesOf(file), { '': '600', '-wal': '600', '-shm': '600' });
  });

  test('5.2 a lock of another process does not delay the start on a migrated file', async () => {
    const url = await newDatabase('sqlite');
    await (await start({ DATABASE_URL: url })).stop();
    await using lock = await lockWrites(url);
    await using program = await start({ DATABASE_URL: url });
    assert.equal((await send(`${program.url}/users`)).body, '[]');
    await lock.release();
    await create(program, newEmail());
  });

  test('5.2 a lock of another process does not block other requests', async () => {
    const url = await newDatabase('sqlite');
    await using program = await start({ DATABASE_URL: url });
    const user = await create(program, newEmail());
    await using lock = await lockWrites(url);
    const order: string[] = [];
    const email = newEmail();
    const write = create(program, email).finally(() => order.push('write'));
    for (let i = 0; i < 50; i++) {
      const responses = [await send(program.url), await send(`${program.url}/users/${user.id}`)];
      assert.deepEqual(
        responses.map(({ status }) => status),
        [200, 200],
      );
      order.push('reads');
    }
    await lock.release();
    assert.equal((await write).email, email);
    assert.deepEqual(order, [...Array(50).fill('reads'), 'write']);
  });

  test('2.16 5.2 a client that closes its side while it waits gets its response', async () => {
    const url = await newDatabase('sqlite');
    await using program = await start({ DATABASE_URL: url });
    await using lock = await lockWrites(url);
    const { hostname, port } = new URL(program.url);
    const body = JSON.stringify({ name: 'Ann', email: newEmail() });
    const head = 'POST /users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
    const socket = connect(Number(port), hostname);
    socket.end(`${head}Content-Length: ${body.length}\r\n\r\n${body}`);
    await once(socket, 'finish');
    // Once another connection has a response, the service has read the end of the first.
    assert.equal((await send(program.url)).status, 200);
    await lock.release();
    assert.match(await textOf(socket), /^HTTP\/1\.1 201 .*"name":"Ann"/s);
  });

  for (const { why, path } of [
    { why: 'that cannot be made', path: '/proc/nowhere/service.db' },
    { why: 'that is a file', path: '/dev/null/service.db' },
    { why: 'that takes no files', path: '/proc/self/service.db' },
  ]) {
    test(`5.2 6.4 a database in a folder ${why} ends the program with one line and status 1`, {
      skip: process.platform !== 'linux' && 'needs /proc, which Linux has',
    }, async () => {
      const program = newProgram(`sqlite:${path}`);
      assert.match(await refusal(program), new RegExp(path.replace('/service.db', '')));
    });
  }

  test('5.2 an unwritable folder is named, with a fix', {
    skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to become another user',
  }, async () => {
    const folder = newFolder();
    const program = newProgram(`sqlite:${folder}/service.db`, { asNobody: true });
    assert.match(await refusal(program), new RegExp(`${folder}.*(chown|chmod|permission)`));
  });

  test('5.2 a folder that cannot be created is named, with a fix', {
    skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to become another user',
  }, async () => {
    const folder = join(newFolder(), 'data/sub');
    const program = newProgram(`sqlite:${folder}/service.db`, { asNobody: true });
    assert.match(
      await refusal(program),
      new RegExp(`: mkdir -p ${folder} && chown [0-9]+:[0-9]+ ${folder}$`),
    );
  });

  test('5.2 an unwritable file is named, with a fix', {
    skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to become another user',
  }, async () => {
    const folder = newFolder();
    chmodSync(folder, 0o777);
    const file = join(folder, 'service.db');
    writeFileSync(file, '');
    const program = newProgram(`sqlite:${file}`, { asNobody: true });
    assert.match(
      await refusal(program),
      new RegExp(`${file} is not writable by uid [0-9]+: chown .*${file}$`),
    );
  });

  for (const { place, kind, mode } of [
    ...['', '-wal', '-shm'].map((place) => ({ place, kind: 'file', mode: 0o644 })),
    ...['', '-wal', '-shm'].map((place) => ({ place, kind: 'file', mode: 0o600 })),
    { place: '/', kind: 'folder', mode: 0o755 },
  ]) {
    const name = `${kind} service.db${place} of another owner with mode ${mode.toString(8)}`;
    test(`5.2 the ${name} is named, with a fix`, {
      skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to become another user',
    }, async () => {
      const { url, places } = await databaseOfNobody();
      const wrong = places[place]!;
      chownSync(wrong, 0, 0);
      chmodSync(wrong, mode);
      const line = await refusal(newProgram(url, { asNobody: true }));
      assert.ok(
        line.endsWith(`; ${wrong} is not writable by uid 65534: chown 65534:65534 ${wrong}`),
        line,
      );
      chownSync(wrong, 65534, 65534);
      const fixed = newProgram(url, { asNobody: true });
      await fixed.logged('listening');
      await fixed.stop();
    });
  }

  for (const [place, mode] of [
    ['', 0o440],
    ['-wal', 0o040],
    ['-shm', 0o400],
    ['/', 0o500],
    ['/', 0o600],
  ] as const) {
    test(`5.2 service.db${place} with mode ${mode.toString(8)} is named, with a chmod`, {
      skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to become another user',
    }, async () => {
      const { url, places } = await databaseOfNobody();
      const wrong = places[place]!;
      chmodSync(wrong, mode);
      const line = await refusal(newProgram(url, { asNobody: true }));
      assert.ok(
        line.endsWith(`; ${wrong} is not writable by uid 65534: chmod u+rwX ${wrong}`),
        line,
      );
      execFileSync('chmod', ['u+rwX', wrong]);
      const fixed = newProgram(url, { asNobody: true });
      await fixed.logged('listening');
      await fixed.stop();
    });
  }

  for (const place of ['', '-wal', '-shm']) {
    test(`5.2 a folder in the place of service.db${place} is named`, async () => {
      const file = join(newFolder(), 'service.db');
      mkdirSync(file + place);
      const line = await refusal(newProgram(`sqlite:${file}`));
      assert.ok(line.endsWith(`: ${file}${place} is not a regular file`), line);
    });
  }

  for (const place of ['', '-wal', '-shm']) {
    for (const { why, change, undo } of [
      { why: 'removed', change: (file: string) => renameSync(file, `${file}.away`), undo: true },
      {
        why: 'replaced',
        change: (file: string) => {
          copyFileSync(file, `${file}.new`);
          renameSync(`${file}.new`, file);
        },
        undo: false,
      },
    ]) {
      test(`5.2 7.2 if service.db${place} is ${why}, writes and /ready fail with that reason`, async () => {
        const url = await newDatabase('sqlite');
        const file = url.slice('sqlite:'.length) + place;
        await using program = await start({ DATABASE_URL: url });
        const ada = await create(program, newEmail());
        await ready(program);
        change(file);
        const body = { name: 'Lost', email: newEmail() };
        const failed = await send(`${program.url}/users`, { method: 'POST', body });
        assert.deepEqual(summary(failed), FAILED);
        const { status, body: reason } = await send(`${program.adminUrl}/ready`);
        const said = `not ready: store unavailable: ${file} was removed or replaced while in use:`;
        assert.deepEqual([status, reason.slice(0, said.length)], [503, said]);
        assert.match(String((await program.logged('store unavailable')).cause), /was removed/);
        assert.equal((await send(`${program.url}/users/${ada.id}`)).status, 200);
        if (!undo) return;
        renameSync(`${file}.away`, file);
        await create(program, newEmail());
        await ready(program);
      });
    }
  }

  test('5.2 a file that other processes open, change and close stays the same', async () => {
    const url = await newDatabase('sqlite');
    await using program = await start({ DATABASE_URL: url });
    for (let i = 0; i < 3; i++) {
      await create(program, newEmail());
      await execute(url, 'pragma wal_checkpoint(truncate)');
      await execute(url, 'vacuum');
      await execute(url, `insert into users (name, email) values ('Bob', '${newEmail()}')`);
    }
    await ready(program);
    const users: User[] = JSON.parse((await send(`${program.url}/users`)).body);
    assert.equal(users.length, 6);
  });

  test('5.2 a read-only file system is named', {
    skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to mount a disk',
  }, async () => {
    const folder = newFolder();
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'ro', 'tmpfs', folder]);
    try {
      const program = newProgram(`sqlite:${folder}/service.db`);
      assert.match(
        await refusal(program),
        new RegExp(`the file system of ${folder} is read-only$`),
      );
    } finally {
      execFileSync('umount', [folder]);
    }
  });

  test('5.2 a file that is not a database ends the program with one line and status 1', async () => {
    const file = join(newFolder(), 'service.db');
    writeFileSync(file, 'This is a letter, not a database.'.repeat(100));
    const program = newProgram(`sqlite:${file}`);
    assert.ok((await refusal(program)).includes(file));
  });

  test('5.2 a full disk returns 500, loses nothing, and works again when there is room', {
    skip: (!IS_ROOT || process.platform !== 'linux') && 'needs root, to mount a small disk',
  }, async () => {
    const folder = newFolder();
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=512k', 'tmpfs', folder]);
    try {
      await using program = await start({ DATABASE_URL: `sqlite:${folder}/service.db` });
      const created: User[] = [];
      let full: HttpResponse | undefined;
      while (full === undefined) {
        const body = { name: 'x'.repeat(100), email: newEmail() };
        const response = await send(`${program.url}/users`, { method: 'POST', body });
        if (response.status === 201) created.push(JSON.parse(response.body));
        else full = response;
      }
      assert.deepEqual(summary(full), FAILED);
      assert.ok(created.length > 10, `${created.length} fitted`);
      assert.equal((await send(`${program.url}/users`)).body, JSON.stringify(created));
      execFileSync('mount', ['-o', 'remount,size=8m', folder]);
      created.push(await create(program, newEmail()));
      const listed: User[] = JSON.parse((await send(`${program.url}/users`)).body);
      assert.deepEqual(listed, created);
      await program.stop('SIGKILL');
      await using again = await start({ DATABASE_URL: `sqlite:${folder}/service.db` });
      assert.deepEqual(JSON.parse((await send(`${again.url}/users`)).body), created);
    } finally {
      execFileSync('umount', ['--lazy', folder]);
    }
  });
});

/** A database of the user nobody whose service was killed, and the path of each of its files. */
async function databaseOfNobody() {
  const folder = newFolder();
  const file = join(folder, 'service.db');
  chownSync(folder, 65534, 65534);
  const program = newProgram(`sqlite:${file}`, { asNobody: true });
  await program.logged('listening');
  await program.stop('SIGKILL'); // Otherwise SQLite would remove -wal and -shm.
  const ends = ['', '-wal', '-shm'].map((end) => [end, file + end]);
  const places: Record<string, string> = { ...Object.fromEntries(ends), '/': folder };
  return { url: `sqlite:${file}`, places };
}

/** Resolves with the one line of a program that exits with status 1. */
async function refusal(program: Program): Promise<string> {
  const exit = await ended(program);
  const lines = (program.stdout + program.stderr).trimEnd().split('\n');
  assert.deepEqual([exit, lines.length], [{ code: 1, signal: null }, 1], lines.join('\n'));
  return lines[0]!;
}

interface User {
  readonly id: number;
  readonly name: string;
  readonly email: string;
}

interface Call {
  readonly why: string;
  readonly path: string;
  readonly method?: string;
  readonly body?: object;
}

// A proxy between the program and Postgres that simulates network faults.
class FaultyLink {
  readonly #target: URL;
  #server: Server | undefined;
  #mode: 'open' | 'reset' | 'stalled' = 'open';
  readonly #sockets = new Set<Socket>();
  port = 0;

  static async open(url: string): Promise<FaultyLink> {
    const proxy = new FaultyLink(url);
    await proxy.restore();
    return proxy;
  }

  constructor(url: string) {
    this.#target = new URL(url);
  }

  get url(): string {
    const url = new URL(this.#target);
    url.host = `127.0.0.1:${this.port}`;
    return url.href;
  }

  get connections(): number {
    return this.#sockets.size;
  }

  /** Accepts connections and forwards their data. */
  async restore(): Promise<void> {
    this.#mode = 'open';
    if (this.#server !== undefined) return;
    this.#server = createServer((socket) => this.#accept(socket)).listen(this.port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.port = (this.#server.address() as { port: number }).port;
  }

  /** Resets all connections and refuses new ones. */
  async refuse(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closed = new Promise((resolve) => server.close(resolve));
    this.#cut();
    await closed;
  }

  /** Resets all connections, and new ones at their start. */
  async reset(): Promise<void> {
    this.#mode = 'reset';
    this.#cut();
  }

  /** Stops forwarding on all connections. Only those made after `restore` work again. */
  async stall(): Promise<void> {
    this.#mode = 'stalled';
    for (const socket of this.#sockets) socket.removeAllListeners('data').resume();
  }

  async close(): Promise<void> {
    await this.refuse();
  }

  #cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  #accept(client: Socket): void {
    this.#watch(client);
    if (this.#mode === 'reset') client.resetAndDestroy();
    if (this.#mode !== 'open') return;
    const server = connect(Number(this.#target.port), this.#target.hostname);
    this.#watch(server);
    client.on('data', (data) => server.write(data)).once('close', () => server.destroy());
    server.on('data', (data) => client.write(data)).once('close', () => client.destroy());
  }

  #watch(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {}).once('close', () => this.#sockets.delete(socket));
  }
}

function newProgram(url: string, { asNobody = false } = {}): Program {
  return new Program({
    PORT: '0',
    HOST: '127.0.0.1',
    DATABASE_URL: url,
    AUTH_USER: USER,
    AUTH_PASSWORD: PASSWORD,
    SIGNING_SECRET: SECRET,
    // The user nobody can't write the coverage data.
    ...(asNobody ? { NODE_OPTIONS: `--import=${BECOME_NOBODY}`, NODE_V8_COVERAGE: '' } : {}),
  });
}

// A module that drops root before the program starts.
const BECOME_NOBODY = `data:text/javascript,${encodeURIComponent('process.setgid(65534); process.setuid(65534)')}`;

// Resolves when the program exits. Kills it if it doesn't.
async function ended(program: Program): Promise<Exit> {
  const timer = setTimeout(() => program.process.kill('SIGKILL'), 5_000);
  const exit = await program.exited;
  clearTimeout(timer);
  return exit;
}

function newEmail(): string {
  emails++;
  return `user-${emails}@stores.example`;
}

async function create(program: Program, email: string): Promise<User> {
  const body = { name: 'Ada', email };
  const response = await send(`${program.url}/users`, { method: 'POST', body });
  if (response.status !== 201) throw new Error(`POST /users: ${response.status} ${response.body}`);
  return JSON.parse(response.body);
}

async function ready(program: Program): Promise<void> {
  await until(async () => (await send(`${program.adminUrl}/ready`)).status === 200);
}

async function writeUntilGone(program: Program, created: User[]): Promise<void> {
  try {
    for (;;) created.push(await create(program, newEmail()));
  } catch {
    // The program has exited.
  }
}

async function measured(request: () => Promise<HttpResponse>) {
  const begin = performance.now();
  const response = await request();
  return { response, ms: performance.now() - begin };
}

function summary(response: HttpResponse) {
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    body: response.body,
  };
}

async function select(url: string, statement: string): Promise<Record<string, unknown>[]> {
  if (url.startsWith('sqlite:')) {
    using database = openSqlite(url);
    return database
      .prepare(statement)
      .all()
      .map((row) => ({ ...row }));
  }
  const types = { bigint: { to: 20, from: [20], serialize: String, parse: Number } };
  const sql = postgres(url, { max: 1, onnotice: () => {}, types });
  try {
    return (await sql.unsafe(statement)).map((row) => ({ ...row }));
  } finally {
    await sql.end({ timeout: 5 });
  }
}

async function execute(url: string, statement: string): Promise<void> {
  await select(url, statement);
}

function openSqlite(url: string): DatabaseSync {
  return new DatabaseSync(url.slice('sqlite:'.length), { timeout: 5000 });
}

// Blocks writes on users, but not reads, until released.
async function lockWrites(url: string) {
  if (url.startsWith('sqlite:')) {
    const database = openSqlite(url);
    database.exec('begin immediate');
    const release = async () => database.isOpen && database.close();
    return { release, [Symbol.asyncDispose]: async () => void (await release()) };
  }
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  await sql.unsafe('begin; lock table users in exclusive mode').simple();
  const release = () => sql.end({ timeout: 0 });
  return { release, [Symbol.asyncDispose]: release };
}

async function schemaVersions(url: string): Promise<unknown[]> {
  const rows = await select(url, 'select version from notes_users_schema order by version');
  return rows.map(({ version }) => version);
}

// Records a schema version that only a newer service knows.
async function makeNewerSchema(url: string): Promise<void> {
  await execute(url, 'create table notes_users_schema (version integer, oldest_service integer)');
  await execute(url, 'create table users (id integer)');
  await execute(url, `insert into notes_users_schema values (${NEWER_VERSION}, ${NEWER_VERSION})`);
}

// Adds a migration, as a newer service does.
async function addMigration(url: string, version: number, oldestService: number): Promise<void> {
  await execute(url, `alter table users add column added_${version} text not null default ''`);
  const record = `(version, oldest_service) values (${version}, ${oldestService})`;
  await execute(url, `insert into notes_users_schema ${record}`);
}

// Polls until the program has all connections of its pool again, or the test times out.
async function untilWhole(program: Program, url: string, size: number): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    for (let count = 0; count < size; ) {
      await Promise.all(Array.from({ length: 8 }, () => send(`${program.url}/users/1`)));
      const [row] = await sql`
        select count(*)::int as count from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()`;
      count = row?.count;
    }
  } finally {
    await sql.end({ timeout: 5 });
  }
}

// Starts PgBouncer in front of the server of `url`. PgBouncer refuses to run as root.
async function startBouncer(url: string): Promise<{ url: string; stop(): Promise<void> }> {
  const { hostname, port, username, password, pathname } = new URL(url);
  const folder = mkdtempSync(join(tmpdir(), 'pgbouncer-'));
  const listen = await freePort();
  const users = join(folder, 'users.txt');
  const config = join(folder, 'pgbouncer.ini');
  writeFileSync(users, `"${username}" "${password}"\n`);
  writeFileSync(
    config,
    `[databases]
* = host=${hostname} port=${port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listen}
unix_socket_dir =
auth_type = plain
auth_file = ${users}
pool_mode = transaction
default_pool_size = 2
`,
  );
  const nobody = IS_ROOT ? { uid: 65534, gid: 65534 } : {};
  execFileSync('chmod', ['-R', 'a+rX', folder]);
  const child = spawn(PGBOUNCER ?? '', [config], {
    stdio: ['ignore', 'ignore', 'pipe'],
    ...nobody,
  });
  let log = '';
  child.stderr?.setEncoding('utf8');
  for await (const text of child.stderr?.iterator({ destroyOnReturn: false }) ?? []) {
    log += text;
    if (log.includes('process up')) break;
  }
  child.stderr?.resume();
  if (child.exitCode !== null) throw new Error(log);
  const stop = async () => {
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
    rmSync(folder, { recursive: true, force: true });
  };
  return { url: `postgres://${username}:${password}@127.0.0.1:${listen}${pathname}`, stop };
}

// Sends the same requests on each store. Returns everything that a client of /users can see.
async function transcript(store: StoreName): Promise<unknown[]> {
  await using program = await start({ DATABASE_URL: await newDatabase(store) });
  await ready(program);
  const seen: unknown[] = [];
  const tell = async (method: string, path: string, body?: unknown, headers = {}) => {
    const response = await send(program.url + path, { method, body, headers });
    const varying = ['date', 'x-request-id'];
    const kept = [...response.headers].filter(([name]) => !varying.includes(name));
    seen.push({ request: `${method} ${path}`, status: response.status, kept, body: response.body });
    return response;
  };
  const names = ['Ada', 'z', 'É', 'é', '😀'.repeat(100), '\u2028"\\/\b\u001f\u007f\ufeff', ' a '];
  await tell('GET', '/users');
  for (const [i, name] of names.entries()) {
    await tell('POST', '/users', { name, email: `${name.slice(-2).trim()}${i}@x` }, {});
  }
  const first = await tell('GET', '/users/1');
  const tag = first.headers.get('etag') ?? '';
  await tell('PATCH', '/users/1', {}, { 'if-match': tag });
  await tell('PATCH', '/users/1', { name: 'Zoë' }, { 'if-match': tag });
  await tell('PATCH', '/users/1', { name: 'Late' }, { 'if-match': tag });
  await tell('PUT', '/users/2', { name: 'Z', email: 'A@x' });
  await tell('PUT', '/users/2', { name: 'Z', email: 'A@x' });
  await tell('PUT', '/users/3', { name: 'Z', email: 'a@x' }, { 'if-none-match': '*' });
  await tell('DELETE', '/users/4', undefined, { 'if-match': '"x"' });
  await tell('DELETE', '/users/4');
  await tell('DELETE', '/users/4');
  for (const path of [
    ...[
      '/users',
      '/users?limit=2',
      '/users?limit=2&after=2',
      '/users?after=5',
      '/users?limit=1000',
    ],
    ...['/users?email=A@x', '/users?email=a@x', '/users?email=%F0%9F%98%804@x', '/users?limit=0'],
    ...['/users?after=9007199254740991', '/users?after=9007199254740992', '/users?email=x'],
    ...['/users/2', '/users/4', '/users/0', '/users/9007199254740991', '/users/9007199254740992'],
    ...['/users/9223372036854775807', '/users/x', '/users/1/', '/users//1', '/users/1?x'],
  ]) {
    await tell('GET', path);
    await tell('HEAD', path);
  }
  await tell('GET', '/users/1', undefined, { 'if-none-match': '*' });
  // Refused inserts come last, because they can use up ids.
  await tell('POST', '/users', { name: 'Eve', email: 'A@x' });
  await tell('PATCH', '/users/3', { email: 'A@x' });
  await tell('PUT', '/users/3', { name: 'Eve', email: 'A@x' });
  await tell('POST', '/users', { name: '', email: 'A' });
  await tell('POST', '/users', { name: 'a\0', email: '\ud800@x' });
  await tell('PUT', '/users/999', { name: 'Eve', email: 'eve@x' });
  await tell('OPTIONS', '/users');
  await tell('POST', '/users/1', {});
  return seen;
}
