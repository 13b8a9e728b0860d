// The parts wired together: settings in, a running service out. The program and `start` of the
// package call the same function. Reads no environment and prints nothing by itself.
import { randomBytes } from 'node:crypto';
import { totalmem } from 'node:os';
import { performance } from 'node:perf_hooks';
import { constrainedMemory } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Answered, App } from './app.ts';
import type { AuthServices } from './auth/access.ts';
import { Credential } from './auth/credential.ts';
import { Tokens } from './auth/jwt.ts';
import { FailureLimiter } from './auth/limiter.ts';
import { type Config, readTls } from './config.ts';

import { readDocs, readOpenapi } from './docs.ts';
import { Budget, memoryLimits } from './http/budget.ts';
import { STOP_GRACE_MS } from './http/limits.ts';
import { Server } from './http/server.ts';

import { Admin } from './ops/admin.ts';
import type { Log } from './ops/log.ts';
import { MeasuredStore } from './ops/measured.ts';
import { Metrics } from './ops/metrics.ts';
import type { Services } from './route.ts';
import { routes } from './routes.ts';
import { openStore, type Store } from './store/index.ts';
import { describe } from './store/url.ts';
import { Turns } from './turns.ts';
import { StoreUnavailable, type UserStore } from './user.ts';

/** Minimum time a client has to read a response before we close the connection. */
const READER_TIMEOUT_MS = 60_000;

/** A running service. */
export interface Service {
  /** Base URL of the API, without a trailing slash. */
  readonly url: string;
  /** Base URL of the admin listener; undefined without one. */
  readonly adminUrl: string | undefined;
  /** Whom the service lets in. The password was generated where the settings had none. */
  readonly credential: { readonly user: string; readonly password: string };
  /** Reads the TLS files again. @throws an Error, and keeps the old ones, if they are unreadable */
  readonly reloadTls: () => void;
  /**
   * Answers what is in flight, then releases everything. Idle connections are closed after
   * `graceMs` milliseconds, by default 500, as a request can be on its way.
   * @returns whether it was in time
   */
  readonly stop: (graceMs?: number) => Promise<boolean>;
}

/** Starts the service. `onFatal` is called when it can never serve, so that the process can end. */
export async function startService(
  // 9.3
  config: Config,
  log: Log,
  onFatal: (err: Error) => void,
): Promise<Service> {
  const now = () => performance.now();
  const tls = config.tls && readTls(config.tls);
  // Compressed while the store opens.
  const documents = Promise.all([readOpenapi(), readDocs()]);
  let isStopping = false;
  const turns = new Turns(now);
  const opened = await openStore(config.database, {
    turns,
    poolSize: config.databasePoolSize,
    timeoutMs: config.databaseTimeoutMs,
    now,
    onUnavailable: (cause) => log.error('store unavailable', { cause: causeOf(cause) }),
    onAvailable: () => log.info('store available'),
    debug: (message, fields) => log.debug(message, fields),
    onFatal,
  });
  const { metrics, store } = measured(opened, config, now);
  const password = config.authPassword ?? randomBytes(15).toString('base64url');
  const [openapi, docs] = await documents;
  const services: Services = {
    ...authServices(config, password),
    store,
    note: JSON.stringify({ title: config.noteTitle, contents: config.noteContents }),
    openapi,
    docs,
  };
  const app = new App({
    routes,
    services,
    bodyLimitBytes: config.bodyLimitBytes,
    trustProxy: config.trustProxy,
    corsOrigin: config.corsOrigin,
    now,
    isStopping: () => isStopping,
    begin: (method) => metrics?.begin(method),
    record: (exchange) => {
      const ms = now() - exchange.startMs;
      logExchange(exchange, ms, log);
      metrics?.end(exchange, ms);
    },
  });
  // A request that waits for the store makes no progress either.
  const inactivityMs = READER_TIMEOUT_MS + config.databaseTimeoutMs;
  const limits = memoryLimits(
    config.memoryLimitBytes,
    constrainedMemory(),
    totalmem(),
    tls !== undefined,
  );
  const budget = new Budget(limits, inactivityMs, now, turns);
  const api = new Server(app, budget, tls);
  const adminPages = new Admin({ reasonNotReady, metrics: () => metrics?.page() ?? '' });
  const admin = new Server(adminPages, budget);

  async function reasonNotReady(): Promise<string | undefined> {
    // 7.2
    if (isStopping) return 'stopping'; // 6.2
    return store.ping().then(
      () => undefined,
      () => 'store unavailable',
    );
  }

  async function stop(graceMs = STOP_GRACE_MS): Promise<boolean> {
    isStopping = true;
    log.info('stopping');
    await sleep(config.shutdownDelayMs);
    const deadline = now() + config.shutdownTimeoutMs;
    const tooLate = sleep(config.shutdownTimeoutMs, false, { ref: false });
    const half = config.shutdownTimeoutMs / 2;
    const stopped = api.stop(Math.min(graceMs, half), half).then(() => true);
    const isInTime = await Promise.race([stopped, tooLate]); // 6.2
    api.destroy();
    admin.destroy();
    budget.close();
    metrics?.close();
    await store.close(Math.max(deadline - now(), 0));
    log.info('stopped');
    return isInTime;
  }

  try {
    const port = await api.listen(config.port, config.host, config.reusePort);
    const adminHost = config.adminHost ?? config.host; // 1 ADMIN_HOST
    const adminPort =
      config.adminPort === undefined ? undefined : await admin.listen(config.adminPort, adminHost);
    const url = urlOf(tls ? 'https' : 'http', config.host, port);
    const adminUrl = adminPort === undefined ? undefined : urlOf('http', adminHost, adminPort);
    log.info('listening', { url, adminUrl, store: describe(config.database) });
    return {
      url,
      adminUrl,
      credential: { user: config.authUser, password },
      reloadTls: () => config.tls && api.reloadTls(readTls(config.tls)),
      stop,
    };
  } catch (err) {
    api.destroy();
    admin.destroy();
    budget.close();
    metrics?.close();
    await store.close();
    throw err;
  }
}

/** Nothing is measured where there is no admin listener to ask for it. */
function measured(
  store: Store,
  { adminPort, database, databaseTimeoutMs: timeoutMs }: Config,
  now: () => number,
): { readonly metrics?: Metrics; readonly store: UserStore } {
  if (adminPort === undefined) return { store };
  const metrics = new Metrics({
    routes,
    engine: database.engine,
    connections: () => store.connections,
  });
  const record = metrics.operation.bind(metrics);
  return { metrics, store: new MeasuredStore(store, { timeoutMs, now, record }) };
}

function authServices(config: Config, password: string): AuthServices {
  const { authUser: user, authName: name, signingSecret, signingSecretPrevious } = config;
  const secrets = [signingSecret ?? randomBytes(32).toString('base64url'), signingSecretPrevious];
  return {
    credential: new Credential({ user, password, name }),
    tokens: new Tokens(
      { id: user, name },
      secrets.filter((secret) => secret !== undefined),
      () => Date.now() / 1000,
    ),
    limiter: new FailureLimiter(config.authFailuresPerMinute, () => performance.now()),
    protectUsers: config.protectUsers,
  };
}

function logExchange(exchange: Answered, ms: number, log: Log): void {
  log.request(exchange, ms);
  const { fault, requestId } = exchange;
  if (fault !== undefined) log.error('request failed', { requestId, cause: causeOf(fault) }); // 2.9
}

/** The whole chain of causes in one line. A fault that we do not know comes with its stack. */
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
