// Parses DATABASE_URL: `sqlite:PATH`, or a connection URI of libpq (PostgreSQL manual, libpq,
// "Connection URIs"). Error messages quote no part of the URL, because it can contain a secret.

export type Database = PostgresDatabase | SqliteDatabase;

export interface SqliteDatabase {
  readonly engine: 'sqlite';
  readonly path: string; // a file, or `:memory:`
  readonly autocheckpoint: boolean; // false: another program merges the write-ahead log into the file
}

/** One database on one or more hosts. */
export type PostgresDatabase = Readonly<NonNullable<ReturnType<typeof parsePostgres>>>;

/** A host that starts with `/` is the folder of a Unix socket. */
export type Host = { readonly host: string; readonly port: number };

const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
const SERVERS = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'] as const;

const CONNECT_TIMEOUT_MS = 2_000;

// Before percent-decoding: "[2001:db8::1]:5433", "db.example:5433", "%2Frun%2Fpostgresql". The folder of a
// socket may contain colons, as Cloud SQL's does.
const HOST = /^(?:\[([^\]]+)\]|(%2F[^[\]]*?)|([^:[\]]*))(?::([0-9]*))?$/i;

const MALFORMED_HOST =
  'malformed host; expected HOST, HOST:PORT or [IPV6]:PORT, and %40 for @ in a password';

const PARAMETERS =
  'host, port, user, password, dbname, sslmode, sslrootcert, target_session_attrs, application_name, channel_binding, connect_timeout';

// postgresql://[userspec@][hostspec][/dbname][?paramspec], where hostspec is host[:port][,…] and an
// IPv6 host is in brackets. An unencoded `/` in a password would leave an `@` in the dbname.
const POSTGRES_URL =
  /^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)(?:\/([^@?]*))?(?:\?(.*))?$/;

/**
 * @returns undefined for any other scheme, and for a URI of SQLite
 * @throws an Error that says which part of a Postgres URL is invalid, and what is expected
 */
export function parseDatabaseUrl(url: string): Database | undefined {
  // SQLite would open `file:` as a URI (sqlite.org/uri.html). Other programs take `//` and a query.
  const sqlite = /^sqlite:(?!file:|\/\/)([^?]+)(\?wal_autocheckpoint=0)?$/.exec(url);
  if (sqlite === null) return parsePostgres(url);
  return { engine: 'sqlite', path: sqlite[1]!, autocheckpoint: sqlite[2] === undefined };
}

/** Describes the database without its credentials (1.7). */
export function describe(database: Database): string {
  if (database.engine === 'sqlite') return `sqlite ${database.path}`;
  return `postgres ${database.hosts.map(nameOf).join(',')}/${database.database}`;
}

export function nameOf({ host, port }: Host): string {
  return `${host}:${port}`;
}

function parsePostgres(url: string) {
  const match = POSTGRES_URL.exec(url);
  if (match === null) return undefined;
  const [user = '', password = '', hostInfo, dbname = '', parameterInfo = ''] = match.slice(1);
  const parameters: Record<string, string | undefined> = {
    ...{ user: decode(user), password: decode(password), dbname: decode(dbname) },
    ...parseParameters(parameterInfo),
  };
  // A parameter replaces all hosts or ports of the URL. In it, IPv6 addresses have no brackets.
  const own = hostInfo!.split(',').map(splitHost);
  const hosts = parseHosts(
    parameters.host?.split(',') ?? own.map(({ host }) => host),
    parameters.port?.split(',') ?? own.map(({ port }) => port),
  );
  const attributes = parameters.target_session_attrs ?? (hosts.length > 1 ? 'read-write' : 'any');
  const isSystem = parameters.sslrootcert === 'system';
  const sslMode = parameters.sslmode ?? (isSystem ? 'verify-full' : 'prefer');
  // Neon's URLs require channel binding, which the driver's SCRAM lacks.
  if (parameters.channel_binding === 'require') {
    throw new Error('channel_binding=require is not supported; expected sslmode=verify-full');
  }
  oneOf('channel_binding', ['disable', 'prefer'], parameters.channel_binding ?? 'prefer');
  const seconds = parameters.connect_timeout ?? '0';
  if (!/^-?[0-9]{1,6}$/.test(seconds)) {
    throw new Error('connect_timeout invalid; expected an integer of at most 6 digits, in seconds');
  }
  return {
    engine: 'postgres' as const,
    hosts, // tried in this order
    user: parameters.user || 'postgres',
    password: parameters.password!,
    database: parameters.dbname || parameters.user || 'postgres',
    sslMode: oneOf('sslmode', isSystem ? SSL_MODES.slice(-1) : SSL_MODES, sslMode),
    sslRootCert: parameters.sslrootcert, // PEM file of the authorities to trust instead of node's, or `system`
    sessionAttributes: oneOf('target_session_attrs', SERVERS, attributes), // of the servers to use
    applicationName: parameters.application_name ?? 'notes-users',
    connectTimeoutMs: Math.max(Number(seconds) * 1000, CONNECT_TIMEOUT_MS), // maximum silence of a host (5.7)
  };
}

function parseParameters(text: string): Record<string, string> {
  const parameters: Record<string, string> = {};
  for (const [i, part] of text.split('&').filter(Boolean).entries()) {
    const [name, ...rest] = part.split('=').map(decode) as [string, ...string[]];
    const value = rest.join('=');
    if (PARAMETERS.split(', ').includes(name)) parameters[name] = value;
    // As JDBC writes it, and libpq reads it.
    else if (name === 'ssl' && value === 'true') parameters.sslmode = 'require';
    // Its name can be a part of a password.
    else throw new Error(`parameter ${i + 1} is not supported; expected one of ${PARAMETERS}`);
  }
  return parameters;
}

function splitHost(text: string) {
  const match = HOST.exec(text);
  if (match === null) throw new Error(MALFORMED_HOST);
  return { host: decode(match[1] ?? match[2] ?? match[3]!), port: match[4] ?? '' };
}

/** There is one port for all hosts or one for each. An empty port is the default. */
function parseHosts(hosts: readonly string[], ports: readonly string[]): readonly Host[] {
  if (ports.length !== 1 && ports.length !== hosts.length) {
    throw new Error(
      'the number of ports differs from the number of hosts; expected one port for all hosts or one for each',
    );
  }
  return hosts.map((host, i) => {
    // It comes from an unencoded password, and the text around it is part of that secret.
    if (host.includes('@')) throw new Error(MALFORMED_HOST);
    const port = ports[ports.length === 1 ? 0 : i] || '5432';
    const isPort = /^[0-9]{1,5}$/.test(port) && Number(port) > 0 && Number(port) < 65_536;
    if (!isPort) throw new Error('port invalid; expected an integer from 1 to 65535');
    return { host: host || 'localhost', port: Number(port) };
  });
}

function oneOf<T extends string>(name: string, valid: readonly T[], value: string): T {
  const found = valid.find((word) => word === value);
  if (found === undefined) throw new Error(`${name} invalid; expected one of ${valid.join(', ')}`);
  return found;
}

function decode(text: string): string {
  try {
    const decoded = decodeURIComponent(text);
    if (!decoded.includes('\0')) return decoded; // It would end the text in a message to the server.
  } catch {}
  throw new Error('malformed percent-encoding; expected UTF-8, each byte as %XX, without %00');
}
