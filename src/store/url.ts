// DATABASE_URL: `sqlite:PATH`, or a Postgres URL as libpq writes them (PostgreSQL manual 34.1.1.2).

/** Where users are kept. */
export type Database = SqliteDatabase | PostgresDatabase;

/** A file, or `:memory:`. */
export interface SqliteDatabase {
  readonly engine: 'sqlite';
  readonly path: string;
}

/** One database on one or more hosts. */
export interface PostgresDatabase {
  readonly engine: 'postgres';
  /** In the order in which they are tried; a host that begins with `/` is a socket's folder. */
  readonly hosts: readonly Host[];
  readonly user: string;
  readonly password: string;
  readonly database: string;
  readonly sslMode: (typeof SSL_MODES)[number];
  /** PEM file of the authorities that are trusted in place of node's. */
  readonly sslRootCert: string | undefined;
  /** Which servers are used; with several hosts `read-write`, unless the URL says otherwise. */
  readonly sessionAttributes: (typeof SESSION_ATTRIBUTES)[number];
  readonly applicationName: string;
}

/** Where a server listens. */
export interface Host {
  readonly host: string;
  readonly port: number;
}

const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;

const SESSION_ATTRIBUTES = [
  'any',
  'read-write',
  'read-only',
  'primary',
  'standby',
  'prefer-standby',
] as const;

const DEFAULT_PORT = '5432';

// "[2001:db8::1]:5433", "db.example:5433", "/run/postgresql". An `@` is never part of a host: it would
// be one of a password that was not encoded, and what follows it a secret.
const HOST = /^(?:\[([^@\]]+)\](?=:|$)|([^@:[\]]*))(?::([0-9]*))?$/;

/** The parameters of libpq that a URL may have. */
export const PARAMETERS = [
  'host',
  'port',
  'user',
  'password',
  'dbname',
  'sslmode',
  'sslrootcert',
  'target_session_attrs',
  'application_name',
];

// postgresql://[userspec@][hostspec][/dbname][?paramspec]; hostspec is host[:port][,…], and an IPv6
// host stands in brackets. A password's `/` that was not encoded leaves an `@` behind it, in the dbname.
const POSTGRES_URL =
  /^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)(?:\/([^@?]*))?(?:\?(.*))?$/;

/** @returns undefined when the URL is neither, or has a parameter or value that is not supported. */
export function parseDatabaseUrl(url: string): Database | undefined {
  const sqlite = /^sqlite:(.+)$/.exec(url);
  if (sqlite) return { engine: 'sqlite', path: sqlite[1]! };
  try {
    return parsePostgres(url);
  } catch {
    return undefined; // percent-encoding that cannot be decoded
  }
}

/** The database in words that hold no secret. */
export function describe(database: Database): string {
  if (database.engine === 'sqlite') return `sqlite ${database.path}`;
  const hosts = database.hosts.map(({ host, port }) => `${host}:${port}`);
  return `postgres ${hosts.join(',')}/${database.database}`;
}

function parsePostgres(url: string): PostgresDatabase | undefined {
  const match = POSTGRES_URL.exec(url);
  if (match === null) return undefined;
  const [userInfo, passwordInfo, hostInfo, databaseInfo] = match.slice(1, 5).map(decodeOrEmpty);
  const parameters = parseParameters(match[5] ?? '');
  if (parameters === undefined) return undefined;
  const hosts = parseHosts(bracketed(parameters.host) ?? hostInfo!, parameters.port);
  const sslMode = SSL_MODES.find((mode) => mode === (parameters.sslmode ?? 'prefer'));
  if (!hosts) return undefined;
  const attributes = parameters.target_session_attrs ?? (hosts.length > 1 ? 'read-write' : 'any');
  const sessionAttributes = SESSION_ATTRIBUTES.find((name) => name === attributes);
  if (!sslMode || !sessionAttributes) return undefined;
  const user = parameters.user ?? (userInfo || 'postgres');
  return {
    engine: 'postgres',
    hosts,
    user,
    password: parameters.password ?? passwordInfo!,
    database: parameters.dbname ?? (databaseInfo || user),
    sslMode,
    sslRootCert: parameters.sslrootcert,
    sessionAttributes,
    applicationName: parameters.application_name ?? 'notes-users',
  };
}

function parseParameters(text: string): Record<string, string | undefined> | undefined {
  const parameters: Record<string, string> = {};
  for (const part of text.split('&').filter(Boolean)) {
    const [name = '', ...value] = part.split('=');
    if (!PARAMETERS.includes(name)) return undefined;
    parameters[name] = decodeURIComponent(value.join('='));
  }
  return parameters;
}

/** IPv6 addresses stand without brackets in a parameter. */
function bracketed(hostList: string | undefined): string | undefined {
  return hostList?.replace(/[^,[\]]*:[^,[\]]*/g, '[$&]');
}

/** `portList` has one port for all hosts or one for each; an empty port is the default. */
function parseHosts(text: string, portList = ''): Host[] | undefined {
  const ports = portList.split(',');
  const entries = text.split(',');
  if (ports.length !== 1 && ports.length !== entries.length) return undefined;
  const hosts = entries.map((entry, i) => {
    const match = HOST.exec(entry);
    const host = match?.[1] ?? match?.[2];
    const port = match?.[3] || ports[ports.length === 1 ? 0 : i] || DEFAULT_PORT;
    return { host: host || 'localhost', port: /^[0-9]+$/.test(port) ? Number(port) : 0, match };
  });
  const isValid = hosts.every(({ port, match }) => match !== null && port > 0 && port < 65_536);
  return isValid ? hosts.map(({ host, port }) => ({ host, port })) : undefined;
}

function decodeOrEmpty(text: string | undefined): string {
  return decodeURIComponent(text ?? '');
}
