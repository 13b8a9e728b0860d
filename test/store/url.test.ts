// DATABASE_URL in libpq's syntax (PostgreSQL manual 34.1.1.2), and SQLite paths. Each vector is a URL and what it
// means, as far as that differs from the defaults. Each target_session_attrs is in session.test.ts and test/faults/replication.test.ts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describe, nameOf, type PostgresDatabase, parseDatabaseUrl } from '../../src/store/url.ts';

type Meaning = Partial<Omit<PostgresDatabase, 'hosts'> & { hosts: string }>;

const DEFAULTS: Meaning = {
  engine: 'postgres',
  hosts: 'localhost:5432',
  user: 'postgres',
  password: '',
  database: 'postgres',
  sslMode: 'prefer',
  sslRootCert: undefined,
  sessionAttributes: 'any',
  applicationName: 'notes-users',
  connectTimeoutMs: 2000,
};
const SEVERAL = { sessionAttributes: 'read-write' } as const; // unless the URL says otherwise
const SYSTEM = { sslMode: 'verify-full', sslRootCert: 'system' } as const;
const SOCKET = { hosts: '/cloudsql/proj:region:inst:5432', database: 'd' };
const ON_H = { hosts: 'h:5432', user: 'u', database: 'd' };

const SQLITE: Record<string, readonly [path: string, autocheckpoint: boolean]> = {
  'sqlite::memory:': [':memory:', true],
  'sqlite:a b%20#c': ['a b%20#c', true],
  'sqlite:./file:a': ['./file:a', true],
  // Another program merges the log.
  'sqlite:service.db?wal_autocheckpoint=0': ['service.db', false],
};

const POSTGRES: Record<string, Meaning> = {
  // Examples of the manual.
  'postgresql://': {},
  'postgresql://user:secret@localhost': { user: 'user', password: 'secret', database: 'user' },
  'postgresql://host1:123,host2:456/somedb?target_session_attrs=any&application_name=myapp': {
    ...{ hosts: 'host1:123,host2:456', database: 'somedb', applicationName: 'myapp' },
  },
  'postgresql://[2001:db8::1234]/database': { hosts: '2001:db8::1234:5432', database: 'database' },
  // Hosts and ports. A parameter replaces the hosts or the ports of the URL, as in psql.
  'postgres://[fe80::1%25eth0]:5433/': { hosts: 'fe80::1%eth0:5433' },
  'postgres:///?host=::1': { hosts: '::1:5432' },
  'postgres://db:/': { hosts: 'db:5432' },
  'postgres://h:65535': { hosts: 'h:65535' },
  'postgres:///?host=a,b&port=,5433': { hosts: 'a:5432,b:5433', ...SEVERAL },
  'postgres://h:1/d?host=i': { hosts: 'i:1', database: 'd' },
  'postgres://a:1,b/d?port=9': { hosts: 'a:9,b:9', database: 'd', ...SEVERAL },
  'postgres://%2Frun:1,db:5433/': { hosts: '/run:1,db:5433', ...SEVERAL },
  'postgres://u@%2Fcloudsql%2Fproj:region:inst/d': { user: 'u', ...SOCKET },
  'postgres://u@%2fcloudsql%2fproj:region:inst/d': { user: 'u', ...SOCKET },
  'postgres://u@/d?host=/cloudsql/proj:region:inst': { user: 'u', ...SOCKET },
  // Encoding, and the other parts.
  'postgres://us%3Aer:p%40ss%2Fw%3Frd@h%6Fst/d%20b?application_name=a%26b%40': {
    ...{ hosts: 'host:5432', user: 'us:er', password: 'p@ss/w?rd', database: 'd b' },
    applicationName: 'a&b@',
  },
  'postgres://u:a:b+c%C2%A0d%C2%AD@h/d': { ...ON_H, password: 'a:b+c\u00a0d\u00ad' },
  'postgres://u:@h/d': ON_H,
  'postgres://:p@h/d': { hosts: 'h:5432', password: 'p', database: 'd' },
  'postgres://u:p@h:1/d?user=v&password=q&dbname=e&host=i&port=2': {
    ...{ hosts: 'i:2', user: 'v', password: 'q', database: 'e' },
  },
  'postgres:///?password=a=b': { password: 'a=b' },
  'postgres:///?&&user=t&us%65r=u&': { user: 'u', database: 'u' },
  'postgres:///?sslmode=verify-full&sslrootcert=/a.pem': { ...SYSTEM, sslRootCert: '/a.pem' },
  'postgres://?sslrootcert=system': SYSTEM,
  'postgres:///?ssl=true': { sslMode: 'require' }, // as JDBC writes it
  'postgres:///?channel_binding=disable': {},
  'postgres:///?connect_timeout=999999': { connectTimeoutMs: 999_999_000 }, // fits a timer
  'postgres:///?connect_timeout=-1': {},
  'postgres:///?connect_timeout=3': { connectTimeoutMs: 3000 },
};

/** URLs of other schemes and forms, whose error can't say more. */
const UNKNOWN = [
  ...['', 'data/service.db', 'sqlite:', 'POSTGRES://localhost', ' postgres://localhost'],
  ...['host=localhost dbname=x', ' sqlite:a', 'postgres://u:12/ss@h/d'],
  // URIs of SQLite.
  ...['sqlite:file:a', 'sqlite://a', 'sqlite:a?mode=ro', 'sqlite:a?wal_autocheckpoint=0&mode=ro'],
];

/** The error contains no part of the URL, because it can be secret. */
const INVALID: Record<string, readonly string[]> = {
  'port invalid': ['postgres://h:0', 'postgres://h:65536', 'postgres:///?port=1e3'],
  'the number of ports differs from the number of hosts': [
    ...['postgres://a,b,c/?port=1,2', 'postgres://a/?port=1,2'],
  ],
  'malformed host; expected HOST, HOST:PORT or [IPV6]:PORT, and %40 for @ in a password': [
    ...['postgres://h:x', 'postgres://h:1:2/d', 'postgres://[::1/d', 'postgres://%2Fa]/d'],
    ...['postgres://app:s3cr@t-tail@127.0.0.1:1/d', 'postgres://u:p@a,b@c/d'],
    ...['postgres://[a%40b]/d', 'postgres://u:p@%2Fa%40b/d', 'postgres://[]'],
  ],
  'malformed percent-encoding; expected UTF-8, each byte as %XX, without %00': [
    ...['postgres://u:100%@h/d', 'postgres:///?user=%FF', 'postgres://u:a%00b@h/d'],
  ],
  'channel_binding invalid; expected one of disable, prefer': ['postgres:///?channel_binding=on'],
  'channel_binding=require is not supported; expected sslmode=verify-full': [
    'postgres://app:secret@db.example/app?sslmode=require&channel_binding=require',
  ],
  'connect_timeout invalid': ['10s', 's10', '', '1000000'].map(
    (to) => `postgres:///?connect_timeout=${to}`,
  ),
  'sslmode invalid': [
    ...['postgres:///?sslmode=', 'postgres:///?sslmode=verify-ca&sslrootcert=system'],
  ],
  'target_session_attrs invalid': ['postgres:///?target_session_attrs=leader'],
  // What follows an unencoded `?` or `&` in a password looks like a parameter.
  'parameter 1 is not supported': [
    ...['pool=true', 'constructor=x', 'SSLMode=require', 'ssl=on', 'hunter2=x', 'ss@h/d'],
  ].map((parameter) => `postgres:///?${parameter}`),
  'parameter 2 is not supported': ['postgres:///?user=u&sslcert=hunter2'],
};

for (const [url, [path, autocheckpoint]] of Object.entries(SQLITE)) {
  test(`1 DATABASE_URL: ${url} is a path of SQLite`, () =>
    assert.deepEqual(parseDatabaseUrl(url), { engine: 'sqlite', path, autocheckpoint }));
}

for (const [url, meaning] of Object.entries(POSTGRES)) {
  test(`${url} means ${JSON.stringify(meaning)}`, () => {
    const database = parseDatabaseUrl(url) as PostgresDatabase;
    const hosts = database.hosts.map(nameOf).join();
    assert.deepEqual({ ...database, hosts }, { ...DEFAULTS, ...meaning });
  });
}

for (const url of UNKNOWN) {
  test(`1 DATABASE_URL: ${JSON.stringify(url)} is no URL of a database`, () =>
    assert.equal(parseDatabaseUrl(url), undefined));
}

for (const [fault, urls] of Object.entries(INVALID)) {
  for (const url of urls) {
    test(`${url}: ${fault}`, () =>
      assert.throws(
        () => parseDatabaseUrl(url),
        ({ message }: Error) =>
          message.startsWith(fault) &&
          /; expected ./.test(message) &&
          !/hunter2|s3cr/.test(message),
      ));
  }
}

test('a database is described without a secret', () => {
  const url = 'postgres://user:secret@a:1,b/d?password=secret';
  assert.equal(describe(parseDatabaseUrl(url)!), 'postgres a:1,b:5432/d');
});
