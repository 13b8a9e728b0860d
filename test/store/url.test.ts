// DATABASE_URL in libpq's syntax (PostgreSQL manual 34.1.1.2), and SQLite paths.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  describe as inWords,
  type PostgresDatabase,
  parseDatabaseUrl,
} from '../../src/store/url.ts';

const DEFAULTS: PostgresDatabase = {
  engine: 'postgres',
  hosts: [{ host: 'localhost', port: 5432 }],
  user: 'postgres',
  passwords: [''],
  database: 'postgres',
  sslMode: 'prefer',
  sslRootCert: undefined,
  sessionAttributes: 'any',
  applicationName: 'notes-users',
  connectTimeoutMs: 0,
};
const one = (host: string, port = 5432) => [{ host, port }];

describe('SQLite', () => {
  for (const { why, url, path } of [
    { why: 'a relative path', url: 'sqlite:data/service.db', path: 'data/service.db' },
    { why: 'an absolute path', url: 'sqlite:/data/service.db', path: '/data/service.db' },
    { why: 'memory', url: 'sqlite::memory:', path: ':memory:' },
    { why: 'a path is used unchanged', url: 'sqlite:a b%20#c', path: 'a b%20#c' },
    { why: 'a name like that of a URI', url: 'sqlite:./file:a', path: './file:a' },
  ]) {
    test(`${why}: ${url}`, () =>
      assert.deepEqual(parseDatabaseUrl(url), { engine: 'sqlite', path }));
  }

  test('1 DATABASE_URL: another program can merge the log', () => {
    const database = parseDatabaseUrl('sqlite:service.db?wal_autocheckpoint=0');
    assert.deepEqual(database, { engine: 'sqlite', path: 'service.db', autocheckpoint: false });
  });

  for (const rest of [
    ...['file:data.db', 'file:data.db?mode=memory', 'file::memory:', 'file:///data/a.db'],
    ...['//data.db', '///data/a.db', '//host/a.db', 'data.db?mode=ro', ':memory:?cache=shared'],
    ...['a.db?wal_autocheckpoint=1000', 'a.db?wal_autocheckpoint=0&mode=ro'],
  ]) {
    test(`1 DATABASE_URL: the URI sqlite:${rest} is refused`, () =>
      assert.equal(parseDatabaseUrl(`sqlite:${rest}`), undefined));
  }
});

describe('Postgres', () => {
  for (const { why, url, database } of [
    { why: 'manual 34.1.1.2', url: 'postgresql://', database: {} },
    { why: 'manual 34.1.1.2', url: 'postgresql://localhost', database: {} },
    {
      why: 'manual 34.1.1.2',
      url: 'postgresql://localhost:5433',
      database: { hosts: one('localhost', 5433) },
    },
    { why: 'manual 34.1.1.2', url: 'postgresql://localhost/mydb', database: { database: 'mydb' } },
    {
      why: 'manual 34.1.1.2: the database is the user’s',
      url: 'postgresql://user@localhost',
      database: { user: 'user', database: 'user' },
    },
    {
      why: 'manual 34.1.1.2',
      url: 'postgresql://user:secret@localhost',
      database: { user: 'user', passwords: ['secret'], database: 'user' },
    },
    {
      why: 'manual 34.1.1.2: several hosts',
      url: 'postgresql://host1:123,host2:456/somedb?target_session_attrs=any&application_name=myapp',
      database: {
        hosts: [...one('host1', 123), ...one('host2', 456)],
        database: 'somedb',
        applicationName: 'myapp',
      },
    },
    {
      why: 'manual 34.1.1.2: a host as parameter',
      url: 'postgresql:///mydb?host=localhost&port=5433',
      database: { hosts: one('localhost', 5433), database: 'mydb' },
    },
    {
      why: 'manual 34.1.1.2: an IPv6 host',
      url: 'postgresql://[2001:db8::1234]/database',
      database: { hosts: one('2001:db8::1234'), database: 'database' },
    },
    {
      why: 'manual 34.1.1.2: a socket’s folder as parameter',
      url: 'postgresql:///dbname?host=/var/lib/postgresql',
      database: { hosts: one('/var/lib/postgresql'), database: 'dbname' },
    },
    {
      why: 'manual 34.1.1.2: a socket’s folder as host',
      url: 'postgresql://%2Fvar%2Flib%2Fpostgresql/dbname',
      database: { hosts: one('/var/lib/postgresql'), database: 'dbname' },
    },
    { why: 'the short scheme', url: 'postgres://localhost/mydb', database: { database: 'mydb' } },
    {
      why: 'an IPv6 host with a port',
      url: 'postgres://[::1]:5433/',
      database: { hosts: one('::1', 5433) },
    },
    {
      why: 'an IPv6 host as parameter, without brackets',
      url: 'postgres:///?host=::1',
      database: { hosts: one('::1') },
    },
    { why: 'an empty port', url: 'postgres://db:/', database: { hosts: one('db') } },
    {
      why: 'an empty port in a list',
      url: 'postgres:///?host=a,b&port=,5433',
      database: {
        hosts: [...one('a'), ...one('b', 5433)],
        sessionAttributes: 'read-write' as const,
      },
    },
    {
      why: 'hosts and ports as parameters',
      url: 'postgres:///?host=a,b&port=1,2',
      database: {
        hosts: [...one('a', 1), ...one('b', 2)],
        sessionAttributes: 'read-write' as const,
      },
    },
    {
      why: 'one port for several hosts',
      url: 'postgres://a,b,c/?port=6432',
      database: {
        hosts: [...one('a', 6432), ...one('b', 6432), ...one('c', 6432)],
        sessionAttributes: 'read-write' as const,
      },
    },
    {
      why: 'its own port for one of several hosts',
      url: 'postgres://a:1,b/d',
      database: {
        hosts: [...one('a', 1), ...one('b')],
        database: 'd',
        sessionAttributes: 'read-write' as const,
      },
    },
    {
      why: 'percent-encoding in every part',
      url: 'postgres://us%3Aer:p%40ss%2Fw%3Frd@h%6Fst/d%20b?application_name=a%26b',
      database: {
        hosts: one('host'),
        user: 'us:er',
        passwords: ['p@ss/w?rd'],
        database: 'd b',
        applicationName: 'a&b',
      },
    },
    {
      why: 'a colon in the password',
      url: 'postgres://u:a:b@h/d',
      database: { hosts: one('h'), user: 'u', passwords: ['a:b'], database: 'd' },
    },
    {
      why: 'a plus as itself',
      url: 'postgres://u:a+b@h/d',
      database: { hosts: one('h'), user: 'u', passwords: ['a+b'], database: 'd' },
    },
    {
      why: 'a password without a user',
      url: 'postgres://:p@h/d',
      database: { hosts: one('h'), passwords: ['p'], database: 'd' },
    },
    {
      why: 'an encoded @ in a user, a password and parameters',
      url: 'postgres://u%40x:p%40ss@[::1]:1/d?application_name=a%40b',
      database: {
        ...{ hosts: one('::1', 1), user: 'u@x', passwords: ['p@ss'], database: 'd' },
        applicationName: 'a@b',
      },
    },
    {
      why: 'an empty password',
      url: 'postgres://u:@h/d',
      database: { hosts: one('h'), user: 'u', database: 'd' },
    },
    {
      why: 'parameters before parts',
      url: 'postgres://u:p@h:1/d?user=v&password=q&dbname=e&host=i&port=2',
      database: { hosts: one('i', 2), user: 'v', passwords: ['q'], database: 'e' },
    },
    {
      why: 'a host as parameter keeps the port of the URL, as in psql',
      url: 'postgres://h:1/d?host=i',
      database: { hosts: one('i', 1), database: 'd' },
    },
    {
      why: 'a port as parameter replaces the ports of the URL, as in psql',
      url: 'postgres://a:1,b/d?port=9',
      database: {
        hosts: [...one('a', 9), ...one('b', 9)],
        database: 'd',
        sessionAttributes: 'read-write' as const,
      },
    },
    {
      why: 'an equals sign in a parameter',
      url: 'postgres:///?password=a=b',
      database: { passwords: ['a=b'] },
    },
    {
      why: 'empty parameters',
      url: 'postgres:///?&&user=u&',
      database: { user: 'u', database: 'u' },
    },
    { why: 'a port at the edge', url: 'postgres://h:65535', database: { hosts: one('h', 65_535) } },
    ...['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'].map((mode) => ({
      why: 'manual 34.19',
      url: `postgres:///?sslmode=${mode}`,
      database: { sslMode: mode as PostgresDatabase['sslMode'] },
    })),
    {
      why: 'a root certificate',
      url: 'postgres:///?sslmode=verify-full&sslrootcert=/etc/ca.pem',
      database: { sslMode: 'verify-full' as const, sslRootCert: '/etc/ca.pem' },
    },
    {
      why: 'Cloud SQL: a socket’s folder with encoded colons as host',
      url: 'postgres://u:p@%2Fcloudsql%2Fproj%3Aregion%3Ainst/d',
      database: {
        hosts: one('/cloudsql/proj:region:inst'),
        user: 'u',
        passwords: ['p'],
        database: 'd',
      },
    },
    {
      why: 'Cloud SQL: a socket’s folder with colons as host',
      url: 'postgres://u@%2Fcloudsql%2Fproj:region:inst/d',
      database: { hosts: one('/cloudsql/proj:region:inst'), user: 'u', database: 'd' },
    },
    {
      why: 'Cloud SQL: a socket’s folder as parameter',
      url: 'postgres://u@/d?host=/cloudsql/proj:region:inst',
      database: { hosts: one('/cloudsql/proj:region:inst'), user: 'u', database: 'd' },
    },
    {
      why: 'a socket’s folder with a port',
      url: 'postgres://%2ftmp%2Fa%3Ab:5433/',
      database: { hosts: one('/tmp/a:b', 5433) },
    },
    {
      why: 'a socket’s folder beside a host',
      url: 'postgres://%2Frun,db:5433/',
      database: {
        hosts: [...one('/run'), ...one('db', 5433)],
        sessionAttributes: 'read-write' as const,
      },
    },
    {
      why: 'an IPv6 zone',
      url: 'postgres://[fe80::1%25eth0]:5433/',
      database: { hosts: one('fe80::1%eth0', 5433) },
    },
    {
      why: 'encoded names of parameters',
      url: 'postgres:///?us%65r=u&db%6eame=d',
      database: { user: 'u', database: 'd' },
    },
    {
      why: 'the system’s root certificates verify fully by default',
      url: 'postgres:///?sslrootcert=system',
      database: { sslMode: 'verify-full' as const, sslRootCert: 'system' },
    },
    {
      why: 'the system’s root certificates',
      url: 'postgres:///?sslmode=verify-full&sslrootcert=system',
      database: { sslMode: 'verify-full' as const, sslRootCert: 'system' },
    },
    {
      why: 'JDBC’s way to require TLS',
      url: 'postgres:///?ssl=true',
      database: { sslMode: 'require' as const },
    },
    ...['disable', 'prefer'].map((binding) => ({
      why: 'no channel binding',
      url: `postgres:///?channel_binding=${binding}`,
      database: {},
    })),
    ...[
      ['0', 0],
      ['10', 10_000],
      ['-1', -1000],
    ].map(([seconds, connectTimeoutMs]) => ({
      why: 'a time limit of an attempt to connect',
      url: `postgres:///?connect_timeout=${seconds}`,
      database: { connectTimeoutMs: Number(connectTimeoutMs) },
    })),
    // RFC 4013 3, and what libpq makes of these.
    ...[
      ['Sommer%C2%B2024', 'Sommer2024', 'Sommer²024'],
      ['I%C2%ADX', 'IX', 'I\u00adX'],
      ['%C2%AA', 'a', 'ª'],
      ['%E2%85%A8', 'IX', 'Ⅸ'],
      ['a%C2%A0b', 'a b', 'a\u00a0b'],
      ['a%E2%80%8Bb', 'a b', 'a\u200bb'],
      ['%EF%AC%81', 'fi', 'ﬁ'],
      ['%EF%BD%81', 'a', 'ａ'],
      ['e%CC%81', '\u00e9', 'e\u0301'],
      ['a%EF%B8%8F%E1%A0%8B%CD%8F%EF%BB%BF', 'a', 'a\ufe0f\u180b\u034f\ufeff'],
    ].map(([sent, ...passwords]) => ({
      why: 'a password in SASLprep, then as it is',
      url: `postgres://u:${sent}@h/d`,
      database: { hosts: one('h'), user: 'u', database: 'd', passwords },
    })),
    ...[' pass word ', 'pässwörd', '密码', '😀'].map((password) => ({
      why: 'a password that SASLprep keeps',
      url: `postgres://u:${encodeURIComponent(password)}@h/d`,
      database: { hosts: one('h'), user: 'u', database: 'd', passwords: [password] },
    })),
    ...['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'].map(
      (attributes) => ({
        why: 'manual 34.1.2.35',
        url: `postgres:///?target_session_attrs=${attributes}`,
        database: { sessionAttributes: attributes as PostgresDatabase['sessionAttributes'] },
      }),
    ),
    {
      why: 'several hosts must take writes unless the URL says otherwise',
      url: 'postgres://a,b/d',
      database: {
        hosts: [...one('a'), ...one('b')],
        database: 'd',
        sessionAttributes: 'read-write' as const,
      },
    },
  ]) {
    test(`${why}: ${url}`, () =>
      assert.deepEqual(parseDatabaseUrl(url), { ...DEFAULTS, ...database }));
  }
});

describe('refused URLs', () => {
  for (const { why, url } of [
    { why: 'nothing', url: '' },
    { why: 'only a path', url: 'data/service.db' },
    { why: 'SQLite without a path', url: 'sqlite:' },
    { why: 'another engine', url: 'mysql://localhost/db' },
    { why: 'a scheme in capitals', url: 'POSTGRES://localhost' },
    { why: 'one slash', url: 'postgres:/localhost' },
    { why: 'a connection string of words', url: 'host=localhost dbname=x' },
    { why: 'leading space', url: ' postgres://localhost' },
    { why: 'a slash in the password', url: 'postgres://u:12/ss@h/d' },
    { why: 'an @ and a slash in the password', url: 'postgres://u:1@2/ss@h/d' },
  ]) {
    test(`${why}: ${JSON.stringify(url)}`, () => assert.equal(parseDatabaseUrl(url), undefined));
  }

  // The error contains no part of the URL, because it can be secret.
  for (const { why, url } of [
    { why: 'port 0', url: 'postgres://h:0' },
    { why: 'a port above the last', url: 'postgres://h:65536' },
    { why: 'a port that is not a number', url: 'postgres://h:x' },
    { why: 'a port of another kind of number', url: 'postgres:///?port=1e3' },
    { why: 'more ports than one and fewer than hosts', url: 'postgres://a,b,c/?port=1,2' },
    { why: 'more ports than hosts', url: 'postgres://a/?port=1,2' },
    { why: 'an IPv6 host without brackets', url: 'postgres://::1/d' },
    { why: 'a bracket that stays open', url: 'postgres://[::1/d' },
    { why: 'text after a bracket', url: 'postgres://[::1]x/d' },
    { why: 'an @ in the password', url: 'postgres://app:s3cr@t-tail@127.0.0.1:1/d' },
    { why: 'an @ in the password, before brackets', url: 'postgres://u:a@b@[::1]:1/d' },
    { why: 'an @ in a second host', url: 'postgres://u:p@a,b@c/d' },
    { why: 'an @ within brackets', url: 'postgres://[a%40b]/d' },
    { why: 'an @ in a host as parameter', url: 'postgres:///d?host=a%40b' },
    { why: 'a question mark in the password', url: 'postgres://u:12?ss@h/d' },
    { why: 'malformed encoding in the password', url: 'postgres://u:100%@h/d' },
    { why: 'malformed encoding in a parameter', url: 'postgres:///?user=%zz' },
    { why: 'bytes that are not UTF-8', url: 'postgres://u:%FF@h/d' },
    { why: 'an encoded @ in the folder of a socket', url: 'postgres://u:p@%2Fa%40b/d' },
    { why: 'a bracket in the folder of a socket', url: 'postgres://%2Fa]/d' },
    { why: 'a host and two ports', url: 'postgres://h:1:2/d' },
    { why: 'a NUL in a password', url: 'postgres://u:a%00b@h/d' },
    { why: 'a NUL in a parameter', url: 'postgres:///?dbname=a%00b' },
    { why: 'a channel binding that the driver lacks', url: 'postgres:///?channel_binding=require' },
    { why: 'an unknown channel binding', url: 'postgres:///?channel_binding=on' },
    { why: 'a connect_timeout with a unit', url: 'postgres:///?connect_timeout=10s' },
    { why: 'an empty connect_timeout', url: 'postgres:///?connect_timeout=' },
    { why: 'system with a weak sslmode', url: 'postgres:///?sslrootcert=system&sslmode=require' },
    { why: 'system with verify-ca', url: 'postgres:///?sslmode=verify-ca&sslrootcert=system' },
    { why: 'ssl with another value than true', url: 'postgres:///?ssl=on' },
    { why: 'an unknown parameter', url: 'postgres:///?pool=5' },
    { why: 'a name of Object.prototype as parameter', url: 'postgres:///?constructor=x' },
    { why: 'a parameter in another case', url: 'postgres:///?SSLMode=require' },
    { why: 'an unknown sslmode', url: 'postgres:///?sslmode=on' },
    { why: 'an empty sslmode', url: 'postgres:///?sslmode=' },
    { why: 'unknown target_session_attrs', url: 'postgres:///?target_session_attrs=leader' },
    { why: 'empty target_session_attrs', url: 'postgres:///?target_session_attrs=' },
  ]) {
    test(`${why}: ${JSON.stringify(url)}`, () => {
      assert.throws(() => parseDatabaseUrl(url), {
        message:
          /^(unknown parameter|malformed [a-z-]+|the number of ports differs from the number of hosts|[a-z_]+ invalid); expected /,
      });
    });
  }
});

describe('a parameter of libpq that is not supported is named', () => {
  for (const name of [
    ...['hostaddr', 'passfile', 'require_auth', 'client_encoding', 'options', 'replication'],
    ...['fallback_application_name', 'keepalives', 'keepalives_idle', 'keepalives_interval'],
    ...['keepalives_count', 'tcp_user_timeout', 'gssencmode', 'krbsrvname', 'gsslib'],
    ...['gssdelegation', 'sslnegotiation', 'sslcompression', 'sslcert', 'sslkey', 'sslpassword'],
    ...['sslcertmode', 'sslcrl', 'sslcrldir', 'sslsni', 'sslkeylogfile', 'requirepeer'],
    ...['ssl_min_protocol_version', 'ssl_max_protocol_version', 'min_protocol_version'],
    ...['max_protocol_version', 'scram_client_key', 'scram_server_key', 'service', 'servicefile'],
    ...['load_balance_hosts', 'oauth_issuer', 'oauth_client_id', 'oauth_client_secret'],
    'oauth_scope',
  ]) {
    test(name, () =>
      assert.throws(
        () => parseDatabaseUrl(`postgres:///?${name}=hunter2`),
        ({ message }: Error) =>
          message.startsWith(`${name} is not supported; expected one of host, port, `),
      ),
    );
  }

  // What follows an unencoded `?` or `&` in a password looks like a parameter.
  for (const name of ['hunter2', 'sslhunter2', 'optionshunter2', 'OPTIONS', 'ssl']) {
    test(`but not ${name}`, () =>
      assert.throws(
        () => parseDatabaseUrl(`postgres:///?${name}=x`),
        /^Error: unknown parameter; /,
      ));
  }
});

describe('a database in words', () => {
  for (const { url, words } of [
    { url: 'sqlite:/data/service.db', words: 'sqlite /data/service.db' },
    { url: 'postgres://user:secret@h/d?sslmode=require', words: 'postgres h:5432/d' },
    { url: 'postgres://a:1,b:2/d?password=secret', words: 'postgres a:1,b:2/d' },
  ]) {
    test(`${url}: ${words}, and no secret`, () =>
      assert.equal(inWords(parseDatabaseUrl(url)!), words));
  }
});
