// Users in a SQLite file or in memory, with WAL and synchronous=FULL: a write resolves only after its
// commit reaches disk. SQLite is synchronous and blocks the event loop while it works. So all writes
// of one turn share a commit, and all calls for the same page share a read. Pages are read in the
// turns of turns.ts, a few milliseconds at a time. Finding one user takes a microsecond, so it needs
// none of this.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import {
  type Condition,
  EmailTaken,
  type Page,
  StoreUnavailable,
  type User,
  type UserStore,
  type WriteResult,
} from '../user.ts';
import { type BatchSource, type FailedOutcome, Queue, samePage } from './batch.ts';
import { isLocked, openFile, primaryCode, retry } from './file.ts';
import type { StoreOptions } from './index.ts';
import { versionList } from './statement.ts';

// SQLite's result codes (sqlite.org/rescode.html).
const SQLITE_CONSTRAINT = 19;
const SQLITE_CONSTRAINT_UNIQUE = 2067;

const COLUMNS = 'id, name, email, version';

// 4.8: the parameters after the id are the lists of a condition, as versionList() writes them.
const MATCHES = `
  where id = ?1 and (?2 = '*' or instr(?2, ',' || version || ','))
    and ?3 <> '*' and not instr(?3, ',' || version || ',')
  returning ${COLUMNS}`;

// 4.16: an absent name or email stays as it is. The version grows only if something changes.
const UPDATE = `
  update users set
    version = version + ((coalesce(?4, name), coalesce(?5, email)) <> (name, email)),
    name = coalesce(?4, name),
    email = coalesce(?5, email)
  ${MATCHES}`;

const DELETE = `delete from users ${MATCHES}`;

type Written = WriteResult | EmailTaken;
type Write = () => Written;

/**
 * Opens the file and brings its schema up to date.
 * @throws an Error with one line that says what an operator can do
 */
export function openSqlite(path: string, options: StoreOptions): Promise<UserStore> {
  return openFile(path, options.now, (db) => createStore(path, db, options));
}

function createStore(path: string, db: DatabaseSync, options: StoreOptions): UserStore {
  const { now, timeoutMs, turns } = options;
  const statements = prepare(db);
  // The kinds of access that fail now. On a full disk, reads succeed while writes fail. So the store
  // is available again only when each kind that failed has succeeded.
  const failing = new Set<'read' | 'write'>();

  /** Retries the action while the file is locked. Reports when the file fails, or works again. */
  async function access<T>(kind: 'read' | 'write', expires: number, action: () => T): Promise<T> {
    try {
      const result = await retry(action, expires, now);
      if (failing.delete(kind) && failing.size === 0) options.onAvailable();
      return result;
    } catch (err) {
      if (isFileFault(err) && db.isOpen) {
        if (failing.size === 0) options.onUnavailable(describeFault(path, err));
        failing.add(kind);
      }
      throw err;
    }
  }

  /** Reads without a queue, because batching would save nothing. */
  async function read<T>(action: () => T): Promise<T> {
    try {
      return await access('read', now() + timeoutMs, action);
    } catch (err) {
      throw new StoreUnavailable('the store failed', { cause: err });
    }
  }

  /** Runs all writes in one transaction. */
  function commit(writes: Write[]): Written[] {
    statements.begin.run();
    try {
      const results = writes.map((write) => write());
      statements.commit.run(); // 5.5
      return results;
    } catch (err) {
      // On a full disk SQLite may have rolled back by itself.
      if (db.isTransaction) statements.rollback.run(); // 5.2
      throw err;
    }
  }

  function writeIf(
    { oneOf, noneOf }: Condition,
    statement: StatementSync,
    id: number,
    ...fields: SQLInputValue[]
  ): Written {
    const result = write(statement, id, versionList(oneOf), versionList(noneOf), ...fields);
    if (result !== undefined) return result;
    return statements.find.get(id) === undefined ? undefined : 'stale';
  }

  const common = { outcomeAfter, timeoutMs, now };
  // Pages and writes have a queue each: a lock that stops writers doesn't stop readers.
  const lists = new Queue<void, Page, readonly User[]>({
    statement: async (_, pages, expires) => {
      const { after, limit } = pages[0]!;
      const select = () => statements.list.all(after, limit).map(toUser) as User[];
      const users = await access('read', expires, select);
      return pages.map(() => users);
    },
    newBatch: samePage,
    takesTurns: true,
    ...common,
    schedule: runLater((task) => turns.add('', task), now), // 5.2
  });
  const writes = new Queue<void, Write, WriteResult>({
    statement: (_, items, expires) => access('write', expires, () => commit(items)),
    ...common,
    schedule: runLater(setImmediate, now),
  });

  return {
    create: ({ name, email }, caller) =>
      writes.call(() => write(statements.create, name, email), caller) as Promise<User>,
    find: (id) => read(() => toUser(statements.find.get(id))),
    findByEmail: (email) => read(() => toUser(statements.findByEmail.get(email))),
    list: (page, caller) => lists.call(page, caller),
    update: (id, { name = null, email = null }, condition, caller) =>
      writes.call(() => writeIf(condition, statements.update, id, name, email), caller),
    delete: (id, condition, caller) =>
      writes.call(() => writeIf(condition, statements.delete, id), caller),
    ping: () => read(() => void statements.ping.get()),
    close: async () => db.close(),
  };
}

/** How often the deadlines of waiting calls are checked. */
const TICK_MS = 50;

/** Returns a scheduler for one queue. It runs each batch in a later turn of the event loop. */
function runLater(
  later: (task: () => void) => void,
  now: () => number,
): (queue: BatchSource<void>) => void {
  let timer: NodeJS.Timeout | undefined;
  const runNext = async (queue: BatchSource<void>) => {
    const batch = queue.take(now());
    if (batch === undefined) {
      clearInterval(timer);
      timer = undefined;
      return;
    }
    await batch.run();
    later(() => runNext(queue));
  };
  return (queue) => {
    if (timer !== undefined) return;
    timer = setInterval(() => queue.expire(now()), TICK_MS).unref(); // 4.13
    later(() => runNext(queue));
  };
}

function prepare(db: DatabaseSync) {
  const select = `select ${COLUMNS} from users`;
  const statements = {
    begin: db.prepare('begin immediate'),
    commit: db.prepare('commit'),
    rollback: db.prepare('rollback'),
    ping: db.prepare('select 1 from users limit 1'),
    find: db.prepare(`${select} where id = ?`),
    findByEmail: db.prepare(`${select} where email = ?`),
    list: db.prepare(`${select} where id > ? order by id limit ?`),
    create: db.prepare(`insert into users (name, email) values (?, ?) returning ${COLUMNS}`),
    update: db.prepare(UPDATE),
    delete: db.prepare(DELETE),
  };
  for (const statement of Object.values(statements)) statement.setReturnArrays(true);
  return statements;
}

/** Runs a write and returns its row. Uses all(), because get() can hide a failed commit. */
function write(statement: StatementSync, ...values: SQLInputValue[]): Written {
  try {
    return toUser(statement.all(...values)[0]);
  } catch (err) {
    // SQLite undoes only this statement; the transaction continues.
    if ((err as { errcode?: number }).errcode === SQLITE_CONSTRAINT_UNIQUE) return new EmailTaken();
    throw err;
  }
}

/** False if the call broke a constraint of the table. */
function isFileFault(err: unknown): boolean {
  return primaryCode(err) !== SQLITE_CONSTRAINT;
}

function outcomeAfter(err: unknown): FailedOutcome {
  if (isLocked(err)) return 'not started';
  return isFileFault(err) ? 'unknown' : 'rolled back';
}

/** Includes the result code: SQLite has few messages for the many ways in which a disk fails. */
function describeFault(path: string, err: unknown): StoreUnavailable {
  const { message, errcode } = err as Error & { errcode?: number };
  const code = errcode === undefined ? '' : ` (SQLite result code ${errcode})`;
  return new StoreUnavailable(`${path}: ${message}${code}`);
}

/** Rows are arrays, which cost half as much as objects. */
function toUser(row: unknown): User | undefined {
  if (row === undefined) return undefined;
  const [id, name, email, version] = row as readonly [number, string, string, number];
  return { id, name, email, version };
}
