// Wires the parts together: settings in, a running service out. Used by main.ts and start.ts.
import { randomBytes, X509Certificate } from 'node:crypto';
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import { Credential } from './auth/credential.ts';
import { Tokens } from './auth/jwt.ts';
import { FailureLimiter } from './auth/limiter.ts';
import { nextTurn, now, sleep, unixMs } from './clock.ts';
import { type Config, readTls } from './config.ts';
import { readDocuments } from './docs.ts';
import { adminHandler } from './ops/admin.ts';
import type { Log } from './ops/log.ts';
import { Metrics, maxFiles } from './ops/metrics.ts';
import { Pipeline } from './pipeline.ts';
import type { Services } from './route.ts';
import { routes } from './routes.ts';
import { adminLimits, apiLimits, type ProcessLimits } from './server/limits.ts';
import { type KeyPair, Listener } from './server/listener.ts';
import type { StoreOptions } from './store/options.ts';
import { openPostgres } from './store/postgres.ts';
import { openSqlite } from './store/sqlite.ts';
import { describe } from './store/url.ts';
import { StoreUnavailable, type UserStore } from './user.ts';

// A client that reads nothing of a response for this long plus DATABASE_TIMEOUT_MS is disconnected. While
// its request waits for the store, there is nothing to read.
const UNREAD_TIMEOUT_MS = 60_000;
const STOP_GRACE_MS = 500; // how long an idle connection may still send a request during a stop (6.15)
const BODY_SHARE = 1 / 160; // of the budget: parsing can take 160 times the body, outside all charges

export type Service = Awaited<ReturnType<typeof startService>>;
type OnFatal = (err: Error) => void; // called if the service can never use its database
type Login = { readonly user: string; readonly password: string };

/**
 * Starts a service, independent of any other in this process (9.3).
 * @throws an Error if an address or the SQLite file can't be opened
 */
export async function startService(config: Config, log: Log, onFatal: OnFatal) {
  // Released in reverse order if the start fails. No closure may capture it: node 24.0 would never release it
  // (nodejs/node#58744).
  await using starting = new AsyncDisposableStack();
  const { PORT, HOST, ADMIN_PORT, ADMIN_HOST = HOST, DATABASE_URL } = config;
  const credential = { user: config.AUTH_USER, password: config.AUTH_PASSWORD ?? randomText(15) };
  const options = storeOptions(config, log, onFatal);
  const opened =
    DATABASE_URL.engine === 'sqlite'
      ? await openSqlite(DATABASE_URL, options)
      : openPostgres(DATABASE_URL, options);
  starting.defer(() => opened.close());
  // After the wait for a locked file, because the TLS files can be replaced meanwhile, and a SIGHUP then changes nothing.
  const tls = readTls(config);
  let notAfterMs = tls && checkValidity(tls, log);
  // Without an admin listener nobody can read the metrics.
  const metrics =
    ADMIN_PORT === undefined
      ? undefined
      : starting.use(new Metrics(routes, DATABASE_URL.engine, opened));
  const store = metrics?.measure(opened, config.DATABASE_TIMEOUT_MS, now) ?? opened;
  const limits = apiLimits(processLimits(config), !!tls);

  let stopping: Promise<boolean> | undefined;
  const isStopping = () => stopping !== undefined;
  const pipeline = new Pipeline({
    routes,
    services: servicesOf(config, credential, store),
    bodyLimitBytes: Math.min(config.BODY_LIMIT_BYTES, Math.floor(BODY_SHARE * limits.budgetBytes)),
    corsOrigin: config.CORS_ORIGIN,
    // A client that gets the last response of its connection makes another one. While the listener accepts
    // those that are queued, responses wait: otherwise the queue never empties (6.2).
    stopping: () => (isStopping() ? (api.draining ?? nextTurn()) : undefined),
    begin: (method) => metrics?.begin(method),
    record: (exchange) => {
      const ms = now() - exchange.startMs;
      metrics?.end(exchange, ms);
      log.request(exchange, ms);
      const { fault, requestId, traceId } = exchange;
      if (fault === undefined) return;
      log.error('request failed', { requestId, traceId, cause: causeOf(fault) }); // 2.9
    },
  });
  const timeouts = {
    idleTimeoutMs: config.IDLE_TIMEOUT_MS,
    unreadTimeoutMs: UNREAD_TIMEOUT_MS + config.DATABASE_TIMEOUT_MS, // 6.3
  };
  const onRoomMade = (count: number) => {
    if (count > 0) log.error('connections closed to make room', { count });
    else log.info('connections have room');
  };
  const api = starting.use(new Listener(pipeline, { limits, ...timeouts, tls, onRoomMade }));

  const url = urlOf(tls ? 'https' : 'http', await api.listen(PORT, HOST), HOST);
  let admin: Listener | undefined;
  let adminUrl: string | undefined;
  if (metrics !== undefined) {
    const exposition = () => metrics.exposition(api.usage(), log.droppedCount, notAfterMs);
    const handler = adminHandler(isStopping, store, exposition);
    admin = starting.use(new Listener(handler, { limits: adminLimits, ...timeouts }));
    adminUrl = urlOf('http', await admin.listen(ADMIN_PORT!, ADMIN_HOST), ADMIN_HOST);
  }
  const resources = starting.move();

  const finish = async (graceMs: number) => {
    log.info('stopping');
    await sleep(config.SHUTDOWN_DELAY_MS);
    const { SHUTDOWN_TIMEOUT_MS: timeoutMs } = config;
    const timer = new AbortController();
    const tooLate = sleep(timeoutMs, undefined, { signal: timer.signal });
    const stopped = api.stop(graceMs, timeoutMs / 2).then(() => admin?.stop(0, 0));
    await Promise.race([stopped, tooLate]); // 6.2
    timer.abort(); // 9.4
    const isCut = api.isBusy || !!admin?.isBusy;
    if (isCut) log.error('SHUTDOWN_TIMEOUT_MS has passed; requests in flight are cut');
    await resources.disposeAsync();
    log.info('stopped');
    return !isCut;
  };

  /**
   * Finishes requests in flight, then releases everything. Closes idle connections after `graceMs`: a request
   * may be on its way. Returns false if SHUTDOWN_TIMEOUT_MS cut requests. A second call waits for the first.
   */
  const stop = (graceMs = STOP_GRACE_MS) => {
    stopping ??= finish(graceMs);
    return stopping;
  };

  /** Reads the TLS files again, if there are any. If they are invalid, logs it and keeps the old ones. */
  const reloadTls = () => {
    try {
      const pair = readTls(config);
      if (pair === undefined) return; // 6.9
      api.reloadTls(pair);
      log.info('TLS certificate reloaded');
      notAfterMs = checkValidity(pair, log);
    } catch (err) {
      log.error('TLS certificate not reloaded', { cause: (err as Error).message });
    }
  };

  log.info('listening', { url, adminUrl, store: describe(DATABASE_URL) });
  return { url, adminUrl, credential, reloadTls, stop };
}

function storeOptions(config: Config, log: Log, onFatal: OnFatal): StoreOptions {
  return {
    poolSize: config.DATABASE_POOL_SIZE,
    timeoutMs: config.DATABASE_TIMEOUT_MS,
    now,
    onUnavailable: (cause) => log.error('store unavailable', { cause: causeOf(cause) }),
    onAvailable: () => log.info('store available'),
    debug: log.debug,
    onFatal,
  };
}

function servicesOf(config: Config, { user, password }: Login, store: UserStore): Services {
  const { AUTH_NAME: name, SIGNING_SECRET = randomText(32) } = config;
  const keys = [SIGNING_SECRET, config.VERIFY_ONLY_SECRET, config.SIGNING_SECRET_PREVIOUS];
  const secrets = keys.filter((key) => key !== undefined);
  return {
    store,
    note: JSON.stringify({ title: config.NOTE_TITLE, contents: config.NOTE_CONTENTS }),
    ...readDocuments(),
    credential: new Credential({ user, password, name }),
    tokens: new Tokens({ id: user, name }, secrets, () => unixMs() / 1000),
    limiter: new FailureLimiter(config.AUTH_FAILURES_PER_MINUTE, now),
    protectUsers: config.PROTECT_USERS,
    trustProxy: config.TRUST_PROXY,
  };
}

function processLimits(config: Config): ProcessLimits {
  return {
    settingBytes: config.MEMORY_LIMIT_BYTES,
    groupBytes: process.constrainedMemory(),
    machineBytes: totalmem(),
    heapLimitBytes: getHeapStatistics().heap_size_limit,
    maxFiles: maxFiles() ?? Number.POSITIVE_INFINITY,
  };
}

/** Returns the Unix time at which the certificate expires. Logs an error if it is not valid now. */
function checkValidity({ cert }: KeyPair, log: Log): number {
  const { validFromDate, validToDate } = new X509Certificate(cert);
  if (unixMs() < validFromDate.getTime() || unixMs() > validToDate.getTime()) {
    const fields = { from: validFromDate.toISOString(), to: validToDate.toISOString() };
    log.error('TLS certificate is not valid now; replace it and send SIGHUP', fields);
  }
  return validToDate.getTime();
}

function randomText(byteCount: number): string {
  return randomBytes(byteCount).toString('base64url');
}

/** Returns the chain of causes as one text, with the stack of an error without a code. */
function causeOf(err: unknown): string {
  if (!Error.isError(err)) return String(err);
  const isKnown = err instanceof StoreUnavailable || 'code' in err;
  const text = isKnown ? err.message : (err.stack ?? err.message);
  return err.cause === undefined ? text : `${text}: ${causeOf(err.cause)}`;
}

function urlOf(scheme: string, port: number, host = 'localhost'): string {
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
