// A simulated Postgres on two hosts with synchronous replication. It keeps users in memory and behaves like
// Postgres at `read committed` where the store depends on it: snapshots, locks of rows and unique emails in
// the order of a statement, deadlocks, statement timeouts, commits that take time, read-only standbys,
// limits of connections. Statements are recognised by their text; their SQL is tested on the real Postgres.
import type { SURROUNDINGS } from '../../src/store/pool.ts';
import type { Session } from '../../src/store/session.ts';
import { FIELD_NAMES, StoreUnavailable, type User, type UserChange } from '../../src/user.ts';
import { newUser } from '../support/users.ts';
import type { Time } from './time.ts';

type SessionOptions = Parameters<(typeof SURROUNDINGS)['openSession']>[0];

/** A committed state of a user, from a time until that of the next state. */
export interface State {
  readonly ms: number;
  readonly id: number;
  readonly user: User | undefined;
}

export interface Host {
  isUp: boolean;
  isReadOnly: boolean;
  frozenUntil: number;
  readonly backends: Set<Backend>;
}

/** What a session is on its host. It can live on after its client has gone. */
interface Backend {
  readonly host: Host;
  readonly isWriting: boolean;
  kill(): void;
  cut(): void;
  silence(): void;
}

interface Transaction {
  readonly rows: Set<number>;
  readonly emails: Set<string>; // inserted, or of a locked row
  readonly writes: Map<number, User | undefined>;
  readonly ended: Promise<void>;
  readonly end: () => void;
  waitsFor?: Transaction | undefined;
  readonly aborted: Promise<never>;
  readonly abort: (err: Error) => void;
}

const DEADLOCK_TIMEOUT_MS = 1000;
const EPOCH_SECONDS = 1_700_000_000;

const refusal = (code: string) => Object.assign(new Error(code), { code, severity: 'ERROR' });
const list = <T>(text: string | undefined): T[] => JSON.parse(`[${text?.slice(1, -1) ?? ''}]`);

export class SimulatedServer {
  readonly hosts: readonly Host[] = [0, 1].map((i) => ({
    isUp: true,
    isReadOnly: i === 1,
    frozenUntil: 0,
    backends: new Set<Backend>(),
  }));
  readonly users = new Map<number, User>();
  readonly states: State[] = [];
  readonly violations: string[] = [];
  readonly clients = new Set<Promise<void>>(); // the sessions that are open for the pool
  deadlocks = 0;
  maxLatencyMs = 2;
  maxBackends = 100;
  clockMs = 0; // of the servers, relative to ours
  isDiskFull = false;
  isPasswordWrong = false;
  #newestId = 0;
  readonly #time: Time;
  readonly #transactions = new Set<Transaction>();

  constructor(time: Time) {
    this.#time = time;
  }

  /** Locks a user, or the table, until the returned function is called. */
  lock(id: number | undefined): () => void {
    const transaction = this.#begin();
    transaction.rows.add(id ?? 0);
    return transaction.end;
  }

  /** @throws what a pool gets from a host that can't be used */
  readonly openSession = async (options: SessionOptions): Promise<Session> => {
    const time = this.#time;
    const host = this.hosts[options.host.port - 1]!;
    const { promise: tooLate, reject } = Promise.withResolvers<never>();
    tooLate.catch(() => {});
    const fail = () => reject(new StoreUnavailable('timed out while connecting'));
    const cancel = time.after(options.connectTimeoutMs, fail);
    options.signal.addEventListener('abort', fail);
    try {
      await Promise.race([tooLate, this.#travel()]);
      if (!host.isUp) throw new StoreUnavailable('refused');
      if (host.frozenUntil > time.ms) await Promise.race([tooLate, this.#whileFrozen(host)]);
      if (this.isPasswordWrong) throw new StoreUnavailable('28P01');
      if (host.backends.size >= this.maxBackends) throw new StoreUnavailable('53300');
      if (host.isReadOnly) throw new StoreUnavailable('does not match target_session_attrs');
      const session = this.#session(host, options);
      try {
        const cut = session.closed.then(() => {
          throw new Error('connection lost');
        });
        await Promise.race([tooLate, cut, this.#travel()]);
      } catch (err) {
        session.destroy();
        throw err;
      }
      this.clients.add(session.closed);
      return session;
    } finally {
      cancel();
      options.signal.removeEventListener('abort', fail);
    }
  };

  #session(host: Host, { timeoutMs, now }: SessionOptions): Session {
    const seconds = () => EPOCH_SECONDS + (this.#time.ms + this.clockMs) / 1000;
    const epoch = seconds() - now() / 1000;
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const close = () => {
      this.clients.delete(closed);
      resolve();
    };
    let isOpen = true; // for the client
    let running: Promise<unknown> | undefined;
    let response: Promise<unknown> | undefined;
    let answeredAt = -1;
    let transaction: Transaction | undefined;
    let pending: ((err: Error) => void) | undefined;
    let isKilled = false;
    let isSilent = false; // nothing arrives any more, in either direction
    const cut = (hasReset: boolean) => {
      if (!isOpen) return;
      isOpen = false;
      pending?.(new Error('connection lost'));
      if (hasReset) close();
      else void this.#travel().then(close);
      if (running === undefined) host.backends.delete(backend);
    };
    const backend = {
      host,
      isWriting: false,
      kill: () => {
        isKilled = true;
        transaction?.abort(new Error('killed'));
        host.backends.delete(backend);
        cut(false);
      },
      cut: () => cut(false),
      silence: () => {
        isSilent = true;
      },
    };
    host.backends.add(backend);
    const run = async (text: string, values: readonly string[]) => {
      await this.#travel();
      if (isKilled || isSilent || !host.isUp) throw new Error('connection lost');
      await this.#whileFrozen(host);
      const isWrite = text.includes('to_timestamp');
      if (!isWrite) return this.#read(text, values, host);
      if (host.isReadOnly) throw refusal('25006');
      if (seconds() >= Number(values[0])) throw refusal('22012');
      transaction = this.#begin();
      const { abort } = transaction;
      const cancel = this.#time.after(timeoutMs, () => abort(refusal('57014')));
      try {
        const rows = await this.#write(transaction, text, values, host);
        cancel();
        if (this.isDiskFull) throw refusal('53100');
        await this.#time.sleep(this.#time.random() * 10); // fsync
        await this.#whileFrozen(host);
        if (isKilled) throw new Error('connection lost');
        if (host.isReadOnly) throw refusal('25006');
        this.#commit(transaction);
        return rows;
      } finally {
        cancel();
        transaction.end();
      }
    };
    return {
      schema: 'public',
      query: <T extends object>(text: string, values: readonly string[]): Promise<T[]> => {
        if (!isOpen) return Promise.reject(new Error('connection lost'));
        if (pending) this.violations.push('a session has two statements');
        const isWrite = text.includes('to_timestamp');
        backend.isWriting = isWrite;
        // 5.9. A batch may run again on its connection although others were lost meanwhile.
        const isRerun = answeredAt === this.#time.ms;
        const writing = this.hosts.flatMap((one) => [...one.backends].filter((b) => b.isWriting));
        const isWritten =
          isWrite && !isRerun && writing.length > Math.max(1, this.clients.size - 1);
        if (isWritten) this.violations.push('5.9 no connection is free of writes');
        const ran = run(text, values);
        running = ran.finally(() => {
          running = undefined;
          if (!isOpen) host.backends.delete(backend);
        });
        const answered = new Promise<T[]>((resolve, reject) => {
          pending = (err) => {
            pending = undefined;
            backend.isWriting = false;
            reject(err);
          };
          const answer = async (give: () => void) => {
            await this.#travel();
            await this.#whileFrozen(host);
            if (!isOpen || isSilent) return;
            pending = undefined;
            backend.isWriting = false;
            answeredAt = this.#time.ms;
            give();
          };
          running!.then(
            (rows) => answer(() => resolve(rows as T[])),
            (err) => answer(() => reject(err)),
          );
        });
        response = answered;
        return answered;
      },
      serverSeconds: (ms) => epoch + ms / 1000,
      end: async () => {
        await response?.catch(() => {});
        cut(true);
      },
      destroy: () => cut(true),
      closed,
    };
  }

  #read(text: string, values: readonly string[], host: Host): object[] {
    if (text.includes('pg_stat_activity')) return [{ isReadOnly: host.isReadOnly, isStuck: false }];
    const users = [...this.users.values()].sort((a, b) => a.id - b.id);
    const [first = '', limit] = values;
    if (text.includes('order by id')) {
      return users.filter(({ id }) => id > Number(first)).slice(0, Number(limit));
    }
    const keys = text.includes('any(') ? list<string | number>(first) : [first];
    const wanted = new Set(keys.map(String));
    return users.filter(({ id, email }) => wanted.has(text.includes('email =') ? email : `${id}`));
  }

  async #write(own: Transaction, text: string, values: readonly string[], host: Host) {
    const step = async () => {
      await Promise.race([own.aborted, this.#time.sleep(this.#time.random())]);
      await this.#whileFrozen(host);
    };
    const owner = (email: string | null, users: ReadonlyMap<number, User>) =>
      [...users.values()].find((user) => user.email === email);
    const hasRow = (id: number) => (other: Transaction) => other.rows.has(id) || other.rows.has(0);
    const isTable = (other: Transaction) => other.rows.has(0);
    const snapshot = new Map(this.users);
    const result: object[] = [];
    await this.#acquire(own, isTable);
    if (text.includes('insert into users')) {
      const items = list<string>(values[1]).map((_, n) => newUser(fieldsOf(values.slice(1), n)));
      for (const item of items.toSorted((a, b) => (a.email < b.email ? -1 : 1))) {
        const { email } = item;
        await step();
        await this.#acquire(own, (other) => other.emails.has(email));
        if (own.emails.has(email) || owner(email, this.users)) continue;
        own.emails.add(email);
        const user = { id: ++this.#newestId, ...item, version: 1 };
        own.writes.set(user.id, user);
        result.push(user);
      }
      return result;
    }
    const isFull = text.includes('is_taken');
    const [oneOf, noneOf] = isFull ? values.slice(2, 4).map((value) => list<string>(value)) : [];
    const fields = values.slice(isFull ? 4 : 2);
    const emails = list<string | null>(fields[FIELD_NAMES.indexOf('email')]!);
    const targets = list<number>(values[1])
      .map((id, n) => {
        const email = emails[n] ?? null;
        const isRepeated = email !== null && emails.indexOf(email) < n;
        const taken = email === null ? undefined : owner(email, snapshot);
        const isTaken = taken !== undefined && taken.id !== id;
        const matches = ({ version }: User) =>
          !isFull ||
          ((oneOf![n] === '*' || oneOf![n]!.includes(`,${version},`)) &&
            noneOf![n] !== '*' &&
            !noneOf![n]!.includes(`,${version},`));
        return { id, set: fieldsOf(fields, n), isRepeated, isTaken, matches };
      })
      .sort((a, b) => a.id - b.id);
    for (const { id, set, isRepeated, isTaken, matches } of targets) {
      const seen = snapshot.get(id);
      if (seen === undefined) continue;
      if (isFull && (isTaken || isRepeated || !matches(seen))) continue;
      await step();
      await this.#acquire(own, hasRow(id));
      const user = this.users.get(id);
      if (user === undefined || !matches(user)) continue;
      own.rows.add(id);
      own.emails.add(user.email);
      if (text.includes('delete from')) {
        own.writes.set(id, undefined);
        result.push(user);
        continue;
      }
      const next = { ...user, ...set };
      if (next.email !== user.email) {
        await this.#acquire(own, (other) => other.emails.has(next.email));
        if (owner(next.email, this.users)) throw refusal('23505');
        own.emails.add(next.email);
      }
      const isSame = FIELD_NAMES.every((field) => next[field] === user[field]);
      const written = { ...next, version: user.version + (isSame ? 0 : 1) };
      own.writes.set(id, written);
      result.push(written);
    }
    const refused = targets.filter(({ id }) => snapshot.has(id) && !own.writes.has(id));
    if (!isFull) return result;
    for (const { id, isTaken, matches } of refused) {
      const reason = isTaken ? 'taken' : 'raced';
      result.push({ id, refusal: matches(snapshot.get(id)!) ? reason : 'stale' });
    }
    return result;
  }

  /** Waits until no other transaction holds the lock. Looks for a deadlock after a second. */
  async #acquire(own: Transaction, isHeld: (other: Transaction) => boolean): Promise<void> {
    for (;;) {
      const holder = [...this.#transactions].find((other) => other !== own && isHeld(other));
      if (holder === undefined) return;
      own.waitsFor = holder;
      const cancel = this.#time.after(DEADLOCK_TIMEOUT_MS, () => {
        const seen = new Set<Transaction>();
        let next: Transaction | undefined = own;
        while (next !== undefined && !seen.has(next)) {
          seen.add(next);
          next = next.waitsFor;
        }
        if (next !== own) return;
        this.deadlocks++;
        own.abort(refusal('40P01'));
      });
      try {
        await Promise.race([own.aborted, holder.ended]);
      } finally {
        own.waitsFor = undefined;
        cancel();
      }
    }
  }

  #begin(): Transaction {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const { promise: aborted, reject: abort } = Promise.withResolvers<never>();
    aborted.catch(() => {});
    const end = () => {
      this.#transactions.delete(transaction);
      resolve();
    };
    const transaction: Transaction = {
      ...{ rows: new Set<number>(), emails: new Set<string>(), writes: new Map() },
      ...{ ended, end, aborted, abort },
    };
    this.#transactions.add(transaction);
    return transaction;
  }

  #commit({ writes }: Transaction): void {
    for (const [id, user] of writes) {
      this.states.push({ ms: this.#time.ms, id, user });
      if (user) this.users.set(id, user);
      else this.users.delete(id);
    }
  }

  #travel(): Promise<void> {
    return this.#time.sleep(this.#time.random() * this.maxLatencyMs);
  }

  async #whileFrozen(host: Host): Promise<void> {
    while (host.frozenUntil > this.#time.ms) {
      await this.#time.sleep(host.frozenUntil - this.#time.ms);
    }
  }
}

/** Returns the fields of the n-th item, from parameters with an array for each field. */
function fieldsOf(arrays: readonly string[], n: number): UserChange {
  const values = arrays.map((array) => list<string | null>(array)[n]);
  const entries = FIELD_NAMES.map((field, i) => [field, values[i] === '' ? null : values[i]]);
  return Object.fromEntries(entries.filter((_, i) => values[i] !== null));
}
