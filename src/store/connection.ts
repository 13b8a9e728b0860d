// One connection to Postgres: a client of npm `postgres` that is used for one socket only. What it
// is connected to is asked before its first use: whether the server is the kind that the URL wants,
// whether a pooler stands in between, and what time it is there.
import { createRequire } from 'node:module';
import { connect, isIP, type Socket } from 'node:net';
import process from 'node:process';
import type Postgres from 'postgres';
import type { Sql } from 'postgres';
import { StoreUnavailable } from '../user.ts';
import { UnusableDatabase } from './migrate.ts';
import type { Host, PostgresDatabase } from './url.ts';

/** How long bringing the schema up to date may take, by us or by another replica. */
const MIGRATION_TIMEOUT_MS = 60_000;

// A pooler refuses our statement_timeout, or drops it, and gives each client its own process id.
const UNSUPPORTED_PARAMETER = /unsupported startup parameter/;
const PROBE = `
  select pg_backend_pid() as pid,
    extract(epoch from clock_timestamp())::float8 as seconds,
    current_setting('server_encoding') as encoding,
    pg_is_in_recovery() as "isStandby",
    pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool as "isReadOnly",
    (select setting from pg_settings where name = 'statement_timeout') as "timeoutMs"`;

/** Others cannot keep every name, or take its bytes for characters (contract 5.1). */
const ENCODING = 'UTF8';

// Every statement finds its rows by key, whatever the values. Without this the server plans most
// batches anew, or keeps a plan that it made while the table was small and reads all of it.
const PLANNER = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
};

/** What a statement is run with. */
export interface Session {
  /** The rows of one statement with the parameters $1 to $9. */
  readonly query: <Row extends object>(text: string, values: readonly string[]) => Promise<Row[]>;
  /** Converts our clock's milliseconds to the server's seconds since 1970. */
  readonly serverSeconds: (ms: number) => number;
}

/** A connection that is ready for use. */
export interface Connection extends Session {
  /** Lets a running statement finish, then closes; never resolves if the connection is lost. */
  readonly end: () => Promise<void>;
  /** Cuts the connection at once. */
  readonly cut: () => void;
}

/** What a connection is made with. */
export interface ConnectionOptions {
  readonly database: PostgresDatabase;
  readonly host: Host;
  /** PEM of `sslrootcert`. */
  readonly authorities: string | undefined;
  readonly timeoutMs: number;
  /** A host that does not answer within this time is given up. */
  readonly connectTimeoutMs: number;
  /** A pooler such as PgBouncer stands in between. */
  readonly isPooler: boolean;
  /** All hosts have been tried before. */
  readonly isSecondPass: boolean;
  readonly now: () => number;
  /** Gives the attempt up. */
  readonly signal: AbortSignal;
  /** Runs before the first use, within the time of the attempt unless it asks for more. */
  readonly migrate: (sql: Sql, prolong: () => void) => Promise<void>;
  readonly onClose: () => void;
}

/** The other end shares its sessions among clients (PgBouncer in transaction mode). */
export class PoolerFound extends Error {
  override readonly name = 'PoolerFound';
}

interface ServerState {
  readonly pid: number;
  readonly seconds: number;
  readonly encoding: string;
  readonly isStandby: boolean;
  readonly isReadOnly: boolean;
  readonly timeoutMs: string;
}

/**
 * Connects.
 * @throws PoolerFound unless `isPooler` says so already, UnusableDatabase, or whatever is wrong
 *   with the host
 */
export async function openConnection(options: ConnectionOptions): Promise<Connection> {
  const { database, host, timeoutMs, isPooler, signal } = options;
  const link = new Link(host);
  const sql = client(link, options);
  let timer = setTimeout(link.cut, options.connectTimeoutMs);
  const prolong = () => {
    clearTimeout(timer);
    timer = setTimeout(link.cut, MIGRATION_TIMEOUT_MS);
  };
  signal.addEventListener('abort', link.cut);
  try {
    const rows = await sql.unsafe<[ServerState]>(PROBE);
    const [state] = rows;
    // The answer has been on its way: deadlines in the server's clock may be early, never late.
    const epoch = state.seconds - options.now() / 1000;
    if (!isWanted(database.sessionAttributes, state, options.isSecondPass)) {
      throw new StoreUnavailable(`${host.host}:${host.port} is not ${database.sessionAttributes}`);
    }
    const isDirect = state.pid === rows.state.pid && Number(state.timeoutMs) === timeoutMs;
    if (!isPooler && !isDirect) throw new PoolerFound(); // 5.1
    if (state.encoding !== ENCODING) {
      // 5.1
      throw new UnusableDatabase(
        `the database has the encoding ${state.encoding}, this service needs ${ENCODING}: create it with encoding '${ENCODING}' locale 'C' template template0`,
      );
    }
    await options.migrate(sql, prolong);
    return {
      query: isPooler ? simpleQuery(sql, timeoutMs) : extendedQuery(sql),
      serverSeconds: (ms) => epoch + ms / 1000,
      end: () => sql.end(),
      cut: link.cut,
    };
  } catch (err) {
    link.cut();
    const isRefused = UNSUPPORTED_PARAMETER.test((err as Error).message);
    throw isRefused && !isPooler ? new PoolerFound() : err;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', link.cut);
  }
}

function client(link: Link, options: ConnectionOptions): Sql {
  const { database, host, authorities, timeoutMs, isPooler, onClose } = options;
  // The server gives up a statement by itself too, also when it never learns that we are gone.
  // Behind a pooler each statement brings its limit along.
  const session = isPooler ? {} : { statement_timeout: timeoutMs, ...PLANNER }; // 4.13
  // Loaded where it is chosen.
  const postgres: typeof Postgres = createRequire(import.meta.url)('postgres');
  const configured = {
    host: host.host,
    port: host.port,
    user: database.user,
    password: database.password,
    database: database.database,
    ssl: tlsOptions(database, host, authorities),
    socket: link.open,
    onclose: onClose,
    max: 1,
    prepare: !isPooler,
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
  } as unknown as Postgres.Options<Record<string, Postgres.PostgresType>>;
  // The driver takes what it finds empty from PGPASSWORD and the like (contract 1.1).
  const { env } = process;
  process.env = {};
  try {
    return postgres(configured) as unknown as Sql;
  } finally {
    process.env = env;
  }
}

/** `target_session_attrs` (PostgreSQL manual, libpq, "Parameter Key Words"). */
function isWanted(
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
 * The simple query protocol. Behind a pooler the next statement may meet another session, which
 * lacks what was prepared and set, so each message sets its own limit. This protocol has no
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
 * A string constant with escapes (PostgreSQL manual, "String Constants with C-Style Escapes"). In
 * this form, whatever the session's settings, a backslash escapes and a doubled quote is one quote,
 * and nothing else is special.
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
      socket.once('error', (err) => reject(unreachable(err)));
      socket.once('close', () => reject(new StoreUnavailable('no connection in time')));
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
    // Node puts off the reset of a socket that connects until it has, and node 26 keeps the
    // descriptor of one that is reset after its end.
    const isNotYetOrNoMore = socket.connecting || socket.writableEnded;
    if (isNotYetOrNoMore || this.#host.host.startsWith('/')) socket.destroy();
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
  // An address is compared with the certificate too, but is never a server name (RFC 6066 §3).
  const name = isIP(host) === 0 ? { servername: host } : { servername: undefined, host };
  // libpq verifies the chain for `require` too when it has been given a root.
  if (sslMode === 'require' && ca === undefined) return { rejectUnauthorized: false, ...name };
  const verify = { rejectUnauthorized: true, ...name, ...(ca === undefined ? {} : { ca }) };
  return sslMode === 'verify-full' ? verify : { ...verify, checkServerIdentity: () => undefined };
}
