// The package, for test suites (contract section 9). Its types reject unknown settings (9.6).
/// <reference lib="esnext.disposable" preserve="true" />
import { type Config, readConfig, START_DEFAULTS, VARIABLES } from './config.ts';
import { Log } from './ops/log.ts';
import { startService } from './service.ts';
import { nodeProblem } from './version.js';

/**
 * Settings by the names of the environment variables. An undefined or empty one has its default.
 * There is no `LOG_LEVEL`, because nothing is printed.
 */
// In the types of the package, scripts/declare.ts writes out each setting with its text.
export type Settings = {
  readonly [N in Exclude<keyof Config, 'LOG_LEVEL'>]?:
    | (N extends 'DATABASE_URL' ? string : Config[N])
    | undefined;
};

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
  /** The same as `close`, for `await using`. Before node 24.5, not called if a closure captures the variable. */
  readonly [Symbol.asyncDispose]: () => Promise<void>;
}

/**
 * Starts the service in this process: on a free port of 127.0.0.1, with users in memory, unless the
 * settings say otherwise. Reads no environment and prints nothing; many can run side by side. Does
 * not wait for Postgres: `/users` returns 500 until it can be reached, and always if its database
 * can't be used. With `ADMIN_PORT`, `/ready` says why.
 *
 *     await using service = await start();
 *     const res = await fetch(`${service.url}/users`);
 *
 * @throws an Error named `InvalidConfig` with a line for each invalid setting, the system's error if the
 *   port can't be opened, or an Error that says why the SQLite file can't be, or which node it needs
 */
export async function start(settings: Settings = {}): Promise<RunningService> {
  if (nodeProblem !== undefined) throw new Error(nodeProblem); // 9.7
  const names: readonly string[] = VARIABLES.filter((name) => name !== 'LOG_LEVEL');
  const problems: string[] = [];
  const env: Record<string, string> = { ...START_DEFAULTS }; // 9.1
  for (const [name, value] of Object.entries(settings)) {
    if (value === undefined || value === '') continue;
    if (!names.includes(name)) {
      problems.push(`${name}: not a setting; expected ${names.join(', ')}`); // 9.5
    } else if (['string', 'number', 'boolean'].includes(typeof value)) {
      env[name] = String(value);
    } else {
      problems.push(`${name}: invalid; expected a string, number or boolean`);
    }
  }
  const config = readConfig(env, problems);
  const log = new Log('silent', 'json', async () => ''); // 9.2
  const { url, adminUrl, credential, stop } = await startService(config, log, () => {});
  const close = async () => {
    await stop(0); // 9.4: without a grace time, because the clients in this process have finished
  };
  return { url, adminUrl, credential, close, [Symbol.asyncDispose]: close };
}
