// A pool of Postgres connections that heals. Each connection is a client of npm `postgres` of its
// own, used for one socket only and replaced whole, because that driver (3.4.9) can leave a slot of
// its pool dead for good after a lost connection, has no deadline for a query and does not fail
// over. So here:
//
// - Every call has a deadline, waiting and connecting included. A connection that has not answered
//   for as long is cut with RST, so that nothing of it can arrive later, and replaced. One that is
//   only too slow for a call that had waited before is kept.
// - A connection that was lost, could not be made, or is to a server that turned read-only (25006)
//   is replaced, with growing pauses; the others go on. Nothing is done twice.
// - Several hosts are tried in turn until one is of the kind that the URL asks for.
import { setTimeout as sleep } from 'node:timers/promises';
import { StoreUnavailable } from '../user.ts';
import type { Batch, BatchSource, Scheduler } from './batch.ts';
import {
  type Connection,
  type ConnectionOptions,
  openConnection,
  PoolerFound,
} from './connection.ts';
import type { StoreOptions } from './index.ts';
import { UnusableDatabase } from './migrate.ts';
import type { PostgresDatabase } from './url.ts';

/** Pauses between attempts to connect double from the first to the longest. */
const BACKOFF_MS = { first: 25, longest: 1_000 } as const; // 5.7

/**
 * A connection that is lost sooner counts as a failed attempt: a server can accept connections and
 * still be unusable.
 */
const MIN_LIFETIME_MS = 100;

/**
 * How long a host may take to answer. An attempt that began while the network was away may never
 * end, so the first leaves the next request half of its time; each further one has twice as long.
 */
const CONNECT_TIMEOUT_MS = { min: 250, max: 2_000 } as const; // 5.7

/** How long running statements may take when the pool is closed. */
const END_TIMEOUT_MS = 1_000;

/** How often deadlines are looked at; one timer for all calls. */
const TICK_MS = 50;

/** What the pool needs besides what both stores are given. */
export interface PoolOptions extends StoreOptions {
  readonly database: PostgresDatabase;
  /** PEM of `sslrootcert`. */
  readonly authorities: string | undefined;
  /** Brings the schema up to date; runs on new connections until it has succeeded once. */
  readonly migrate: ConnectionOptions['migrate'];
}

/** One place of the pool and, while it is connected, its client. */
interface Slot {
  connection: Connection | undefined;
  batch: Batch | undefined;
  /** When the batch should have been answered. */
  deadline: number;
  /** Attempts to connect since the last connection of use, and when the latest succeeded. */
  attempts: number;
  connectedAt: number;
}

/** Runs batches on connections. */
export class Pool implements Scheduler {
  readonly #options: PoolOptions;
  readonly #slots: readonly Slot[];
  // Queues in which calls may wait.
  readonly #queues = new Set<BatchSource>();
  // The host that took the last connection; attempts begin with it.
  #host = 0;
  #isMigrated = false;
  // A pooler such as PgBouncer stands in between.
  #isPooler = false;
  #isUnavailable = false;
  readonly #closing = new AbortController();
  #isScheduled = false;
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.poolSize }, () => ({
      connection: undefined,
      batch: undefined,
      deadline: 0,
      attempts: 0,
      connectedAt: 0,
    }));
  }

  /**
   * Begins to connect: first one connection, which migrates the database, then the others. As the
   * first can fall silent while it does, they wait for it only as long as for a host.
   */
  start(): void {
    // 6.1
    const [first, ...others] = this.#slots;
    const tooLong = sleep(CONNECT_TIMEOUT_MS.max, undefined, { ref: false });
    Promise.race([this.#fill(first!), tooLong]).then(() => {
      for (const slot of others) this.#fill(slot);
    });
  }

  /** How many connections are in use, and ready. */
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
    // After all the requests that this turn of the event loop brings.
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
    for (const connection of connections) connection.cut();
  }

  #dispatch(): void {
    for (const slot of this.#slots) {
      if (this.#queues.size === 0) return;
      if (slot.connection !== undefined && slot.batch === undefined) this.#assign(slot);
    }
  }

  /** Gives an idle slot the next batch, in turn, so that no kind of call starves another. */
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
    const lost = await batch.run(connection);
    if (slot.connection !== connection) return;
    slot.batch = undefined;
    if (lost) this.#lose(slot, lost.cause);
    else this.#assign(slot);
  }

  /** The connection is of no use any more: nobody knows what became of the statement on it. */
  #lose(slot: Slot, cause: unknown): void {
    // 4.13
    const { connection, batch } = slot;
    this.#options.debug('connection lost', { cause: String(cause) });
    slot.connection = undefined;
    slot.batch = undefined;
    if (this.#options.now() - slot.connectedAt >= MIN_LIFETIME_MS) slot.attempts = 0;
    batch?.fail(cause);
    connection?.cut();
    this.#fill(slot);
  }

  /** Looks at all deadlines; goes on while there is anything that could miss one. */
  #tick(): void {
    // 4.13
    const now = this.#options.now();
    for (const slot of this.#slots) {
      slot.batch?.expire(now);
      if (slot.batch !== undefined && slot.deadline <= now) {
        this.#lose(slot, new StoreUnavailable(`no answer within ${this.#options.timeoutMs} ms`));
      }
    }
    for (const queue of this.#queues) queue.expire(now);
    const isBusy = this.#queues.size > 0 || this.#slots.some(({ batch }) => batch);
    this.#ticker = isBusy ? setTimeout(() => this.#tick(), TICK_MS) : undefined;
  }

  /** Connects a slot, however long it takes. */
  async #fill(slot: Slot): Promise<void> {
    // 5.1
    for (let attempt = 1; ; attempt++) {
      await this.#pause(slot);
      if (this.#isClosed) return;
      const tried = this.#host;
      slot.attempts++;
      try {
        slot.connection = await this.#open(slot, tried, attempt);
        if (this.#isClosed) return slot.connection.cut();
        slot.connectedAt = this.#options.now();
        this.#options.debug('connected', { host: this.#nameOf(tried) });
        if (this.#isUnavailable) this.#options.onAvailable(); // 6.1
        this.#isUnavailable = false;
        this.#assign(slot);
        return;
      } catch (err) {
        if (err instanceof UnusableDatabase) {
          this.#closing.abort();
          return this.#options.onFatal(err);
        }
        this.#failed(err, tried);
      }
    }
  }

  /** No pause before the next host, and a longer one after each pass over all of them. */
  async #pause({ attempts }: Slot): Promise<void> {
    const passes = attempts / this.#options.database.hosts.length;
    if (passes === 0 || !Number.isInteger(passes)) return;
    const pause = Math.min(BACKOFF_MS.first * 2 ** (passes - 1), BACKOFF_MS.longest);
    // Jitter, so that replicas do not come back all at once.
    await sleep(pause * (0.5 + Math.random() / 2), undefined, { ref: false }); // 5.7
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  #failed(err: unknown, tried: number): void {
    if (err instanceof PoolerFound) {
      this.#isPooler = true;
      return;
    }
    this.#options.debug('cannot connect', { host: this.#nameOf(tried), cause: String(err) });
    // Other slots may have gone on from this host before.
    if (this.#host === tried) this.#host++; // 5.1
    const isConnected = this.#slots.some(({ connection }) => connection);
    if (isConnected || this.#isUnavailable || this.#isClosed) return;
    this.#isUnavailable = true;
    this.#options.onUnavailable(err); // 6.1
  }

  #nameOf(tried: number): string {
    const { hosts } = this.#options.database;
    const { host, port } = hosts[tried % hosts.length]!;
    return `${host}:${port}`;
  }

  async #open(slot: Slot, tried: number, attempt: number): Promise<Connection> {
    const { hosts } = this.#options.database;
    const { min, max } = CONNECT_TIMEOUT_MS;
    const first = Math.max(min, this.#options.timeoutMs / 2);
    let isClosed = false;
    // The driver can close it before it is returned.
    let connection: Connection | undefined;
    connection = await openConnection({
      ...this.#options,
      host: hosts[tried % hosts.length]!,
      connectTimeoutMs: Math.min(max, first * 2 ** (attempt - 1)),
      isPooler: this.#isPooler,
      isSecondPass: attempt > hosts.length,
      signal: this.#closing.signal,
      migrate: async (sql, prolong) => {
        if (!this.#isMigrated) await this.#options.migrate(sql, prolong);
        this.#isMigrated = true;
      },
      onClose: () => {
        isClosed = true;
        const isInUse = connection !== undefined && slot.connection === connection;
        if (isInUse) this.#lose(slot, new StoreUnavailable('the connection was closed'));
      },
    });
    if (isClosed) throw new StoreUnavailable('the connection was closed');
    return connection;
  }
}
