// Users in a SQLite file or in memory, with WAL and synchronous=FULL: a write resolves only after its
// commit reaches disk. SQLite is synchronous and blocks the event loop while it works. So writes that
// arrive in one turn of the event loop share a commit, and calls for the same page share a read. The
// scheduler of turns.ts reads pages, a few milliseconds at a time. Finding one user takes microseconds, so
// it happens at once.
import type { DatabaseSync } from 'node:sqlite';
import type { Condition, NewUser, Page, User, UserChange, WriteResult } from '../user.ts';
import { EmailTaken, holds, StoreUnavailable } from '../user.ts';
import { type BatchSource, Queue, samePage } from './batch.ts';
import { openFile, outcomeAfter, retry } from './file.ts';
import type { Store, StoreOptions } from './index.ts';

const SQLITE_CONSTRAINT_UNIQUE = 2067; // an extended result code (sqlite.org/rescode.html)
const TICK_MS = 50; // how often the deadlines of waiting calls are checked

type Write = () => WriteResult;
type Written = WriteResult | EmailTaken;

/** @throws an Error with one line that says what an operator can do */
export function openSqlite(path: string, options: StoreOptions): Promise<Store> {
  return openFile(path, options.now, (db) => createStore(path, db, options));
}

function createStore(path: string, db: DatabaseSync, options: StoreOptions): Store {
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
      if (outcomeAfter(err) !== 'rolled back' && db.isOpen) {
        if (failing.size === 0) options.onUnavailable(describeFault(path, err));
        failing.add(kind);
      }
      throw err;
    }
  }

  /**
   * Reads at once, with its own snapshot. If the reads of a turn of the event loop shared a
   * snapshot, one could miss a write that another process has acknowledged meanwhile. Waiting for a
   * later turn costs more than it saves, unless eight calls share the read.
   */
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
      const results = writes.map(unlessTaken);
      statements.commit.run(); // 5.5
      return results;
    } catch (err) {
      // On a full disk SQLite may have rolled back by itself.
      if (db.isTransaction) statements.rollback.run(); // 5.2
      throw err;
    }
  }

  const find = (id: number) => toUser(statements.find.get(id));

  function create({ name, email }: NewUser): User {
    const { lastInsertRowid } = statements.create.run(name, email);
    return { id: Number(lastInsertRowid), name, email, version: 1 };
  }

  function update(id: number, change: UserChange, condition: Condition): WriteResult {
    const user = find(id);
    if (user === undefined || !holds(condition, user.version)) return user && 'stale'; // 4.8
    const { name = user.name, email = user.email } = change;
    if (name === user.name && email === user.email) return user; // 4.16
    const version = user.version + 1;
    // Setting the email writes its index too.
    if (email === user.email) statements.rename.run(name, version, id);
    else statements.update.run(name, email, version, id);
    return { id, name, email, version };
  }

  function remove(id: number, condition: Condition): WriteResult {
    const user = find(id);
    if (user === undefined || !holds(condition, user.version)) return user && 'stale'; // 4.8
    statements.delete.run(id);
    return user;
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
    create: (user, caller) => writes.call(() => create(user), caller) as Promise<User>,
    find: (id) => read(() => find(id)),
    findByEmail: (email) => read(() => toUser(statements.findByEmail.get(email))),
    list: (page, caller) => lists.call(page, caller),
    update: (id, change, condition, caller) =>
      writes.call(() => update(id, change, condition), caller),
    delete: (id, condition, caller) => writes.call(() => remove(id, condition), caller),
    ping: () => read(() => void statements.ping.get()),
    close: async () => db.close(),
  };
}

/** Returns a scheduler for one queue. It runs each batch in a later turn of the event loop. */
function runLater(later: (task: () => void) => void, now: () => number) {
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
  return (queue: BatchSource<void>) => {
    if (timer !== undefined) return;
    timer = setInterval(() => queue.expire(now()), TICK_MS).unref(); // 4.13
    later(() => runNext(queue));
  };
}

function prepare(db: DatabaseSync) {
  const select = 'select id, name, email, version from users';
  const statements = {
    begin: db.prepare('begin immediate'),
    commit: db.prepare('commit'),
    rollback: db.prepare('rollback'),
    ping: db.prepare('select 1 from users limit 1'),
    find: db.prepare(`${select} where id = ?`),
    findByEmail: db.prepare(`${select} where email = ?`),
    list: db.prepare(`${select} where id > ? order by id limit ?`),
    create: db.prepare('insert into users (name, email) values (?, ?)'),
    rename: db.prepare('update users set name = ?, version = ? where id = ?'),
    update: db.prepare('update users set name = ?, email = ?, version = ? where id = ?'),
    delete: db.prepare('delete from users where id = ?'),
  };
  for (const statement of Object.values(statements)) statement.setReturnArrays(true);
  return statements;
}

function unlessTaken(write: Write): Written {
  try {
    return write();
  } catch (err) {
    // SQLite undoes only this statement; the transaction continues.
    if ((err as { errcode?: number }).errcode === SQLITE_CONSTRAINT_UNIQUE) return new EmailTaken();
    throw err;
  }
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
