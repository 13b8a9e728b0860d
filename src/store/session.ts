// One connection to Postgres: a client of npm `postgres` that owns one socket. Before its first use, a
// probe checks the server against `target_session_attrs`, detects a pooler in between, and reads the
// server's clock.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect, type Socket } from 'node:net';
import process from 'node:process';
import type { Notice, Row, Sql } from 'postgres';
import { clearImmediate, clearTimeout, setImmediate, setTimeout } from '../clock.ts';
import { StoreUnavailable } from '../user.ts';
import type { StoreOptions } from './options.ts';
import { migratePostgres, UnusableDatabase } from './schema.ts';
import { type Host, nameOf, type PostgresDatabase } from './url.ts';

const CHECK_MS = 50; // how often an attempt checks whether the server has sent something
const NO_TLS = 'N'.charCodeAt(0); // the response to a request for TLS (PostgreSQL manual, "SSL Session Encryption")
const MIGRATION_TIMEOUT_MS = 60_000; // maximum silence of the server while this process migrates

const PROBE = `
  select pg_backend_pid() as pid,
    extract(epoch from clock_timestamp()) as seconds,
    current_setting('server_encoding') as encoding,
    current_setting('transaction_timeout', true) as "transactionTimeout", -- null before Postgres 17
    pg_is_in_recovery() as "isStandby",
    pg_is_in_recovery() or current_setting('default_transaction_read_only')::bool as "isReadOnly"`;

// Every statement should use an index. By default the server plans most batches anew, or keeps a plan made
// while the table was small, which scans all of it. With `enable_seqscan` off, some estimated costs are so
// high that `jit` would compile the statement. The server must not close a connection that a statement is on
// its way to. A lost client's connection can hold a lock; the server closes it after a minute instead of two hours.
const SET_SESSION =
  'set idle_session_timeout = 0; set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3; set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set jit = off';

export interface SessionOptions extends Pick<StoreOptions, 'timeoutMs' | 'now'> {
  readonly database: PostgresDatabase;
  readonly host: Host;
  readonly isSecondPass: boolean; // No host is a standby: `prefer-standby` then accepts any server
  readonly signal: AbortSignal; // aborts the attempt
  readonly schema: () => string | undefined; // undefined: migrates the database before the first use
}

/** The server has lost its synchronous standby: commits wait, or a failover can lose them. */
export class NotReplicated extends StoreUnavailable {}

export type Session = Awaited<ReturnType<typeof openSession>>;

/** @throws UnusableDatabase, or the fault of this host */
export async function openSession(options: SessionOptions) {
  const { signal, now } = options;
  signal.throwIfAborted(); // The pool can close while it pauses.
  const socket = singleUseSocket(options.host);
  const notices: Notice[] = [];
  const { promise: closed, resolve: onclose } = Promise.withResolvers<void>();
  const onnotice = (notice: Notice) => notices.push(notice);
  const sql = createClient(options, { socket: socket.open, onnotice, onclose });
  let limitMs = options.database.connectTimeoutMs; // maximum silence of the server (5.7)
  const endWatch = watchSilence(socket, () => limitMs, now);
  signal.addEventListener('abort', socket.destroy);
  try {
    const { 0: server, state } = await sql.unsafe(PROBE);
    // Our clock is read after the server's, so converted deadlines can be early but never late.
    const epoch = Number(server!.seconds) - now() / 1000; // the server's clock at zero of ours
    checkServer(server!, options);
    const prolong = () => {
      limitMs = MIGRATION_TIMEOUT_MS;
    };
    const schema = options.schema() ?? (await migratePostgres(sql, prolong));
    // A pooler starts a connection with a process id of its own, not that of the backend.
    const isPooled = server!.pid !== state.pid; // 5.1
    const settings = settingsOf(isPooled, options.timeoutMs, schema, server!.transactionTimeout);
    if (!isPooled) await sql.unsafe(`${settings}; ${SET_SESSION}`);
    return {
      schema,
      isReadOnly: server!.isReadOnly as boolean,
      query: queryWith(sql, notices, isPooled ? settings : undefined),
      serverTime: (ms: number) => String(epoch + ms / 1000), // seconds of its clock, from ms of ours
      end: () => sql.end(), // Lets a running statement finish. If the connection is lost, never resolves.
      destroy: socket.destroy,
      closed,
    };
  } catch (err) {
    const isTimeout = socket.isDestroyed();
    socket.destroy();
    throw explained(err as Error, isTimeout, socket.refusesTls(), options);
  } finally {
    endWatch();
    signal.removeEventListener('abort', socket.destroy);
  }
}

/** Destroys the socket once the server has sent nothing for `limitMs()`. @returns a function that ends the watch */
function watchSilence(socket: SingleUseSocket, limitMs: () => number, now: () => number) {
  let [bytesRead, sinceMs] = [0, now()];
  const check = () => {
    if (socket.bytesRead() !== bytesRead) [bytesRead, sinceMs] = [socket.bytesRead(), now()];
    if (now() - sinceMs < limitMs()) cancel = afterPoll(CHECK_MS, check);
    else socket.destroy();
  };
  let cancel = afterPoll(CHECK_MS, check);
  return () => cancel();
}

/** Returns an error that says what an operator can do about a failed attempt to connect. */
function explained(
  err: Error,
  isTimeout: boolean,
  refusesTls: boolean,
  { host, database }: SessionOptions,
): Error {
  // The driver begins TLS even if the server has none. That then closes the connection, sends plain text, or waits.
  const hasFailed = /before secure TLS connection|wrong version number/.test(err.message);
  const isRefused = refusesTls || (hasFailed && !isTimeout);
  if (isRefused && /^(require|verify)/.test(database.sslMode)) {
    const fault = `${nameOf(host)} did not start TLS`;
    return new StoreUnavailable(`${fault}: if it has none, use sslmode=prefer or disable`);
  }
  if (isTimeout) return new StoreUnavailable('timed out while connecting'); // 5.7
  // A name with several addresses fails without a message of its own.
  const { errors } = err as AggregateError;
  if (errors) return new StoreUnavailable(errors.map(({ message }) => message).join('; '));
  // Node's advice can't be followed in the image, and doesn't apply to `sslrootcert`.
  const advice = /; if the root CA is installed locally, .*/;
  err.message = err.message.replace(advice, '; its authority must be in sslrootcert');
  return err;
}

/** Returns what each statement needs of its server, whatever the role's own settings. */
export function settingsOf(
  isPooled: boolean,
  timeoutMs: number,
  schema: string,
  transactionTimeout: unknown,
): string {
  const [set, prefix] = isPooled ? ['set local', ''] : ['set session', 'default_'];
  const settings = [
    `statement_timeout = ${timeoutMs}`, // also if the server never learns that we have gone (4.13)
    `lock_timeout = ${timeoutMs}`, // also in the commit, where deferred constraints can wait
    ...(transactionTimeout === null ? [] : ['transaction_timeout = 0']), // It would end the connection.
    'client_min_messages = warning', // A warning tells that a commit was not replicated (4.13).
    'array_nulls = on', // NULL in an array is null.
    'row_security = off', // A statement fails instead of missing hidden rows (5.3).
    `search_path = ${schema}, pg_temp`, // Clients of a pooler can leave temporary tables of the same names.
    // Otherwise a statement that waits while another session rewrites the table finds it empty (5.6, PostgreSQL manual,
    // section 13.6).
    `${prefix}transaction_isolation = 'read committed'`,
  ];
  return settings.map((setting) => `${set} ${setting}`).join('; ');
}

/** Behind a pooler, each statement may run in another server session, so `settings` are sent with it. */
export function queryWith(sql: Sql, notices: Notice[], settings: string | undefined) {
  /**
   * Returns the rows of one statement with the parameters $1 to $9, after its commit.
   * @throws NotReplicated if the server gave up waiting for its synchronous standby
   */
  return async <T extends object>(text: string, values: readonly string[]): Promise<T[]> => {
    notices.length = 0;
    // Only the simple query protocol sends several statements at once.
    const result = settings
      ? (await sql.unsafe(`${settings}; ${withLiterals(text, values)}`)).at(-1)
      : await sql.unsafe(text, [...values], { prepare: true });
    // The server reports that a wait for its synchronous standby was cancelled as a WARNING (4.13).
    // The text can be translated; the name of the routine is stable.
    if (notices.some(({ routine }) => routine === 'SyncRepWaitForLSN')) {
      throw new NotReplicated('the server stopped waiting for its standby to confirm the commit');
    }
    // Empties the driver's array, which V8 keeps until it collects the old generation (SharedUsers in users.ts). If the
    // previous statement failed, the array begins with a hole for each row that it had sent.
    return result!.splice(0).filter(Boolean) as never;
  };
}

/** @throws UnusableDatabase for a wrong encoding, StoreUnavailable if another host may qualify */
function checkServer({ encoding, isStandby, isReadOnly }: Row, options: SessionOptions): void {
  const wanted = options.database.sessionAttributes;
  // `target_session_attrs` (PostgreSQL manual, libpq, "Parameter Key Words").
  const qualifies = {
    any: true,
    'read-write': !isReadOnly,
    'read-only': isReadOnly,
    primary: !isStandby,
    standby: isStandby,
    'prefer-standby': isStandby || options.isSecondPass,
  }[wanted];
  const mismatch = `${nameOf(options.host)} does not match target_session_attrs=${wanted}`;
  if (!qualifies) throw new StoreUnavailable(mismatch);
  // Other encodings can't store every name, or they count bytes as characters.
  if (encoding === 'UTF8') return; // 5.1
  throw new UnusableDatabase(
    `the database has the encoding ${encoding}; this service needs UTF8. Create it with encoding 'UTF8' locale 'C' template template0`,
  );
}

function createClient({ database, host }: SessionOptions, handlers: object): Sql {
  // Loaded only if the settings choose Postgres.
  const postgres: (options: object) => Sql = createRequire(import.meta.url)('postgres');
  // The driver reads PGPASSWORD, PGTARGETSESSIONATTRS and the like when it creates a client, and has no
  // option to prevent this (contract 1.1).
  const { env } = process;
  process.env = {};
  try {
    const sql = postgres({
      ...host,
      user: database.user,
      password: database.password,
      database: database.database,
      ssl: tlsOptions(database, host),
      ...handlers,
      max: 1,
      fetch_types: false,
      types: { bigint: { from: [20], parse: Number } },
      connection: { application_name: database.applicationName },
      connect_timeout: 0,
      max_lifetime: null,
    });
    const { unsafe } = sql;
    // The driver caches the `origin` of each statement that fails, with its text, and never frees it. Behind a pooler the
    // text has the values.
    const withoutOrigin = (...call: Parameters<typeof unsafe>) =>
      Object.defineProperty(unsafe(...call), 'origin', { value: '' });
    return Object.assign(sql, { unsafe: withoutOrigin });
  } finally {
    process.env = env;
  }
}

// Replaces the parameters by string constants, because the simple query protocol has no parameters. In this
// form of a constant only the backslash and the quote are special, under any settings, and doubling escapes
// both (PostgreSQL manual, "String Constants with C-Style Escapes").
function withLiterals(text: string, values: readonly string[]): string {
  const literals = values.map((value) => `E'${value.replace(/['\\]/g, '$&$&')}'`);
  return text.replace(/\$([1-9])/g, (_all, n) => literals[Number(n) - 1]!);
}

type SingleUseSocket = ReturnType<typeof singleUseSocket>;

/** The only socket of a client. If it is lost and the driver asks for another, that fails. */
function singleUseSocket({ host, port }: Host) {
  const place = host.startsWith('/')
    ? { path: `${host}/.s.PGSQL.${port}` }
    : { host, port, noDelay: true };
  let socket: Socket | undefined;
  let isDestroyed = false;
  let firstByte = 0;
  return {
    isDestroyed: () => isDestroyed,
    refusesTls: () => firstByte === NO_TLS,
    bytesRead: () => socket?.bytesRead ?? 0,
    /** Resolves once the socket has connected: the driver would miss an earlier error. */
    async open(): Promise<Socket> {
      if (isDestroyed || socket !== undefined) throw new StoreUnavailable('connection lost');
      // The driver takes the server name of TLS, by which proxies route, from the socket.
      socket = Object.assign(connect(place), { host });
      socket.once('data', ([byte]: Buffer) => {
        firstByte = byte!;
      });
      await once(socket, 'connect');
      return socket;
    },
    destroy(): void {
      isDestroyed = true;
      if (socket === undefined || socket.destroyed) return;
      if (socket.connecting) return void socket.destroy(new StoreUnavailable('connection lost'));
      // The driver's TLS socket would close later, and a write that the driver has scheduled would fail there, outside
      // any call. The event closes it now. It precedes destroy(), because afterwards node could free a TLS session that
      // OpenSSL still uses, and crash.
      socket.emit('close');
      socket.destroy();
    },
  };
}

/**
 * Calls `action` after `ms` and one more poll. So an event loop that is late first receives what has
 * arrived, such as a response or a refused connection, before it enforces a deadline.
 * @returns a function that cancels it
 */
export function afterPoll(ms: number, action: () => void): () => void {
  let immediate: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    immediate = setImmediate(action);
  }, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/** `sslmode` in the driver's terms (PostgreSQL manual, libpq, "SSL Support"). */
function tlsOptions({ sslMode, sslRootCert }: PostgresDatabase, { host }: Host) {
  if (host.startsWith('/') || sslMode === 'disable') return false;
  if (sslMode === 'prefer' || sslMode === 'allow') return 'prefer';
  // Read for each connection, so a new file needs no restart.
  const ca = sslRootCert === undefined ? undefined : readAuthorities(sslRootCert);
  // As in libpq, `require` verifies the chain if there is a root certificate.
  // The certificate must match `host`, even an IP address, which is never sent as a server name (RFC 6066 §3).
  const options = { ca, rejectUnauthorized: sslMode !== 'require' || ca !== undefined, host };
  return sslMode === 'verify-full' ? options : { ...options, checkServerIdentity: () => undefined };
}

function readAuthorities(path: string): string | string[] {
  if (path !== 'system') return readFileSync(path, 'utf8');
  const { getCACertificates } = process.getBuiltinModule('node:tls'); // Other URLs don't need it.
  // Debian's folder has each several times, and OpenSSL parses all of them for each connection.
  return [...new Set([...getCACertificates('default'), ...getCACertificates('system')])];
}
