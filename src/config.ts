// Reads the settings from environment variables (contract section 1) and reports all problems at once.
import { isUtf8 } from 'node:buffer';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { URL } from 'node:url';
import { LEVELS } from './ops/log.ts';
import type { KeyPair } from './server/listener.ts';
import { parseDatabaseUrl } from './store/url.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** All problems together (1.6). Each starts with the variable's name and contains no secret (1.7). */
export class InvalidConfig extends Error {
  override readonly name = 'InvalidConfig';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

/** The valid values of a setting. */
interface Format<T> {
  readonly expected: string;
  // Returns undefined if the value is invalid, or throws an Error with the reason and what is expected.
  readonly parse: (value: string) => T | undefined;
  readonly isProse?: true; // may contain UNTYPABLE characters
}

export type Setting = readonly [format: Format<unknown>, meaning: string, preset?: string];

// Nobody can type these in a login form, and RFC 7617 §2 forbids most of them: control characters, such as a
// second line end of a file, other line ends, a byte order mark, and what is left of text that is not UTF-8.
const UNTYPABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\uFEFF\uFFFD]/u; // 1.8

function integer(min: number, max: number): Format<number> {
  return {
    expected: `an integer from ${min} to ${max}`,
    parse(value) {
      const number = /^[0-9]{1,10}$/.test(value) ? Number(value) : Number.NaN;
      return number >= min && number <= max ? number : undefined;
    },
  };
}

function oneOf<T>(values: readonly T[]): Format<T> {
  return {
    expected: `one of ${values.join(', ')}`,
    parse: (value) => values.find((valid) => String(valid) === value),
  };
}

function string(expected: string, isValid: (value: string) => boolean): Format<string> {
  return { expected, parse: (value) => (isValid(value) ? value : undefined) };
}

const text = string('text', () => true);
const prose = { ...text, isProse: true } as const;
const port = integer(0, 65_535);
const milliseconds = integer(0, 3_600_000);
const boolean = oneOf([true, false]);
const secret = string('a key of at least 32 bytes of UTF-8', (key) => Buffer.byteLength(key) >= 32);
const login = string('a name without ":"', (value) => !value.includes(':'));
const password = string('at least 8 characters', (value) => [...value.normalize()].length >= 8);
const origin = string(
  'an origin such as https://app.example, or *',
  (value) => value === '*' || isOrigin(value),
);
const pemFile: Format<string> = {
  expected: 'the path of a PEM file',
  parse: (path) => readPem(path) && path,
};
const database = {
  expected:
    'sqlite:PATH, sqlite::memory:, or percent-encoded postgres://USER:PASSWORD@HOST:PORT/DATABASE',
  parse(url: string) {
    const found = parseDatabaseUrl(url);
    const rootCert = found?.engine === 'postgres' ? found.sslRootCert : undefined;
    if (rootCert !== undefined && rootCert !== 'system')
      readPem(rootCert, 'sslrootcert to be the path of a PEM file');
    return found;
  },
};

/**
 * By variable: the valid values, the meaning, and the default as it would be typed. The README's table and the
 * types of the package have these texts (scripts).
 */
// biome-ignore format: a table has a row for each setting
export const SETTINGS = {
  PORT: [port, 'port of the API; 0 picks a free one', '3000'],
  HOST: [text, 'address that the API binds to; unset: all interfaces'],
  ADMIN_PORT: [port, 'port of /live, /ready and /metrics; unset: none'],
  ADMIN_HOST: [text, 'address that the admin listener binds to; unset: HOST'],
  DATABASE_URL: [database, 'database of the users; a URL of Postgres works as in libpq', 'sqlite:data/service.db'],
  DATABASE_POOL_SIZE: [integer(1, 100), 'maximum Postgres connections of this process', '4'],
  DATABASE_TIMEOUT_MS: [integer(100, 600_000), 'maximum time requests wait for the store', '5000'],
  AUTH_USER: [login, 'login of the credential user', 'admin'],
  AUTH_PASSWORD: [password, 'its password; unset: generated at each start'],
  AUTH_NAME: [text, 'its display name', 'Administrator'],
  SIGNING_SECRET: [secret, 'HS256 key of the tokens; unset: generated at each start, which invalidates all tokens'],
  VERIFY_ONLY_SECRET: [secret, 'second key, which only verifies; for a rotation'],
  SIGNING_SECRET_PREVIOUS: [secret, 'older name of VERIFY_ONLY_SECRET'],
  NOTE_TITLE: [prose, 'title of the note', 'Welcome'],
  NOTE_CONTENTS: [prose, 'contents of the note', 'This note is kept by the service and read with a token.'],
  PROTECT_USERS: [boolean, '/users requires the token', 'false'],
  TLS_CERT_FILE: [pemFile, 'certificate chain; with the key, the API uses HTTPS'],
  TLS_KEY_FILE: [pemFile, 'private key of the certificate'],
  TRUST_PROXY: [integer(0, 100), 'number of proxies in front, which add to X-Forwarded-For', '0'],
  AUTH_FAILURES_PER_MINUTE: [integer(0, 1000), 'maximum number of wrong credentials of one address; 0: no limit', '60'],
  BODY_LIMIT_BYTES: [integer(1, 16 * 1024 * 1024), 'maximum size of a request body', '16384'],
  MEMORY_LIMIT_BYTES: [integer(64 * 1024 * 1024, 9_999_999_999), 'memory of the process; unset: the limit of the control group'],
  CORS_ORIGIN: [origin, 'origin from which browsers may call the API'],
  LOG_LEVEL: [oneOf(LEVELS), 'info also logs each request', 'info'],
  // `Keep-Alive` announces whole seconds.
  IDLE_TIMEOUT_MS: [integer(1000, 86_400_000), 'how long an idle connection is kept; longer than your load balancer keeps one', '65000'],
  SHUTDOWN_DELAY_MS: [milliseconds, 'how long a stopping process accepts connections while /ready fails', '0'],
  SHUTDOWN_TIMEOUT_MS: [milliseconds, 'maximum time a stop waits for requests in flight', '8000'],
} as const satisfies Record<string, Setting>;

type Name = keyof typeof SETTINGS;

/** All settings by the name of their variable. One is undefined only if it is unset and has no default. */
export type Config = {
  readonly [N in Name]:
    | Exclude<ReturnType<(typeof SETTINGS)[N][0]['parse']>, undefined>
    | ((typeof SETTINGS)[N] extends readonly [unknown, string, string] ? never : undefined);
};

export const VARIABLES = Object.keys(SETTINGS) as readonly Name[];

/** Defaults of `start` that differ from those of the program (9.1). */
export const START_DEFAULTS = {
  PORT: '0',
  HOST: '127.0.0.1',
  DATABASE_URL: 'sqlite::memory:',
  MEMORY_LIMIT_BYTES: '9999999999', // The process also holds the test suite.
};

/** Reads all settings (1.1). @throws InvalidConfig with these `problems` too */
export function readConfig(env: Environment, problems: string[] = []): Config {
  const settings = VARIABLES.map((name) => [name, read(env, name, problems)]);
  const config = Object.fromEntries(settings) as Config;
  const [given, other] = ['TLS_CERT_FILE', 'TLS_KEY_FILE'].filter((name) => env[name]);
  if (given !== undefined && other === undefined) {
    const missing = given === 'TLS_KEY_FILE' ? 'TLS_CERT_FILE' : 'TLS_KEY_FILE';
    problems.push(`${missing}: missing, but ${given} is set; expected ${pemFile.expected}`);
  }
  try {
    readTls(config);
  } catch (err) {
    problems.push((err as Error).message);
  }
  if (problems.length > 0) throw new InvalidConfig(problems);
  return config;
}

/** Reads only the address that `--live` and `--ready` connect to (6.5). @throws an Error */
export function readAdminAddress(env: Environment): { host: string; port: number } {
  const problems: string[] = [];
  const host = read(env, 'ADMIN_HOST', problems) ?? read(env, 'HOST', problems) ?? '0.0.0.0';
  const number = read(env, 'ADMIN_PORT', problems) ?? 3001;
  // node:http would connect to port 80.
  if (number === 0) problems.push('ADMIN_PORT: 0 names no port; expected the one to connect to');
  if (problems.length > 0) throw new Error(problems.join('\n'));
  // "All interfaces" is not an address to connect to. "::" includes IPv4, and a container may lack ::1.
  return { host: ['0.0.0.0', '::'].includes(host) ? '127.0.0.1' : host, port: number };
}

/** Undefined if TLS is not set. @throws an Error if a file is invalid or the key is of another certificate */
export function readTls({ TLS_CERT_FILE, TLS_KEY_FILE }: Config): KeyPair | undefined {
  if (TLS_CERT_FILE === undefined || TLS_KEY_FILE === undefined) return undefined;
  const pair = { cert: readPem(TLS_CERT_FILE), key: readPem(TLS_KEY_FILE) };
  const chain = 'a PEM certificate chain';
  const certificate = parsePem('TLS_CERT_FILE', chain, () => new X509Certificate(pair.cert));
  const key = parsePem('TLS_KEY_FILE', 'a PEM private key without a passphrase', () => {
    const decrypt = `to decrypt it: openssl pkey -in ${TLS_KEY_FILE} -out NEW_FILE`;
    // RFC 7468 §11, RFC 1421 §4.6.1.1
    const isEncrypted = /^(?:-----BEGIN |Proc-Type: 4,)ENCRYPTED/m.test(pair.key);
    if (isEncrypted) throw new Error(`${TLS_KEY_FILE} is encrypted; ${decrypt}`);
    return createPrivateKey(pair.key);
  });
  // node:tls accepts an EC key with an RSA certificate, and then every handshake fails.
  if (!certificate.checkPrivateKey(key)) {
    const expected = `expected the key of the first certificate in ${TLS_CERT_FILE}`;
    throw new Error(`TLS_KEY_FILE: ${TLS_KEY_FILE} has another key; ${expected}`);
  }
  // Loading it only for TLS saves time and memory at startup.
  const { createSecureContext } = process.getBuiltinModule('node:tls');
  parsePem('TLS_CERT_FILE', chain, () => createSecureContext(pair));
  return pair;
}

/** Adds the variable and what is expected to an error. */
function parsePem<T>(name: Name, expected: string, parse: () => T): T {
  try {
    return parse();
  } catch (err) {
    throw new Error(`${name}: ${(err as Error).message}; expected ${expected}`);
  }
}

/** serialized-origin = scheme "://" host [ ":" port ], in any scheme (RFC 6454 §7.1), as browsers send it. */
function isOrigin(value: string): boolean {
  const { protocol, host } = URL.parse(value) ?? {}; // without a default port
  return value === `${protocol}//${host}` && /^[a-z0-9+.-]+:\/\/[a-z0-9._:[\]-]+$/.test(value);
}

/** Reads a file. Node's own message about its permission model doesn't name it. */
function readBytes(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code !== 'ERR_ACCESS_DENIED') throw err;
    throw new Error(`node may not read ${path}; in the image, mount it below /run/secrets`);
  }
}

/** Rejects a file without PEM, such as an empty one or DER, which node:tls ignores. */
function readPem(path: string, expected = pemFile.expected): string {
  try {
    const pem = readBytes(path).toString();
    if (!pem.includes('-----BEGIN ')) throw new Error(`${path} is not PEM`);
    return pem;
  } catch (err) {
    throw new Error(`${(err as Error).message}; expected ${expected}`);
  }
}

/** Returns the value or the default. Adds a problem if the value is invalid. */
function read<N extends Name>(env: Environment, name: N, problems: string[]): Config[N] {
  const [format, , preset]: Setting = SETTINGS[name];
  const value = (format === pemFile ? env[name] : valueOrFile(env, name, problems)) || preset; // 1.3, 1.5
  if (value === undefined) return undefined as Config[N];
  try {
    const expected = `${format.expected}, without control characters, line ends and byte order marks`;
    if (!format.isProse) checkTypable(value, `; expected ${expected}`);
    const parsed = format.parse(value);
    if (parsed === undefined) throw new Error(`invalid; expected ${format.expected}`);
    return parsed as Config[N];
  } catch (err) {
    problems.push(`${name}: ${(err as Error).message}`);
    return undefined as Config[N];
  }
}

/** @throws an Error that names the code point (1.8) */
function checkTypable(value: string, expected = ''): void {
  const [found] = UNTYPABLE.exec(value) ?? [];
  if (found === undefined) return;
  const code = found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0');
  throw new Error(`contains U+${code}${expected}`);
}

function valueOrFile(env: Environment, name: Name, problems: string[]): string | undefined {
  const path = env[`${name}_FILE`];
  if (!path) return env[name]; // 1.5
  if (env[name]) {
    problems.push(`${name}: set together with ${name}_FILE; expected only one of the two`); // 1.4
    return undefined;
  }
  try {
    checkTypable(path);
    const bytes = readBytes(path);
    if (!isUtf8(bytes)) throw new Error(`${path} is not valid UTF-8`); // 1.2
    return bytes.toString().replace(/\r?\n$/, ''); // 1.2
  } catch (err) {
    const expected = 'expected the path of a file that holds the value as UTF-8';
    problems.push(`${name}_FILE: ${(err as Error).message}; ${expected}`);
    return undefined;
  }
}
