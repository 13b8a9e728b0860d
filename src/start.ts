// The package, for test suites (contract section 9). Its types reject unknown settings (9.6). They are
// written out here, so that the declarations in the package show nothing else of the source.
/// <reference lib="esnext.disposable" preserve="true" />
import { InvalidConfig, readConfig, VARIABLES } from './config.ts';
import { Log } from './ops/log.ts';
import { startService } from './service.ts';

/**
 * Settings by the names of the environment variables. An undefined or empty one has its default.
 * There is no `LOG_LEVEL`, because nothing is printed.
 */
export interface Settings {
  /** Port of the API. Default: `0`, which picks a free one. */
  readonly PORT?: number | undefined;
  /** Address to bind to. Default: `127.0.0.1`. */
  readonly HOST?: string | undefined;
  /** Port of `/live`, `/ready` and `/metrics`, `0` for a free one. Default: no admin listener. */
  readonly ADMIN_PORT?: number | undefined;
  /** Address that the admin listener binds to. Default: `HOST`. */
  readonly ADMIN_HOST?: string | undefined;
  /** `sqlite:PATH`, or a libpq URL `postgres://…`. Default: `sqlite::memory:`. */
  readonly DATABASE_URL?: string | undefined;
  /** Postgres connections, 1 to 100. Default: 4. */
  readonly DATABASE_POOL_SIZE?: number | undefined;
  /** Maximum time a request waits for the store, in milliseconds, 100 to 600000. Default: 5000. */
  readonly DATABASE_TIMEOUT_MS?: number | undefined;
  /** Login of the one credential user, without `:`. Default: `admin`. */
  readonly AUTH_USER?: string | undefined;
  /** Its password, at least 8 characters. Default: a generated one, see `credential`. */
  readonly AUTH_PASSWORD?: string | undefined;
  /** Its display name. Default: `Administrator`. */
  readonly AUTH_NAME?: string | undefined;
  /** The HS256 key of tokens, at least 32 bytes of UTF-8. Default: a generated one. */
  readonly SIGNING_SECRET?: string | undefined;
  /** Second key that only verifies: the next or the previous one. Default: none. */
  readonly SIGNING_SECRET_PREVIOUS?: string | undefined;
  /** Title of the note. Default: `Welcome`. */
  readonly NOTE_TITLE?: string | undefined;
  /** Contents of the note. Default: a sentence. */
  readonly NOTE_CONTENTS?: string | undefined;
  /** Requires the token on `/users` too. Default: false. */
  readonly PROTECT_USERS?: boolean | undefined;
  /** Path of a PEM certificate chain. With the key, the API uses HTTPS. Default: none. */
  readonly TLS_CERT_FILE?: string | undefined;
  /** Path of its PEM private key. Default: none. */
  readonly TLS_KEY_FILE?: string | undefined;
  /** Number of proxies in front that add to `X-Forwarded-For`, 0 to 100. Default: 0. */
  readonly TRUST_PROXY?: number | undefined;
  /** Failed logins per address and minute before 429, 0 (no limit) to 1000. Default: 60. */
  readonly AUTH_FAILURES_PER_MINUTE?: number | undefined;
  /** Larger request bodies return 413; in bytes, 1 to 16777216. Default: 102400. */
  readonly BODY_LIMIT_BYTES?: number | undefined;
  /**
   * Memory that the process may use; the limits of clients derive from it. Default: the limit of the
   * control group, or 536870912.
   */
  readonly MEMORY_LIMIT_BYTES?: number | undefined;
  /** An origin, or `*`, that browsers may call from. Default: none. */
  readonly CORS_ORIGIN?: string | undefined;
  /** How long `close` still accepts connections, in milliseconds, 0 to 3600000. Default: 0. */
  readonly SHUTDOWN_DELAY_MS?: number | undefined;
  /** How long `close` waits for requests in flight, in milliseconds, 0 to 3600000. Default: 8000. */
  readonly SHUTDOWN_TIMEOUT_MS?: number | undefined;
  /** Lets other processes listen on the same port, on Linux (SO_REUSEPORT). Default: false. */
  readonly REUSE_PORT?: boolean | undefined;
}

/** A service that `start` has started. */
export interface RunningService {
  /** Base URL of the API, without a trailing slash: `http://127.0.0.1:40123`. */
  readonly url: string;
  /** Base URL of the admin listener; undefined without `ADMIN_PORT`. */
  readonly adminUrl: string | undefined;
  /** Login and password for `/token` and `/protected`. */
  readonly credential: { readonly user: string; readonly password: string };
  /**
   * Finishes requests in flight, then closes every connection, the port and the store. No handle is
   * left that keeps the process alive. A second call waits for the first.
   */
  readonly close: () => Promise<void>;
  /** The same as `close`, for `await using`. */
  readonly [Symbol.asyncDispose]: () => Promise<void>;
}

/** Defaults that differ from those of the environment. */
const DEFAULTS = { PORT: '0', HOST: '127.0.0.1', DATABASE_URL: 'sqlite::memory:' }; // 9.1

/**
 * Starts the service in this process: on a free port of 127.0.0.1, with users in memory, unless the
 * settings say otherwise. Reads no environment and prints nothing; many can run side by side. Does
 * not wait for Postgres: `/users` returns 500 until it can be reached, and always if its database is
 * not UTF8 or needs a newer version of the service.
 *
 *     await using service = await start();
 *     const res = await fetch(`${service.url}/users`);
 *
 * @throws an Error named `InvalidConfig` with a line for each invalid setting, or the system's error
 *   if the port or the SQLite file can't be opened
 */
export async function start(settings: Settings = {}): Promise<RunningService> {
  const config = readConfig({ ...DEFAULTS, ...toEnvironment(settings) }); // 9.1
  const log = new Log('silent', 'json', (_text, done) => done()); // 9.2
  const { url, adminUrl, credential, stop } = await startService(config, log, () => {});
  let closed: Promise<void> | undefined;
  const close = () => {
    // No grace time: the clients are in this process and have finished.
    closed ??= stop(0).then(() => {}); // 9.4
    return closed;
  };
  return { url, adminUrl, credential, close, [Symbol.asyncDispose]: close };
}

/** Converts settings to variables (9.5). Omits empty ones, which would hide DEFAULTS. */
function toEnvironment(settings: Settings): Readonly<Record<string, string>> {
  const given = Object.entries(settings).filter(([, value]) => value !== undefined && value !== '');
  const names: readonly string[] = VARIABLES.filter((name) => name !== 'LOG_LEVEL');
  const problems = given.flatMap(([name, value]) => {
    if (!names.includes(name)) return `${name}: not a setting; expected ${names.join(', ')}`;
    const isScalar = ['string', 'number', 'boolean'].includes(typeof value);
    return isScalar ? [] : `${name}: invalid; expected a string, number or boolean`;
  });
  if (problems.length > 0) throw new InvalidConfig(problems);
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}
