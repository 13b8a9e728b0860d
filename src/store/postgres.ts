// Users in Postgres (14 and later). A write is one statement, so it needs no transaction block, and
// the unique index decides about duplicates. Creates take their emails in one order, so replicas do
// not wait for each other in a circle. Changes have two orders, of ids and of emails: where they meet
// in a circle the server ends one after its deadlock_timeout, and that one is run again.
import { readFileSync } from 'node:fs';
import type { Sql } from 'postgres';
import {
  ALWAYS,
  type Changed,
  type Condition,
  EmailTaken,
  type NewUser,
  type Page,
  StoreUnavailable,
  type User,
  type UserChange,
  type Versions,
} from '../user.ts';
import { Batch, type Kind } from './batch.ts';
import type { Session } from './connection.ts';
import type { Store, StoreOptions } from './index.ts';
import { migrations, missing } from './migrate.ts';
import { Pool } from './pool.ts';
import type { PostgresDatabase } from './url.ts';

const FIND = 'select id, name, email, version from users where id = any($1::bigint[])';

const FIND_BY_EMAIL = 'select id, name, email, version from users where email = any($1::text[])';

const LIST = 'select id, name, email, version from users where id > $1 order by id limit $2';

// A write that reaches the server after its time is over fails by a division by zero: it may have
// waited in the server's socket, where cutting the connection does not take it back. An empty result
// would have another meaning. The first parameter is the time, in seconds of the server's clock.
const IN_TIME = '1 / (statement_timestamp() < to_timestamp($1::float8))::int = 1';

// A row that does not come back had a taken email.
const CREATE = `
  insert into users (name, email)
  select name, email from unnest($2::text[], $3::text[]) as new (name, email)
  where ${IN_TIME} order by email collate "C"
  on conflict (email) do nothing
  returning id, name, email, version`;

const SET_FIELDS = `
  name = coalesce(i.name, u.name),
  email = coalesce(i.email, u.email),
  version = case
    when (coalesce(i.name, u.name), coalesce(i.email, u.email)) = (u.name, u.email) then u.version
    else u.version + 1
  end`;
const COLUMNS = 'u.id, u.name, u.email, u.version';

// Conditions are texts: the versions between commas, or * for any.
const IS_MET = `
  (one_of = '*' or position(',' || u.version || ',' in one_of) > 0)
  and none_of <> '*' and position(',' || u.version || ',' in none_of) = 0`;
// After the users that were changed, those that stayed as they were when the statement began. One
// that met the condition then was changed or removed by another meanwhile.
const WITH_UNCHANGED = `
  select id, name, email, version, false as "isMet" from changed
  union all
  select u.id, null, null, u.version, ${IS_MET} from users u join input i on i.id = u.id
  where not exists (select from changed c where c.id = u.id)`;

/** How users are changed or removed. */
interface Write {
  /** Parameters: the time, the ids, the two lists of the conditions, the fields. */
  readonly conditional: string;
  /** The same without conditions, where a user that does not come back is not there. */
  readonly unconditional: string;
  readonly fields: (targets: readonly Target[]) => readonly string[];
}

const CHANGE: Write = {
  conditional: `
    with input as (
      select * from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
        as new (id, one_of, none_of, name, email)
      where ${IN_TIME} order by id
    ), changed as (
      update users u set ${SET_FIELDS} from input i where u.id = i.id and ${IS_MET}
      returning ${COLUMNS}
    ) ${WITH_UNCHANGED}`,
  unconditional: `
    update users u set ${SET_FIELDS} from (
      select * from unnest($2::bigint[], $3::text[], $4::text[]) as new (id, name, email)
      where ${IN_TIME} order by id
    ) i where u.id = i.id
    returning ${COLUMNS}`,
  fields: (targets) => [
    array(targets.map(({ name }) => name)),
    array(targets.map(({ email }) => email)),
  ],
};

const REMOVE: Write = {
  conditional: `
    with input as (
      select * from unnest($2::bigint[], $3::text[], $4::text[]) as new (id, one_of, none_of)
      where ${IN_TIME} order by id
    ), changed as (
      delete from users u using input i where u.id = i.id and ${IS_MET}
      returning ${COLUMNS}
    ) ${WITH_UNCHANGED}`,
  unconditional: `
    delete from users u using (
      select id from unnest($2::bigint[]) as new (id) where ${IN_TIME} order by id
    ) i where u.id = i.id
    returning ${COLUMNS}`,
  fields: () => [],
};

// SQLSTATE (PostgreSQL manual, appendix A).
const UNIQUE_VIOLATION = '23505';
const DEADLOCK = '40P01';
// The server has become read-only; it gave the statement up; the statement came too late (IN_TIME),
// or the server's clock was set since we asked for it.
const LOST_CODES = ['25006', '57014', '22012'];

/** Times that a statement is run which deadlocks. */
const MAX_ATTEMPTS = 5;

/** One conditional change or removal. */
interface Target extends UserChange {
  readonly id: number;
  readonly condition: Condition;
}

/** A row of a conditional statement; without a name the user stayed as it was. */
type Row = Omit<User, 'name'> & { readonly name: string | null; readonly isMet?: boolean };

/** Opens the store and begins to connect; it need not be there yet. */
export function openPostgres(database: PostgresDatabase, options: StoreOptions): Store {
  return new PostgresStore(database, options);
}

class PostgresStore implements Store {
  readonly #pool: Pool;
  readonly #find: Batch<Session, number, User | undefined>;
  readonly #findByEmail: Batch<Session, string, User | undefined>;
  readonly #list: Batch<Session, Page, readonly User[]>;
  readonly #create: Batch<Session, NewUser, User>;
  readonly #change: Batch<Session, Target, Changed>;
  readonly #remove: Batch<Session, Target, Changed>;
  readonly #ping: Batch<Session, undefined, undefined>;

  constructor(database: PostgresDatabase, options: StoreOptions) {
    const { sslRootCert } = database;
    this.#pool = new Pool({
      ...options,
      database,
      authorities: sslRootCert === undefined ? undefined : readFileSync(sslRootCert, 'utf8'),
      size: options.poolSize,
      prepare: migrate,
    });
    const batch = <Item, Result>(kind: Omit<Kind<Session, Item, Result>, 'isLost'>) =>
      new Batch(this.#pool, { ...kind, isLost }, options.timeoutMs, options.now);
    this.#find = batch({ statement: find });
    this.#findByEmail = batch({ statement: findByEmail });
    this.#list = batch({ statement: list, same: ({ after, limit }) => `${after} ${limit}` });
    this.#create = batch<NewUser, User>({ statement: create, distinct: ({ email }) => email });
    this.#change = batch<Target, Changed>({ statement: change, distinct: ({ id }) => id });
    this.#remove = batch({ statement: remove, distinct: ({ id }) => id });
    this.#ping = batch({ statement: ping });
    this.#pool.start();
  }

  find(id: number): Promise<User | undefined> {
    return this.#find.call(id);
  }

  findByEmail(email: string): Promise<User | undefined> {
    return this.#findByEmail.call(email);
  }

  list(page: Page): Promise<readonly User[]> {
    return this.#list.call(page);
  }

  create(user: NewUser): Promise<User> {
    return this.#create.call(user);
  }

  change(id: number, fields: UserChange, condition: Condition): Promise<Changed> {
    return this.#change.call({ id, ...fields, condition });
  }

  remove(id: number, condition: Condition): Promise<Changed> {
    return this.#remove.call({ id, condition });
  }

  get connections(): { readonly used: number; readonly idle: number } {
    return this.#pool.connections;
  }

  async ping(): Promise<void> {
    const { used, idle } = this.connections;
    if (used + idle === 0) throw new StoreUnavailable('no connection to the database');
    await this.#ping.call(undefined);
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}

async function find(session: Session, ids: number[]): Promise<(User | undefined)[]> {
  const users = byKey(await query<User>(session, FIND, [array(ids)]), ({ id }) => id);
  return ids.map((id) => users.get(id));
}

async function findByEmail(session: Session, emails: string[]): Promise<(User | undefined)[]> {
  const users = byKey(
    await query<User>(session, FIND_BY_EMAIL, [array(emails)]),
    ({ email }) => email,
  );
  return emails.map((email) => users.get(email));
}

async function list(session: Session, pages: Page[]): Promise<(readonly User[])[]> {
  const { after, limit } = pages[0]!;
  const users = await query<User>(session, LIST, [String(after), String(limit)]);
  return pages.map(() => users);
}

async function create(
  session: Session,
  users: NewUser[],
  expires: number,
): Promise<(User | EmailTaken)[]> {
  const rows = await query<User>(session, CREATE, [
    String(session.serverSeconds(expires)),
    array(users.map(({ name }) => name)),
    array(users.map(({ email }) => email)),
  ]);
  const created = byKey(rows, ({ email }) => email);
  return users.map(({ email }) => created.get(email) ?? new EmailTaken());
}

async function change(
  session: Session,
  targets: Target[],
  expires: number,
): Promise<(Changed | Error)[]> {
  try {
    return await write(session, CHANGE, targets, expires);
  } catch (err) {
    // In a batch this rolls all of it back, and its calls run one by one: only one is to blame.
    if (targets.length > 1 || !isTaken(err)) throw err;
    return [new EmailTaken()];
  }
}

function remove(
  session: Session,
  targets: Target[],
  expires: number,
): Promise<(Changed | Error)[]> {
  return write(session, REMOVE, targets, expires);
}

async function ping(session: Session, calls: undefined[]): Promise<undefined[]> {
  await query(session, 'select 1', []);
  return calls;
}

async function write(
  session: Session,
  kind: Write,
  targets: Target[],
  expires: number,
): Promise<(Changed | Error)[]> {
  const isConditional = targets.some(({ condition }) => condition !== ALWAYS);
  const conditions = [
    array(targets.map(({ condition }) => versionList(condition.oneOf))),
    array(targets.map(({ condition }) => versionList(condition.noneOf))),
  ];
  const rows = await query<Row>(session, isConditional ? kind.conditional : kind.unconditional, [
    String(session.serverSeconds(expires)),
    array(targets.map(({ id }) => id)),
    ...(isConditional ? conditions : []),
    ...kind.fields(targets),
  ]);
  const byId = byKey(rows, ({ id }) => id);
  const results: (Changed | Error)[] = [];
  for (const target of targets) {
    const row = byId.get(target.id);
    if (row === undefined) results.push(undefined);
    else if (row.isMet) results.push(await again(session, kind, target, expires));
    else if (row.name === null) results.push('stale');
    else results.push({ id: row.id, name: row.name, email: row.email, version: row.version });
  }
  return results;
}

/**
 * Another has changed or removed the user meanwhile and nothing was done: it is done now, to the
 * user as the other has left it. The rest of the batch is committed, so a fault is this call's alone.
 */
async function again(
  session: Session,
  kind: Write,
  target: Target,
  expires: number,
): Promise<Changed | Error> {
  try {
    return (await write(session, kind, [target], expires))[0];
  } catch (err) {
    if (isLost(err)) throw err;
    return isTaken(err) ? new EmailTaken() : (err as Error);
  }
}

function isTaken(err: unknown): boolean {
  return (err as { code?: string }).code === UNIQUE_VIOLATION;
}

function versionList(versions: Versions): string {
  return versions === 'any' ? '*' : `,${versions.join(',')},`;
}

function byKey<Value, Key>(rows: readonly Value[], key: (row: Value) => Key): Map<Key, Value> {
  return new Map(rows.map((row) => [key(row), row]));
}

/** The statement's rows. One that the server rolled back to end a deadlock is run again. */
async function query<Row extends object>(
  session: Session,
  text: string,
  values: readonly string[],
): Promise<Row[]> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await session.query<Row>(text, values);
    } catch (err) {
      const isDeadlock = (err as { code?: string }).code === DEADLOCK;
      if (!isDeadlock || attempt === MAX_ATTEMPTS) throw err;
    }
  }
}

/** An array literal (PostgreSQL manual 8.15.2). */
function array(values: readonly (string | number | undefined)[]): string {
  const elements = values.map((value) => {
    if (value === undefined) return 'null';
    return typeof value === 'number' ? value : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${elements.join(',')}}`;
}

/**
 * Whether nobody knows what became of the statement, or the connection is of no more use: anything
 * but an error that the server gave for the statement alone.
 */
function isLost(err: unknown): boolean {
  const { code, severity } = err as { code?: unknown; severity?: string };
  if (severity !== 'ERROR' || typeof code !== 'string') return true;
  return LOST_CODES.includes(code);
}

const LOCK = 'select pg_advisory_xact_lock(7236128401)';

/**
 * Brings the schema up to date. Each migration is one message with several statements, which the
 * server runs as one transaction; its first statements take the lock and claim the version, so of
 * replicas that start at once one does it and the others find it done.
 */
async function migrate(sql: Sql): Promise<void> {
  await sql.unsafe(`${LOCK};
    create table if not exists schema_migrations (
      version integer primary key,
      applied_at timestamptz not null default now()
    )`);
  const all = migrations('postgres');
  const [row] = await sql.unsafe(
    'select coalesce(max(version), 0) as version from schema_migrations',
  );
  for (const { version, sql: text } of missing(all, Number(row!.version))) {
    const claim = `insert into schema_migrations (version) values (${version})`;
    try {
      await sql.unsafe(`set local statement_timeout = 0; ${LOCK}; ${claim}; ${text}`);
    } catch (err) {
      // Another replica was first.
      const { code, table_name: table } = err as { code?: string; table_name?: string };
      if (code !== UNIQUE_VIOLATION || table !== 'schema_migrations') throw err;
    }
  }
}
