// Users in a SQLite file, or in memory. WAL with synchronous=FULL: an answer leaves only after its
// commit is on the disk. All writes that arrive in one turn of the event loop share one commit.
// SQLite's own waiting for a lock would stop the event loop, so it is switched off, and what finds
// the file locked is tried again from outside until its time is over.
import { accessSync, constants, existsSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { getgid, getuid } from 'node:process';
import type * as Sqlite from 'node:sqlite';
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
import { Batch, type Runnable, type Runner } from './batch.ts';
import type { StoreOptions } from './index.ts';
import { migrations, missing } from './migrate.ts';

/** Pause before a locked file is tried again. */
const RETRY_MS = 20;

/** How long a start waits for another process that is making the schema. */
const OPEN_TIMEOUT_MS = 10_000;

// SQLite's result codes; the lower eight bits are the primary one (sqlite.org/rescode.html).
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;
const SQLITE_CONSTRAINT = 19;
const SQLITE_CONSTRAINT_UNIQUE = 2067;

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
 * Opens the file, creates it and its folder where they are missing, and brings the schema up to date.
 * @throws an Error in one line
 */
export async function openSqlite(path: string, options: StoreOptions): Promise<UserStore> {
  // Loaded where it is chosen.
  const sqlite: typeof Sqlite = createRequire(import.meta.url)('node:sqlite');
  let db: DatabaseSync;
  try {
    if (path !== ':memory:') makeFolder(dirname(path));
    db = new sqlite.DatabaseSync(path, { timeout: 0 });
  } catch (err) {
    throw new Error(explain(path, err as Error));
  }
  const expires = options.now() + OPEN_TIMEOUT_MS;
  try {
    await retry(() => migrate(db), expires, options.now);
    return new SqliteStore(db, options);
  } catch (err) {
    db.close();
    throw new Error(explain(path, err as Error));
  }
}

/** Not mkdirSync's own recursion: node 26 tries for ever where a parent cannot be made (/proc/a/b). */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  mkdirSync(path);
}

class SqliteStore implements UserStore, Runner {
  readonly #db: DatabaseSync;
  readonly #statements: Statements;
  readonly #options: StoreOptions;
  readonly #writes: Batch<Statements, Write, Changed>;
  #isScheduled = false;
  #failing: 'reading' | 'writing' | undefined;

  constructor(db: DatabaseSync, options: StoreOptions) {
    this.#db = db;
    this.#statements = prepare(db);
    this.#options = options;
    const kind = { statement: this.#commit.bind(this), isLost };
    this.#writes = new Batch<Statements, Write, Changed>(
      this,
      kind,
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

  wake(batch: Runnable): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // After all the requests that this turn of the event loop brings.
    setImmediate(async () => {
      const running = batch.take(this.#options.now());
      await running?.run(this.#statements);
      this.#isScheduled = false;
      // What came while the file was locked.
      if (running !== undefined) this.wake(batch);
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
      statements.commit.run();
      return results;
    } catch (err) {
      // A full disk ends the transaction by itself.
      if (this.#db.isTransaction) statements.rollback.run();
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
        this.#options.onBack();
      }
      return result;
    } catch (err) {
      if (isLost(err)) {
        if (this.#failing === undefined) this.#options.onGone(err);
        this.#failing = this.#failing === 'writing' ? 'writing' : kind;
      }
      throw err;
    }
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

function primaryCode(err: unknown): number {
  return ((err as { errcode?: number }).errcode ?? 0) & 0xff;
}

function row(found: Record<string, unknown> | undefined): User | undefined {
  return found as User | undefined;
}

/** The row that a write returns. Never with get(), which stops before the statement is through. */
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

/** Does the action, again and again while another process holds a lock on the file. */
async function retry<T>(action: () => T, expires: number, now: () => number): Promise<T> {
  for (;;) {
    try {
      return action();
    } catch (err) {
      const code = primaryCode(err);
      if ((code !== SQLITE_BUSY && code !== SQLITE_LOCKED) || now() >= expires) throw err;
    }
    await new Promise((resume) => setTimeout(resume, RETRY_MS));
  }
}

function migrate(db: DatabaseSync): void {
  db.exec('pragma journal_mode = wal; pragma synchronous = full; pragma temp_store = memory');
  const all = migrations('sqlite');
  const version = () => Number(db.prepare('pragma user_version').get()?.user_version);
  if (missing(all, version()).length === 0) return;
  db.exec('begin immediate');
  try {
    // Another process may have been first.
    for (const migration of missing(all, version())) {
      db.exec(`${migration.sql}; pragma user_version = ${migration.version}`);
    }
    db.exec('commit');
  } catch (err) {
    if (db.isTransaction) db.exec('rollback');
    throw err;
  }
}

/** What an operator can do about a file that cannot be opened. */
function explain(path: string, { message }: Error): string {
  const folder = resolve(dirname(path));
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch {
    const uid = getuid?.();
    return `cannot open the database ${path}: ${message}; the folder ${folder} is not writable by uid ${uid}: chown ${uid}:${getgid?.()} ${folder}`;
  }
  return `cannot open the database ${path}: ${message}`;
}
