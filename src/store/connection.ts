// One connection to Postgres: a client of npm `postgres` that owns one socket. Before its first use,
// one probe finds out whether the server is of the kind that the URL asks for, whether a pooler
// stands in between, and the server's time.
import { createRequire } from 'node:module';
import { connect, isIP, type Socket } from 'node:net';
import process from 'node:process';
import type Postgres from 'postgres';
import type { Notice, Sql } from 'postgres';
import { StoreUnavailable } from '../user.ts';
import { UnusableDatabase } from './migrate.ts';
import type { Host, PostgresDatabase } from './url.ts';

/** Time for the schema migration, by this process or another replica. */
const MIGRATION_TIMEOUT_MS = 60_000;

const PROBE = `
  select pg_backend_pid() as pid,
    extract(epoch from clock_timestamp())::float8 as seconds,
    current_setting('server_encoding') as encoding,
    pg_is_in_recovery() as "isStandby",
    pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool as "isReadOnly",
    (select setting from pg_settings where name = 'statement_timeout') as "timeoutMs"`;

/** Other encodings can't store every name, or treat its bytes as characters (contract 5.1). */
const ENCODING = 'UTF8';

// Every statement finds its rows by key, whatever the values. Without these settings the server
// plans most batches anew, or keeps a plan that reads the whole table, made while it was small.
const PLANNER = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
};

/** Runs statements. */
export interface Session {
  /**
   * The rows of one statement with the parameters $1 to $9, after its commit.
   * @throws NotReplicated if the server gave up waiting for its synchronous standby
   */
  readonly query: <Row extends object>(text: string, values: readonly string[]) => Promise<Row[]>;
  /** Converts milliseconds of our clock to the server's seconds since 1970. */
  readonly serverSeconds: (ms: number) => number;
}

/** A connection that is ready for use. */
export interface Connection extends Session {
  /** Whether a pooler stands in between. */
  readonly isPooled: boolean;
  /** Lets a running statement finish, then closes; never resolves if the connection is lost. */
  readonly end: () => Promise<void>;
  /** Closes the connection at once. */
  readonly destroy: () => void;
}

/** How to connect. */
export interface ConnectionOptions {
  readonly database: PostgresDatabase;
  readonly host: Host;
  /** PEM of `sslrootcert`. */
  readonly authorities: string | undefined;
  readonly timeoutMs: number;
  /** Time for each attempt to connect, migration aside. */
  readonly connectTimeoutMs: number;
  /** Whether an earlier connection found a pooler. */
  readonly isPooled: boolean;
  /** Whether all hosts have been tried: `prefer-standby` takes any server then. */
  readonly isSecondPass: boolean;
  readonly now: () => number;
  /** Aborts the attempt. */
  readonly signal: AbortSignal;
  /** Runs before the first use, within the connect timeout unless it calls `prolong`. */
  readonly migrate: (sql: Sql, prolong: () => void) => Promise<void>;
  /** Called when a connection that was returned has closed. */
  readonly onClose: (connection: Connection) => void;
}

/**
 * A server that has no synchronous standby any more: its commits wait, or a failover loses them. It
 * may be an old primary.
 */
export class NotReplicated extends StoreUnavailable {}

interface ServerState {
  readonly pid: number;
  readonly seconds: number;
  readonly encoding: string;
  readonly isStandby: boolean;
  readonly isReadOnly: boolean;
  readonly timeoutMs: string;
}

/**
 * Connects. If a pooler shows itself, connects again in the way that it supports.
 * @throws UnusableDatabase, or the fault of this host
 */
export async function openConnection(options: ConnectionOptions): Promise<Connection> {
  const direct = options.isPooled ? undefined : await open(options, false);
  return direct ?? (await open(options, true))!; // 5.1
}

/** One attempt; undefined if it expected a server and found a pooler. */
async function open(
  options: ConnectionOptions,
  isPooled: boolean,
): Promise<Connection | undefined> {
  const { database, host, timeoutMs, signal } = options;
  const socket = new SingleUseSocket(host);
  const notices: Notice[] = [];
  let connection: Connection | undefined;
  let isClosed = false;
  const sql = createClient(options, isPooled, {
    socket: socket.open,
    onnotice: (notice) => notices.push(notice),
    onclose: () => {
      isClosed = true;
      if (connection !== undefined) options.onClose(connection);
    },
  });
  let timer = setTimeout(socket.destroy, options.connectTimeoutMs);
  const prolong = () => {
    clearTimeout(timer);
    timer = setTimeout(socket.destroy, MIGRATION_TIMEOUT_MS);
  };
  signal.addEventListener('abort', socket.destroy);
  try {
    signal.throwIfAborted();
    const rows = await sql.unsafe<[ServerState]>(PROBE);
    const [state] = rows;
    // The response took a while, so converted deadlines may be early, never late.
    const epoch = state.seconds - options.now() / 1000;
    if (!matchesSessionAttributes(database.sessionAttributes, state, options.isSecondPass)) {
      throw new StoreUnavailable(`${host.host}:${host.port} is not ${database.sessionAttributes}`);
    }
    if (!isPooled && !isDirect(state, rows.state.pid, timeoutMs)) return undefined;
    checkEncoding(state.encoding);
    await options.migrate(sql, prolong);
    if (isClosed) throw new StoreUnavailable('the connection was closed');
    const query = isPooled ? simpleQuery(sql, timeoutMs) : extendedQuery(sql);
    connection = {
      isPooled,
      query: async (text, values) => {
        notices.length = 0;
        const result = await query(text, values);
        if (notices.some(isReplicationCancelled)) {
          throw new NotReplicated(
            'the server stopped waiting for its standby to confirm the commit',
          );
        }
        return result as never;
      },
      serverSeconds: (ms) => epoch + ms / 1000,
      end: () => sql.end(),
      destroy: socket.destroy,
    };
    return connection;
  } catch (err) {
    if (!isPooled && refusesParameters(err)) return undefined;
    throw err;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', socket.destroy);
    if (connection === undefined) socket.destroy();
  }
}

// A pooler shares the server's sessions among its clients, so nothing that we set or prepare would
// stay with us. PgBouncer shows itself in one of three ways, which depend on its settings: it
// refuses our statement_timeout, accepts and drops it, or gives us a process id of its own.

function refusesParameters(err: unknown): boolean {
  return /unsupported startup parameter/.test((err as Error).message);
}

function isDirect(
  { pid, timeoutMs }: ServerState,
  announcedPid: number,
  ourTimeoutMs: number,
): boolean {
  return pid === announcedPid && Number(timeoutMs) === ourTimeoutMs;
}

function checkEncoding(encoding: string): void {
  if (encoding === ENCODING) return;
  // 5.1
  throw new UnusableDatabase(
    `the database has the encoding ${encoding}, this service needs ${ENCODING}: create it with encoding '${ENCODING}' locale 'C' template template0`,
  );
}

/**
 * The server stopped waiting for its synchronous standby because the wait was cancelled. It reports
 * this as a WARNING of a successful statement. Messages are translated; the routine's name is not.
 */
function isReplicationCancelled({ routine }: Notice): boolean {
  return routine === 'SyncRepWaitForLSN'; // 4.13
}

function createClient(
  { database, host, authorities, timeoutMs }: ConnectionOptions,
  isPooled: boolean,
  handlers: {
    readonly socket: () => Promise<Socket>;
    readonly onnotice: (notice: Notice) => void;
    readonly onclose: () => void;
  },
): Sql {
  // The server also ends a statement by itself, even if it never learns that we have gone. Behind a
  // pooler each statement brings its limit along.
  const session = isPooled ? {} : { statement_timeout: timeoutMs, ...PLANNER }; // 4.13
  // Loaded only if it is used.
  const postgres: typeof Postgres = createRequire(import.meta.url)('postgres');
  const configured = {
    host: host.host,
    port: host.port,
    user: database.user,
    password: database.password,
    database: database.database,
    ssl: tlsOptions(database, host, authorities),
    ...handlers,
    max: 1,
    prepare: !isPooled,
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
  } as unknown as Postgres.Options<Record<string, Postgres.PostgresType>>;
  return withoutEnvironment(() => postgres(configured) as unknown as Sql);
}

/**
 * The driver reads PGPASSWORD, PGTARGETSESSIONATTRS and the like when it creates a client, and has
 * no option that prevents it (contract 1.1).
 */
function withoutEnvironment<T>(action: () => T): T {
  const { env } = process;
  process.env = {};
  try {
    return action();
  } finally {
    process.env = env;
  }
}

/** `target_session_attrs` (PostgreSQL manual, libpq, "Parameter Key Words"). */
function matchesSessionAttributes(
  attributes: PostgresDatabase['sessionAttributes'],
  { isStandby, isReadOnly }: ServerState,
  isSecondPass: boolean,
): boolean {
  if (attributes === 'read-write') return !isReadOnly;
  if (attributes === 'read-only') return isReadOnly;
  if (attributes === 'primary') return !isStandby;
  if (attributes === 'standby') return isStandby;
  return attributes === 'any' || isStandby || isSecondPass;
}

/** The extended query protocol: statements are prepared at their first use on a connection. */
function extendedQuery(sql: Sql): Session['query'] {
  return <Row extends object>(text: string, values: readonly string[]) =>
    sql.unsafe<Row[]>(text, [...values], { prepare: true }) as Promise<Row[]>;
}

/**
 * The simple query protocol. Behind a pooler the next statement may run in another session, without
 * our prepared statements and settings, so each message sets its own limit. This protocol has no
 * parameters: the values are literals in the text.
 */
function simpleQuery(sql: Sql, timeoutMs: number): Session['query'] {
  // 5.1
  return async <Row extends object>(text: string, values: readonly string[]) => {
    const statement = text.replace(/\$([1-9])/g, (_all, n) => literal(values[Number(n) - 1]!));
    const results = await sql.unsafe(`set local statement_timeout = ${timeoutMs}; ${statement}`);
    return results.at(-1) as unknown as Row[];
  };
}

/**
 * A string constant with escapes (PostgreSQL manual, "String Constants with C-Style Escapes"). With
 * any session settings, a backslash escapes, a doubled quote is one quote, and nothing else is
 * special.
 */
function literal(value: string): string {
  return `E'${value.replace(/['\\]/g, '$&$&')}'`;
}

/** The only socket of a client. If it is lost, the driver asks for another one and gets none. */
class SingleUseSocket {
  readonly #host: Host;
  #socket: Socket | undefined;
  #isDestroyed = false;

  constructor(host: Host) {
    this.#host = host;
  }

  readonly open = (): Promise<Socket> => {
    const { host, port } = this.#host;
    if (this.#socket !== undefined || this.#isDestroyed) {
      throw new StoreUnavailable('connection lost');
    }
    const path = `${host}/.s.PGSQL.${port}`;
    const socket = host.startsWith('/')
      ? connect({ path })
      : connect({ host, port, noDelay: true });
    this.#socket = socket;
    return new Promise((resolve, reject) => {
      socket.once('error', (err) => reject(unreachable(err)));
      socket.once('close', () => reject(new StoreUnavailable('no connection in time')));
      socket.once('connect', () => {
        socket.removeAllListeners();
        resolve(socket);
      });
    });
  };

  /** Resets the connection: the kernel drops what it has not sent yet, so it can't arrive late. */
  readonly destroy = (): void => {
    this.#isDestroyed = true;
    const socket = this.#socket;
    if (socket === undefined) return;
    // Node delays the reset of a connecting socket until it has connected, and node 26 leaks the
    // descriptor of a socket that is reset after its end.
    const cannotReset = socket.connecting || socket.writableEnded;
    if (cannotReset || this.#host.host.startsWith('/')) socket.destroy();
    else socket.resetAndDestroy();
  };
}

/** A name with several addresses fails with an AggregateError, whose own message is empty. */
function unreachable(err: Error): Error {
  if (!(err instanceof AggregateError)) return err;
  return new StoreUnavailable(err.errors.map(({ message }: Error) => message).join('; '));
}

/** `sslmode` in the driver's terms (PostgreSQL manual, libpq, "SSL Support"). */
function tlsOptions(database: PostgresDatabase, { host }: Host, ca: string | undefined) {
  if (host.startsWith('/')) return false;
  const { sslMode } = database;
  if (sslMode === 'disable') return false;
  if (sslMode === 'prefer' || sslMode === 'allow') return 'prefer';
  // The certificate is checked against an IP address too, which is never a server name (RFC 6066 §3).
  const name = isIP(host) === 0 ? { servername: host } : { servername: undefined, host };
  // Like libpq, `require` verifies the chain if there is a root certificate.
  if (sslMode === 'require' && ca === undefined) return { rejectUnauthorized: false, ...name };
  const verify = { rejectUnauthorized: true, ...name, ...(ca === undefined ? {} : { ca }) };
  return sslMode === 'verify-full' ? verify : { ...verify, checkServerIdentity: () => undefined };
}
