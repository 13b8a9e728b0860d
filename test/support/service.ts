// What tests do with a running service and its database, as a client and as an administrator.
import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout } from 'node:timers/promises';
import postgres from 'postgres';
import { send } from './client.ts';
import { query } from './postgres-server.ts';
import { COMPLETE, newDatabase, PROGRAM, Program, type STORES, start } from './program.ts';
import { until } from './until.ts';

export interface User {
  readonly id: number;
  readonly name: string;
  readonly email: string;
}

/** Starts the program and waits until its store works. On Postgres it listens before that. */
export async function serve(env: Record<string, string> = {}, command = PROGRAM): Promise<Program> {
  const program = await start(env, command);
  await ready(program);
  return program;
}

export async function ready(program: Program): Promise<void> {
  await until(async () => (await send(`${program.adminUrl}/ready`)).status === 200);
}

/** Returns the URL of a database that a service has made and left. */
export async function madeDatabase(store: (typeof STORES)[number]): Promise<string> {
  const url = await newDatabase(store);
  await (await serve({ DATABASE_URL: url })).stop();
  return url;
}

/** Returns the one line on stderr of a program that exits with this status. */
export async function refusal(url: string, env: Record<string, string> = {}, code = 1) {
  await using program = new Program({ ...COMPLETE, DATABASE_URL: url, ...env });
  // It rejects when the program ends. One that serves instead is killed at the deadline.
  await program.until(() => false).catch(() => program.process.kill('SIGKILL'));
  const exit = await program.exited;
  const [line = '', ...more] = program.stderr.trimEnd().split('\n');
  assert.deepEqual([exit, more], [{ code, signal: null }, []], program.stdout + line);
  return line;
}

let emails = 0;

/** Returns an email that this process has not used before. */
export function newEmail(): string {
  return `user-${++emails}@users.example`;
}

export async function create({ url }: { url: string }, email = newEmail()): Promise<User> {
  const body = { name: 'Ada', email };
  const response = await send(`${url}/users`, { method: 'POST', body });
  assert.equal(response.status, 201, response.body);
  return JSON.parse(response.body);
}

export async function list(program: Program, query = ''): Promise<string> {
  const response = await send(`${program.url}/users${query}`);
  assert.equal(response.status, 200, response.body);
  return response.body;
}

/** Runs SQL; returns the rows of a single `select`. */
export async function execute(url: string, text: string): Promise<Record<string, unknown>[]> {
  if (url.startsWith('sqlite:')) {
    using db = new DatabaseSync(pathOf(url), { timeout: 5000 });
    if (text.startsWith('select')) return db.prepare(text).all();
    db.exec(text);
    return [];
  }
  return query(url, text);
}

/** Returns the sessions of the service in the database. */
export function sessions(url: string) {
  const text = `select query from pg_stat_activity
    where application_name = 'notes-users' and datname = current_database()`;
  return execute(url, text);
}

/** Resolves once the service has left the database, and its statistics are there: before Postgres 15 that takes longer. */
export async function untilLeft(url: string): Promise<void> {
  await until(async () => (await sessions(url)).length === 0);
  const [version] = await execute(url, 'show server_version_num');
  if (Number(version!.server_version_num) < 150_000) await setTimeout(1_500);
}

/** Inserts users 1 to `count` of an empty table. `name` is SQL, with the user's number `i`. */
export async function insertUsers(url: string, count: number, name = "'Many'"): Promise<void> {
  const text = `with recursive n (i) as (select 1 union all select i + 1 from n where i < ${count})
    insert into users (name, email) select ${name}, i || '@many.example' from n`;
  await execute(url, text);
}

/** Blocks writes of users, but not reads, until released. */
export async function lockWrites(url: string) {
  if (url.startsWith('sqlite:')) {
    const db = new DatabaseSync(pathOf(url), { timeout: 5000 });
    db.exec('begin immediate');
    const release = async () => void (db.isOpen && db.close());
    return { release, [Symbol.asyncDispose]: release };
  }
  return transaction(url, 'lock table users in exclusive mode');
}

/** Begins a transaction of Postgres with these statements, which ends when it is released. */
export async function transaction(url: string, text: string) {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  await sql.unsafe(`begin; ${text}`).simple();
  const release = () => sql.end({ timeout: 0 });
  return { sql, release, [Symbol.asyncDispose]: release };
}

export function pathOf(url: string): string {
  return url.slice('sqlite:'.length);
}
