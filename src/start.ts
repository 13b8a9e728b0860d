// The package as test suites import it (contract section 9). Its types stand here in full, so that
// its declarations are this page and show nothing else of the source.
/// <reference lib="esnext.disposable" preserve="true" />
import { InvalidConfig, readConfig, VARIABLES } from './config.ts';
import { Log } from './ops/log.ts';
import { startService } from './service.ts';

/**
 * Settings by the names of the environment variables. What is absent, undefined or empty has its
 * default; `LOG_LEVEL` is missing, as nothing is printed.
 */
export interface Settings {
  // 9.6
  /** Port of the API. Default: `0`, which picks a free one. */
  readonly PORT?: number | undefined;
  /** Address to bind. Default: `127.0.0.1`. */
  readonly HOST?: string | undefined;
  /** Port of `/live`, `/ready` and `/metrics`, `0` for a free one. Default: no admin listener. */
  readonly ADMIN_PORT?: number | undefined;
  /** `sqlite:PATH`, or a libpq URL `postgres://…`. Default: `sqlite::memory:`. */
  readonly DATABASE_URL?: string | undefined;
  /** Postgres connections, 1 to 100. Default: 4. */
  readonly DATABASE_POOL_SIZE?: number | undefined;
  /** The longest a request waits for the store, in milliseconds, 100 to 600000. Default: 5000. */
  readonly DATABASE_TIMEOUT_MS?: number | undefined;
  /** Login of the one credential user, without `:`. Default: `admin`. */
  readonly AUTH_USER?: string | undefined;
  /** Its password, at least 8 characters. Default: a new one, given in `credential`. */
  readonly AUTH_PASSWORD?: string | undefined;
  /** Its display name. Default: `Administrator`. */
  readonly AUTH_NAME?: string | undefined;
  /** The HS256 key of tokens, at least 32 bytes of UTF-8. Default: a new one. */
  readonly SIGNING_SECRET?: string | undefined;
  /** A key that still verifies and no longer signs. Default: none. */
  readonly SIGNING_SECRET_PREVIOUS?: string | undefined;
  /** Title of the note. Default: `Welcome`. */
  readonly NOTE_TITLE?: string | undefined;
  /** Contents of the note. Default: a sentence. */
  readonly NOTE_CONTENTS?: string | undefined;
  /** Whether `/users` needs the token too. Default: false. */
  readonly PROTECT_USERS?: boolean | undefined;
  /** Path of a PEM certificate chain; with the key the API speaks HTTPS. Default: none. */
  readonly TLS_CERT_FILE?: string | undefined;
  /** Path of its PEM private key. Default: none. */
  readonly TLS_KEY_FILE?: string | undefined;
  /** How many proxies in front add to `X-Forwarded-For`, 0 to 100. Default: 0. */
  readonly TRUST_PROXY?: number | undefined;
  /** Wrong credentials of one address in a minute before 429, 0 (no limit) to 1000. Default: 60. */
  readonly AUTH_FAILURES_PER_MINUTE?: number | undefined;
  /** Larger request bodies answer 413; in bytes, 1 to 16777216. Default: 102400. */
  readonly BODY_LIMIT_BYTES?: number | undefined;
  /** Memory of the process, from which the limits of clients follow. Default: 536870912. */
  readonly MEMORY_LIMIT_BYTES?: number | undefined;
  /** An origin, or `*`, that browsers may call from. Default: none. */
  readonly CORS_ORIGIN?: string | undefined;
  /** How long `close` goes on taking connections, in milliseconds, 0 to 3600000. Default: 0. */
  readonly SHUTDOWN_DELAY_MS?: number | undefined;
  /** How long `close` waits for what is in flight, in milliseconds, 0 to 3600000. Default: 8000. */
  readonly SHUTDOWN_TIMEOUT_MS?: number | undefined;
}

/** A service that `start` has started. */
export interface RunningService {
  /** Base URL of the API, without a trailing slash: `http://127.0.0.1:40123`. */
  readonly url: string;
  /** Base URL of the admin listener; undefined without `ADMIN_PORT`. */
  readonly adminUrl: string | undefined;
  /** Whom `/token` and `/protected` let in. */
  readonly credential: { readonly user: string; readonly password: string };
  /**
   * Answers the requests in flight, then closes every connection, the port and the store, so that
   * nothing of it keeps the process alive. A second call waits for the first.
   */
  readonly close: () => Promise<void>;
  /** The same as `close`, for `await using`. */
  readonly [Symbol.asyncDispose]: () => Promise<void>;
}

/** As in the environment; what is not named here has the default that it has there. */
const DEFAULTS = { PORT: '0', HOST: '127.0.0.1', DATABASE_URL: 'sqlite::memory:' }; // 9.1

/** How long `close` leaves idle connections open: their clients are in this process, and done. */
const GRACE_MS = 0;

/**
 * Starts the service in this process, for test suites: on a free port of 127.0.0.1, with users in
 * memory, unless the settings say otherwise. Reads no environment and prints nothing; many can run
 * side by side. It does not wait for Postgres: `/users` answers 500 while that cannot be reached,
 * and for good when its database is not UTF8 or was made by a newer version.
 *
 *     await using service = await start();
 *     const res = await fetch(`${service.url}/users`);
 *
 * @throws an Error named `InvalidConfig` with a line for each setting that is not accepted, or the
 *   system's error when the port or the SQLite file cannot be had
 */
export async function start(settings: Settings = {}): Promise<RunningService> {
  // 9.1
  const config = readConfig({ ...DEFAULTS, ...texts(settings) });
  const log = new Log('silent', 'json', (_text, done) => done()); // 9.2
  const service = await startService(config, log, () => {});
  let closed: Promise<void> | undefined;
  const close = () => {
    closed ??= service.stop(GRACE_MS).then(() => {}); // 9.4
    return closed;
  };
  const { url, adminUrl, credential } = service;
  return { url, adminUrl, credential, close, [Symbol.asyncDispose]: close };
}

/** The settings as an environment has them, without empty ones, which would hide DEFAULTS. */
function texts(settings: Settings): Readonly<Record<string, string>> {
  // 9.5
  const given = Object.entries(settings).filter(([, value]) => value !== undefined && value !== '');
  const names = VARIABLES.filter((name) => name !== 'LOG_LEVEL');
  const unknown = given.filter(([name]) => !names.some((known) => known === name));
  if (unknown.length > 0) {
    const accepts = `accepts ${names.join(', ')}`;
    throw new InvalidConfig(
      unknown.map(([name]) => `${name}: is not a setting of start(); ${accepts}`),
    );
  }
  const odd = given.filter(([, value]) => !['string', 'number', 'boolean'].includes(typeof value));
  if (odd.length > 0) {
    throw new InvalidConfig(odd.map(([name]) => `${name}: accepts a string, number or boolean`));
  }
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}
