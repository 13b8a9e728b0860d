// Postgres connection pool with deadlines, reconnection and failover. Each connection is a client of npm
// `postgres` with one socket (docs/design.md, "Our own pool"). A connection that is lost, late or
// read-only (25006) is replaced; no write is done twice. All connections lead to one host of the URL. If
// it fails, responds too late or has lost its synchronous standby, the other hosts are tried before it,
// and all connections move to the first one that qualifies.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Batch, BatchSource } from './batch.ts';
import type { StoreOptions } from './index.ts';
import { UnusableDatabase } from './migrate.ts';
import { NotReplicated, openSession, type Session, type SessionOptions } from './session.ts';
import { type Host, nameOf } from './url.ts';

/** Pauses between passes over all hosts double from the first to the longest. */
const BACKOFF_MS = { first: 25, longest: 1_000 } as const; // 5.7

/** A connection lost sooner is a failed attempt: a server can accept connections and be unusable. */
const MIN_LIFETIME_MS = 100;

/**
 * Range of the timeout of an attempt to connect, which may never end during a network outage. The first
 * gets half of a request's time within this range, so a second one can still serve the request. The
 * timeout doubles with each further one.
 */
const CONNECT_TIMEOUT_MS = { min: 250, max: 2_000 } as const; // 5.7

/** Maximum time for running statements while the pool closes. */
const END_TIMEOUT_MS = 1_000;

/**
 * While a batch of at least SHARED_SIZE calls runs, the next one of its queue waits up to this
 * long, so that more calls join it. For fewer calls or slower commits, parallel statements are
 * faster.
 */
const SHARE_MS = 3;
const SHARED_SIZE = 8;

/** How often deadlines are checked, by one timer for all calls. */
const TICK_MS = 50;

/** `migrate` runs on new connections until it has succeeded once. */
type PoolOptions = StoreOptions & Pick<SessionOptions, 'database' | 'authorities' | 'migrate'>;

/** A place for one connection. */
interface Slot {
  session?: Session | undefined;
  /** Its attempt to connect. Other slots don't wait for a `long` one, such as a migration. */
  attempt: 'none' | 'connecting' | 'long';
  /** The session's host, and the time at which it connected. */
  host: Host;
  connectedAt: number;
  /** The running batch, and its deadline. */
  batch?: Batch<Session> | undefined;
  deadline: number;
}

export class Pool {
  readonly #options: PoolOptions;
  readonly #slots: readonly Slot[];
  /** Queues in which calls may wait. */
  readonly #queues = new Set<BatchSource<Session>>();
  /** Queues whose next batch must wait, each with the batch that it waits for. */
  readonly #resting = new Map<BatchSource<Session>, Batch<Session>>();
  /** The host that the pool uses, and the one that the next attempt goes to. */
  #host: Host | undefined;
  #nextHost: Host;
  /** Failed attempts since a connection lived for MIN_LIFETIME_MS. */
  #failures = 0;
  #isMigrated = false;
  #isUnavailable = false;
  readonly #closing = new AbortController();
  #assignment: NodeJS.Immediate | undefined;
  #ticker: NodeJS.Timeout | undefined;

  /** Starts to connect; the server need not be up (6.1). */
  constructor(options: PoolOptions) {
    this.#options = options;
    const host = options.database.hosts[0]!;
    this.#nextHost = host;
    const newSlot = (): Slot => ({ attempt: 'none', host, connectedAt: 0, deadline: 0 });
    this.#slots = Array.from({ length: options.poolSize }, newSlot);
    this.#connect();
  }

  /** Number of connections in use, and idle (7.3). */
  get connections(): { readonly used: number; readonly idle: number } {
    const used = this.#slots.filter(({ batch }) => batch).length;
    const connected = this.#slots.filter(({ session }) => session).length;
    return { used, idle: connected - used };
  }

  /** Runs the calls of the queue once all requests of this turn of the event loop have arrived. */
  readonly schedule = (queue: BatchSource<Session>): void => {
    if (this.#isClosed) {
      queue.expire(Number.POSITIVE_INFINITY);
      return;
    }
    this.#queues.add(queue);
    this.#ticker ??= this.#nextTick();
    this.#assignment ??= setImmediate(() => {
      this.#assignment = undefined;
      this.#assignAll();
    });
  };

  /** Gives running statements `graceMs` milliseconds, a second at most, then closes everything. */
  async close(graceMs = END_TIMEOUT_MS): Promise<void> {
    this.#closing.abort();
    clearTimeout(this.#ticker);
    const sessions = this.#slots.flatMap(({ session }) => session ?? []);
    const ended = Promise.all(sessions.map((session) => session.end()));
    const timer = new AbortController();
    const timeout = sleep(Math.min(graceMs, END_TIMEOUT_MS), undefined, { signal: timer.signal });
    await Promise.race([ended, timeout]);
    timer.abort();
    for (const session of sessions) session.destroy();
    for (const queue of this.#queues) queue.expire(Number.POSITIVE_INFINITY);
  }

  #assignAll(): void {
    for (const slot of this.#slots) {
      if (this.#queues.size === 0) return;
      if (slot.session !== undefined && slot.batch === undefined) this.#assign(slot);
    }
  }

  /** Gives an idle slot the next batch. Queues take turns, so that none starves another. */
  #assign(slot: Slot): void {
    for (const queue of this.#queues) {
      if (this.#resting.has(queue) || (queue.options.writes && !this.#canWrite())) continue;
      this.#queues.delete(queue);
      const batch = queue.take(this.#options.now());
      if (batch === undefined) continue;
      this.#queues.add(queue);
      this.#keepBack(queue, batch);
      void this.#run(slot, queue, batch);
      return;
    }
  }

  /** One connection remains for reads, because a lock can stop all writes (5.9). */
  #canWrite(): boolean {
    const writing = this.#slots.filter(({ batch }) => batch?.writes).length;
    return writing < Math.max(1, this.#slots.length - 1);
  }

  #keepBack(queue: BatchSource<Session>, batch: Batch<Session>): void {
    const { takesTurns } = queue.options;
    if (!takesTurns && batch.size < SHARED_SIZE) return;
    this.#resting.set(queue, batch);
    const release = () => {
      if (this.#resting.get(queue) !== batch) return;
      this.#resting.delete(queue);
      this.#assignAll();
    };
    // A page takes milliseconds, so the next one waits for its turn (6.18).
    if (takesTurns) this.#options.turns.add('', release);
    else setTimeout(release, SHARE_MS).unref();
  }

  async #run(slot: Slot, queue: BatchSource<Session>, batch: Batch<Session>): Promise<void> {
    const session = slot.session!;
    slot.batch = batch;
    slot.deadline = this.#options.now() + this.#options.timeoutMs;
    const err = await batch.run(session);
    if (slot.session !== session) return; // Replaced meanwhile; its calls have failed.
    slot.batch = undefined;
    if (err instanceof NotReplicated) this.#avoid(slot.host);
    if (err !== undefined) this.#replace(slot, err);
    else if (slot.host !== this.#host) this.#replace(slot, 'the pool moved to another host');
    const { takesTurns } = queue.options;
    if (!takesTurns && this.#resting.get(queue) === batch) this.#resting.delete(queue);
    this.#assignAll();
  }

  /** Drops the connection and makes a new one. A running statement has an unknown outcome (4.13). */
  #replace(slot: Slot, cause: unknown): void {
    const { session, batch, host } = slot;
    this.#options.debug('connection lost', { host: nameOf(host), cause: String(cause) });
    slot.session = undefined;
    slot.batch = undefined;
    if (this.#options.now() - slot.connectedAt < MIN_LIFETIME_MS) this.#failures ||= 1;
    batch?.fail(cause);
    session?.destroy();
    this.#connect();
  }

  /** Ticks after one more poll, so that a late event loop first receives what has arrived. */
  #nextTick(): NodeJS.Timeout {
    return setTimeout(() => setImmediate(() => this.#tick()), TICK_MS); // 6.6
  }

  /** Enforces all deadlines (4.13). The timer runs only while calls wait or run. */
  #tick(): void {
    if (this.#isClosed) return;
    const now = this.#options.now();
    for (const slot of this.#slots) {
      slot.batch?.expire(now);
      if (slot.batch === undefined || slot.deadline > now) continue;
      this.#avoid(slot.host);
      this.#replace(slot, `no response within ${this.#options.timeoutMs} ms`);
    }
    for (const queue of this.#queues) queue.expire(now);
    this.#assignAll();
    const isBusy = this.#queues.size > 0 || this.#slots.some(({ batch }) => batch);
    this.#ticker = isBusy ? this.#nextTick() : undefined;
  }

  /** Starts to connect empty slots: all while the host works, otherwise one at a time (5.1). */
  #connect(): void {
    for (const slot of this.#slots) {
      if (slot.session !== undefined || slot.attempt !== 'none') continue;
      // One connection at a time migrates, or tests whether the server works again.
      const isSingle = !this.#isMigrated || this.#failures > 0;
      const isAttempting = this.#slots.some(({ attempt }) => attempt === 'connecting');
      if (this.#isClosed || (isSingle && isAttempting)) return;
      void this.#fill(slot);
    }
  }

  /** Makes one attempt to connect. */
  async #fill(slot: Slot): Promise<void> {
    slot.attempt = 'connecting';
    const failures = this.#failures;
    await this.#pause();
    if (this.#isClosed) return;
    // A migration takes up to a minute, and may hang: others don't wait for it.
    const timer = setTimeout(() => {
      slot.attempt = 'long';
      this.#connect();
    }, CONNECT_TIMEOUT_MS.max);
    await this.#open(slot, this.#nextHost);
    clearTimeout(timer);
    if (this.#failures > 0 && slot.session) await sleep(MIN_LIFETIME_MS, undefined, { ref: false });
    if (slot.session !== undefined) this.#failures = 0;
    // Attempts that fail together count once.
    else if (this.#failures === failures) this.#failures++;
    slot.attempt = 'none';
    this.#connect();
  }

  /** Pauses after each pass over all hosts, longer each time. Within a pass there is no pause. */
  async #pause(): Promise<void> {
    const passes = this.#failures / this.#options.database.hosts.length;
    if (passes === 0 || !Number.isInteger(passes)) return;
    const pause = Math.min(BACKOFF_MS.first * 2 ** (passes - 1), BACKOFF_MS.longest);
    // Jitter keeps replicas from reconnecting all at once.
    await sleep(pause * (0.5 + Math.random() / 2), undefined, { ref: false }); // 5.7
  }

  async #open(slot: Slot, host: Host): Promise<void> {
    const { min, max } = CONNECT_TIMEOUT_MS;
    const first = Math.max(min, this.#options.timeoutMs / 2);
    try {
      const session = await openSession({
        ...this.#options,
        host,
        connectTimeoutMs: Math.min(max, first * 2 ** this.#failures), // 5.7
        isSecondPass: this.#failures >= this.#options.database.hosts.length,
        signal: this.#closing.signal,
        migrate: async (sql, prolong) => {
          if (!this.#isMigrated) await this.#options.migrate(sql, prolong);
          this.#isMigrated = true;
        },
        onClose: (closed) => {
          if (slot.session === closed) this.#replace(slot, 'the connection was closed');
        },
      });
      this.#connected(slot, host, session);
    } catch (err) {
      this.#failed(err, host);
    }
  }

  #connected(slot: Slot, host: Host, session: Session): void {
    // Other slots have moved on from this host during the attempt.
    const isNextUsed = this.#slots.some((other) => other.session && other.host === this.#nextHost);
    if (this.#isClosed || (host !== this.#nextHost && isNextUsed)) {
      session.destroy();
      return;
    }
    slot.session = session;
    slot.host = host;
    slot.connectedAt = this.#options.now();
    this.#host = host;
    this.#options.debug('connected', { host: nameOf(host) });
    if (this.#isUnavailable) this.#options.onAvailable(); // 6.1
    this.#isUnavailable = false;
    for (const other of this.#slots) {
      // A busy slot moves when its batch has ended.
      const isIdle = other.session !== undefined && other.batch === undefined;
      if (isIdle && other.host !== host) this.#replace(other, 'the pool moved to another host');
    }
    this.#assign(slot);
  }

  #failed(err: unknown, host: Host): void {
    if (this.#isClosed) return;
    if (err instanceof UnusableDatabase) {
      this.#closing.abort();
      // No tick follows.
      for (const queue of this.#queues) queue.expire(Number.POSITIVE_INFINITY);
      this.#options.onFatal(err);
      return;
    }
    this.#options.debug('cannot connect', { host: nameOf(host), cause: String(err) });
    this.#avoid(host);
    const isConnected = this.#slots.some(({ session }) => session);
    if (isConnected || this.#isUnavailable) return;
    this.#isUnavailable = true;
    this.#options.onUnavailable(err); // 6.1
  }

  /** Makes the next attempt try another host (5.1). Several slots can report the same host. */
  #avoid(host: Host): void {
    const { hosts } = this.#options.database;
    if (this.#nextHost === host) this.#nextHost = hosts[hosts.indexOf(host) + 1] ?? hosts[0]!;
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }
}
