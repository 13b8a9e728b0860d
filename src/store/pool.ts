// A pool of Postgres connections that heals. Each connection is a client of npm `postgres` of its
// own, used for one socket only and replaced whole, because that driver (3.4.9) can leave a slot of
// its pool dead for good after a lost connection, has no deadline for a query and does not fail
// over. So here:
//
// - Every statement has a deadline, waiting and connecting included. A connection that missed it
//   is cut with RST, so that nothing of it can arrive later, and replaced.
// - A connection that was lost, could not be made, or is to a server that turned read-only (25006)
//   is replaced, with growing pauses; the others go on. Nothing is sent twice.
// - Several hosts are walked until one is of the kind that the URL asks for.
import type { Runnable, Runner, Running } from './batch.ts';
import {
  type Connection,
  type ConnectionOptions,
  openConnection,
  PoolerFound,
} from './connection.ts';
import { SchemaTooNew } from './migrate.ts';
import type { PostgresDatabase } from './url.ts';

/** Pauses between attempts to connect grow from the first to the second. */
const BACKOFF_MS = [25, 1_000] as const;

/** A connection that is lost sooner counts as a failed attempt: a server that is there can be of no use. */
const STEADY_MS = 100;

/**
 * How long a host may take to answer. An attempt that began while the network was away may never end,
 * so the first leaves the next request half of its time, and each further one has twice as long.
 */
const CONNECT_TIMEOUT_MS = { least: 250, most: 2_000 } as const;

/** How often deadlines are looked at; one timer for all calls. */
const TICK_MS = 50;

/** What the pool tells and asks. */
export interface PoolOptions {
  readonly database: PostgresDatabase;
  /** PEM of `sslrootcert`. */
  readonly authorities: string | undefined;
  readonly size: number;
  readonly timeoutMs: number;
  readonly now: () => number;
  /** Runs on a new connection before its first use. */
  readonly prepare: ConnectionOptions['prepare'];
  /** Called once when no connection is left and none can be made, and once when one is back. */
  readonly onGone: (cause: unknown) => void;
  readonly onBack: () => void;
  /** Called for each connection that is made, lost or not to be had. */
  readonly debug: (message: string, fields: Readonly<Record<string, string>>) => void;
  /** The database can never be used by this version. */
  readonly onFatal: (err: Error) => void;
}

/** One place of the pool and, while it is connected, its client. */
interface Slot {
  connection: Connection | undefined;
  running: Running | undefined;
  /** Attempts to connect since the last connection that was of use, and when the latest succeeded. */
  attempts: number;
  connectedAt: number;
}

/** Runs batches on connections. */
export class Pool implements Runner {
  readonly #options: PoolOptions;
  readonly #slots: readonly Slot[];
  readonly #hungry = new Set<Runnable>();
  // The host that took the last connection; the walk begins with it.
  #host = 0;
  #isPrepared = false;
  // A pooler such as PgBouncer stands in between.
  #isPooler = false;
  #isGone = false;
  readonly #closing = new AbortController();
  #isScheduled = false;
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.size }, () => ({
      connection: undefined,
      running: undefined,
      attempts: 0,
      connectedAt: 0,
    }));
  }

  /** Begins to connect: first one connection, which prepares the database, then the others. */
  start(): void {
    const [first, ...others] = this.#slots;
    this.#fill(first!).then(() => {
      for (const slot of others) this.#fill(slot);
    });
  }

  /** How many connections are in use, and ready. */
  get connections(): { readonly used: number; readonly idle: number } {
    const used = this.#slots.filter(({ running }) => running).length;
    const connected = this.#slots.filter(({ connection }) => connection).length;
    return { used, idle: connected - used };
  }

  wake(batch: Runnable): void {
    this.#hungry.add(batch);
    this.#ticker ??= setTimeout(() => this.#tick(), TICK_MS);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // After all the requests that this turn of the event loop brings.
    setImmediate(() => {
      this.#isScheduled = false;
      this.#dispatch();
    });
  }

  /** Lets running statements finish for a moment, then closes all connections. */
  async close(): Promise<void> {
    this.#closing.abort();
    clearTimeout(this.#ticker);
    await Promise.all(
      this.#slots.map(async ({ connection }) => {
        await connection?.end();
        connection?.cut();
      }),
    );
  }

  #dispatch(): void {
    for (const slot of this.#slots) {
      if (this.#hungry.size === 0) return;
      if (slot.connection !== undefined && slot.running === undefined) this.#feed(slot);
    }
  }

  /** Gives an idle slot the next batch, in turn, so that no kind of call starves another. */
  #feed(slot: Slot): void {
    for (const batch of this.#hungry) {
      this.#hungry.delete(batch);
      const running = batch.take(this.#options.now());
      if (running === undefined) continue;
      this.#hungry.add(batch);
      this.#run(slot, running);
      return;
    }
  }

  async #run(slot: Slot, running: Running): Promise<void> {
    const connection = slot.connection!;
    slot.running = running;
    const outcome = await running.run(connection);
    if (slot.connection !== connection) return;
    slot.running = undefined;
    if (outcome.isLost) this.#lose(slot, outcome.cause);
    else this.#feed(slot);
  }

  /** The connection is of no use any more: nobody knows what became of the statement on it. */
  #lose(slot: Slot, cause: unknown): void {
    const { connection, running } = slot;
    this.#options.debug('connection lost', { cause: String(cause) });
    slot.connection = undefined;
    slot.running = undefined;
    if (this.#options.now() - slot.connectedAt >= STEADY_MS) slot.attempts = 0;
    running?.fail(cause);
    connection?.cut();
    this.#fill(slot);
  }

  /** Looks at all deadlines; goes on while there is anything that could miss one. */
  #tick(): void {
    const now = this.#options.now();
    for (const slot of this.#slots) {
      if (slot.running !== undefined && slot.running.expires <= now) {
        this.#lose(slot, new Error(`no answer within ${this.#options.timeoutMs} ms`));
      }
    }
    for (const batch of this.#hungry) batch.expire(now);
    const isBusy = this.#hungry.size > 0 || this.#slots.some(({ running }) => running);
    this.#ticker = isBusy ? setTimeout(() => this.#tick(), TICK_MS) : undefined;
  }

  /** Connects a slot, however long it takes. */
  async #fill(slot: Slot): Promise<void> {
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
        if (this.#isGone) this.#options.onBack();
        this.#isGone = false;
        this.#feed(slot);
        return;
      } catch (err) {
        if (err instanceof SchemaTooNew) {
          this.#closing.abort();
          return this.#options.onFatal(err);
        }
        this.#failed(err, tried);
      }
    }
  }

  /** No pause before the next host of a walk, and a longer one after each walk. */
  async #pause({ attempts }: Slot): Promise<void> {
    const walks = attempts / this.#options.database.hosts.length;
    if (walks === 0 || !Number.isInteger(walks)) return;
    const pause = Math.min(BACKOFF_MS[0] * 2 ** (walks - 1), BACKOFF_MS[1]);
    // Jitter, so that replicas do not come back all at once.
    const jittered = pause * (0.5 + Math.random() / 2);
    await new Promise<void>((resolve) => setTimeout(resolve, jittered).unref());
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
    if (this.#host === tried) this.#host++;
    const isAlone = this.#slots.every(({ connection }) => connection === undefined);
    if (!isAlone || this.#isGone || this.#isClosed) return;
    this.#isGone = true;
    this.#options.onGone(err);
  }

  #nameOf(tried: number): string {
    const { hosts } = this.#options.database;
    const { host, port } = hosts[tried % hosts.length]!;
    return `${host}:${port}`;
  }

  async #open(slot: Slot, tried: number, attempt: number): Promise<Connection> {
    const { hosts } = this.#options.database;
    const { least, most } = CONNECT_TIMEOUT_MS;
    const first = Math.max(least, this.#options.timeoutMs / 2);
    let isClosed = false;
    const connection: Connection = await openConnection({
      ...this.#options,
      host: hosts[tried % hosts.length]!,
      connectTimeoutMs: Math.min(most, first * 2 ** (attempt - 1)),
      isPooler: this.#isPooler,
      isOnSecondWalk: attempt > hosts.length,
      signal: this.#closing.signal,
      prepare: async (sql, prolong) => {
        if (!this.#isPrepared) await this.#options.prepare(sql, prolong);
        this.#isPrepared = true;
      },
      onClose: () => {
        isClosed = true;
        const isOurs = slot.connection !== undefined && slot.connection === connection;
        if (isOurs) this.#lose(slot, new Error('the connection was closed'));
      },
    });
    if (isClosed) throw new Error('the connection was closed');
    return connection;
  }
}
