// Parses DATABASE_URL: `sqlite:PATH`, or a connection URI of libpq (PostgreSQL manual, libpq,
// "Connection URIs"). Error messages quote no part of the URL, because it can contain a secret.

/** The path of SQLite is a file, or `:memory:`. */
export type Database = PostgresDatabase | { readonly engine: 'sqlite'; readonly path: string };

/** One database on one or more hosts. */
export type PostgresDatabase = Readonly<NonNullable<ReturnType<typeof parsePostgres>>>;

/** A host that starts with `/` is the folder of a Unix socket. */
export type Host = { readonly host: string; readonly port: number };

const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
const SERVERS = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'] as const;

// "[2001:db8::1]:5433", "db.example:5433", "/run/postgresql". An `@` in a host is invalid: it comes
// from an unencoded password, and the text around it is part of that secret.
const HOST = /^(?:\[([^@\]]+)\](?=:|$)|([^@:[\]]*))(?::([0-9]*))?$/;

/** The parameters of libpq that are supported. */
const PARAMETERS =
  'host, port, user, password, dbname, sslmode, sslrootcert, target_session_attrs, application_name';

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
  const sqlite = /^sqlite:(?!file:|\/\/)([^\0?]+)$/.exec(url);
  return sqlite ? { engine: 'sqlite', path: sqlite[1]! } : parsePostgres(url);
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
  const [user, password, hostInfo, dbname] = match.slice(1, 5).map((part = '') => decode(part));
  const given = parseParameters(match[5] ?? '');
  const parameters: typeof given = { user, password, dbname, ...given };
  // In a parameter, IPv6 addresses have no brackets.
  const hostList = parameters.host?.replace(/[^,[\]]*:[^,[\]]*/g, '[$&]') ?? hostInfo!;
  const hosts = parseHosts(hostList, parameters.port);
  const attributes = parameters.target_session_attrs ?? (hosts.length > 1 ? 'read-write' : 'any');
  return {
    engine: 'postgres' as const,
    hosts, // tried in this order
    user: parameters.user || 'postgres',
    password: parameters.password!,
    database: parameters.dbname || parameters.user || 'postgres',
    sslMode: oneOf('sslmode', SSL_MODES, parameters.sslmode ?? 'prefer'),
    sslRootCert: parameters.sslrootcert, // PEM file of the authorities to trust instead of node's
    sessionAttributes: oneOf('target_session_attrs', SERVERS, attributes), // of the servers to use
    applicationName: parameters.application_name ?? 'notes-users',
  };
}

function parseParameters(text: string): Record<string, string | undefined> {
  const parameters: Record<string, string> = {};
  for (const part of text.split('&').filter(Boolean)) {
    const [name = '', ...value] = part.split('=');
    const isKnown = PARAMETERS.split(', ').includes(name);
    if (!isKnown) throw new Error(`unknown parameter; expected one of ${PARAMETERS}`);
    parameters[name] = decode(value.join('='));
  }
  return parameters;
}

/** `portList` has one port for all hosts or one for each. An empty port is the default. */
function parseHosts(text: string, portList = ''): readonly Host[] {
  const ports = portList.split(',');
  const entries = text.split(',');
  if (ports.length !== 1 && ports.length !== entries.length) {
    throw new Error(
      'the number of ports differs from the number of hosts; expected one port for all hosts or one for each',
    );
  }
  return entries.map((entry, i) => {
    const match = HOST.exec(entry);
    if (match === null) throw new Error('malformed host; expected HOST, HOST:PORT or [IPV6]:PORT');
    const port = match[3] || ports[ports.length === 1 ? 0 : i] || '5432';
    const isPort = /^[0-9]{1,5}$/.test(port) && Number(port) > 0 && Number(port) < 65_536;
    if (!isPort) throw new Error('port invalid; expected an integer from 1 to 65535');
    return { host: match[1] || match[2] || 'localhost', port: Number(port) };
  });
}

function oneOf<T extends string>(name: string, valid: readonly T[], value: string): T {
  const found = valid.find((word) => word === value);
  if (found === undefined) throw new Error(`${name} invalid; expected one of ${valid.join(', ')}`);
  return found;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error('malformed percent-encoding; expected % followed by two hexadecimal digits');
  }
}
