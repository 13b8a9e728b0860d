// Users in a SQLite file, or in memory. WAL with synchronous=FULL: an answer leaves only after its
// commit is on the disk. All writes that arrive in one turn of the event loop share one commit.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
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
} from '../user.ts';
import { type BatchSource, type FailedOutcome, Queue, type Scheduler } from './batch.ts';
import { isLocked, openFile, primaryCode, retry } from './file.ts';
import type { StoreOptions } from './index.ts';

// SQLite's result codes (sqlite.org/rescode.html).
const SQLITE_CONSTRAINT = 19;
const SQLITE_CONSTRAINT_UNIQUE = 2067;

// 4.8, 4.16
// Without a name or email the field stays; the version grows when something changes.
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

/** A write that waits for its commit. */
type Write = (statements: Statements) => Changed | EmailTaken;

type Statements = ReturnType<typeof prepare>;

/**
 * Opens the store in that file.
 * @throws an Error in one line
 */
export function openSqlite(path: string, options: StoreOptions): Promise<UserStore> {
  return openFile(path, options.now, (db) => new SqliteStore(path, db, options));
}

class SqliteStore implements UserStore, Scheduler {
  readonly #path: string;
  readonly #db: DatabaseSync;
  readonly #statements: Statements;
  readonly #options: StoreOptions;
  readonly #writes: Queue<Statements, Write, Changed>;
  #isScheduled = false;
  #failing: 'reading' | 'writing' | undefined;

  constructor(path: string, db: DatabaseSync, options: StoreOptions) {
    this.#path = path;
    this.#db = db;
    this.#statements = prepare(db);
    this.#options = options;
    const operation = { statement: this.#commit.bind(this), outcomeAfter };
    this.#writes = new Queue<Statements, Write, Changed>(
      this,
      operation,
      options.timeoutMs,
      options.now,
    );
  }

  find(id: number): Promise<User | undefined> {
    return this.#read(({ find }) => row(find.get(id)));
  }

  findByEmail(email: string): Promise<User | undefined> {
    return this.#read(({ findByEmail }) => row(findByEmail.get(email)));
  }

  list({ after, limit }: Page): Promise<readonly User[]> {
    return this.#read(({ list }) => list.all(after, limit) as unknown as User[]);
  }

  async create({ name, email }: NewUser): Promise<User> {
    return (await this.#writes.call(({ create }) => one(create, name, email))) as User;
  }

  change(id: number, { name, email }: UserChange, condition: Condition): Promise<Changed> {
    const fields = { name: name ?? null, email: email ?? null };
    return this.#writes.call((statements) =>
      conditional(statements.change, { id, ...fields }, condition, statements),
    );
  }

  remove(id: number, condition: Condition): Promise<Changed> {
    return this.#writes.call((statements) =>
      conditional(statements.remove, { id }, condition, statements),
    );
  }

  async ping(): Promise<void> {
    await this.#read(({ ping }) => ping.get());
  }

  async close(): Promise<void> {
    this.#db.close();
  }

  schedule(queue: BatchSource): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // After all the requests that this turn of the event loop brings.
    setImmediate(async () => {
      const batch = queue.take(this.#options.now());
      await batch?.run(this.#statements);
      this.#isScheduled = false;
      // What came while the file was locked.
      if (batch !== undefined) this.schedule(queue);
    });
  }

  /** One transaction with all the writes. */
  #commit(
    statements: Statements,
    writes: Write[],
    expires: number,
  ): Promise<(Changed | EmailTaken)[]> {
    return this.#watched('writing', () => this.#transact(statements, writes), expires);
  }

  #transact(statements: Statements, writes: Write[]): (Changed | EmailTaken)[] {
    statements.begin.run();
    try {
      const results = writes.map((write) => write(statements));
      statements.commit.run(); // 5.5
      return results;
    } catch (err) {
      // A full disk ends the transaction by itself.
      if (this.#db.isTransaction) statements.rollback.run(); // 5.2
      throw err;
    }
  }

  async #read<T>(read: (statements: Statements) => T): Promise<T> {
    const expires = this.#options.now() + this.#options.timeoutMs;
    try {
      return await this.#watched('reading', () => read(this.#statements), expires);
    } catch (err) {
      throw new StoreUnavailable('the store failed', { cause: err });
    }
  }

  /** Tells the log when the file fails and when it works again. On a full disk reading works. */
  async #watched<T>(kind: 'reading' | 'writing', action: () => T, expires: number): Promise<T> {
    try {
      const result = await retry(action, expires, this.#options.now);
      if (this.#failing === kind || (this.#failing !== undefined && kind === 'writing')) {
        this.#failing = undefined;
        this.#options.onAvailable();
      }
      return result;
    } catch (err) {
      if (isLost(err)) {
        if (this.#failing === undefined) this.#options.onUnavailable(this.#named(err as Error));
        this.#failing = this.#failing === 'writing' ? 'writing' : kind;
      }
      throw err;
    }
  }

  /** SQLite's words for a failing disk are few; its code says which call has failed. */
  #named({ message, errcode }: Error & { errcode?: number }): StoreUnavailable {
    const code = errcode === undefined ? '' : ` (SQLite result code ${errcode})`;
    return new StoreUnavailable(`${this.#path}: ${message}${code}`);
  }
}

function prepare(db: DatabaseSync) {
  const columns = 'select id, name, email, version from users';
  return {
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
}

/** Whether the file is at fault, and not one call that breaks a rule of the table. */
function isLost(err: unknown): boolean {
  return primaryCode(err) !== SQLITE_CONSTRAINT;
}

function outcomeAfter(err: unknown): FailedOutcome {
  if (isLocked(err)) return 'not started';
  return isLost(err) ? 'unknown' : 'rolled back';
}

function row(found: Record<string, unknown> | undefined): User | undefined {
  return found as User | undefined;
}

/** The row that a write returns. Not with get(), which could hide a failed commit. */
function one(
  statement: StatementSync,
  ...values: (SQLInputValue | Record<string, SQLInputValue>)[]
): User | EmailTaken | undefined {
  try {
    return statement.all(...(values as SQLInputValue[]))[0] as unknown as User | undefined;
  } catch (err) {
    // The statement has undone itself; the transaction goes on.
    if ((err as { errcode?: number }).errcode === SQLITE_CONSTRAINT_UNIQUE) return new EmailTaken();
    throw err;
  }
}

function conditional(
  statement: StatementSync,
  values: Record<string, SQLInputValue>,
  { oneOf, noneOf }: Condition,
  { find }: Statements,
): Changed | EmailTaken {
  const changed = one(statement, {
    ...values,
    any: oneOf === 'any' ? 1 : 0,
    oneOf: JSON.stringify(oneOf === 'any' ? [] : oneOf),
    none: noneOf === 'any' ? 1 : 0,
    noneOf: JSON.stringify(noneOf === 'any' ? [] : noneOf),
  });
  if (changed !== undefined) return changed;
  return find.get(values.id!) === undefined ? undefined : 'stale';
}
