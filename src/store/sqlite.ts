// Users in a SQLite file or in memory, with WAL and synchronous=FULL: a write resolves only after its
// commit reaches disk. SQLite works synchronously, so the event loop stands still meanwhile. All
// writes of one turn share a commit, all calls for the same page share a read, and a turn that has
// spent its time leaves the remaining pages to the next one. Finding one user takes a microsecond and
// happens at once.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import {
  type Condition,
  EmailTaken,
  type NewUser,
  type Page,
  StoreUnavailable,
  type User,
  type UserChange,
  type UserStore,
  type WriteResult,
} from '../user.ts';
import {
  type BatchOperation,
  type BatchSource,
  type FailedOutcome,
  Queue,
  type Scheduler,
} from './batch.ts';
import { isLocked, openFile, primaryCode, retry } from './file.ts';
import type { StoreOptions } from './index.ts';

// SQLite's result codes (sqlite.org/rescode.html).
const SQLITE_CONSTRAINT = 19;
const SQLITE_CONSTRAINT_UNIQUE = 2067;

// 4.8, 4.16
// An absent name or email stays as it is. The version grows only if something changes.
const CHANGE = `
  update users set
    version = version + ((coalesce(:name, name), coalesce(:email, email)) <> (name, email)),
    name = coalesce(:name, name),
    email = coalesce(:email, email)
  where id = :id and (:any or version in (select value from json_each(:oneOf)))
    and not :none and version not in (select value from json_each(:noneOf))
  returning id, name, email, version`;

const REMOVE = `
  delete from users
  where id = :id and (:any or version in (select value from json_each(:oneOf)))
    and not :none and version not in (select value from json_each(:noneOf))
  returning id, name, email, version`;

/** A row as SQLite returns it: arrays cost half as much as objects. */
type Row = readonly [id: number, name: string, email: string, version: number];

type Read<Result> = (statements: Statements) => Result;
type Write = (statements: Statements) => WriteResult | EmailTaken;
type Access = 'read' | 'write';

type Statements = ReturnType<typeof prepare>;

/**
 * Opens the file and brings its schema up to date.
 * @throws an Error with one line that says what an operator can do
 */
export function openSqlite(path: string, options: StoreOptions): Promise<UserStore> {
  return openFile(path, options.now, (db) => new SqliteStore(path, db, options));
}

class SqliteStore implements UserStore {
  readonly #path: string;
  readonly #db: DatabaseSync;
  readonly #statements: Statements;
  readonly #options: StoreOptions;
  readonly #availability: Availability;
  readonly #lists: Queue<Statements, Page, readonly User[]>;
  readonly #writes: Queue<Statements, Write, WriteResult>;

  constructor(path: string, db: DatabaseSync, options: StoreOptions) {
    this.#path = path;
    this.#db = db;
    this.#statements = prepare(db);
    this.#options = options;
    this.#availability = new Availability(options);
    const queue = <Item, Result>(
      operation: Omit<BatchOperation<Statements, Item, Result>, 'outcomeAfter'>,
      later: (task: () => void) => void,
    ) =>
      new Queue<Statements, Item, Result>(
        // One for each queue: readers don't wait for a lock that stops writers.
        new Batches(this.#statements, options.now, later),
        { ...operation, outcomeAfter },
        options.timeoutMs,
        options.now,
      );
    this.#lists = queue(
      {
        statement: this.#list.bind(this),
        sharedKey: ({ after, limit }) => `${after} ${limit}`,
      },
      // 5.2: a page can take milliseconds.
      (task) => options.turns.add(task),
    );
    this.#writes = queue<Write, WriteResult>({ statement: this.#commit.bind(this) }, setImmediate);
  }

  find(id: number): Promise<User | undefined> {
    return this.#read(({ find }) => user(find.get(id)));
  }

  findByEmail(email: string): Promise<User | undefined> {
    return this.#read(({ findByEmail }) => user(findByEmail.get(email)));
  }

  list(page: Page): Promise<readonly User[]> {
    return this.#lists.call(page);
  }

  async create({ name, email }: NewUser): Promise<User> {
    return (await this.#writes.call(({ create }) => written(create, name, email))) as User;
  }

  update(id: number, { name, email }: UserChange, condition: Condition): Promise<WriteResult> {
    const fields = { name: name ?? null, email: email ?? null };
    return this.#writes.call((statements) =>
      conditional(statements.change, { id, ...fields }, condition, statements),
    );
  }

  delete(id: number, condition: Condition): Promise<WriteResult> {
    return this.#writes.call((statements) =>
      conditional(statements.remove, { id }, condition, statements),
    );
  }

  ping(): Promise<void> {
    return this.#read(({ ping }) => void ping.get());
  }

  async close(): Promise<void> {
    this.#db.close();
  }

  /** Reads at once: sharing a statement would save nothing, and waiting for one would cost. */
  async #read<Result>(read: Read<Result>): Promise<Result> {
    const expires = this.#options.now() + this.#options.timeoutMs;
    try {
      return await this.#watch('read', () => read(this.#statements), expires);
    } catch (err) {
      throw new StoreUnavailable('the store failed', { cause: err });
    }
  }

  /** Reads one page for all calls that wait for it. */
  async #list(
    statements: Statements,
    pages: Page[],
    expires: number,
  ): Promise<(readonly User[])[]> {
    const { after, limit } = pages[0]!;
    const read = () => (statements.list.all(after, limit) as unknown as Row[]).map(toUser);
    const users = await this.#watch('read', read, expires);
    return pages.map(() => users);
  }

  /** Runs all writes in one transaction. */
  #commit(
    statements: Statements,
    writes: Write[],
    expires: number,
  ): Promise<(WriteResult | EmailTaken)[]> {
    return this.#watch('write', () => this.#transact(statements, writes), expires);
  }

  #transact(statements: Statements, writes: Write[]): (WriteResult | EmailTaken)[] {
    statements.begin.run();
    try {
      const results = writes.map((write) => write(statements));
      statements.commit.run(); // 5.5
      return results;
    } catch (err) {
      // On a full disk SQLite may have rolled back by itself.
      if (this.#db.isTransaction) statements.rollback.run(); // 5.2
      throw err;
    }
  }

  /** Runs the action once the file is not locked, and notes whether the file works. */
  async #watch<Result>(access: Access, action: () => Result, expires: number): Promise<Result> {
    try {
      const result = await retry(action, expires, this.#options.now);
      this.#availability.succeeded(access);
      return result;
    } catch (err) {
      const isClosed = !this.#db.isOpen;
      if (isLost(err) && !isClosed) this.#availability.failed(access, this.#describe(err as Error));
      throw err;
    }
  }

  /** Adds the result code, as SQLite has few messages for the many ways in which a disk fails. */
  #describe({ message, errcode }: Error & { errcode?: number }): StoreUnavailable {
    const code = errcode === undefined ? '' : ` (SQLite result code ${errcode})`;
    return new StoreUnavailable(`${this.#path}: ${message}${code}`);
  }
}

/** Runs the batches of one queue, each in a later turn of the event loop. */
class Batches implements Scheduler {
  readonly #statements: Statements;
  readonly #now: () => number;
  readonly #later: (task: () => void) => void;
  #isScheduled = false;

  constructor(statements: Statements, now: () => number, later: (task: () => void) => void) {
    this.#statements = statements;
    this.#now = now;
    this.#later = later;
  }

  schedule(queue: BatchSource): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#later(() => this.#run(queue));
  }

  async #run(queue: BatchSource): Promise<void> {
    const batch = queue.take(this.#now());
    if (batch === undefined) {
      this.#isScheduled = false;
      return;
    }
    await batch.run(this.#statements);
    this.#later(() => this.#run(queue));
  }
}

/**
 * Reports once that the file stopped working, and once that it works again. A file that can't be
 * written can often be read, on a full disk for example, so only a write ends a failure to write.
 */
class Availability {
  readonly #options: StoreOptions;
  #failed: Access | undefined;

  constructor(options: StoreOptions) {
    this.#options = options;
  }

  succeeded(access: Access): void {
    if (this.#failed === undefined) return;
    if (this.#failed === 'write' && access === 'read') return;
    this.#failed = undefined;
    this.#options.onAvailable();
  }

  failed(access: Access, cause: Error): void {
    const isFirst = this.#failed === undefined;
    if (this.#failed !== 'write') this.#failed = access;
    if (isFirst) this.#options.onUnavailable(cause);
  }
}

function prepare(db: DatabaseSync) {
  const columns = 'select id, name, email, version from users';
  const statements = {
    begin: db.prepare('begin immediate'),
    commit: db.prepare('commit'),
    rollback: db.prepare('rollback'),
    ping: db.prepare('select 1 from users limit 1'),
    find: db.prepare(`${columns} where id = ?`),
    findByEmail: db.prepare(`${columns} where email = ?`),
    list: db.prepare(`${columns} where id > ? order by id limit ?`),
    create: db.prepare(
      'insert into users (name, email) values (?, ?) returning id, name, email, version',
    ),
    change: db.prepare(CHANGE),
    remove: db.prepare(REMOVE),
  };
  for (const statement of Object.values(statements)) statement.setReturnArrays(true);
  return statements;
}

/** True if the file is at fault, false if one call broke a constraint of the table. */
function isLost(err: unknown): boolean {
  return primaryCode(err) !== SQLITE_CONSTRAINT;
}

function outcomeAfter(err: unknown): FailedOutcome {
  if (isLocked(err)) return 'not started';
  return isLost(err) ? 'unknown' : 'rolled back';
}

function toUser([id, name, email, version]: Row): User {
  return { id, name, email, version };
}

function user(row: unknown): User | undefined {
  return row === undefined ? undefined : toUser(row as Row);
}

/** Returns the row that a write returns. Not with get(), which can hide a failed commit. */
function written(
  statement: StatementSync,
  ...values: (SQLInputValue | Record<string, SQLInputValue>)[]
): User | EmailTaken | undefined {
  try {
    return user(statement.all(...(values as SQLInputValue[]))[0]);
  } catch (err) {
    // SQLite undoes only this statement; the transaction goes on.
    if ((err as { errcode?: number }).errcode === SQLITE_CONSTRAINT_UNIQUE) return new EmailTaken();
    throw err;
  }
}

function conditional(
  statement: StatementSync,
  values: Record<string, SQLInputValue>,
  { oneOf, noneOf }: Condition,
  { find }: Statements,
): WriteResult | EmailTaken {
  const changed = written(statement, {
    ...values,
    any: oneOf === 'any' ? 1 : 0,
    oneOf: JSON.stringify(oneOf === 'any' ? [] : oneOf),
    none: noneOf === 'any' ? 1 : 0,
    noneOf: JSON.stringify(noneOf === 'any' ? [] : noneOf),
  });
  if (changed !== undefined) return changed;
  return find.get(values.id!) === undefined ? undefined : 'stale';
}
