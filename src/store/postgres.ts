// Users in Postgres (14 and later). A write is one statement, so it needs no transaction block, and
// the unique index decides about duplicates. Rows are locked in one order, so that replicas do not
// wait for each other in a circle.
import { readFileSync } from 'node:fs';
import type { Sql } from 'postgres';
import {
  type Changed,
  type Condition,
  EmailTaken,
  type NewUser,
  type Page,
  StoreUnavailable,
  type User,
  type UserChange,
  type UserStore,
  type Versions,
} from '../user.ts';
import { Batch, type Kind } from './batch.ts';
import type { StoreOptions } from './index.ts';
import { migrations, missing } from './migrate.ts';
import { Pool } from './pool.ts';
import type { PostgresDatabase } from './url.ts';

const FIND = 'select id, name, email, version from users where id = any($1::bigint[])';

const FIND_BY_EMAIL = 'select id, name, email, version from users where email = any($1::text[])';

const LIST = 'select id, name, email, version from users where id > $1 order by id limit $2';

// A row that does not come back had a taken email.
const CREATE = `
  insert into users (name, email)
  select name, email from unnest($1::text[], $2::text[]) as new (name, email)
  order by email collate "C"
  on conflict (email) do nothing
  returning id, name, email, version`;

// Conditions are texts: the versions between commas, or * for any.
const INPUT = `
  with input as (
    select * from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
      as new (id, name, email, one_of, none_of) order by id
  )`;
const IS_MET = `
  (one_of = '*' or position(',' || u.version || ',' in one_of) > 0)
  and none_of <> '*' and position(',' || u.version || ',' in none_of) = 0`;
// After the users that were changed, those that were there and did not meet the condition.
const WITH_STALE = `
  select id, name, email, version from changed
  union all
  select u.id, null, null, u.version from users u join input i on i.id = u.id
  where not exists (select from changed c where c.id = u.id)`;

const CHANGE = `${INPUT}, changed as (
    update users u set
      name = coalesce(i.name, u.name),
      email = coalesce(i.email, u.email),
      version = case
        when (coalesce(i.name, u.name), coalesce(i.email, u.email)) = (u.name, u.email) then u.version
        else u.version + 1
      end
    from input i where u.id = i.id and ${IS_MET}
    returning u.id, u.name, u.email, u.version
  ) ${WITH_STALE}`;

const REMOVE = `${INPUT}, changed as (
    delete from users u using input i where u.id = i.id and ${IS_MET}
    returning u.id, u.name, u.email, u.version
  ) ${WITH_STALE}`;

/** One conditional change or removal. */
interface Target extends UserChange {
  readonly id: number;
  readonly condition: Condition;
}

/** A row of a conditional statement; without a name it is stale. */
type Row = Omit<User, 'name'> & { readonly name: string | null };

/** Opens the store and begins to connect; it need not be there yet. */
export function openPostgres(database: PostgresDatabase, options: StoreOptions): UserStore {
  return new PostgresStore(database, options);
}

class PostgresStore implements UserStore {
  readonly #pool: Pool;
  readonly #find: Batch<Sql, number, User | undefined>;
  readonly #findByEmail: Batch<Sql, string, User | undefined>;
  readonly #list: Batch<Sql, Page, readonly User[]>;
  readonly #create: Batch<Sql, NewUser, User>;
  readonly #change: Batch<Sql, Target, Changed>;
  readonly #remove: Batch<Sql, Target, Changed>;
  readonly #ping: Batch<Sql, undefined, undefined>;

  constructor(database: PostgresDatabase, options: StoreOptions) {
    const { sslRootCert } = database;
    this.#pool = new Pool({
      ...options,
      database,
      authorities: sslRootCert === undefined ? undefined : readFileSync(sslRootCert, 'utf8'),
      size: options.poolSize,
      prepare: migrate,
    });
    const batch = <Item, Result>(kind: Omit<Kind<Sql, Item, Result>, 'isLost'>) =>
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

  async ping(): Promise<void> {
    const { used, idle } = this.#pool.connections;
    if (used + idle === 0) throw new StoreUnavailable('no connection to the database');
    await this.#ping.call(undefined);
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}

async function find(sql: Sql, ids: number[]): Promise<(User | undefined)[]> {
  const users = byKey(await query<User>(sql, FIND, [array(ids)]), ({ id }) => id);
  return ids.map((id) => users.get(id));
}

async function findByEmail(sql: Sql, emails: string[]): Promise<(User | undefined)[]> {
  const users = byKey(await query<User>(sql, FIND_BY_EMAIL, [array(emails)]), ({ email }) => email);
  return emails.map((email) => users.get(email));
}

async function list(sql: Sql, pages: Page[]): Promise<(readonly User[])[]> {
  const { after, limit } = pages[0]!;
  const users = await query<User>(sql, LIST, [String(after), String(limit)]);
  return pages.map(() => users);
}

async function create(sql: Sql, users: NewUser[]): Promise<(User | EmailTaken)[]> {
  const columns = [array(users.map(({ name }) => name)), array(users.map(({ email }) => email))];
  const created = byKey(await query<User>(sql, CREATE, columns), ({ email }) => email);
  return users.map(({ email }) => created.get(email) ?? new EmailTaken());
}

function change(sql: Sql, targets: Target[]): Promise<(Changed | EmailTaken)[]> {
  return conditional(sql, CHANGE, targets).catch((err: { code?: string }) => {
    // In a batch this rolls all of it back, and its calls run one by one: only one is to blame.
    if (err.code === '23505' && targets.length === 1) return [new EmailTaken()];
    throw err;
  });
}

function remove(sql: Sql, targets: Target[]): Promise<Changed[]> {
  return conditional(sql, REMOVE, targets);
}

async function ping(sql: Sql, calls: undefined[]): Promise<undefined[]> {
  await query(sql, 'select 1', []);
  return calls;
}

async function conditional(sql: Sql, text: string, targets: Target[]): Promise<Changed[]> {
  const rows = await query<Row>(sql, text, [
    array(targets.map(({ id }) => id)),
    array(targets.map(({ name }) => name)),
    array(targets.map(({ email }) => email)),
    array(targets.map(({ condition }) => versionList(condition.oneOf))),
    array(targets.map(({ condition }) => versionList(condition.noneOf))),
  ]);
  const byId = byKey(rows, ({ id }) => id);
  return targets.map(({ id, condition }) => {
    const row = byId.get(id);
    if (row === undefined || row.name !== null) return row as User | undefined;
    // Every user meets this condition: the one seen before was removed meanwhile.
    return condition.oneOf === 'any' && condition.noneOf.length === 0 ? undefined : 'stale';
  });
}

function versionList(versions: Versions): string {
  return versions === 'any' ? '*' : `,${versions.join(',')},`;
}

function byKey<Value, Key>(rows: readonly Value[], key: (row: Value) => Key): Map<Key, Value> {
  return new Map(rows.map((row) => [key(row), row]));
}

function query<Row extends object>(sql: Sql, text: string, values: string[]): Promise<Row[]> {
  return sql.unsafe<Row[]>(text, values, { prepare: true });
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
  // 25006: the server has become read-only. 57014: it gave the statement up, its deadline is over.
  return code === '25006' || code === '57014';
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
      if (code !== '23505' || table !== 'schema_migrations') throw err;
    }
  }
}
