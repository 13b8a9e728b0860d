// Rule 4.13 and section 5 of the contract: requests while a store fails, and the guarantees of both stores.
// The tests lock and damage the databases. Lost connections are in test/simulate, process.test.ts and test/faults.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { dirname, join } from 'node:path';
import { before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type HttpResponse, send, statusesOf } from '../support/client.ts';
import { Page } from '../support/metrics.ts';
import { createDatabase } from '../support/postgres.ts';
import {
  COMPLETE,
  fileOf,
  newDatabase,
  newFolder,
  Program,
  preloaded,
  SCHEMA_VERSION,
  STORES,
  start,
} from '../support/program.ts';
import {
  create,
  execute,
  list,
  lockWrites,
  madeDatabase,
  newEmail,
  pathOf,
  ready,
  refusal,
  serve,
} from '../support/service.ts';

const FAILED = [500, 'text/plain; charset=utf-8', 'Internal Server Error'];
const TIMEOUT_MS = 1_000;

/** A call of each kind. Users 1 and 2 exist. */
const CALLS: readonly (readonly [method: string, path: string, body?: object])[] = [
  ['GET', '/users'],
  ['GET', '/users?limit=1'],
  ['GET', '/users?email=a@b'],
  ['GET', '/users/1'],
  ['POST', '/users', { name: 'New', email: 'new@x' }],
  ['PUT', '/users/1', { name: 'B', email: 'b@x' }],
  ['PATCH', '/users/1', { name: 'C' }],
  ['DELETE', '/users/2'],
];

function sendAll(program: Program): Promise<HttpResponse[]> {
  const sent = CALLS.map(([method, path, body], i) => {
    const headers = { 'x-request-id': `call-${i}` };
    return send(program.url + path, { method, body, headers });
  });
  return Promise.all(sent);
}

function summary({ status, headers, body }: HttpResponse) {
  return [status, headers.get('content-type'), body];
}

/** The operations that failed with this type, with their numbers (7.3). */
async function failures({ adminUrl }: Program, type: string): Promise<string[]> {
  const page = await Page.of(adminUrl);
  return Object.entries(page.series('db_client_operation_duration_seconds_count'))
    .filter(([labels]) => labels.endsWith(`,error_type="${type}"`))
    .map(([labels, count]) => `${/operation_name="(\w+)"/.exec(labels)?.[1]} ${count}`)
    .sort();
}

for (const store of STORES) {
  describe(`4.13 the store fails (${store})`, () => {
    let url: string;
    let program: Program;
    before(async () => {
      url = await newDatabase(store);
      program = await serve({
        DATABASE_URL: url,
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
        DATABASE_POOL_SIZE: '8', // more connections than one test has waiting writes
      });
      for (const email of ['a@b', 'second@x']) await create(program, email);
    });
    test('2.9, 4.13, 7.1, 7.2, 7.3 each call returns 500 while its statement fails, with one line in the log, /ready says why, and then works', async () => {
      await execute(url, 'alter table users rename to users_away');
      const responses = await sendAll(program);
      const { status, body } = await send(`${program.adminUrl}/ready`);
      const why = { sqlite: 'no such table: users', postgres: 'relation "users" does not exist' };
      assert.deepEqual([status, body], [503, `not ready: store unavailable: ${why[store]}\n`]);
      assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
      assert.deepEqual(await failures(program, 'unavailable'), [
        ...['create 1', 'delete 1', 'find 1', 'findByEmail 1', 'list 2', 'ping 1', 'update 2'],
      ]);
      await execute(url, 'alter table users_away rename to users');
      assert.deepEqual(responses.map(summary), Array(CALLS.length).fill(FAILED));
      const errors = program.log.filter(({ message }) => message === 'request failed');
      const ids = CALLS.map((_, i) => `call-${i}`);
      assert.deepEqual(errors.map(({ requestId }) => requestId).sort(), ids);
      for (const { cause } of errors) assert.match(String(cause), /users/);
      await ready(program);
      const statuses = statusesOf(await sendAll(program));
      assert.deepEqual(statuses, [200, 200, 200, 200, 201, 200, 200, 200]);
    });

    test('1 DATABASE_TIMEOUT_MS: writes that wait for a lock return 500 in time and are not done later, and reads work (4.13)', async () => {
      const user = await create(program);
      const path = `${program.url}/users/${user.id}`;
      const email = newEmail();
      await using lock = await lockWrites(url);
      let ended = 0;
      const writes = [
        { method: 'POST', url: `${program.url}/users`, body: { name: 'Late', email } },
        { method: 'PUT', url: path, body: { name: 'Late', email: newEmail() } },
        { method: 'PATCH', url: path, body: { name: 'Late' } },
        { method: 'DELETE', url: path },
      ].map(async ({ url, ...init }) => {
        const began = performance.now();
        assert.deepEqual(summary(await send(url, init)), FAILED);
        ended++;
        const ms = performance.now() - began;
        assert.ok(ms < TIMEOUT_MS + 1000, `${ms} ms`);
      });
      // All at once: on a slow machine one after the other could take as long as the writes may.
      const reads = [program.url, `${program.url}/users?limit=1`, path].map((url) => send(url));
      assert.deepEqual(statusesOf(await Promise.all(reads)), [200, 200, 200]);
      assert.equal(ended, 0, 'reads wait for no write');
      await Promise.all(writes);
      assert.notDeepEqual(await failures(program, 'timeout'), []);
      // Another write takes DATABASE_TIMEOUT_MS. By then the first are done or dropped.
      const body = { name: 'Late', email: newEmail() };
      assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 500);
      await lock.release();
      // These come after everything that can still wait in the service or in the database.
      for (let i = 0; i < 2; i++) await create(program);
      assert.equal((await send(path)).body, JSON.stringify(user));
      assert.equal(await list(program, `?email=${email}`), '[]');
    });
  });

  describe(`5 promises of both stores (${store})`, () => {
    test('5.3 ten programs start at once on an empty database and share their users', async () => {
      const env = { DATABASE_URL: await newDatabase(store) };
      await using stack = new AsyncDisposableStack();
      const programs = await Promise.all(Array.from({ length: 10 }, () => start(env)));
      for (const program of programs) stack.use(program);
      await Promise.all(programs.map(ready));
      const users = await Array.fromAsync(programs, (program) => create(program));
      for (const program of programs) assert.equal(await list(program), JSON.stringify(users));
    });

    test('5.3 a newer database that does not allow this service is refused', async () => {
      const url = await madeDatabase(store);
      const newer = SCHEMA_VERSION + 2;
      const record = `(version, oldest_service) values (${newer}, ${newer - 1})`;
      await execute(url, `insert into notes_users_schema ${record}`);
      const versions = `${newer} and needs .* version ${newer - 1} or later; this service knows ${newer - 2}:`;
      assert.match(await refusal(url), new RegExp(`schema version ${versions}`));
    });

    test('5.3 a database with a record but without its table users gets no new one', async () => {
      const url = await madeDatabase(store);
      await execute(url, 'drop table users');
      if (store === 'sqlite') {
        assert.match(await refusal(url), /service\.db: no such table: users /);
        return;
      }
      await using program = await start({ DATABASE_URL: url });
      const { cause } = await program.logged('store unavailable');
      assert.match(String(cause), /^the table public\.users is missing, or /);
    });
  });
}

test('5.1 a database with another encoding than UTF8 is refused', async () => {
  const options = `encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0`;
  const line = await refusal(await createDatabase(undefined, options));
  assert.match(line, /encoding LATIN1; this service needs UTF8/);
});

const NOBODY = 65534;
// The program drops root before it starts.
const BE_NOBODY = `process.setgid(${NOBODY}); process.setuid(${NOBODY})`;
const AS_NOBODY = preloaded(BE_NOBODY);
const NO_ROOT =
  (process.getuid?.() !== 0 || process.platform !== 'linux') &&
  'needs root, to become another user and to mount disks';
const FILES = ['', '-wal', '-shm'];

for (const { why, umask, mode } of [
  { why: 'are created 0660 with the umask 000, in a new folder', umask: 0o000 },
  { why: 'are created 0660 with the umask 077, in a new folder', umask: 0o077 },
  { why: 'keep the mode of an existing file', umask: 0o000, mode: 0o600 },
]) {
  test(`5.2 its files ${why}`, async () => {
    const folder = newFolder();
    const path = join(folder, mode === undefined ? 'a/b/service.db' : 'service.db');
    if (mode !== undefined) fs.writeFileSync(path, '', { mode });
    const before = process.umask(umask); // The program inherits it.
    const starting = start({ DATABASE_URL: `sqlite:${path}` });
    process.umask(before);
    await using program = await starting;
    await create(program);
    const modes = FILES.map((end) => fs.statSync(path + end).mode & 0o777);
    assert.deepEqual(modes, Array(3).fill(mode ?? 0o660));
  });
}

test('5.2 a lock of another process does not delay the start on a migrated file', async () => {
  const url = await madeDatabase('sqlite');
  await using _lock = await lockWrites(url);
  await using program = await start({ DATABASE_URL: url });
  assert.equal(await list(program), '[]');
});

describe('5.2 rights and read-only disks', { skip: NO_ROOT }, () => {
  test('5.2 a folder that may not be created is named, with a fix', async () => {
    const [parent, ours] = [newFolder(), newFolder()];
    const folder = join(parent, 'data/sub');
    const [file, link] = [join(folder, 'service.db'), join(ours, 'link.db')];
    fs.chownSync(ours, NOBODY, NOBODY);
    fs.symlinkSync(file, link);
    const env = preloaded(`process.chdir('${parent}'); ${BE_NOBODY}`);
    for (const [fault, fix] of [
      [`uid ${NOBODY} may not search ${parent}`, `chmod a+x ${parent}`],
      ['create it', `mkdir -p ${folder} && chown ${NOBODY}:${NOBODY} ${folder}`],
    ] as const) {
      for (const path of [file, link, 'data/sub/service.db']) {
        const line = await refusal(`sqlite:${path}`, env);
        assert.ok(line.endsWith(`; ${fault}: ${fix}`), line);
      }
      execFileSync('sh', ['-c', fix]);
    }
    await using _fixed = await start({ DATABASE_URL: `sqlite:${link}`, ...env });
  });

  for (const [end, owner, mode] of [
    ['', 0, 0o644],
    ['-wal', 0, 0o600],
    ['/', 0, 0o755],
    ['-wal', NOBODY, 0o040],
    ['-shm', NOBODY, 0o400],
    ['/', NOBODY, 0o300],
    ['/', NOBODY, 0o500],
    ['/', NOBODY, 0o600],
  ] as const) {
    test(`5.2 service.db${end} of user ${owner} with mode ${mode.toString(8)} is named, with a fix`, async () => {
      const [folder, other] = [newFolder(), newFolder()];
      for (const place of [folder, other]) fs.chownSync(place, NOBODY, NOBODY);
      const link = join(other, 'link.db');
      fs.symlinkSync(`${folder}/service.db`, link);
      // The owner's own files are behind a link.
      const url = `sqlite:${owner === 0 ? `${folder}/service.db` : link}`;
      const env = { ...COMPLETE, DATABASE_URL: url, ...AS_NOBODY };
      const killed = new Program(env);
      await killed.logged('listening');
      await killed.stop('SIGKILL'); // Otherwise SQLite would remove -wal and -shm.
      const place = end === '/' ? folder : `${folder}/service.db${end}`;
      fs.chownSync(place, owner, owner);
      fs.chmodSync(place, mode);
      const line = await refusal(url, AS_NOBODY);
      const fix = owner === 0 ? `chown ${NOBODY}:${NOBODY} ${place}` : `chmod u+rwX ${place}`;
      assert.ok(line.endsWith(`; ${place} is not accessible to uid ${NOBODY}: ${fix}`), line);
      execFileSync('sh', ['-c', fix]);
      await using fixed = new Program(env);
      await fixed.logged('listening');
    });
  }

  test('5.2 a read-only file system is named', async () => {
    const folder = newFolder();
    const url = `sqlite:${folder}/service.db`;
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', folder]);
    try {
      await (await start({ DATABASE_URL: url })).stop();
      execFileSync('mount', ['-o', 'remount,ro', folder]);
      assert.match(await refusal(url), RegExp(`: read-only file system, .*${folder}`));
    } finally {
      execFileSync('umount', ['--lazy', folder]);
    }
  });
});

test('5.2, 6.4 what is not a folder, a regular file or a database is named', async () => {
  const text = fileOf('This is a letter, not a database.'.repeat(100));
  assert.ok((await refusal(`sqlite:${text}/service.db`)).endsWith(`: ${text} is not a folder`));
  const said = `${text}: file is not a database (SQLite result code 26)`;
  assert.ok((await refusal(`sqlite:${text}`)).endsWith(said));
  for (const end of FILES) {
    const url = await newDatabase('sqlite');
    fs.mkdirSync(pathOf(url) + end);
    assert.ok((await refusal(url)).endsWith(`: ${pathOf(url)}${end} is not a regular file`));
  }
});

for (const end of FILES) {
  test(`5.2 7.2 if service.db${end} is removed or replaced, writes and /ready fail with that reason`, async () => {
    const url = await newDatabase('sqlite');
    const path = pathOf(url) + end;
    await using program = await serve({ DATABASE_URL: url });
    await pause(1_100); // The service looks at the files if their folder has changed within a second, or since.
    const { id } = await create(program);
    const fails = async () => {
      const init = { method: 'POST', body: { name: 'Lost', email: newEmail() } };
      assert.deepEqual(summary(await send(`${program.url}/users`, init)), FAILED);
      const { status, body } = await send(`${program.adminUrl}/ready`);
      const said = `not ready: store unavailable: ${path} was removed or replaced while in use:`;
      assert.deepEqual([status, body.slice(0, said.length)], [503, said]);
      assert.equal((await send(`${program.url}/users/${id}`)).status, 200);
    };
    fs.renameSync(path, `${path}.away`);
    await fails();
    fs.renameSync(`${path}.away`, path);
    await create(program);
    await ready(program);
    fs.copyFileSync(path, `${path}.new`);
    fs.renameSync(`${path}.new`, path);
    await fails();
  });
}

for (const why of ['missing', 'empty', 'missing behind links']) {
  test(`5.2 a start while the file is ${why} keeps the commits of its log`, async () => {
    const url = await newDatabase('sqlite');
    let path = pathOf(url);
    if (why === 'missing behind links') {
      const folder = dirname(path);
      fs.mkdirSync(`${folder}/a/b`, { recursive: true });
      fs.symlinkSync('a/b', `${folder}/link`);
      fs.symlinkSync('link/../second.db', path); // below `a`
      path = `${folder}/third.db`;
      fs.symlinkSync(path, `${folder}/a/second.db`);
    }
    const killed = await start({ DATABASE_URL: url });
    const user = await create(killed);
    await killed.stop('SIGKILL');
    fs.renameSync(path, `${path}.away`);
    if (why === 'empty') fs.writeFileSync(path, '');
    const said = `${path} is missing or empty, but ${path}-wal has its last commits: put it back; or remove the log, then restore a backup or start without users`;
    assert.ok((await refusal(url)).endsWith(`: ${said}`));
    fs.renameSync(`${path}.away`, path);
    await using program = await start({ DATABASE_URL: url });
    assert.equal(await list(program), JSON.stringify([user]));
  });
}
