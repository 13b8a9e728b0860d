// A simulated Postgres on two hosts with synchronous replication, and the poolers before them. It keeps users
// in memory and behaves like Postgres at `read committed` where the store depends on it: snapshots, locks of
// rows and unique emails in the order of a statement, deadlocks, the timeouts that the session sets, commits that
// wait for a disk, a lock or a standby, read-only standbys, an old primary that nobody has fenced, limits of
// connections. Statements are recognised by their text; their SQL is tested on the real Postgres.
import type { Notice, Sql } from 'postgres';
import type { Session, SessionOptions } from '../../src/store/session.ts';
import { queryWith, settingsOf } from '../../src/store/session.ts';
import { FIELD_NAMES, StoreUnavailable, type User, type UserChange } from '../../src/user.ts';
import { newUser } from '../support/users.ts';
import type { Time } from './time.ts';

/** A committed state of a user, from a time until that of the next state. */
export interface State {
  readonly ms: number;
  readonly id: number;
  readonly user: User | undefined;
  readonly stuckAt: number; // since then the commit had waited for a standby
  readonly isReplicated: boolean;
}

// Connections that a pool may open in a second. In 12,000 stories it opened 60 at most; without pauses 1,057, and 586 if
// a connection that is lost at once is no failure.
const MAX_OPENED = 150;

export interface Host {
  isUp: boolean;
  isReadOnly: boolean;
  frozenUntil: number;
  old?: Map<number, User> | undefined; // its users, if it is an old primary: no commit of it ends
  leased: number; // server sessions of its pooler that run a statement
  readonly backends: Set<Backend>;
  readonly waiting: (() => void)[]; // statements in its pooler
}

/** What a session is on its host. It can live on after its client has gone. */
export interface Backend {
  readonly owner: object;
  readonly isWriting: boolean;
  kill(): void;
  cut(): void;
  silence(): void;
}

interface Transaction {
  readonly host: Host | undefined;
  readonly owner: () => object | undefined; // the replica of the service, while it is connected
  readonly isOld: boolean;
  stuckAt?: number; // since then the commit has waited for a standby
  readonly rows: Set<number>;
  readonly emails: Set<string>; // inserted, or of a locked row
  readonly writes: Map<number, User | undefined>;
  readonly ended: Promise<void>;
  readonly end: () => void;
  waitsFor?: Transaction | undefined;
  readonly aborted: Promise<never>;
  readonly abort: (err: Error) => void;
}

export const NORMAL = {
  maxLatencyMs: 2,
  maxBackends: 100,
  isCrashing: false, // Connections are lost soon.
  readFault: '', // SQLSTATE of half of the reads
  writeFault: '',
};

const DEADLOCK_TIMEOUT_MS = 200;
const STUCK_MS = 200; // Postgres is asked for 2,000, and calls have ten times as long, too.
const EPOCH_SECONDS = 1_700_000_000;

const refusal = (code: string, message = code, severity = 'ERROR') =>
  Object.assign(new Error(message), { code, severity });
const list = <T>(text: string | undefined): T[] => JSON.parse(`[${text?.slice(1, -1) ?? ''}]`);

export class SimulatedServer {
  readonly hosts: readonly Host[] = [0, 1].map((i) => ({
    ...{ isUp: true, isReadOnly: i === 1, frozenUntil: 0, leased: 0 },
    ...{ backends: new Set<Backend>(), waiting: [] },
  }));
  readonly users = new Map<number, User>();
  readonly states: State[] = [];
  readonly violations: string[] = [];
  readonly clients = new Map<Promise<void>, object>(); // the open sessions, each with its pool
  readonly splits: { readonly fromMs: number; toMs: number }[] = []; // when there were two primaries
  readonly unanswered = new Set<object>(); // statements without a result, of all pools
  deadlocks = 0;
  readonly condition = { ...NORMAL };
  poolerSize = 0; // server sessions of the pooler of each host; 0: no pooler
  clockMs = 0; // of the servers, relative to ours
  readonly #held: { constraint?: Promise<boolean>; standby?: Promise<boolean> } = {}; // what commits wait for
  #newestId = 0;
  readonly #opened = new Map<object, readonly number[]>(); // by pool: when it connected in the last second
  readonly #last = new Map<object, Host | undefined>(); // by pool: the host that it may not try first
  readonly #time: Time;
  readonly #transactions = new Set<Transaction>();

  constructor(time: Time) {
    this.#time = time;
  }

  lock(id: number | undefined): () => void {
    const transaction = this.#begin(undefined, () => undefined);
    transaction.rows.add(id ?? 0);
    return transaction.end;
  }

  /** Makes commits wait for a lock or the standby. Returns what ends the wait: an operator cancels it, or all is well. */
  hold(what: 'constraint' | 'standby', isCancelled = false): () => void {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#held[what] = promise;
    return () => {
      resolve(!isCancelled);
      if (this.#held[what] === promise) delete this.#held[what];
    };
  }

  /** Makes the other host the primary too. Returns a function that fences the old one. */
  split(): () => void {
    const old = this.hosts.find((host) => !host.isReadOnly)!;
    const other = this.hosts.find((host) => host !== old)!;
    const split = { fromMs: this.#time.ms, toMs: Number.POSITIVE_INFINITY };
    if (this.hosts.some((host) => host.old)) return () => {};
    this.splits.push(split);
    old.old = new Map(this.users);
    for (const one of this.#transactions) if (one.host === old) Object.assign(one, { isOld: true });
    other.isReadOnly = false;
    return () => {
      if (split.toMs < this.#time.ms) return;
      split.toMs = this.#time.ms;
      Object.assign(old, { old: undefined, isReadOnly: true });
      for (const backend of old.backends) backend.kill();
      for (const one of this.#transactions) if (one.isOld) one.abort(new Error('fenced'));
    };
  }

  /** Returns what opens the sessions of a replica of the service. */
  readonly opener = (owner: object) => (options: SessionOptions) => this.#open(owner, options);

  /** @throws what a pool gets from a host that can't be used */
  async #open(owner: object, options: SessionOptions): Promise<Session> {
    const time = this.#time;
    const host = this.hosts[options.host.port - 1]!;
    options.signal.throwIfAborted();
    const opened = this.#opened.get(owner)?.filter((ms) => ms > time.ms - 1000) ?? [];
    this.#opened.set(owner, [...opened, time.ms]);
    if (opened.length > MAX_OPENED) this.violations.push('5.7 the pool connects without pauses');
    if (this.#last.get(owner) === host) this.violations.push('5.1 the wrong host is tried first');
    const { promise: tooLate, reject } = Promise.withResolvers<never>();
    tooLate.catch(() => {});
    const fail = () => reject(new StoreUnavailable('timed out while connecting'));
    const cancel = time.after(options.database.connectTimeoutMs, fail);
    options.signal.addEventListener('abort', fail);
    let last: Host | undefined;
    try {
      await Promise.race([tooLate, this.#travel()]);
      if (!host.isUp) throw refusal('57P03');
      if (host.frozenUntil > time.ms) await Promise.race([tooLate, this.#whileFrozen(host)]);
      if (host.backends.size >= this.condition.maxBackends) throw refusal('53300');
      if (host.isReadOnly && options.database.sessionAttributes !== 'any')
        throw new StoreUnavailable('does not match target_session_attrs');
      const session = this.#session(host, owner, options);
      try {
        const cut = session.closed.then(() => {
          throw new Error('connection lost');
        });
        await Promise.race([tooLate, cut, this.#lease(host, () => this.#travel())]);
      } catch (err) {
        session.destroy();
        throw err;
      }
      this.clients.set(session.closed, owner);
      last = this.hosts.find((other) => other !== host);
      if (this.condition.isCrashing) time.after(10, () => [...host.backends].at(-1)?.cut());
      return session;
    } finally {
      cancel();
      this.#last.set(owner, last);
      options.signal.removeEventListener('abort', fail);
    }
  }

  #session(host: Host, owner: object, { timeoutMs, now }: SessionOptions): Session {
    const settings = settingsOf(this.poolerSize > 0, timeoutMs, 'public', null);
    const limitOf = (name: string) => Number(RegExp(`${name} = (\\d+)`).exec(settings)?.[1] ?? 1e9);
    const seconds = () => EPOCH_SECONDS + (this.#time.ms + this.clockMs) / 1000;
    const epoch = seconds() - now() / 1000;
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const close = () => {
      this.clients.delete(closed);
      resolve();
    };
    let isOpen = true; // for the client
    let running: Promise<{ isStuck?: boolean }[]> | undefined;
    let response: Promise<unknown> | undefined;
    let sentAt = -1;
    let answeredAt = -1;
    let transaction: Transaction | undefined;
    let pending: ((err: Error) => void) | undefined;
    let isKilled = false;
    let isSilent = false; // nothing arrives any more, in either direction
    const notices: Notice[] = [];
    const cut = (hasReset: boolean, cause = new Error('connection lost')) => {
      if (!isOpen) return;
      isOpen = false;
      pending?.(cause);
      if (hasReset) close();
      else void this.#travel().then(close);
      if (running === undefined) host.backends.delete(backend);
    };
    const backend = {
      owner,
      isWriting: false,
      kill: () => {
        if (this.poolerSize > 0 && running === undefined) return; // The pooler keeps its client.
        isKilled = true;
        transaction?.abort(new Error('killed'));
        host.backends.delete(backend);
        cut(false, refusal('57P01', '57P01', 'FATAL'));
      },
      cut: () => cut(false),
      silence: () => {
        isSilent = true;
      },
    };
    host.backends.add(backend);
    const run = async (text: string, values: readonly string[]) => {
      if (isSilent || !host.isUp) throw new Error('connection lost');
      await this.#whileFrozen(host);
      if (isKilled) throw new Error('connection lost');
      const { readFault, writeFault } = this.#time.random() < 0.5 ? NORMAL : this.condition;
      if (!text.includes('to_timestamp')) {
        if (readFault) throw refusal(readFault);
        return this.#read(text, values, host);
      }
      if (host.isReadOnly) throw refusal('25006');
      if (seconds() >= Number(values[0])) throw refusal('22P02', text); // It quotes a part.
      transaction = this.#begin(host, () => (isOpen ? owner : undefined));
      const own = transaction;
      const { abort } = own;
      let cancel = this.#time.after(limitOf('statement_timeout'), () => abort(refusal('57014')));
      try {
        const rows = await this.#write(own, text, values, host);
        cancel();
        if (writeFault) throw refusal(writeFault);
        cancel = this.#time.after(limitOf('lock_timeout'), () => abort(refusal('55P03')));
        const hasWritten = own.writes.size > 0;
        await Promise.race([own.aborted, hasWritten && this.#held.constraint]);
        cancel();
        await this.#time.sleep(this.#time.random() * 10); // fsync
        await this.#whileFrozen(host);
        if (isKilled) throw new Error('connection lost');
        own.stuckAt = this.#time.ms;
        const standby = (hasWritten && this.#held.standby) || true;
        // A cancelled wait, or a shutdown that ends it, leaves the commit on this host.
        const isReplicated = await Promise.race([standby, own.aborted.catch(() => false)]);
        if (own.isOld && hasWritten) await own.aborted; // when it is fenced
        if (host.isReadOnly) throw refusal('25006');
        this.#commit(own, isReplicated);
        if (!isReplicated) notices.push({ routine: 'SyncRepWaitForLSN' });
        return rows;
      } finally {
        cancel();
        own.end();
      }
    };
    const unsafe = (text: string, values: readonly string[]): Promise<object[]> => {
      if (!isOpen) return Promise.reject(new Error('connection lost'));
      if (pending) this.violations.push('a session has two statements');
      sentAt = this.#time.ms;
      const isWrite = text.includes('to_timestamp');
      backend.isWriting = isWrite;
      // 5.9. A batch may run again on its connection although others were lost meanwhile.
      const isRerun = answeredAt === this.#time.ms;
      const writing = this.hosts
        .flatMap((one) => [...one.backends])
        .filter((one) => one.owner === owner && one.isWriting).length;
      const open = [...this.clients.values()].filter((one) => one === owner).length;
      const isWritten = isWrite && !isRerun && writing > Math.max(1, open - 1);
      if (isWritten) this.violations.push('5.9 no connection is free of writes');
      const ran = this.#travel().then(() => this.#lease(host, () => run(text, values)));
      running = ran.finally(() => {
        running = undefined;
        if (!isOpen) host.backends.delete(backend);
      });
      const answered = new Promise<object[]>((resolve, reject) => {
        const settle = () => {
          pending = undefined;
          backend.isWriting = false;
          this.unanswered.delete(settle);
        };
        this.unanswered.add(settle);
        pending = (err) => {
          settle();
          reject(err);
        };
        const answer = async (give: () => void, isStuck = false) => {
          await this.#travel();
          await this.#whileFrozen(host);
          if (!isOpen || isSilent) return;
          settle();
          answeredAt = this.#time.ms;
          give();
          if (!isStuck) return;
          this.#last.set(owner, host);
          this.#time.after(1, () => isOpen && this.violations.push('7.2 a stuck host is kept'));
        };
        running!.then(
          (rows) => answer(() => resolve(rows), notices.length > 0 || rows[0]?.isStuck === true),
          (err) =>
            answer(() => {
              if (err.code === '25006') this.#last.delete(owner); // The pool may go back to it.
              reject(err);
            }),
        );
      });
      response = answered;
      return answered;
    };
    const session: Session = {
      ...{ schema: 'public', isReadOnly: host.isReadOnly },
      query: queryWith({ unsafe } as unknown as Sql, notices, undefined),
      serverTime: (ms) => String(epoch + ms / 1000),
      end: async () => {
        await response?.catch(() => {});
        cut(true);
      },
      destroy: () => {
        // A batch can be late before the last of its statements is: then the pool leaves this host, too.
        const isLate = this.#time.ms - sentAt >= timeoutMs;
        if (pending) this.#last.set(owner, isLate ? host : undefined);
        cut(true);
      },
      closed,
    };
    return session;
  }

  #read(text: string, values: readonly string[], host: Host): object[] {
    if (text.includes('pg_stat_activity')) {
      const isStuck = [...this.#transactions].some(
        (one) => one.host === host && one.stuckAt! < this.#time.ms - STUCK_MS,
      );
      return [{ isReadOnly: host.isReadOnly, isStuck }];
    }
    const users = [...(host.old ?? this.users).values()].sort((a, b) => a.id - b.id);
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
    const hasEmail = (email: string) => (other: Transaction) => other.emails.has(email);
    const hasTable = hasRow(0);
    // No other one may take the lock between the last look and what follows it, so the loops are here.
    const holder = (isHeld: (other: Transaction) => boolean) =>
      [...this.#transactions].find(
        (other) => other !== own && other.isOld === own.isOld && isHeld(other),
      );
    const users = host.old ?? this.users;
    const snapshot = new Map(users);
    const result: object[] = [];
    for (let other = holder(hasTable); other; other = holder(hasTable))
      await this.#wait(own, other);
    if (text.includes('insert into users')) {
      const items = list<string>(values[1]).map((_, n) => newUser(fieldsOf(values.slice(1), n)));
      for (const item of items.toSorted((a, b) => (a.email < b.email ? -1 : 1))) {
        const { email } = item;
        await step();
        const has = hasEmail(email);
        for (let other = holder(has); other; other = holder(has)) await this.#wait(own, other);
        if (own.emails.has(email) || owner(email, users)) continue;
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
      const has = hasRow(id);
      for (let other = holder(has); other; other = holder(has)) {
        const isSame = own.owner() !== undefined && own.owner() === other.owner();
        if (isSame) this.violations.push('5.6 two statements of a process write one user');
        await this.#wait(own, other);
      }
      const user = users.get(id);
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
        const isGiven = hasEmail(next.email);
        for (let other = holder(isGiven); other; other = holder(isGiven))
          await this.#wait(own, other);
        if (owner(next.email, users))
          throw Object.assign(refusal('23505'), { table_name: 'users' });
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

  /** Waits until the holder of a lock has ended. Looks for a deadlock after a while. */
  async #wait(own: Transaction, holder: Transaction): Promise<void> {
    own.waitsFor = holder;
    const cancel = this.#time.after(DEADLOCK_TIMEOUT_MS, () => {
      const seen = new Set<Transaction>();
      let next: Transaction | undefined = own;
      while (next !== undefined && !seen.has(next)) {
        seen.add(next);
        next = next.waitsFor;
      }
      if (next !== own) return;
      const owners = new Set([...seen].map(({ owner }) => owner() ?? {}));
      if (owners.size === 1) this.deadlocks++;
      own.abort(refusal('40P01'));
    });
    try {
      await Promise.race([own.aborted, holder.ended]);
    } finally {
      own.waitsFor = undefined;
      cancel();
    }
  }

  /** Waits for a server session of the host's pooler, if there is one. */
  async #lease<T>(host: Host, work: () => Promise<T>): Promise<T> {
    if (this.poolerSize === 0) return work();
    if (host.leased < this.poolerSize) host.leased++;
    else await new Promise<void>((resolve) => host.waiting.push(resolve));
    return work().finally(() => {
      const next = host.waiting.shift();
      if (next) next();
      else host.leased--;
    });
  }

  #begin(host: Host | undefined, owner: Transaction['owner']): Transaction {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const { promise: aborted, reject: abort } = Promise.withResolvers<never>();
    aborted.catch(() => {});
    const end = () => {
      this.#transactions.delete(transaction);
      resolve();
    };
    const transaction: Transaction = {
      ...{ host, owner, isOld: host?.old !== undefined },
      ...{ rows: new Set<number>(), emails: new Set<string>(), writes: new Map() },
      ...{ ended, end, aborted, abort },
    };
    this.#transactions.add(transaction);
    return transaction;
  }

  #commit({ writes, stuckAt }: Transaction, isReplicated: boolean): void {
    for (const [id, user] of writes) {
      this.states.push({ ms: this.#time.ms, id, user, stuckAt: stuckAt!, isReplicated });
      if (user) this.users.set(id, user);
      else this.users.delete(id);
    }
  }

  #travel(): Promise<void> {
    return this.#time.sleep(this.#time.random() * this.condition.maxLatencyMs);
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
