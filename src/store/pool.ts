// A pool of Postgres connections that heals. Each connection is a client of npm `postgres` of its
// own, used for one socket and replaced whole, because that driver (3.4.9) can leave a slot of its
// pool dead for good after a lost connection, has no deadline for a query and does not fail over.
//
// - Every call has a deadline, which includes queueing and connecting. A connection without a
//   response for that long is reset, so that nothing of it can arrive later, and replaced.
// - A connection that was lost, or whose server turned read-only (25006), is replaced. Pauses between
//   attempts grow. The other connections go on, and nothing is done twice.
// - All connections lead to one host of the URL. If it fails, does not respond in time or does not
//   replicate, the other hosts are tried before it. The first that qualifies gets the whole pool.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Batch, BatchSource, Scheduler } from './batch.ts';
import {
  type Connection,
  type ConnectionOptions,
  NotReplicated,
  openConnection,
} from './connection.ts';
import type { StoreOptions } from './index.ts';
import { UnusableDatabase } from './migrate.ts';
import type { PostgresDatabase } from './url.ts';

/** Pauses between passes over all hosts double from the first to the longest. */
const BACKOFF_MS = { first: 25, longest: 1_000 } as const; // 5.7

/**
 * A connection that is lost sooner counts as a failed attempt: a server can accept connections and
 * still be unusable.
 */
const MIN_LIFETIME_MS = 100;

/**
 * Time for an attempt to connect. One that begins while the network is away may never end, so the
 * first leaves the next request half of its time. Each further attempt has twice as long.
 */
const CONNECT_TIMEOUT_MS = { min: 250, max: 2_000 } as const; // 5.7

/** Maximum time for running statements when the pool closes. */
const END_TIMEOUT_MS = 1_000;

/** How often deadlines are checked, by one timer for all calls. */
const TICK_MS = 50;

/** Options of both stores and of Postgres. */
export interface PoolOptions extends StoreOptions {
  readonly database: PostgresDatabase;
  /** PEM of `sslrootcert`. */
  readonly authorities: string | undefined;
  /** Brings the schema up to date; runs on new connections until it has succeeded once. */
  readonly migrate: ConnectionOptions['migrate'];
}

/** One place of the pool. */
interface Slot {
  connection: Connection | undefined;
  /** Index of the connection's host, and when it was connected. */
  host: number;
  connectedAt: number;
  /** Attempts to connect since the last connection that lived for MIN_LIFETIME_MS. */
  attempts: number;
  /** The batch that runs, and when it should have ended. */
  batch: Batch | undefined;
  deadline: number;
}

/** Runs batches on connections. */
export class Pool implements Scheduler {
  readonly #options: PoolOptions;
  readonly #slots: readonly Slot[];
  // Queues in which calls may wait.
  readonly #queues = new Set<BatchSource>();
  // Indices of the host that the pool uses, and of the one that the next attempt goes to.
  #host = 0;
  #nextHost = 0;
  #isMigrated = false;
  #isPooled = false;
  #isUnavailable = false;
  readonly #closing = new AbortController();
  #isScheduled = false;
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.poolSize }, () => ({
      connection: undefined,
      host: 0,
      connectedAt: 0,
      attempts: 0,
      batch: undefined,
      deadline: 0,
    }));
  }

  /**
   * Starts to connect: one connection, which migrates the database, then the others. If the first
   * hangs, the others start after the longest connect timeout.
   */
  start(): void {
    // 6.1
    const [first, ...others] = this.#slots;
    const tooLong = sleep(CONNECT_TIMEOUT_MS.max, undefined, { ref: false });
    Promise.race([this.#fill(first!), tooLong]).then(() => {
      for (const slot of others) this.#fill(slot);
    });
  }

  /** Number of connections in use, and idle. */
  get connections(): { readonly used: number; readonly idle: number } {
    // 7.3
    const used = this.#slots.filter(({ batch }) => batch).length;
    const connected = this.#slots.filter(({ connection }) => connection).length;
    return { used, idle: connected - used };
  }

  schedule(queue: BatchSource): void {
    this.#queues.add(queue);
    this.#ticker ??= setTimeout(() => this.#tick(), TICK_MS); // 6.6
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // After all requests of this turn of the event loop.
    setImmediate(() => {
      this.#isScheduled = false;
      this.#dispatch();
    });
  }

  /** Lets statements finish for `graceMs` milliseconds, a second at most, then closes all. */
  async close(graceMs = END_TIMEOUT_MS): Promise<void> {
    this.#closing.abort();
    clearTimeout(this.#ticker);
    const connections = this.#slots.flatMap(({ connection }) => connection ?? []);
    const ended = Promise.all(connections.map((connection) => connection.end()));
    const over = new AbortController();
    const tooLate = sleep(Math.min(graceMs, END_TIMEOUT_MS), undefined, { signal: over.signal });
    await Promise.race([ended, tooLate]);
    over.abort();
    for (const connection of connections) connection.destroy();
  }

  #dispatch(): void {
    for (const slot of this.#slots) {
      if (this.#queues.size === 0) return;
      if (slot.connection !== undefined && slot.batch === undefined) this.#assign(slot);
    }
  }

  /** Gives an idle slot the next batch. Queues take turns, so that none starves another. */
  #assign(slot: Slot): void {
    for (const queue of this.#queues) {
      this.#queues.delete(queue);
      const batch = queue.take(this.#options.now());
      if (batch === undefined) continue;
      this.#queues.add(queue);
      this.#run(slot, batch);
      return;
    }
  }

  async #run(slot: Slot, batch: Batch): Promise<void> {
    const connection = slot.connection!;
    slot.batch = batch;
    slot.deadline = this.#options.now() + this.#options.timeoutMs;
    const unknown = await batch.run(connection);
    if (slot.connection !== connection) return;
    slot.batch = undefined;
    if (unknown?.cause instanceof NotReplicated) this.#avoid(slot.host);
    if (unknown) this.#replace(slot, unknown.cause);
    else if (slot.host !== this.#host) this.#replace(slot, 'the pool moved to another host');
    else this.#assign(slot);
  }

  /** Drops the connection and makes a new one. The outcome of a running statement is unknown. */
  #replace(slot: Slot, cause: unknown): void {
    // 4.13
    const { connection, batch, host } = slot;
    this.#options.debug('connection lost', { host: this.#nameOf(host), cause: String(cause) });
    slot.connection = undefined;
    slot.batch = undefined;
    if (this.#options.now() - slot.connectedAt >= MIN_LIFETIME_MS) slot.attempts = 0;
    batch?.fail(cause);
    connection?.destroy();
    this.#fill(slot);
  }

  /** Checks all deadlines; the timer runs while there is one. */
  #tick(): void {
    // 4.13
    const now = this.#options.now();
    for (const slot of this.#slots) {
      slot.batch?.expire(now);
      if (slot.batch === undefined || slot.deadline > now) continue;
      this.#avoid(slot.host);
      this.#replace(slot, `no response within ${this.#options.timeoutMs} ms`);
    }
    for (const queue of this.#queues) queue.expire(now);
    const isBusy = this.#queues.size > 0 || this.#slots.some(({ batch }) => batch);
    this.#ticker = isBusy ? setTimeout(() => this.#tick(), TICK_MS) : undefined;
  }

  /** Connects a slot, however long it takes. */
  async #fill(slot: Slot): Promise<void> {
    // 5.1
    while (slot.connection === undefined) {
      await this.#pause(slot);
      if (this.#isClosed) return;
      const host = this.#nextHost;
      slot.attempts++;
      try {
        this.#connected(slot, host, await this.#open(slot, host));
      } catch (err) {
        this.#failed(err, host);
      }
    }
  }

  /** No pause before the next host, and a longer one after each pass over all hosts. */
  async #pause({ attempts }: Slot): Promise<void> {
    const passes = attempts / this.#options.database.hosts.length;
    if (passes === 0 || !Number.isInteger(passes)) return;
    const pause = Math.min(BACKOFF_MS.first * 2 ** (passes - 1), BACKOFF_MS.longest);
    // Jitter keeps replicas from reconnecting all at once.
    await sleep(pause * (0.5 + Math.random() / 2), undefined, { ref: false }); // 5.7
  }

  #open(slot: Slot, host: number): Promise<Connection> {
    const { hosts } = this.#options.database;
    const { min, max } = CONNECT_TIMEOUT_MS;
    const first = Math.max(min, this.#options.timeoutMs / 2);
    return openConnection({
      ...this.#options,
      host: hosts[host]!,
      connectTimeoutMs: Math.min(max, first * 2 ** (slot.attempts - 1)),
      isPooled: this.#isPooled,
      isSecondPass: slot.attempts > hosts.length,
      signal: this.#closing.signal,
      migrate: async (sql, prolong) => {
        if (!this.#isMigrated) await this.#options.migrate(sql, prolong);
        this.#isMigrated = true;
      },
      onClose: (connection) => {
        if (slot.connection === connection) this.#replace(slot, 'the connection was closed');
      },
    });
  }

  #connected(slot: Slot, host: number, connection: Connection): void {
    // Other slots have moved on from this host during the attempt.
    const isOutdated = host !== this.#nextHost && this.#isUsed(this.#nextHost);
    if (this.#isClosed || isOutdated) {
      connection.destroy();
      return;
    }
    slot.connection = connection;
    slot.host = host;
    slot.connectedAt = this.#options.now();
    this.#host = host;
    this.#isPooled = connection.isPooled;
    this.#options.debug('connected', { host: this.#nameOf(host) });
    if (this.#isUnavailable) this.#options.onAvailable(); // 6.1
    this.#isUnavailable = false;
    for (const other of this.#slots) {
      // A slot that is busy follows after its batch.
      const isIdle = other.connection !== undefined && other.batch === undefined;
      if (isIdle && other.host !== host) this.#replace(other, 'the pool moved to another host');
    }
    this.#assign(slot);
  }

  #failed(err: unknown, host: number): void {
    if (this.#isClosed) return;
    if (err instanceof UnusableDatabase) {
      this.#closing.abort();
      this.#options.onFatal(err);
      return;
    }
    this.#options.debug('cannot connect', { host: this.#nameOf(host), cause: String(err) });
    this.#avoid(host);
    const isConnected = this.#slots.some(({ connection }) => connection);
    if (isConnected || this.#isUnavailable) return;
    this.#isUnavailable = true;
    this.#options.onUnavailable(err); // 6.1
  }

  /** Tries the other hosts before this one, unless another slot has seen to that. */
  #avoid(host: number): void {
    // 5.1
    if (this.#nextHost === host) this.#nextHost = (host + 1) % this.#options.database.hosts.length;
  }

  #isUsed(host: number): boolean {
    return this.#slots.some((slot) => slot.connection !== undefined && slot.host === host);
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #nameOf(index: number): string {
    const { host, port } = this.#options.database.hosts[index]!;
    return `${host}:${port}`;
  }
}
