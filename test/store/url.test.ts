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
  password: '',
  database: 'postgres',
  sslMode: 'prefer',
  sslRootCert: undefined,
  sessionAttributes: 'any',
  applicationName: 'notes-users',
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

  for (const rest of [
    ...['file:data.db', 'file:data.db?mode=memory', 'file::memory:', 'file:///data/a.db'],
    ...['//data.db', '///data/a.db', '//host/a.db', 'data.db?mode=ro', ':memory:?cache=shared'],
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
      database: { user: 'user', password: 'secret', database: 'user' },
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
        password: 'p@ss/w?rd',
        database: 'd b',
        applicationName: 'a&b',
      },
    },
    {
      why: 'a colon in the password',
      url: 'postgres://u:a:b@h/d',
      database: { hosts: one('h'), user: 'u', password: 'a:b', database: 'd' },
    },
    {
      why: 'a plus as itself',
      url: 'postgres://u:a+b@h/d',
      database: { hosts: one('h'), user: 'u', password: 'a+b', database: 'd' },
    },
    {
      why: 'a password without a user',
      url: 'postgres://:p@h/d',
      database: { hosts: one('h'), password: 'p', database: 'd' },
    },
    {
      why: 'an encoded @ in a user, a password and parameters',
      url: 'postgres://u%40x:p%40ss@[::1]:1/d?application_name=a%40b',
      database: {
        ...{ hosts: one('::1', 1), user: 'u@x', password: 'p@ss', database: 'd' },
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
      database: { hosts: one('i', 2), user: 'v', password: 'q', database: 'e' },
    },
    {
      why: 'an equals sign in a parameter',
      url: 'postgres:///?password=a=b',
      database: { password: 'a=b' },
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
