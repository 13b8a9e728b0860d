// A pool of Postgres connections that heals. Each connection is a client of npm `postgres` of its
// own, used for one socket only and replaced whole, because that driver (3.4.9) can leave a slot of
// its pool dead for good after a lost connection, has no deadline for a query and does not fail
// over. So here:
//
// - Every statement has a deadline, waiting and connecting included. A connection that missed it
//   is cut with RST, so that nothing of it can arrive later, and replaced.
// - A connection that was lost, could not be made, or is to a server that turned read-only (25006)
//   is replaced, with growing pauses; the others go on. Nothing is sent twice.
// - Several hosts are walked until one takes writes.
import { connect, isIP, type Socket } from 'node:net';
import postgres, { type Sql } from 'postgres';
import { StoreUnavailable } from '../user.ts';
import type { Runnable, Runner, Running } from './batch.ts';
import { SchemaTooNew } from './migrate.ts';
import type { Host, PostgresDatabase } from './url.ts';

/** A host that does not answer within this time is given up for the next. */
const CONNECT_TIMEOUT_MS = 2_000;

/** Pauses between attempts to connect grow from the first to the second. */
const BACKOFF_MS = [25, 1_000] as const;

/** How often deadlines are looked at; one timer for all calls. */
const TICK_MS = 50;

const CLOSE_TIMEOUT_SECONDS = 1;

// A pooler refuses our statement_timeout, or drops it: then it is known for what it is.
const UNSUPPORTED_PARAMETER = /unsupported startup parameter/;
const PROBE = `
  select extract(epoch from clock_timestamp())::float8 as seconds,
    pg_is_in_recovery() as "isStandby",
    pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool as "isReadOnly",
    (select setting from pg_settings where name = 'statement_timeout') as "timeoutMs"`;

/** What the pool tells and asks. */
export interface PoolOptions {
  readonly database: PostgresDatabase;
  /** PEM of `sslrootcert`. */
  readonly authorities: string | undefined;
  readonly size: number;
  readonly timeoutMs: number;
  readonly now: () => number;
  /** Runs on a new connection before its first use. */
  readonly prepare: (sql: Sql) => Promise<void>;
  /** Called once when no connection is left and none can be made, and once when one is back. */
  readonly onGone: (cause: unknown) => void;
  readonly onBack: () => void;
  /** The database can never be used by this version. */
  readonly onFatal: (err: Error) => void;
}

/** One place of the pool and, while it is connected, its client. */
interface Slot {
  connection: Connection | undefined;
  running: Running | undefined;
}

interface Connection extends Session {
  readonly sql: Sql;
  /** Cuts the connection at once. */
  readonly cut: () => void;
}

/** What a statement is run with. */
export interface Session {
  /** The rows of one statement with the parameters $1 to $9. */
  readonly query: <Row extends object>(text: string, values: readonly string[]) => Promise<Row[]>;
  /** A time of our clock in seconds since 1970 of the server's. */
  readonly serverSeconds: (ms: number) => number;
}

// Every statement finds its rows by key, whatever the values. Without this the server plans most
// batches anew (70 to 150 µs for `any($1)` where 57 to 81 do), or keeps a plan that it made while the
// table was small and reads all of it (50 ms for a change at 200,000 users).
const PLANNER = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
};

interface ServerState {
  readonly isStandby: boolean;
  readonly isReadOnly: boolean;
}

/** The server at the other end shares its sessions among clients (PgBouncer in transaction mode). */
class PoolerFound extends Error {}

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
  #isClosed = false;
  #isScheduled = false;
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.size }, () => ({
      connection: undefined,
      running: undefined,
    }));
  }

  /** Begins to connect: first one connection, which prepares the database, then the others. */
  start(): void {
    const [first, ...others] = this.#slots;
    this.#fill(first!).then(() => {
      for (const slot of others) this.#fill(slot);
    });
  }

  /** How many connections are in use, ready, and not there. */
  get connections(): { readonly used: number; readonly idle: number; readonly missing: number } {
    const used = this.#slots.filter(({ running }) => running).length;
    const connected = this.#slots.filter(({ connection }) => connection).length;
    return { used, idle: connected - used, missing: this.#slots.length - connected };
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
    this.#isClosed = true;
    clearTimeout(this.#ticker);
    await Promise.all(
      this.#slots.map(async ({ connection }) => {
        await connection?.sql.end({ timeout: CLOSE_TIMEOUT_SECONDS });
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
    slot.connection = undefined;
    slot.running = undefined;
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
    for (let attempt = 1; !this.#isClosed; attempt++) {
      const tried = this.#host;
      try {
        slot.connection = await this.#open(slot, tried);
        if (this.#isClosed) return slot.connection.cut();
        if (this.#isGone) this.#options.onBack();
        this.#isGone = false;
        this.#feed(slot);
        return;
      } catch (err) {
        if (err instanceof SchemaTooNew) {
          this.#isClosed = true;
          return this.#options.onFatal(err);
        }
        this.#failed(err, tried);
      }
      // No pause before the next host of a walk.
      const walks = attempt / this.#options.database.hosts.length;
      if (!Number.isInteger(walks)) continue;
      const pause = Math.min(BACKOFF_MS[0] * 2 ** walks, BACKOFF_MS[1]);
      // Jitter, so that replicas do not come back all at once.
      const jittered = pause * (0.5 + Math.random() / 2);
      await new Promise<void>((resolve) => setTimeout(resolve, jittered).unref());
    }
  }

  #failed(err: unknown, tried: number): void {
    if (err instanceof PoolerFound || UNSUPPORTED_PARAMETER.test((err as Error).message)) {
      this.#isPooler = true;
      return;
    }
    // Other slots may have gone on from this host before.
    if (this.#host === tried) this.#host++;
    const isAlone = this.#slots.every(({ connection }) => connection === undefined);
    if (!isAlone || this.#isGone || this.#isClosed) return;
    this.#isGone = true;
    this.#options.onGone(err);
  }

  async #open(slot: Slot, tried: number): Promise<Connection> {
    const { database } = this.#options;
    const host = database.hosts[tried % database.hosts.length]!;
    const link = new Link(host);
    const sql = this.#client(link, host, () => {
      if (slot.connection?.sql === sql) this.#lose(slot, new Error('the connection was closed'));
    });
    const timer = setTimeout(() => link.cut(), CONNECT_TIMEOUT_MS);
    try {
      const start = this.#options.now();
      const [state] = await sql.unsafe(PROBE);
      clearTimeout(timer);
      const isOnSecondWalk = tried >= database.hosts.length;
      if (!isWanted(database.sessionAttributes, state as unknown as ServerState, isOnSecondWalk)) {
        const kind = state?.isReadOnly ? 'takes no writes' : 'is no standby';
        throw new Error(`${host.host}:${host.port} ${kind}`);
      }
      const hasTimeout = Number(state?.timeoutMs) === this.#options.timeoutMs;
      if (!this.#isPooler && !hasTimeout) throw new PoolerFound();
      if (!this.#isPrepared) await this.#options.prepare(sql);
      this.#isPrepared = true;
      const epoch = Number(state?.seconds) - start / 1000;
      const query = this.#isPooler ? limited(sql, this.#options.timeoutMs) : prepared(sql);
      return { sql, query, cut: link.cut, serverSeconds: (ms) => epoch + ms / 1000 };
    } catch (err) {
      clearTimeout(timer);
      link.cut();
      throw err;
    }
  }

  #client(link: Link, host: Host, onClose: () => void): Sql {
    const { database, authorities, timeoutMs } = this.#options;
    // The server gives up a statement by itself too, also when it never learns that we are gone.
    // Behind a pooler each statement brings its limit along.
    const session = this.#isPooler ? {} : { statement_timeout: timeoutMs, ...PLANNER };
    return postgres({
      host: host.host,
      port: host.port,
      user: database.user,
      password: database.password,
      database: database.database,
      ssl: tlsOptions(database, host, authorities),
      socket: link.open,
      onclose: onClose,
      max: 1,
      prepare: !this.#isPooler,
      fetch_types: false,
      types: {
        bigint: { to: 20, from: [20], serialize: String, parse: Number },
      },
      connection: { application_name: database.applicationName, ...session },
      connect_timeout: 0,
      idle_timeout: 0,
      max_lifetime: null,
      keep_alive: 60,
      max_pipeline: 1,
      backoff: false,
      debug: false,
      sslnegotiation: null,
      onnotice: () => {},
    } as unknown as postgres.Options<Record<string, postgres.PostgresType>>) as unknown as Sql;
  }
}

/** `target_session_attrs` (PostgreSQL manual 34.1.2). */
function isWanted(
  attributes: PostgresDatabase['sessionAttributes'],
  { isStandby, isReadOnly }: ServerState,
  isOnSecondWalk: boolean,
): boolean {
  if (attributes === 'read-write') return !isReadOnly;
  if (attributes === 'read-only') return isReadOnly;
  if (attributes === 'primary') return !isStandby;
  if (attributes === 'standby') return isStandby;
  return attributes === 'any' || isStandby || isOnSecondWalk;
}

/** Statements are prepared at their first use on a connection. */
function prepared(sql: Sql): Session['query'] {
  return <Row extends object>(text: string, values: readonly string[]) =>
    sql.unsafe<Row[]>(text, [...values], { prepare: true }) as Promise<Row[]>;
}

/**
 * Behind a pooler the next statement may meet another session, which lacks what was prepared and
 * set. So each is one message that sets its own limit; in one with several statements the server
 * takes no parameters, and the values stand in the text as literals.
 */
function limited(sql: Sql, timeoutMs: number): Session['query'] {
  return async <Row extends object>(text: string, values: readonly string[]) => {
    const statement = text.replace(/\$([1-9])/g, (_all, n) => literal(values[Number(n) - 1]!));
    const results = await sql.unsafe(`set local statement_timeout = ${timeoutMs}; ${statement}`);
    return results.at(-1) as unknown as Row[];
  };
}

/**
 * A string constant with escapes (PostgreSQL manual 4.1.2.2). In this form, whatever the session's
 * settings, a backslash escapes and a doubled quote is one quote, and nothing else is special.
 */
function literal(value: string): string {
  return `E'${value.replace(/['\\]/g, '$&$&')}'`;
}

/** The one socket of a client. The driver asks for another when it is lost, and does not get it. */
class Link {
  readonly #host: Host;
  #socket: Socket | undefined;
  #isCut = false;

  constructor(host: Host) {
    this.#host = host;
  }

  readonly open = (): Promise<Socket> => {
    const { host, port } = this.#host;
    if (this.#socket !== undefined || this.#isCut) throw new StoreUnavailable('connection lost');
    const path = `${host}/.s.PGSQL.${port}`;
    const socket = host.startsWith('/')
      ? connect({ path })
      : connect({ host, port, noDelay: true });
    this.#socket = socket;
    return new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.once('close', () => reject(new Error('no connection in time')));
      socket.once('connect', () => {
        socket.removeAllListeners();
        resolve(socket);
      });
    });
  };

  /** RST: what the kernel has not sent yet is thrown away and cannot arrive late. */
  readonly cut = (): void => {
    this.#isCut = true;
    const socket = this.#socket;
    if (socket === undefined) return;
    if (this.#host.host.startsWith('/')) socket.destroy();
    else socket.resetAndDestroy();
  };
}

/** `sslmode` in the driver's terms (PostgreSQL manual 34.19). */
function tlsOptions(database: PostgresDatabase, { host }: Host, ca: string | undefined) {
  if (host.startsWith('/')) return false;
  const { sslMode } = database;
  if (sslMode === 'disable') return false;
  if (sslMode === 'prefer' || sslMode === 'allow') return 'prefer';
  // An address is compared with the certificate too, but never sent as a server name (RFC 6066 §3).
  const name = isIP(host) === 0 ? { servername: host } : { servername: undefined, host };
  // libpq verifies the chain for `require` too when it has been given a root.
  if (sslMode === 'require' && ca === undefined) return { rejectUnauthorized: false, ...name };
  const verify = { rejectUnauthorized: true, ...name, ...(ca === undefined ? {} : { ca }) };
  return sslMode === 'verify-full' ? verify : { ...verify, checkServerIdentity: () => undefined };
}
