// Wires the parts together: settings in, a running service out. The program and the package's `start`
// use the same function.
import { randomBytes } from 'node:crypto';
import { totalmem } from 'node:os';
import { performance } from 'node:perf_hooks';
import { constrainedMemory } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { App } from './app.ts';
import type { AuthServices } from './auth/access.ts';
import { Credential } from './auth/credential.ts';
import { Tokens } from './auth/jwt.ts';
import { FailureLimiter } from './auth/limiter.ts';
import { type Config, readTls } from './config.ts';
import { readDocs, readOpenapi } from './docs.ts';
import { Budget, memoryLimits } from './http/budget.ts';
import { STOP_GRACE_MS } from './http/limits.ts';
import { Server } from './http/server.ts';
import { adminHandler } from './ops/admin.ts';
import type { Log } from './ops/log.ts';
import { measure } from './ops/measured.ts';
import { Metrics } from './ops/metrics.ts';
import { routes } from './routes.ts';
import { openStore } from './store/index.ts';
import { describe } from './store/url.ts';
import { Turns } from './turns.ts';
import { StoreUnavailable } from './user.ts';

/** A client that reads nothing of a response for this long, plus DATABASE_TIMEOUT_MS, is disconnected. */
const READER_TIMEOUT_MS = 60_000;

/** A running service. */
export interface Service {
  /** Base URL of the API, without a trailing slash. */
  readonly url: string;
  /** Base URL of the admin listener; undefined without one. */
  readonly adminUrl: string | undefined;
  /** Login and password of the credential user. The password is generated if none is set. */
  readonly credential: { readonly user: string; readonly password: string };
  /** Reads the TLS files again. @throws an Error, and keeps the old ones, if they are unreadable */
  readonly reloadTls: () => void;
  /**
   * Finishes requests in flight, then releases everything. Closes idle connections after `graceMs`
   * milliseconds, 500 by default, because a request may be on its way.
   * @returns false if requests were still in flight after SHUTDOWN_TIMEOUT_MS
   */
  readonly stop: (graceMs?: number) => Promise<boolean>;
}

/**
 * Starts a service, independent of any other in this process (9.3). Calls `onFatal` if it can never
 * use its database.
 * @throws an Error if an address or the SQLite file can't be opened
 */
export async function startService(
  config: Config,
  log: Log,
  onFatal: (err: Error) => void,
): Promise<Service> {
  const now = () => performance.now();
  const turns = new Turns(now);
  const tls = readTls(config);
  const credential = {
    user: config.AUTH_USER,
    password: config.AUTH_PASSWORD ?? randomBytes(15).toString('base64url'),
  };
  let isStopping = false;

  // The documents are compressed while the store opens.
  const documents = Promise.all([readOpenapi(), readDocs()]);
  const opened = await openStore(config.DATABASE_URL, {
    turns,
    poolSize: config.DATABASE_POOL_SIZE,
    timeoutMs: config.DATABASE_TIMEOUT_MS,
    now,
    onUnavailable: (cause) => log.error('store unavailable', { cause: causeOf(cause) }),
    onAvailable: () => log.info('store available'),
    debug: (message, fields) => log.debug(message, fields),
    onFatal,
  });
  // Without an admin listener nobody can read the metrics.
  const metrics =
    config.ADMIN_PORT === undefined
      ? undefined
      : new Metrics(routes, config.DATABASE_URL.engine, () => opened.connections);
  const store = metrics ? measure(opened, config.DATABASE_TIMEOUT_MS, now, metrics) : opened;
  const [openapi, docs] = await documents;

  const app = new App({
    routes,
    services: {
      ...authServices(config, credential.password),
      store,
      note: JSON.stringify({ title: config.NOTE_TITLE, contents: config.NOTE_CONTENTS }),
      openapi,
      docs,
    },
    bodyLimitBytes: config.BODY_LIMIT_BYTES,
    trustProxy: config.TRUST_PROXY,
    corsOrigin: config.CORS_ORIGIN,
    now,
    isStopping: () => isStopping,
    begin: (method) => metrics?.begin(method),
    record: (exchange) => {
      const ms = now() - exchange.startMs;
      log.request(exchange, ms);
      const { fault, requestId } = exchange;
      if (fault !== undefined) log.error('request failed', { requestId, cause: causeOf(fault) }); // 2.9
      metrics?.end(exchange, ms);
    },
  });
  // While a request waits for the store, its client has nothing to read.
  const inactivityMs = READER_TIMEOUT_MS + config.DATABASE_TIMEOUT_MS; // 6.3
  const limits = memoryLimits(
    config.MEMORY_LIMIT_BYTES,
    constrainedMemory(),
    totalmem(),
    tls !== undefined,
  );
  const budget = new Budget(limits, inactivityMs, turns);
  const api = new Server(app, budget, tls);
  const reasonNotReady = () => {
    if (isStopping) return 'stopping'; // 6.2
    const unavailable = () => 'store unavailable'; // 7.2
    return store.ping().then(() => undefined, unavailable);
  };
  const adminPages = adminHandler(reasonNotReady, () => metrics?.exposition() ?? '');
  const admin = new Server(adminPages, budget);

  const release = (graceMs?: number) => {
    api.destroy();
    admin.destroy();
    budget.close();
    metrics?.close();
    return store.close(graceMs);
  };

  const stop = async (graceMs = STOP_GRACE_MS) => {
    isStopping = true;
    log.info('stopping');
    await sleep(config.SHUTDOWN_DELAY_MS);
    const timeoutMs = config.SHUTDOWN_TIMEOUT_MS;
    const deadlineMs = now() + timeoutMs;
    const tooLate = sleep(timeoutMs, false, { ref: false });
    const stopped = api.stop(Math.min(graceMs, timeoutMs / 2), timeoutMs / 2).then(() => true);
    const isInTime = await Promise.race([stopped, tooLate]); // 6.2
    await release(Math.max(deadlineMs - now(), 0));
    log.info('stopped');
    return isInTime;
  };

  try {
    const port = await api.listen(config.PORT, config.HOST, config.REUSE_PORT);
    const url = urlOf(tls ? 'https' : 'http', config.HOST, port);
    const adminHost = config.ADMIN_HOST ?? config.HOST; // 1 ADMIN_HOST
    const adminUrl =
      config.ADMIN_PORT === undefined
        ? undefined
        : urlOf('http', adminHost, await admin.listen(config.ADMIN_PORT, adminHost));
    log.info('listening', { url, adminUrl, store: describe(config.DATABASE_URL) });
    const reloadTls = () => {
      const pair = readTls(config);
      if (pair) api.reloadTls(pair);
    };
    return { url, adminUrl, credential, reloadTls, stop };
  } catch (err) {
    await release();
    throw err;
  }
}

function authServices(config: Config, password: string): AuthServices {
  const { AUTH_USER: user, AUTH_NAME: name, SIGNING_SECRET, SIGNING_SECRET_PREVIOUS } = config;
  const secrets = [
    SIGNING_SECRET ?? randomBytes(32).toString('base64url'),
    SIGNING_SECRET_PREVIOUS,
  ];
  return {
    credential: new Credential({ user, password, name }),
    tokens: new Tokens(
      { id: user, name },
      secrets.filter((secret) => secret !== undefined),
      () => Date.now() / 1000,
    ),
    limiter: new FailureLimiter(config.AUTH_FAILURES_PER_MINUTE, () => performance.now()),
    protectUsers: config.PROTECT_USERS,
  };
}

/** Returns the chain of causes as one text, with the stack of an unknown error. */
function causeOf(err: unknown): string {
  if (!(err instanceof Error)) return String(err);
  const isKnown = err instanceof StoreUnavailable || 'code' in err;
  const text = isKnown ? err.message : (err.stack ?? err.message);
  return err.cause === undefined ? text : `${text}: ${causeOf(err.cause)}`;
}

function urlOf(scheme: string, host: string | undefined, port: number): string {
  const name = host === undefined ? 'localhost' : host.includes(':') ? `[${host}]` : host;
  return `${scheme}://${name}:${port}`;
}
