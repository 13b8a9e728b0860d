// Users in a SQLite file or in memory, with WAL and synchronous=FULL: a write resolves only after its
// commit reaches disk. SQLite is synchronous and blocks the event loop while it works. So writes that
// arrive in one turn of the event loop share a commit, and calls for the same page share a read. A turn
// reads pages for a few milliseconds. Finding one user takes microseconds, so it happens at once.
import { statSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { clearInterval, setImmediate, setInterval } from '../clock.ts';
import type { Condition, NewUser, Page, User, UserChange, WriteResult } from '../user.ts';
import { EmailTaken, FIELD_NAMES, holds, StoreUnavailable, toUser } from '../user.ts';
import type { Store, StoreOptions } from './options.ts';
import { type BatchSource, Queue, TICK_MS } from './queue.ts';
import { messageOf, openFile, outcomeAfter, retry, transact, watchFiles } from './sqlite-file.ts';
import type { SqliteDatabase } from './url.ts';

const SQLITE_CONSTRAINT_UNIQUE = 2067; // an extended result code (sqlite.org/rescode.html)
const TURN_MS = 2; // for batches in one turn of the event loop; the one that has begun runs to its end

const OTHER_FIELDS = FIELD_NAMES.filter((field) => field !== 'email');

type Write = () => WriteResult;
type Access = 'read' | 'write' | 'file';

export async function openSqlite(database: SqliteDatabase, options: StoreOptions): Promise<Store> {
  const { path } = database;
  const { now, timeoutMs } = options;
  const [db, users] = await openFile(database, now, usersIn);
  const access = reportFailures(path, db, options);
  const location = db.location() ?? path; // a link has no log of its own
  const checkFiles = watchFiles(location);
  // Reads at once, with its own snapshot. If the reads of a turn of the event loop shared a snapshot, one
  // could miss a write that another process has acknowledged meanwhile. Waiting for a later turn costs more
  // than it saves, unless eight calls share the read.
  const read = <T>(action: () => T) =>
    access('read', now() + timeoutMs, action).catch((cause) => {
      throw new StoreUnavailable('the store failed', { cause });
    });
  // Pages and writes have a queue each: a lock that stops writers doesn't stop readers.
  const lists = new Queue<void, Page, readonly User[]>({
    ...options,
    statement: async (_, pages, expires) => {
      const page = await access('read', expires, () => users.list(pages[0]!));
      return pages.map(() => page);
    },
    pageOf: ({ after, limit }) => `${after} ${limit}`,
    outcomeAfter,
    schedule: runLater(now),
  });
  const writes = new Queue<void, Write, WriteResult>({
    ...options,
    statement: (_, items, expires) =>
      access('write', expires, () => {
        const results = transact(db, () => items.map(unlessTaken));
        checkFiles(); // 5.5: after the commit, because it would be lost
        return results;
      }),
    outcomeAfter,
    schedule: runLater(now),
  });
  return {
    create: (user, caller) => writes.call(() => users.create(user), caller) as Promise<User>,
    find: (id) => read(() => users.find(id)),
    findByEmail: (email) => read(() => users.findByEmail(email)),
    list: (page, caller) => lists.call(page, caller),
    update: (id, set, condition, caller) =>
      writes.call(() => users.update(id, set, condition), caller),
    delete: (id, condition, caller) => writes.call(() => users.delete(id, condition), caller),
    get walBytes() {
      return statSync(`${location}-wal`, { throwIfNoEntry: false })?.size;
    },
    async ping() {
      await access('file', now(), checkFiles); // 7.2
      await read(() => users.list({ after: 0, limit: 1 }));
    },
    close: async () => db.close(),
  };
}

/**
 * Returns a function that retries an action while the file is locked, and reports when the file fails or
 * works again. It works again once each kind of access that failed has succeeded: on a full disk and of a
 * removed file, reads succeed while writes fail.
 */
function reportFailures(path: string, db: DatabaseSync, options: StoreOptions) {
  const failing = new Set<Access>();
  return async <T>(kind: Access, expires: number, action: () => T): Promise<T> => {
    try {
      const result = await retry(action, expires, options.now);
      if (failing.delete(kind) && failing.size === 0) options.onAvailable();
      return result;
    } catch (err) {
      if (outcomeAfter(err) !== 'rolled back' && db.isOpen) {
        const fault = err instanceof StoreUnavailable ? err.message : `${path}: ${messageOf(err)}`;
        if (failing.size === 0) options.onUnavailable(fault);
        failing.add(kind);
      }
      throw err;
    }
  };
}

/** The operations on the table. */
function usersIn(db: DatabaseSync) {
  const prepare = (sql: string) => {
    const statement = db.prepare(sql);
    statement.setReturnArrays(true);
    return statement;
  };
  const fields = FIELD_NAMES.join(', ');
  const select = `select id, ${fields}, version from users`;
  const update = (names: readonly string[]) =>
    prepare(`update users set ${names.map((name) => `${name} = ?`)}, version = ? where id = ?`);
  const statements = {
    find: prepare(`${select} where id = ?`),
    findByEmail: prepare(`${select} where email = ?`),
    list: prepare(`${select} where id > ? order by id limit ?`),
    create: prepare(`insert into users (${fields}) values (${FIELD_NAMES.map(() => '?')})`),
    update: update(FIELD_NAMES),
    updateOthers: update(OTHER_FIELDS),
    delete: prepare('delete from users where id = ?'),
  };
  const find = (id: number) => toUser(statements.find.get(id));
  return {
    find,
    findByEmail: (email: string) => toUser(statements.findByEmail.get(email)),
    list: ({ after, limit }: Page) => statements.list.all(after, limit).map(toUser) as User[],
    create(user: NewUser): User {
      const values = FIELD_NAMES.map((field) => user[field]);
      const { lastInsertRowid } = statements.create.run(...values);
      return { id: Number(lastInsertRowid), ...user, version: 1 };
    },
    update(id: number, set: UserChange, condition: Condition): WriteResult {
      const user = find(id);
      if (user === undefined || !holds(condition, user.version)) return user && 'stale'; // 4.8
      const next = { ...user, ...set, version: user.version + 1 };
      if (FIELD_NAMES.every((field) => next[field] === user[field])) return user; // 4.16
      // Setting the email writes its index too.
      const isMoved = next.email !== user.email;
      const values = (isMoved ? FIELD_NAMES : OTHER_FIELDS).map((field) => next[field]);
      (isMoved ? statements.update : statements.updateOthers).run(...values, next.version, id);
      return next;
    },
    delete(id: number, condition: Condition): WriteResult {
      const user = find(id);
      if (user === undefined || !holds(condition, user.version)) return user && 'stale'; // 4.8
      statements.delete.run(id);
      return user;
    },
  };
}

/** Returns a scheduler for one queue. It runs batches for TURN_MS in each turn of the event loop. */
function runLater(now: () => number) {
  let isRunning = false;
  return (queue: BatchSource<void>) => {
    if (isRunning) return;
    isRunning = true;
    const timer = setInterval(() => queue.expire(now()), TICK_MS).unref(); // 4.13
    const runTurn = async () => {
      const start = now();
      while (now() - start < TURN_MS) {
        const batch = queue.take(now());
        if (batch === undefined) {
          isRunning = false;
          return clearInterval(timer);
        }
        await batch.run();
      }
      setImmediate(runTurn);
    };
    setImmediate(runTurn);
  };
}

function unlessTaken(write: Write): WriteResult | EmailTaken {
  try {
    return write();
  } catch (err) {
    const { errcode, message } = err as Error & { errcode?: number };
    const isEmail = /: (users\.|index )/.test(message); // not in a table that a trigger writes
    // SQLite undoes only this statement; the transaction continues.
    if (errcode === SQLITE_CONSTRAINT_UNIQUE && isEmail) return new EmailTaken(); // 4.10
    throw err;
  }
}
