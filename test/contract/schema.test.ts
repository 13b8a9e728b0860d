// Rules 5.3 and 5.10 of the contract: which tables are the service's own, and what they accept. The tests
// prepare databases as other programs and administrators do.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import postgres from 'postgres';
import { send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import {
  newDatabase,
  newFolder,
  Program,
  STORES,
  type StoreName,
  start,
} from '../support/program.ts';
import { until } from '../support/until.ts';

const TIMEOUT = { timeout: 300_000 };

describe('5.3 whose tables these are: Postgres', TIMEOUT, () => {
  // The tables of golang-migrate, and users without a record, as a restore of one table leaves them.
  const GOLANG_MIGRATE = `
    create table schema_migrations (version bigint primary key, dirty boolean not null);
    insert into schema_migrations values (1, false)`;
  const USERS = `
    create table users (id bigint primary key, name text, email text unique, version bigint);
    insert into users values (1, 'Customer', 'customer@x', 1)`;

  for (const { why, sql } of [
    { why: 'tables of golang-migrate and users', sql: `${GOLANG_MIGRATE}; ${USERS}` },
    { why: 'a table users', sql: USERS },
    { why: 'a view users', sql: "create view users as select 1 as id, 'A' as name" },
    { why: 'a materialized view users', sql: 'create materialized view users as select 1 as id' },
    { why: 'a sequence users', sql: 'create sequence users' },
  ]) {
    test(`5.3 ${why} of another program: the service exits and changes nothing`, async () => {
      const url = await createDatabase();
      await execute(url, sql);
      const before = await relations(url);
      const line = await refusal(url);
      assert.match(line, /^the schema public has a table users .*; nothing was changed\. /);
      assert.deepEqual(await relations(url), before);
    });
  }

  test('5.3 tables of another program with other names, or in another schema, are no obstacle', async () => {
    const url = await createDatabase();
    const role = await newRole(url);
    await execute(url, `create schema ${role} authorization ${role}`);
    await execute(url, `${GOLANG_MIGRATE}; ${USERS}`);
    await using program = await start({ DATABASE_URL: as(role, url) });
    await ready(program);
    assert.equal(await list(program), '[]');
    assert.equal((await program.logged('using schema')).schema, role);
  });

  for (const { why, prepare } of [
    { why: 'without a schema', prepare: () => '' },
    {
      why: 'with a schema of its own',
      prepare: (role: string) => `create schema ${role} authorization ${role}`,
    },
    {
      why: 'with another search_path',
      prepare: (role: string) => `alter role ${role} set search_path = public`,
    },
    {
      why: 'with a table users in a schema of its own',
      prepare: (role: string) =>
        `create schema ${role} authorization ${role}; create table ${role}.users (id bigint)`,
    },
  ]) {
    test(`5.3 the rotation to a second role ${why} keeps the users`, async () => {
      const url = await createDatabase();
      const first = await newRole(url);
      await execute(url, `create schema ${first} authorization ${first}`);
      const env = { DATABASE_URL: as(first, url) };
      let ada: string;
      {
        await using program = await start(env);
        await ready(program);
        ada = await create(program, 'ada@x');
      }
      const second = await newRole(url, `in role ${first}`);
      await execute(url, prepare(second));
      await execute(url, `alter role ${first} nologin`);
      await using program = await start({ DATABASE_URL: as(second, url) });
      await ready(program);
      assert.equal(await list(program), `[${ada}]`);
      assert.equal((await program.logged('using schema')).schema, first);
      await create(program, 'bob@x');
      assert.equal((await relations(url)).filter((name) => /schema$/.test(name)).length, 1);
    });
  }

  test('5.3 a schema whose name needs quotes is used', async () => {
    const url = await createDatabase();
    const role = await newRole(url);
    await execute(url, `create schema "My ""Note's" authorization ${role}`);
    await execute(url, `alter role ${role} set search_path = nowhere, "My ""Note's"`);
    const env = { DATABASE_URL: as(role, url) };
    {
      await using program = await start(env);
      await ready(program);
      await create(program, 'ada@x');
    }
    await execute(url, `alter role ${role} reset search_path`);
    await using program = await start(env);
    await ready(program);
    assert.match(await list(program), /ada@x/);
    assert.equal((await program.logged('using schema')).schema, `"My ""Note's"`);
  });

  for (const columns of ['x int', 'version int, oldest_service int']) {
    test(`5.3 a table of the record's name with (${columns}) is refused, and stays`, async () => {
      const url = await createDatabase();
      await execute(url, `create table notes_users_schema (${columns})`);
      const before = await relations(url);
      assert.match(
        await refusal(url),
        /public\.notes_users_schema is not a record of this service/,
      );
      assert.deepEqual(await relations(url), before);
    });
  }

  for (const copies of [['copy'], ['copy', 'other']]) {
    test(`5.3 with tables in ${copies.length + 1} schemas the service exits and names them`, async () => {
      const url = await createDatabase();
      await using program = await start({ DATABASE_URL: url });
      await ready(program);
      await program.stop();
      for (const schema of copies) {
        await execute(url, `create schema ${schema}`);
        await execute(url, `create table ${schema}.notes_users_schema (like notes_users_schema)`);
      }
      const before = await relations(url);
      const schemas = [...copies, 'public'].join(', ');
      assert.match(await refusal(url), new RegExp(`several schemas of the database: ${schemas};`));
      assert.deepEqual(await relations(url), before);
      for (const schema of copies) await execute(url, `drop schema ${schema} cascade`);
      await using again = await start({ DATABASE_URL: url });
      await ready(again);
    });
  }

  for (const { why, prepare, grant } of [
    {
      why: 'use the tables',
      prepare: async (url: string) => {
        await using program = await start({ DATABASE_URL: url });
        await ready(program);
        await execute(url, 'revoke all on schema public from public');
        return '';
      },
      grant: (role: string) => `grant postgres to ${role}`,
    },
    {
      why: 'create tables',
      prepare: async (url: string) => {
        await execute(url, 'revoke create on schema public from public');
        return '';
      },
      grant: (role: string) => `grant create on schema public to ${role}`,
    },
    {
      why: 'use any schema',
      prepare: (url: string) => execute(url, 'drop schema public'),
      grant: (role: string) => `create schema ${role} authorization ${role}`,
    },
  ]) {
    test(`5.3 a role that may not ${why}: the log says what to run, and running it is enough`, async () => {
      const url = await createDatabase();
      await prepare(url);
      const role = await newRole(url);
      await using program = await start({ DATABASE_URL: as(role, url) });
      const { cause } = await program.logged('store unavailable');
      const [, advice] = /; an administrator of Postgres can run: (.*)$/.exec(String(cause)) ?? [];
      assert.equal(advice, grant(role));
      await execute(url, advice!);
      await ready(program);
      await create(program, 'ada@x');
    });
  }

  test('5.3 ten programs of two roles start at once: one of them makes the tables', async () => {
    const url = await createDatabase();
    const roles = [await newRole(url, 'superuser'), await newRole(url, 'superuser')];
    for (const role of roles) await execute(url, `create schema ${role} authorization ${role}`);
    const programs = await Promise.all(
      Array.from({ length: 10 }, (_, i) => start({ DATABASE_URL: as(roles[i % 2]!, url) })),
    );
    try {
      await Promise.all(programs.map(ready));
      const user = await create(programs[0]!, 'ada@x');
      for (const program of programs) assert.equal(await list(program), `[${user}]`);
    } finally {
      await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
    }
  });

  test('5.3 while another replica makes the tables in its schema, the service waits and then uses them', async () => {
    const url = await createDatabase();
    const role = await newRole(url, 'superuser');
    await execute(url, `create schema ${role} authorization ${role}`);
    const tables = readFileSync(
      join(import.meta.dirname, '../../db/postgres/0001_users.sql'),
      'utf8',
    );
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    try {
      await sql.unsafe('begin; select pg_advisory_xact_lock(7236128401)'); // as in src/store/schema.ts
      await sql.unsafe(`${tables}; insert into notes_users_schema values (1, 1)`);
      await using program = await start({ DATABASE_URL: as(role, url) });
      await until(async () => {
        const waiting = await sql`select from pg_locks where locktype = 'advisory' and not granted`;
        return waiting.length > 0;
      });
      await sql.unsafe('commit');
      await ready(program);
      assert.equal((await program.logged('using schema')).schema, 'public');
      const names = await relations(url);
      assert.deepEqual(
        names.filter((name) => name.includes(role)),
        [],
      );
    } finally {
      await sql.end({ timeout: 5 });
    }
  });

  test('5.3 the log says that row-level security can hide users', async () => {
    const url = await createDatabase();
    const role = await newRole(url);
    await execute(url, `create schema ${role} authorization ${role}`);
    const env = { DATABASE_URL: as(role, url) };
    const SAYING = 'row-level security can hide users';
    {
      await using program = await start(env);
      await ready(program);
      await create(program, 'ada@x');
      assert.ok(!program.log.some(({ message }) => message === SAYING));
    }
    const table = `alter table ${role}.users`;
    await execute(url, `${table} enable row level security; ${table} force row level security`);
    await using program = await start(env);
    await program.logged(SAYING);
    await ready(program);
    assert.equal(await list(program), '[]');
    const said = program.log.filter(({ message }) => message === SAYING);
    assert.equal(said.length, 1);
  });
});

describe('5.3 whose tables these are: SQLite', TIMEOUT, () => {
  for (const { why, sql } of [
    { why: 'a table users', sql: 'create table users (id integer primary key, name, email)' },
    { why: 'another table', sql: 'create table customers (id integer primary key)' },
    { why: 'a view users', sql: 'create view users as select 1 as id' },
    {
      why: 'tables in WAL mode',
      sql: 'pragma journal_mode = wal; create table users (id integer)',
    },
    {
      why: 'a version of its own',
      sql: 'pragma user_version = 1; create table schema_migrations (version integer)',
    },
  ]) {
    test(`5.3 a file with ${why} of another program is refused, unchanged`, async () => {
      const url = await newDatabase('sqlite');
      await execute(url, sql);
      const before = readFileSync(fileOf(url));
      const line = await refusal(url);
      assert.match(
        line,
        /service\.db: it has a table \w+ that .*; nothing was changed: use another file$/,
      );
      assert.deepEqual(readFileSync(fileOf(url)), before);
    });
  }

  test('5.3 a dump restored into a new file has the users', {
    skip: !hasSqliteShell() && 'install sqlite3 to run this test',
  }, async () => {
    const url = await newDatabase('sqlite');
    let ada: string;
    {
      await using program = await start({ DATABASE_URL: url });
      ada = await create(program, 'ada@x');
      await create(program, 'bob@x');
      await send(`${program.url}/users/2`, { method: 'DELETE' });
      await program.stop();
    }
    const restored = join(newFolder(), 'restored.db');
    const dump = execFileSync('sqlite3', [fileOf(url), '.dump']);
    execFileSync('sqlite3', [restored], { input: dump });
    await using program = await start({ DATABASE_URL: `sqlite:${restored}` });
    assert.equal(await list(program), `[${ada}]`);
    assert.match(await create(program, 'cy@x'), /"id":3/); // 5.4
  });
});

const MAX_ID = 2 ** 53 - 1;

for (const store of STORES) {
  describe(`5.10 the schema defends its rules (${store})`, TIMEOUT, () => {
    const row = (fields: object) => ({ id: 1, name: "'n'", email: "'a@b'", version: 1, ...fields });
    const insert = ({ id, name, email, version }: ReturnType<typeof row>) =>
      `insert into users (id, name, email, version)
       ${store === 'sqlite' ? '' : 'overriding system value'}
       values (${id}, ${name}, ${email}, ${version})`;
    const text = (...codes: number[]) => {
      const character = store === 'sqlite' ? 'char' : 'chr';
      return codes.map((code) => `${character}(${code})`).join(' || ');
    };
    const around = (code: number) => `'a' || ${text(code)} || '@b'`;

    test('5.10 it rejects ids, versions and fields that the service would refuse', async () => {
      const url = await newDatabase(store);
      await (await serve(url)).stop();
      const refused = [
        ...['0', '-1', String(2n ** 53n), String(2n ** 53n + 1n), String(2n ** 63n - 1n)].flatMap(
          (value) => [{ id: value }, { version: value }],
        ),
        ...["''", `'${'x'.repeat(101)}'`].map((name) => ({ name })),
        ...["'a@'", "'@bb'", "'aaa'", "'a@b@c'", "'@'", "'a@@b'"].map((email) => ({ email })),
        { email: `'${'x'.repeat(99)}@b'` },
        // 4.11: the first and the last of each range, and the single ones
        ...[1, 9, 0x1f, 0x20, 0x7f, 0x85, 0x9f, 0xa0, 0x1680, 0x2000, 0x2005, 0x200a, 0x2028].map(
          (code) => ({ email: around(code) }),
        ),
        ...[0x2029, 0x202f, 0x205f, 0x3000].map((code) => ({ email: around(code) })),
        // Postgres has no U+0000.
        ...(store === 'sqlite' ? [{ name: `'a' || char(0)` }, { email: around(0) }] : []),
      ];
      for (const fields of refused) {
        const statement = insert(row(fields) as ReturnType<typeof row>);
        await assert.rejects(execute(url, statement), /check|CHECK|out of range/, statement);
      }
    });

    test('5.10 it accepts all that the service accepts', async () => {
      const url = await newDatabase(store);
      await (await serve(url)).stop();
      const fields = [
        { id: MAX_ID, version: MAX_ID },
        { name: `'${'😀'.repeat(100)}'` },
        { email: `'${'😀'.repeat(98)}@b'` },
        ...[0x21, 0x2d, 0x5b, 0x5c, 0x5d, 0x5e, 0x7e, 0xa1, 0x180e, 0x200b, 0x2027, 0xfeff].map(
          (code) => ({ email: around(code) }),
        ),
        { name: text(1) },
        { email: "'-]^@[-*?'" },
      ];
      for (const [i, each] of fields.entries()) {
        await execute(url, insert(row({ id: i + 1, email: `'${i}@b'`, ...each })));
      }
      await using program = await serve(url);
      const users: { email: string }[] = JSON.parse(await list(program));
      assert.equal(users.length, fields.length);
      for (const { email } of users) {
        const found = await send(`${program.url}/users?email=${encodeURIComponent(email)}`);
        assert.equal(found.status, 200, email);
        assert.equal(JSON.parse(found.body).length, 1, email);
      }
    });

    for (const { why, first, count } of [
      { why: 'one id', first: 2n ** 53n, count: 1 },
      { why: 'ids that JavaScript rounds', first: 2n ** 53n + 1n, count: 3 },
      { why: 'more ids than a page has', first: 2n ** 53n, count: 1200 },
      { why: 'the highest ids', first: 2n ** 63n - 600n, count: 600 },
    ]) {
      test(`5.10 without the checks, a list with ${why} above 2^53 ends with an error`, async () => {
        const url = await newDatabase(store);
        await using program = await serve(url);
        for (let i = 0; i < 3; i++) await create(program, `user${i}@x`);
        await importWithoutChecks(url, store, first, count);
        const all = await send(`${program.url}/users`).catch((err: Error) => err);
        if (!(all instanceof Error)) assert.equal(all.status, 500); // otherwise 4.14
        for (const query of ['limit=1000', 'limit=4', `after=${MAX_ID}`]) {
          const page = await send(`${program.url}/users?${query}`).catch((err: Error) => err);
          if (!(page instanceof Error)) assert.equal(page.status, 500, query);
        }
        const byEmail = await send(`${program.url}/users?email=import0@x`);
        assert.equal(byEmail.status, 500);
        // The others can still be read.
        assert.equal(JSON.parse((await send(`${program.url}/users?limit=2`)).body).length, 2);
        assert.equal((await send(`${program.url}/users/1`)).status, 200);
      });
    }
  });
}

/** Adds users with these ids although the schema refuses them. */
async function importWithoutChecks(
  url: string,
  store: StoreName,
  first: bigint,
  count: number,
): Promise<void> {
  const last = BigInt(count - 1);
  if (store === 'postgres') {
    await execute(url, 'alter table users drop constraint users_id_check');
    await execute(
      url,
      `insert into users (id, name, email) overriding system value
       select ${first} + i, 'n', 'import' || i || '@x' from generate_series(0, ${last}) i`,
    );
    return;
  }
  await execute(
    url,
    `pragma ignore_check_constraints = on;
     with recursive n (i) as (select 0 union all select i + 1 from n where i < ${last})
     insert into users (id, name, email) select ${first} + i, 'n', 'import' || i || '@x' from n`,
  );
}

/** Runs SQL as the administrator. */
async function execute(url: string, text: string): Promise<Record<string, unknown>[]> {
  if (url.startsWith('sqlite:')) {
    using db = new DatabaseSync(fileOf(url), { timeout: 5000 });
    db.exec(text);
    return [];
  }
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Names of the relations that don't belong to Postgres, with their schemas. */
async function relations(url: string): Promise<string[]> {
  const rows = await execute(
    url,
    `select oid::regclass::text as name from pg_class
     where relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
       and relkind in ('r', 'v', 'm', 'S') order by 1`,
  );
  return rows.map(({ name }) => String(name));
}

let roles = 0;

/** Creates a role that can log in. */
async function newRole(url: string, options = ''): Promise<string> {
  const role = `notes_${process.pid}_${++roles}`;
  await execute(url, `create role ${role} login password 'p' ${options}`);
  return role;
}

function as(role: string, url: string): string {
  const { host, pathname } = new URL(url);
  return `postgres://${role}:p@${host}${pathname}`;
}

function fileOf(url: string): string {
  return url.slice('sqlite:'.length);
}

/** Resolves with the last line of a program that exits with status 1. */
async function refusal(DATABASE_URL: string): Promise<string> {
  const program = new Program({ PORT: '0', HOST: '127.0.0.1', DATABASE_URL });
  await using _ = program;
  assert.deepEqual(await program.exited, { code: 1, signal: null });
  return program.stderr.trimEnd().split('\n').at(-1)!;
}

async function serve(DATABASE_URL: string): Promise<Program> {
  const program = await start({ DATABASE_URL });
  await ready(program);
  return program;
}

async function ready(program: Program): Promise<void> {
  await until(async () => (await send(`${program.adminUrl}/ready`)).status === 200);
}

async function create(program: Program, email: string): Promise<string> {
  const body = { name: 'Ada', email };
  const response = await send(`${program.url}/users`, { method: 'POST', body });
  assert.equal(response.status, 201, response.body);
  return response.body;
}

async function list(program: Program): Promise<string> {
  const response = await send(`${program.url}/users`);
  assert.equal(response.status, 200, response.body);
  return response.body;
}

function hasSqliteShell(): boolean {
  try {
    execFileSync('sqlite3', ['--version']);
    return true;
  } catch {
    return false;
  }
}
