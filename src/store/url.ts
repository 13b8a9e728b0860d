// DATABASE_URL: `sqlite:PATH`, or a Postgres URL as libpq writes them (PostgreSQL manual, libpq,
// "Connection URIs"). The texts of its errors name no part of a URL, which can hold a secret.

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

// "[2001:db8::1]:5433", "db.example:5433", "/run/postgresql". An `@` is never part of a host: it
// would be one of a password that was not encoded, and what follows it a secret.
const HOST = /^(?:\[([^@\]]+)\](?=:|$)|([^@:[\]]*))(?::([0-9]*))?$/;

/** The parameters of libpq that a URL may have. */
const PARAMETERS = [
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
// host stands in brackets. A password's `/` that was not encoded leaves an `@` in the dbname.
const POSTGRES_URL =
  /^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)(?:\/([^@?]*))?(?:\?(.*))?$/;

/**
 * @returns undefined when the URL is neither
 * @throws an Error that says which part of a Postgres URL is not accepted, and what is
 */
export function parseDatabaseUrl(url: string): Database | undefined {
  const sqlite = /^sqlite:(.+)$/.exec(url);
  return sqlite ? { engine: 'sqlite', path: sqlite[1]! } : parsePostgres(url);
}

/** The database in words that hold no secret. */
export function describe(database: Database): string {
  // 1.7
  if (database.engine === 'sqlite') return `sqlite ${database.path}`;
  const hosts = database.hosts.map(({ host, port }) => `${host}:${port}`);
  return `postgres ${hosts.join(',')}/${database.database}`;
}

function parsePostgres(url: string): PostgresDatabase | undefined {
  const match = POSTGRES_URL.exec(url);
  if (match === null) return undefined;
  const [userInfo, passwordInfo, hostInfo, databaseInfo] = match
    .slice(1, 5)
    .map((part) => decoded(part ?? ''));
  const parameters = parseParameters(match[5] ?? '');
  const hosts = parseHosts(bracketed(parameters.host) ?? hostInfo!, parameters.port);
  const attributes = parameters.target_session_attrs ?? (hosts.length > 1 ? 'read-write' : 'any');
  const user = parameters.user ?? (userInfo || 'postgres');
  return {
    engine: 'postgres',
    hosts,
    user,
    password: parameters.password ?? passwordInfo!,
    database: parameters.dbname ?? (databaseInfo || user),
    sslMode: oneOf('sslmode', SSL_MODES, parameters.sslmode ?? 'prefer'),
    sslRootCert: parameters.sslrootcert,
    sessionAttributes: oneOf('target_session_attrs', SESSION_ATTRIBUTES, attributes),
    applicationName: parameters.application_name ?? 'notes-users',
  };
}

function parseParameters(text: string): Record<string, string | undefined> {
  const parameters: Record<string, string> = {};
  for (const part of text.split('&').filter(Boolean)) {
    const [name = '', ...value] = part.split('=');
    if (!PARAMETERS.includes(name)) {
      throw new Error(`unknown parameter; accepts ${PARAMETERS.join(', ')}`);
    }
    parameters[name] = decoded(value.join('='));
  }
  return parameters;
}

/** IPv6 addresses stand without brackets in a parameter. */
function bracketed(hostList: string | undefined): string | undefined {
  return hostList?.replace(/[^,[\]]*:[^,[\]]*/g, '[$&]');
}

/** `portList` has one port for all hosts or one for each; an empty port is the default. */
function parseHosts(text: string, portList = ''): Host[] {
  const ports = portList.split(',');
  const entries = text.split(',');
  if (ports.length !== 1 && ports.length !== entries.length) {
    throw new Error('not as many ports as hosts; accepts one port for all hosts or one for each');
  }
  return entries.map((entry, i) => {
    const match = HOST.exec(entry);
    if (match === null) throw new Error('malformed host; accepts HOST, HOST:PORT and [IPV6]:PORT');
    const port = match[3] || ports[ports.length === 1 ? 0 : i] || DEFAULT_PORT;
    const isPort = /^[0-9]{1,5}$/.test(port) && Number(port) > 0 && Number(port) < 65_536;
    if (!isPort) throw new Error('port not accepted; accepts an integer from 1 to 65535');
    return { host: match[1] || match[2] || 'localhost', port: Number(port) };
  });
}

function oneOf<T extends string>(name: string, accepted: readonly T[], value: string): T {
  const found = accepted.find((word) => word === value);
  if (found === undefined) throw new Error(`${name} not accepted; accepts ${accepted.join(', ')}`);
  return found;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error('malformed percent-encoding; accepts % followed by two hexadecimal digits');
  }
}
