// Rules 5.3 and 5.10 of the contract: which tables are the service's own, and what they accept. The tests
// prepare databases as other programs and administrators do.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import { newDatabase, newFolder, ROOT, STORES, start } from '../support/program.ts';
import {
  create,
  execute,
  list,
  madeDatabase,
  pathOf,
  ready,
  refusal,
  serve,
  transaction,
} from '../support/service.ts';
import { missing } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { FIELDS } from '../vectors/users.ts';

/** Names of the relations that don't belong to Postgres, with their schemas. */
async function relations(url: string): Promise<string[]> {
  const text = `select oid::regclass::text as name from pg_class
    where relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
      and relkind in ('r', 'v', 'm', 'S') order by 1`;
  const rows = await execute(url, text);
  return rows.map(({ name }) => String(name));
}

let roles = 0;

/** Creates a role that can log in. Returns its name, and its URL, which gives a busy machine a minute to connect. */
async function newRole(url: string, options = '', statement = '') {
  const role = `notes_${process.pid}_${++roles}`;
  await execute(url, `create role ${role} login password 'p' ${options}`);
  if (statement !== '') await execute(url, statement.replaceAll('ROLE', role));
  const { host, pathname } = new URL(url);
  return { role, DATABASE_URL: `postgres://${role}:p@${host}${pathname}?connect_timeout=60` };
}

const OWN_SCHEMA = 'create schema ROLE authorization ROLE';

// The tables of golang-migrate, and users without a record, as a restore of one table leaves them.
const OTHERS = `
  create table schema_migrations (version bigint primary key, dirty boolean not null);
  insert into schema_migrations values (1, false);
  create table users (id bigint primary key, name text, email text unique, version bigint);
  insert into users values (1, 'Customer', 'customer@x', 1)`;
const RECORD = /the table notes_users_schema has no rows: restore them too$/;

const RECORDS = 'create table notes_users_schema (version int, oldest_service int);';

const NOT_OURS = {
  sqlite: /service\.db: it has a \w+ \w+ that .*; nothing was changed: use another file$/,
  postgres: /^the schema public has a table users .*; nothing was changed: /,
};

for (const [store, why, sql, said = NOT_OURS[store]] of [
  ['sqlite', 'a table users', 'create table users (id integer primary key, name, email)'],
  ['sqlite', 'a view users', 'create view users as select 1 as id'],
  ['sqlite', 'tables in WAL mode', 'pragma journal_mode = wal; create table customers (id int)'],
  ['sqlite', 'a record without data', RECORDS, RECORD],
  ['postgres', 'tables of golang-migrate and users', OTHERS],
  ['postgres', 'a materialized view users', 'create materialized view users as select 1 as id'],
  ['postgres', 'a sequence users', 'create sequence users'],
  ['postgres', 'a record without data', `${RECORDS} create table users (id bigint)`, RECORD],
  [
    'postgres',
    'records in three schemas',
    `${RECORDS} create schema copy; create table copy.notes_users_schema ();
     create schema other; create table other.notes_users_schema ()`,
    /several schemas of the database: copy, other, public;/,
  ],
] as const) {
  test(`5.3 a database of another program with ${why} is refused, unchanged (${store})`, async () => {
    const url = await newDatabase(store);
    await execute(url, sql);
    const contents = () => (store === 'sqlite' ? readFileSync(pathOf(url)) : relations(url));
    const before = await contents();
    assert.match(await refusal(url), said);
    assert.deepEqual(await contents(), before);
  });
}

for (const [why, statement] of [
  ['without a schema', ''],
  ['with another search_path', 'alter role ROLE set search_path = public'],
  ['with a table users in its schema', `${OWN_SCHEMA}; create table ROLE.users (id bigint)`],
] as const) {
  test(`5.3 beside the tables of another program, the rotation to a second role ${why} keeps the users`, async () => {
    const url = await createDatabase();
    const first = await newRole(url, '', OWN_SCHEMA);
    await execute(url, OTHERS); // They are in another schema, so they are no obstacle.
    const before = await serve(first);
    const ada = await create(before);
    await before.stop();
    const second = await newRole(url, `in role ${first.role}`, statement);
    await execute(url, `alter role ${first.role} nologin`);
    await using program = await serve(second);
    assert.equal(await list(program), JSON.stringify([ada]));
    await create(program);
    assert.equal((await relations(url)).filter((name) => /schema$/.test(name)).length, 1);
  });
}

for (const [why, prepare, said, cure] of [
  // As after `drop schema public cascade; create schema public` and a restore.
  [
    'use the tables of another role',
    'revoke all on schema public from public',
    /^permission denied for schema public$/,
    `grant usage on schema public to ROLE; grant select on notes_users_schema to ROLE;
     grant select, insert, update, delete on users to ROLE`,
  ],
  ...['select', 'insert', 'update', 'delete'].map(
    (kind) =>
      [
        `${kind} users of another role`,
        `grant all on users, notes_users_schema to public; revoke ${kind} on users from public`,
        /^the table public\.users is missing, or the role may not select, insert, update and delete in it$/,
        'alter table users owner to ROLE',
      ] as const,
  ),
  [
    'see all rows',
    `grant all on users, notes_users_schema to public; alter table users enable row level security;
     alter table notes_users_schema enable row level security`,
    /^query would be affected by row-level security policy for table "notes_users_schema"$/,
    'alter role ROLE bypassrls',
  ],
  [
    'create tables',
    'drop table users, notes_users_schema; revoke create on schema public from public',
    /^a migration failed: permission denied for schema public$/,
    'grant create on schema public to ROLE',
  ],
  [
    'use any schema',
    'drop schema public cascade',
    /^the role has no schema for tables: create one in its search_path$/,
    `${OWN_SCHEMA}; alter role ROLE set search_path = ROLE`,
  ],
] as const) {
  test(`5.3 a role that may not ${why}: the log says so, and the service begins once it may`, async () => {
    const url = await madeDatabase('postgres');
    const { role, DATABASE_URL } = await newRole(url);
    await execute(url, prepare.replaceAll('ROLE', role));
    await using program = await start({ DATABASE_URL });
    const { cause } = await program.logged('store unavailable');
    assert.match(String(cause), said);
    await execute(url, cure.replaceAll('ROLE', role));
    assert.equal((await program.logged('store available')).level, 'info'); // 6.1
    await create(program);
  });
}

test('5.3 while another replica makes the tables in its schema, the service waits, whatever the limit and isolation of its role, and then uses them', async () => {
  const url = await createDatabase();
  const text = "select from pg_settings where name = 'transaction_timeout'"; // since Postgres 17
  const [setting] = await execute(url, text);
  const limit = setting ? '; alter role ROLE set transaction_timeout = 100' : '';
  const limits = `; alter role ROLE set statement_timeout = 100${limit};
    alter role ROLE set default_transaction_isolation = serializable`;
  const { role, DATABASE_URL } = await newRole(url, 'superuser', OWN_SCHEMA + limits);
  const tables = readFileSync(join(ROOT, 'db/postgres/0001_users.sql'), 'utf8');
  const record = 'insert into notes_users_schema values (1, 1)';
  const lock = 'select pg_advisory_xact_lock(7236128401)'; // as in src/store/schema.ts
  await using replica = await transaction(url, `${lock}; ${tables}; ${record}`);
  await using program = await start({ DATABASE_URL });
  const { cause } = await program.logged('store unavailable');
  assert.match(String(cause), /due to lock timeout$/);
  const waiting = () => replica.sql`
    select from pg_locks join pg_database d on d.oid = database
    where not granted and datname = current_database()`;
  await until(async () => (await waiting()).length > 0); // Then it gets the lock.
  await replica.sql.unsafe('commit');
  await ready(program);
  assert.ok((await relations(url)).includes('users'));
  assert.ok(!(await relations(url)).join().includes(role));
});

test('5.3 a database that is dropped and created again while the service runs gets its tables', async () => {
  const url = await createDatabase();
  await using program = await serve({ DATABASE_URL: url });
  await create(program);
  const database = new URL(url).pathname.slice(1);
  const server = new URL('/postgres', url).href;
  await execute(server, `drop database ${database} with (force)`);
  await execute(server, `create database ${database}`);
  await ready(program);
  assert.equal((await create(program)).id, 1);
});

test('5.3, 5.4 a restored dump gives no id again', { skip: missing('sqlite3') }, async () => {
  const url = await newDatabase('sqlite');
  const first = await start({ DATABASE_URL: url });
  const [ada, bob] = [await create(first), await create(first)];
  await send(`${first.url}/users/${bob.id}`, { method: 'DELETE' });
  await first.stop();
  const restored = join(newFolder(), 'restored.db');
  const dump = execFileSync('sqlite3', [pathOf(url), '.dump']);
  execFileSync('sqlite3', [restored], { input: dump });
  await using program = await start({ DATABASE_URL: `sqlite:${restored}` });
  assert.equal(await list(program), JSON.stringify([ada]));
  assert.equal((await create(program)).id, bob.id + 1);
});

for (const store of STORES) {
  test(`5.10 the schema rejects ids, versions and fields that the service would refuse, and no others (${store})`, async () => {
    const url = await newDatabase(store);
    await using program = await serve({ DATABASE_URL: url });
    const insert = (fields: object, i = 0, clause = 'overriding system value') => {
      const row = { id: i + 1, name: "'n'", email: `'${i}@b'`, version: 1, ...fields };
      const values = Object.values(row).join().replaceAll('\0', "' || char(0) || '");
      const kept = store === 'sqlite' ? '' : clause;
      return execute(url, `insert into users (${Object.keys(row)}) ${kept} values (${values})`);
    };
    const rowsOf = (kind: 'accepted' | 'refused') =>
      Object.entries(FIELDS).flatMap(([field, vectors]) =>
        Object.values(vectors[kind])
          .filter((value) => typeof value === 'string')
          // No encoding has lone surrogates, and Postgres has no U+0000.
          .filter((value) => value.isWellFormed() && (store === 'sqlite' || !value.includes('\0')))
          .map((value) => ({ [field]: `'${value.replaceAll("'", "''")}'` })),
      );
    const wrong = ['0', '-1', 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n];
    const numbers = wrong.flatMap((value) => [{ id: value }, { version: value }]);
    const nulls = [{ name: 'null' }, { email: 'null' }, { version: 'null' }];
    const blob = store === 'sqlite' ? [{ name: "x'41'" }] : [];
    for (const fields of [...numbers, ...nulls, ...blob, ...rowsOf('refused')]) {
      const what = String(Object.entries(fields));
      await assert.rejects(insert(fields), /check|out of range|null|blob/i, what);
    }
    const largest = { id: Number.MAX_SAFE_INTEGER, version: Number.MAX_SAFE_INTEGER };
    const accepted = [largest, ...rowsOf('accepted')];
    for (const [i, fields] of accepted.entries()) await insert(fields, i);
    await assert.rejects(insert(largest, accepted.length), /unique/i); // 5.4
    if (store === 'postgres') await assert.rejects(insert({}, 0, ''), /non-DEFAULT/); // 5.4
    const users: { email: string }[] = JSON.parse(await list(program));
    assert.equal(users.length, accepted.length);
    for (const { email } of users) {
      const found = await list(program, `?email=${encodeURIComponent(email)}`);
      assert.equal(JSON.parse(found).length, 1, email);
    }
  });
}
