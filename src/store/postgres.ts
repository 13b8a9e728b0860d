// Users in Postgres (14 and later). A batch is one statement, so it needs no transaction block, and the
// unique index rejects duplicates. The conditions of If-Match and If-None-Match are part of a write, so no
// read precedes it. All replicas create users in the order of their emails, so creates can't deadlock.
// Updates can, because they lock by id and by email. The server then rolls one back after its
// deadlock_timeout, and it runs again.
import { readFileSync } from 'node:fs';
import {
  ALWAYS,
  type Condition,
  EmailTaken,
  type NewUser,
  type Page,
  StoreUnavailable,
  type User,
  type UserChange,
  type Versions,
  type WriteResult,
} from '../user.ts';
import {
  distinctKeys,
  type FailedOutcome,
  NOT_DONE,
  Queue,
  type QueueOptions,
  samePage,
} from './batch.ts';
import type { Store, StoreOptions } from './index.ts';
import { Pool } from './pool.ts';
import { NotReplicated, type Session } from './session.ts';
import type { PostgresDatabase } from './url.ts';

/** Runs the calls of one operation. */
type Statement<Item, Result> = QueueOptions<Session, Item, Result>['statement'];

export function openPostgres(database: PostgresDatabase, options: StoreOptions): Store {
  const { sslRootCert } = database;
  const authorities = sslRootCert === undefined ? undefined : readFileSync(sslRootCert, 'utf8');
  const pool = new Pool({ ...options, database, authorities });

  /** Returns a function that queues a call. */
  function batched<Item, Result>(
    statement: Statement<Item, Result>,
    rules: Pick<QueueOptions<Session, Item, Result>, 'newBatch' | 'takesTurns' | 'writes'> = {},
  ) {
    const { schedule } = pool;
    return new Queue({ ...options, ...rules, statement, outcomeAfter, schedule }).call;
  }

  const update = batched(updateUsers, {
    newBatch: distinctKeys(({ id, email }) => (email === undefined ? [id] : [id, email])),
    writes: true,
  });
  const remove = batched(deleteUsers, { newBatch: distinctKeys(({ id }) => [id]), writes: true });
  /** Checks that users can be read, and that the server reports no fault that stops writes (7.2). */
  const ping = batched<undefined, undefined>(async (session, calls) => {
    const [state] = await session.query<{ isReadOnly: boolean; isStuck: boolean }>(PING, []);
    if (state!.isStuck) throw new NotReplicated('a commit waits for a synchronous standby');
    // This error replaces the connection, so the pool looks for another host before a write fails.
    if (state!.isReadOnly && database.sessionAttributes === 'read-write') {
      throw new StoreUnavailable('the server is read-only');
    }
    return calls;
  });
  return {
    create: batched(createUsers, { newBatch: distinctKeys(({ email }) => [email]), writes: true }),
    find: batched(find),
    findByEmail: batched(findByEmail),
    list: batched(list, { newBatch: samePage, takesTurns: true }),
    update: (id, change, condition, caller) => update({ id, ...change, condition }, caller),
    delete: (id, condition, caller) => remove({ id, condition }, caller),
    get connections() {
      return pool.connections;
    },
    async ping() {
      const { used, idle } = pool.connections;
      if (used + idle === 0) throw new StoreUnavailable('no connection to the database');
      await ping(undefined);
    },
    close: (graceMs) => pool.close(graceMs),
  };
}

// Under synchronous replication a session that commits waits for the standby, even after its client
// has gone. After a wait of 2 seconds we assume that no standby confirms.
const PING = `
  select count(*),
    current_setting('transaction_read_only')::bool as "isReadOnly",
    exists (
      select from pg_stat_activity
      where wait_event = 'SyncRep' and usename = current_user
        and query_start < clock_timestamp() - interval '2 s'
    ) as "isStuck"
  from (select from users limit 1) u`;

const FIND = 'select id, name, email, version from users where id = any($1::bigint[])';
const FIND_ONE = 'select id, name, email, version from users where id = $1';
const FIND_BY_EMAIL = 'select id, name, email, version from users where email = any($1::text[])';
const LIST = 'select id, name, email, version from users where id > $1 order by id limit $2';

/**
 * Condition of every write. Division by zero rejects a write that arrives past its deadline: it may
 * have waited in the server's socket, where closing the connection does not cancel it. An empty
 * result would be ambiguous. The first parameter is the deadline in seconds of the server's clock.
 */
const BEFORE_DEADLINE = '1 / (statement_timestamp() < to_timestamp($1::float8))::int = 1'; // 4.13

const find: Statement<number, User | undefined> = async (session, ids) => {
  if (ids.length === 1) return await session.query<User>(FIND_ONE, [String(ids[0])]);
  const rows = await session.query<User>(FIND, [array(ids)]);
  const users = new Map(rows.map((row) => [row.id, row]));
  return ids.map((id) => users.get(id));
};

const findByEmail: Statement<string, User | undefined> = async (session, emails) => {
  const rows = await session.query<User>(FIND_BY_EMAIL, [array(emails)]);
  const users = new Map(rows.map((row) => [row.email, row]));
  return emails.map((email) => users.get(email));
};

/** Lists one page, which all calls asked for. */
const list: Statement<Page, readonly User[]> = async (session, pages) => {
  const { after, limit } = pages[0]!;
  const users = await session.query<User>(LIST, [String(after), String(limit)]);
  return pages.map(() => users);
};

// Users whose email is taken are not returned.
const CREATED = 'on conflict (email) do nothing returning id, name, email, version';
const CREATE = `
  insert into users (name, email)
  select name, email from unnest($2::text[], $3::text[]) as new (name, email)
  where ${BEFORE_DEADLINE} order by email collate "C" ${CREATED}`;
// Costs Postgres 18 % less than CREATE with one user.
const CREATE_ONE = `
  insert into users (name, email)
  select ($2::text[])[1], ($3::text[])[1] where ${BEFORE_DEADLINE} ${CREATED}`;

/** Creates users. No two have an email in common. */
const createUsers: Statement<NewUser, User> = async (session, users, expires) => {
  const rows = await session.query<User>(users.length === 1 ? CREATE_ONE : CREATE, [
    String(session.serverSeconds(expires)),
    array(users.map(({ name }) => name)),
    array(users.map(({ email }) => email)),
  ]);
  const created = new Map(rows.map((row) => [row.email, row]));
  return users.map(({ email }) => created.get(email) ?? new EmailTaken());
};

/** One conditional update or delete. */
export interface Target extends UserChange {
  readonly id: number;
  readonly condition: Condition;
}

type TargetResult = WriteResult | EmailTaken | typeof NOT_DONE;

/** A written user. With a `refusal`, the id of a user that was not written; the rest is null. */
type Row = User & { readonly refusal?: 'stale' | 'taken' | 'raced' | null };

// 4.16: the version grows only if a field changes.
const SET_FIELDS = `
  name = coalesce(i.name, u.name),
  email = coalesce(i.email, u.email),
  version = case
    when (coalesce(i.name, u.name), coalesce(i.email, u.email)) = (u.name, u.email) then u.version
    else u.version + 1
  end`;
const RETURNED = 'returning u.id, u.name, u.email, u.version';

// 4.8: one_of and none_of are texts of versionList().
const MATCHES = `
  ((one_of = '*' or position(',' || u.version || ',' in one_of) > 0)
  and none_of <> '*' and position(',' || u.version || ',' in none_of) = 0)`;
// Adds the targets that exist and were not written, each with the reason. 'raced': the target
// qualified in the snapshot, but another session updated or deleted the user before this statement
// locked it. The call runs again, with a new snapshot.
const WITH_REFUSED = `
  select id, name, email, version, null as refusal from written
  union all
  select u.id, null, null, null,
    case when not ${MATCHES} then 'stale' when is_taken then 'taken' else 'raced' end
  from input i join users u on u.id = i.id
  where i.id not in (select id from written)`;

/** SQL of a write. Its parameters are the deadline, the ids, the conditions and the fields. */
interface WriteSql {
  /** Checks conditions and taken emails. */
  readonly full: string;
  /** Checks neither. A user that isn't returned does not exist. */
  readonly simple: string;
  /** The same for one target. Costs Postgres a fifth less than `simple`. */
  readonly single: string;
}

const UPDATE: WriteSql = {
  full: `
    with input as (
      select *, exists (
        select from users o where o.email = new.email and o.id <> new.id
      ) as is_taken
      from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
        as new (id, one_of, none_of, name, email)
      where ${BEFORE_DEADLINE} order by id
    ), written as (
      update users u set ${SET_FIELDS} from input i
      where u.id = i.id and not is_taken and ${MATCHES} ${RETURNED}
    ) ${WITH_REFUSED}`,
  simple: `
    update users u set ${SET_FIELDS} from (
      select * from unnest($2::bigint[], $3::text[], $4::text[]) as new (id, name, email)
      where ${BEFORE_DEADLINE} order by id
    ) i where u.id = i.id ${RETURNED}`,
  single: `
    update users u set ${SET_FIELDS} from (
      select ($2::bigint[])[1] as id, ($3::text[])[1] as name, ($4::text[])[1] as email
      where ${BEFORE_DEADLINE}
    ) i where u.id = i.id ${RETURNED}`,
};

const DELETE: WriteSql = {
  full: `
    with input as (
      select *, false as is_taken
      from unnest($2::bigint[], $3::text[], $4::text[]) as new (id, one_of, none_of)
      where ${BEFORE_DEADLINE} order by id
    ), written as (
      delete from users u using input i where u.id = i.id and ${MATCHES} ${RETURNED}
    ) ${WITH_REFUSED}`,
  simple: `
    delete from users u using (
      select id from unnest($2::bigint[]) as new (id) where ${BEFORE_DEADLINE} order by id
    ) i where u.id = i.id ${RETURNED}`,
  single: `
    delete from users u where u.id = ($2::bigint[])[1] and ${BEFORE_DEADLINE} ${RETURNED}`,
};

/** Updates users. No two targets have an id or a new email in common. */
export const updateUsers: Statement<Target, WriteResult> = async (session, targets, expires) => {
  const fields = [array(targets.map(({ name }) => name)), array(targets.map(({ email }) => email))];
  try {
    return await write(session, UPDATE, targets, expires, fields);
  } catch (err) {
    // Another session took the email after this statement's snapshot. The error does not tell whose
    // email: several targets run again in halves, with new snapshots that show it.
    if (targets.length > 1 || (err as { code?: string }).code !== UNIQUE_VIOLATION) throw err;
    return [new EmailTaken()];
  }
};

/** Deletes users. No two targets have an id in common. */
const deleteUsers: Statement<Target, WriteResult> = (session, targets, expires) =>
  write(session, DELETE, targets, expires, []);

async function write(
  session: Session,
  { full, simple, single }: WriteSql,
  targets: readonly Target[],
  expires: number,
  fields: readonly string[],
): Promise<TargetResult[]> {
  // A single target has no others to roll back.
  const canCollide = targets.length > 1 && targets.some(({ email }) => email !== undefined);
  const isFull = canCollide || targets.some(({ condition }) => condition !== ALWAYS);
  const lists = (key: keyof Condition) =>
    array(targets.map(({ condition }) => versionList(condition[key])));
  const unconditional = targets.length === 1 ? single : simple;
  const rows = await session.query<Row>(isFull ? full : unconditional, [
    String(session.serverSeconds(expires)),
    array(targets.map(({ id }) => id)),
    ...(isFull ? [lists('oneOf'), lists('noneOf')] : []),
    ...fields,
  ]);
  const results = new Map(rows.map((row) => [row.id, row]));
  return targets.map(({ id }) => toResult(results.get(id)));
}

function toResult(row: Row | undefined): TargetResult {
  if (row === undefined) return undefined;
  if (row.refusal === 'stale') return 'stale';
  if (row.refusal === 'taken') return new EmailTaken();
  if (row.refusal === 'raced') return NOT_DONE;
  return { id: row.id, name: row.name, email: row.email, version: row.version };
}

/** SQLSTATE (PostgreSQL manual, appendix A). */
const UNIQUE_VIOLATION = '23505';

/** By SQLSTATE. After any other ERROR the server has rolled the statement back. */
const OUTCOMES: ReadonlyMap<string, FailedOutcome> = new Map([
  ['22012', 'not started'], // division_by_zero, of BEFORE_DEADLINE
  ['40P01', 'conflict'], // deadlock_detected (5.6)
  ['40001', 'conflict'], // serialization_failure, if the database's default isolation is stricter (5.6)
  // The connection must be replaced:
  ['25006', 'unknown'], // read_only_sql_transaction: the server has become read-only
  ['57014', 'unknown'], // query_canceled
]);

/** Returns the outcome of a statement that failed. Without an ERROR from the server it is unknown. */
function outcomeAfter(err: unknown): FailedOutcome {
  const { code, severity } = err as { code?: unknown; severity?: string };
  if (severity !== 'ERROR' || typeof code !== 'string') return 'unknown';
  return OUTCOMES.get(code) ?? 'rolled back';
}

/** Returns an array literal (PostgreSQL manual, section 8.15.2). */
function array(values: readonly (string | number | undefined)[]): string {
  const elements = values.map((value) => {
    if (value === undefined) return 'null';
    return typeof value === 'number' ? value : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${elements.join(',')}}`;
}

/** Returns the versions between commas, so that a statement can search for one; `*` for any. */
function versionList(versions: Versions): string {
  return versions === 'any' ? '*' : `,${versions.join(',')},`;
}
