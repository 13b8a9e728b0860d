// Users in Postgres (14 and later). A batch is one statement, so it needs no transaction block. Conditions
// (4.8) are part of it, so no read precedes a write. Before it writes, a statement skips the calls whose
// email is taken, because a duplicate would roll back the whole batch. The results equal those of calls
// that run one at a time: first the skipped ones, then the others, of which no two have an id in common, and
// of those with the same new email only the first is done.
import type { Condition, Field, NewUser, Page, User, UserChange, WriteResult } from '../user.ts';
import { ALWAYS, EmailTaken, FIELD_NAMES, FIELDS, StoreUnavailable } from '../user.ts';
import type { Store, StoreOptions } from './options.ts';
import { Pool, SURROUNDINGS } from './pool.ts';
import type { CallResult, FailedOutcome, RunningKeys, Statement } from './queue.ts';
import { NOT_DONE, Queue } from './queue.ts';
import { NotReplicated, type Session } from './session.ts';
import type { PostgresDatabase } from './url.ts';

type Run<Item, Result> = Statement<Session, Item, Result>;

export function openPostgres(
  database: PostgresDatabase,
  options: StoreOptions,
  surroundings = SURROUNDINGS,
): Store {
  const pool = new Pool({ ...options, ...surroundings, database });
  const reads = { ...options, outcomeAfter, schedule: pool.schedule };
  const running: RunningKeys = new Set();
  const keysOf = <T>(item: T) => item;
  const writes = { ...reads, writes: { keysOf, running } };
  const creates = new Queue<Session, NewUser, User>({ ...writes, statement: createUsers });
  const updates = new Queue<Session, Target, WriteResult>({ ...writes, statement: updateUsers });
  const deletes = new Queue<Session, Target, WriteResult>({ ...writes, statement: deleteUsers });
  const pageOf = ({ after, limit }: Page) => `${after} ${limit}`;
  const pings = new Queue({ ...reads, statement: checkHealth(database) });
  return {
    create: creates.call,
    find: new Queue({ ...reads, statement: findBy('id') }).call,
    findByEmail: new Queue({ ...reads, statement: findBy('email') }).call,
    list: new Queue({ ...reads, statement: list, pageOf }).call,
    update: (id, set, condition, caller) => updates.call({ id, ...set, condition }, caller),
    delete: (id, condition, caller) => deletes.call({ id, condition }, caller),
    get connections() {
      return pool.connections;
    },
    async ping(caller) {
      const { fault } = pool;
      if (fault) throw new StoreUnavailable('no connection to the database', { cause: fault }); // 7.2
      await pings.call(undefined, caller);
    },
    close: () => pool.close(),
  };
}

// Lists with a part for each field, such as `name, email`. Values are arrays of texts, one array for each
// field, from the parameter `$first` on. There null keeps a field, and '' makes it null.
const each = (write: (field: Field, i: number) => string) => FIELD_NAMES.map(write).join(', ');
const NAMES = each((field) => field);
const COLUMNS = `id, ${NAMES}, version`;
const arraysFrom = (first: number) => each((_, i) => `$${first + i}::text[]`);
const orNull = (field: Field, text: string) =>
  FIELDS[field].default === null ? `nullif(${text}, '')` : text;

const SELECT = `select ${COLUMNS} from users`;

// Under synchronous replication a session that commits waits for the standby, even after its client
// has gone. After a wait of 2 seconds we assume that no standby confirms.
const PING = `
  select count(*),
    current_setting('transaction_read_only')::bool as "isReadOnly",
    exists (
      select from pg_stat_activity
      where wait_event = 'SyncRep' and usename = session_user
        and query_start < clock_timestamp() - interval '2 s'
    ) as "isStuck"
  from (${SELECT} limit 1) u`;

/** Checks that users can be read, and that the server reports no fault that stops writes (7.2). */
function checkHealth({ sessionAttributes }: PostgresDatabase): Run<void, void> {
  return async (session, calls) => {
    const [state] = await session.query<{ isReadOnly: boolean; isStuck: boolean }>(PING, []);
    if (state!.isStuck) throw new NotReplicated('a commit waits for a synchronous standby');
    // This error replaces the connection, so the pool looks for another host before a write fails.
    if (state!.isReadOnly && sessionAttributes === 'read-write') {
      throw new StoreUnavailable('the server is read-only');
    }
    return calls;
  };
}

/** Returns a statement that finds users by a unique column. */
function findBy<K extends 'id' | 'email'>(key: K): Run<User[K], User | undefined> {
  const findOne = `${SELECT} where ${key} = $1`;
  const find = `${SELECT} where ${key} = any($1)`;
  return async (session, keys) => {
    if (keys.length === 1) return await session.query<User>(findOne, [String(keys[0])]);
    const users = await session.query<User>(find, [array(keys)]);
    const byKey = new Map(users.map((user) => [user[key], user]));
    return keys.map((value) => byKey.get(value));
  };
}

const list: Run<Page, readonly User[]> = async (session, pages) => {
  const { after, limit } = pages[0]!;
  const text = `${SELECT} where id > $1 order by id limit $2`;
  const users = await session.query<User>(text, [String(after), String(limit)]);
  return pages.map(() => users);
};

// Condition of every write. It fails for a write that arrives past its deadline, $1 in seconds of the server's
// clock: the write may have waited in the server's socket, where closing the connection does not cancel it.
// The error quotes LATE. It replaces the connection, because the server's clock may have been set forward (4.13).
const LATE = 'the statement did not start in time';
const BEFORE_DEADLINE = `(
  case when statement_timestamp() < to_timestamp($1::float8) then 'true' else '${LATE}' end)::boolean`;

// Users whose email is taken are not returned; of several with one email, the first is created. All replicas
// create users in the order of their emails, so creates can't deadlock.
const CREATE = `
  insert into users (${NAMES})
  select ${each((field) => orNull(field, field))}
  from unnest(${arraysFrom(2)}) with ordinality as new (${NAMES}, n)
  where ${BEFORE_DEADLINE} order by email collate "C", n
  on conflict (email) do nothing returning ${COLUMNS}`;

const createUsers = refuseTaken<NewUser, User>(async (session, users, expires) => {
  const values = FIELD_NAMES.map((field) => array(users.map((user) => user[field])));
  const rows = await session.query<User>(CREATE, [session.serverTime(expires), ...values]);
  const created = new Map(rows.map((row) => [row.email, row]));
  return users.map(({ name, email }) => {
    const user = created.get(email);
    if (user?.name !== name) return new EmailTaken();
    created.delete(email);
    return user;
  });
});

/** One conditional update or delete. */
export type Target = UserChange & { readonly id: number; readonly condition: Condition };

/** A written user. With a `refusal`, the id of a user that was not written; the rest is null. */
type Row = User & { readonly refusal?: 'stale' | 'taken' | 'raced' | null };

const OLD = each((field) => `u.${field}`);
const nextOf = (field: Field) => orNull(field, `coalesce(i.${field}, u.${field})`);
// 4.16: the version grows only if a field changes.
const SET_FIELDS = `
  ${each((field) => `${field} = ${nextOf(field)}`)},
  version = u.version + ((${each(nextOf)}) is distinct from (${OLD}))::int`;
const RETURNED = `returning u.id, ${OLD}, u.version`;

// 4.8: one_of and none_of are texts of versionList().
const MATCHES = `
  ((i.one_of = '*' or position(',' || u.version || ',' in i.one_of) > 0)
  and i.none_of <> '*' and position(',' || u.version || ',' in i.none_of) = 0)`;
// Adds the targets that exist and were not written, each with the reason. 'raced': the target qualified in
// the snapshot, but another session wrote the user before this statement locked it, or the email is that of an
// earlier target. The call runs again.
const WITH_REFUSED = `
  select ${COLUMNS}, null as refusal from written
  union all
  select u.id, ${each(() => 'null')}, null,
    case when not ${MATCHES} then 'stale' when i.is_taken then 'taken' else 'raced' end
  from input i join users u on u.id = i.id
  where i.id not in (select id from written)`;

// Returns the two forms of a write. `full` checks conditions and emails; of several targets with one email,
// it writes the first. It waits for no email that has an owner: the owner's change, if one runs, could wait
// for this statement. `simple` checks nothing: a user that it doesn't return does not exist. It costs Postgres
// a quarter less. Their parameters are the deadline, the ids, in `full` the conditions, and the fields (null in
// a delete).
const formsOf = (command: string) => ({
  full: `
    with input as (
      select *, exists (
        select from users o where o.email = new.email and o.id <> new.id
      ) as is_taken,
      email is not null and row_number() over (partition by email order by n) > 1 as is_repeated
      from unnest($2::bigint[], $3::text[], $4::text[], ${arraysFrom(5)})
        with ordinality as new (id, one_of, none_of, ${NAMES}, n)
      where ${BEFORE_DEADLINE} order by id
    ), written as (
      ${command} input i
      where u.id = i.id and not i.is_taken and not i.is_repeated and ${MATCHES} ${RETURNED}
    ) ${WITH_REFUSED}`,
  simple: `
    ${command} (
      select * from unnest($2::bigint[], ${arraysFrom(3)}) as new (id, ${NAMES})
      where ${BEFORE_DEADLINE} order by id
    ) i where u.id = i.id ${RETURNED}`,
});
const deleteUsers = writeWith('delete from users u using');

const updateUsers = refuseTaken(writeWith(`update users u set ${SET_FIELDS} from`));

/**
 * Makes a unique_violation the result of a call. Another session took the email after this statement's snapshot,
 * an administrator's index is stricter, or a duplicate is in the copy of `reindex concurrently`, which `on conflict`
 * doesn't check. The error does not tell whose email: several calls run again in halves, with new snapshots.
 */
function refuseTaken<Item, Result>(run: Run<Item, Result>): Run<Item, Result> {
  return async (session, items, expires) => {
    try {
      return await run(session, items, expires);
    } catch (err) {
      const { code, table_name, constraint_name } = err as Record<string, string | undefined>;
      // Not an imported id that the sequence reached, nor a duplicate in the table of a trigger.
      const isEmail = table_name === 'users' && !constraint_name?.startsWith('users_pkey');
      if (items.length > 1 || code !== '23505' || !isEmail) throw err;
      return [new EmailTaken()];
    }
  };
}

function writeWith(command: string): Run<Target, WriteResult> {
  const { full, simple } = formsOf(command);
  return async (session, targets, expires) => {
    const values = [array(targets.map(({ id }) => id))];
    const isSimple = targets.every((one) => one.email === undefined && one.condition === ALWAYS);
    if (!isSimple) {
      values.push(array(targets.map(({ condition }) => versionList(condition.oneOf))));
      values.push(array(targets.map(({ condition }) => versionList(condition.noneOf))));
    }
    values.push(...FIELD_NAMES.map((field) => array(targets.map((target) => target[field]))));
    const text = isSimple ? simple : full;
    const rows = await session.query<Row>(text, [session.serverTime(expires), ...values]);
    const results = new Map(rows.map((row) => [row.id, row]));
    return targets.map(({ id }) => toResult(results.get(id)));
  };
}

function toResult(row: Row | undefined): CallResult<WriteResult> {
  if (row === undefined) return undefined;
  if (row.refusal === 'stale') return 'stale';
  if (row.refusal === 'taken') return new EmailTaken();
  if (row.refusal === 'raced') return NOT_DONE;
  const { refusal, ...user } = row;
  return user;
}

/** By SQLSTATE (PostgreSQL manual, appendix A). Any other ERROR has rolled the statement back. */
const OUTCOMES: Readonly<Record<string, FailedOutcome>> = {
  '40P01': 'not done', // deadlock_detected (5.6): another replica locked the same emails by id
  '40001': 'not done', // serialization_failure: the recovery of a standby cancelled a read (5.6)
  '25006': 'unknown', // read_only_sql_transaction: the connection must be replaced
};

/** Returns the outcome of a statement that failed. Without an ERROR from the server it is unknown. */
function outcomeAfter(err: unknown): FailedOutcome {
  const { code = '', message, severity } = err as Error & { code?: string; severity?: string };
  if (severity !== 'ERROR' || message.includes(LATE)) return 'unknown';
  return OUTCOMES[code] ?? 'rolled back';
}

/** Returns an array literal (PostgreSQL manual, section 8.15.2), with null for undefined and '' for null. */
function array(values: readonly (string | number | null | undefined)[]): string {
  const elements = values.map((value) => {
    if (value === undefined) return 'null';
    if (value === null) return '""';
    return typeof value === 'number' ? value : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${elements.join(',')}}`;
}

/** Returns the versions between commas, so that a statement can search for one; `*` for any. */
function versionList(versions: Condition['oneOf']): string {
  return versions === 'any' ? '*' : `,${versions.join(',')},`;
}
