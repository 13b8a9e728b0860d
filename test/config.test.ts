// Reads a Config from the environment (contract section 1).
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  type Config,
  type Environment,
  InvalidConfig,
  readAdminAddress,
  readConfig,
  VARIABLES,
} from '../src/config.ts';

const PORTS = 'an integer from 0 to 65535';
const KEY = 'x'.repeat(32);

let folder = '';
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'notes-users-config-'));
});
after(() => rmSync(folder, { recursive: true, force: true }));

/** Writes the text to a new file; returns its path. */
function file(name: string, text: string | Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

function problems(env: Environment): readonly string[] {
  try {
    readConfig(env);
  } catch (err) {
    assert.ok(err instanceof InvalidConfig);
    assert.equal(err.message, err.problems.join('\n'));
    return err.problems;
  }
  return [];
}

test('without variables every setting has its default', () => {
  const config: Config = {
    PORT: 3000,
    HOST: undefined,
    ADMIN_PORT: undefined,
    ADMIN_HOST: undefined,
    DATABASE_URL: { engine: 'sqlite', path: 'data/service.db' },
    DATABASE_POOL_SIZE: 4,
    DATABASE_TIMEOUT_MS: 5000,
    AUTH_USER: 'admin',
    AUTH_PASSWORD: undefined,
    AUTH_NAME: 'Administrator',
    SIGNING_SECRET: undefined,
    SIGNING_SECRET_PREVIOUS: undefined,
    NOTE_TITLE: 'Welcome',
    NOTE_CONTENTS: 'This note is kept by the service and read with a token.',
    PROTECT_USERS: false,
    TLS_CERT_FILE: undefined,
    TLS_KEY_FILE: undefined,
    TRUST_PROXY: 0,
    AUTH_FAILURES_PER_MINUTE: 60,
    BODY_LIMIT_BYTES: 16_384,
    MEMORY_LIMIT_BYTES: undefined,
    CORS_ORIGIN: undefined,
    LOG_LEVEL: 'info',
    IDLE_TIMEOUT_MS: 65_000,
    SHUTDOWN_DELAY_MS: 0,
    SHUTDOWN_TIMEOUT_MS: 8000,
  };
  assert.deepEqual(readConfig({}), config);
  // An empty value counts as unset.
  assert.deepEqual(readConfig(Object.fromEntries(VARIABLES.map((name) => [name, '']))), config);
  assert.deepEqual(
    readConfig(Object.fromEntries(VARIABLES.map((name) => [`${name}_FILE`, '']))),
    config,
  );
});

test('the variables are those of the contract', () => {
  assert.deepEqual(VARIABLES, [
    ...['PORT', 'HOST', 'ADMIN_PORT', 'ADMIN_HOST'],
    ...['DATABASE_URL', 'DATABASE_POOL_SIZE', 'DATABASE_TIMEOUT_MS'],
    ...['AUTH_USER', 'AUTH_PASSWORD', 'AUTH_NAME', 'SIGNING_SECRET', 'SIGNING_SECRET_PREVIOUS'],
    ...['NOTE_TITLE', 'NOTE_CONTENTS', 'PROTECT_USERS', 'TLS_CERT_FILE', 'TLS_KEY_FILE'],
    ...['TRUST_PROXY', 'AUTH_FAILURES_PER_MINUTE', 'BODY_LIMIT_BYTES', 'MEMORY_LIMIT_BYTES'],
    ...['CORS_ORIGIN', 'LOG_LEVEL', 'IDLE_TIMEOUT_MS'],
    ...['SHUTDOWN_DELAY_MS', 'SHUTDOWN_TIMEOUT_MS'],
  ]);
});

describe('valid values', () => {
  for (const { name, value, setting } of [
    { name: 'PORT', value: '0', setting: { PORT: 0 } },
    { name: 'PORT', value: '65535', setting: { PORT: 65_535 } },
    { name: 'HOST', value: '::1', setting: { HOST: '::1', ADMIN_HOST: undefined } },
    { name: 'ADMIN_HOST', value: '::1', setting: { HOST: undefined, ADMIN_HOST: '::1' } },
    { name: 'ADMIN_PORT', value: '0', setting: { ADMIN_PORT: 0 } },
    { name: 'ADMIN_PORT', value: '65535', setting: { ADMIN_PORT: 65_535 } },
    {
      name: 'DATABASE_URL',
      value: 'sqlite::memory:',
      setting: { DATABASE_URL: { engine: 'sqlite', path: ':memory:' } },
    },
    { name: 'DATABASE_POOL_SIZE', value: '1', setting: { DATABASE_POOL_SIZE: 1 } },
    { name: 'DATABASE_POOL_SIZE', value: '100', setting: { DATABASE_POOL_SIZE: 100 } },
    { name: 'DATABASE_TIMEOUT_MS', value: '100', setting: { DATABASE_TIMEOUT_MS: 100 } },
    { name: 'DATABASE_TIMEOUT_MS', value: '600000', setting: { DATABASE_TIMEOUT_MS: 600_000 } },
    { name: 'AUTH_USER', value: 'ådmin @ "home"', setting: { AUTH_USER: 'ådmin @ "home"' } },
    { name: 'AUTH_PASSWORD', value: '8 chars:', setting: { AUTH_PASSWORD: '8 chars:' } },
    { name: 'AUTH_PASSWORD', value: '😀'.repeat(8), setting: { AUTH_PASSWORD: '😀'.repeat(8) } },
    { name: 'AUTH_NAME', value: 'Ada: "x"', setting: { AUTH_NAME: 'Ada: "x"' } },
    { name: 'SIGNING_SECRET', value: KEY, setting: { SIGNING_SECRET: KEY } },
    { name: 'SIGNING_SECRET', value: 'é'.repeat(16), setting: { SIGNING_SECRET: 'é'.repeat(16) } },
    { name: 'SIGNING_SECRET_PREVIOUS', value: KEY, setting: { SIGNING_SECRET_PREVIOUS: KEY } },
    { name: 'NOTE_TITLE', value: ' a\nb ', setting: { NOTE_TITLE: ' a\nb ' } },
    { name: 'NOTE_CONTENTS', value: '😀', setting: { NOTE_CONTENTS: '😀' } },
    { name: 'PROTECT_USERS', value: 'true', setting: { PROTECT_USERS: true } },
    { name: 'PROTECT_USERS', value: 'false', setting: { PROTECT_USERS: false } },
    { name: 'TRUST_PROXY', value: '0', setting: { TRUST_PROXY: 0 } },
    { name: 'TRUST_PROXY', value: '100', setting: { TRUST_PROXY: 100 } },
    { name: 'AUTH_FAILURES_PER_MINUTE', value: '0', setting: { AUTH_FAILURES_PER_MINUTE: 0 } },
    {
      name: 'AUTH_FAILURES_PER_MINUTE',
      value: '1000',
      setting: { AUTH_FAILURES_PER_MINUTE: 1000 },
    },
    { name: 'BODY_LIMIT_BYTES', value: '1', setting: { BODY_LIMIT_BYTES: 1 } },
    { name: 'BODY_LIMIT_BYTES', value: '16777216', setting: { BODY_LIMIT_BYTES: 16_777_216 } },
    { name: 'CORS_ORIGIN', value: '*', setting: { CORS_ORIGIN: '*' } },
    {
      name: 'CORS_ORIGIN',
      value: 'https://app.example',
      setting: { CORS_ORIGIN: 'https://app.example' },
    },
    {
      name: 'CORS_ORIGIN',
      value: 'http://localhost:5173',
      setting: { CORS_ORIGIN: 'http://localhost:5173' },
    },
    ...[
      ...[
        'capacitor://localhost',
        'ionic://localhost',
        'tauri://localhost',
        'http://tauri.localhost',
      ],
      ...['chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'app://-', 'app://obsidian.md'],
      ...['moz-extension://6ccd1b4a-3a5c-4c0e-9c3c-1d6f4e2b7a90', 'vscode-webview://1f2e3d'],
      'x+y.z-1://host:8080',
    ].map((value) => ({ name: 'CORS_ORIGIN', value, setting: { CORS_ORIGIN: value } })),
    { name: 'IDLE_TIMEOUT_MS', value: '1000', setting: { IDLE_TIMEOUT_MS: 1000 } },
    { name: 'IDLE_TIMEOUT_MS', value: '86400000', setting: { IDLE_TIMEOUT_MS: 86_400_000 } },
    { name: 'CORS_ORIGIN', value: 'http://[::1]:81', setting: { CORS_ORIGIN: 'http://[::1]:81' } },
    ...['silent', 'error', 'info', 'debug'].map((value) => ({
      name: 'LOG_LEVEL',
      value,
      setting: { LOG_LEVEL: value },
    })),
    { name: 'SHUTDOWN_DELAY_MS', value: '0', setting: { SHUTDOWN_DELAY_MS: 0 } },
    { name: 'SHUTDOWN_DELAY_MS', value: '3600000', setting: { SHUTDOWN_DELAY_MS: 3_600_000 } },
    { name: 'SHUTDOWN_TIMEOUT_MS', value: '0', setting: { SHUTDOWN_TIMEOUT_MS: 0 } },
    { name: 'SHUTDOWN_TIMEOUT_MS', value: '3600000', setting: { SHUTDOWN_TIMEOUT_MS: 3_600_000 } },
  ]) {
    test(`${name}=${value.slice(0, 40)}`, () => {
      assert.deepEqual(readConfig({ [name]: value }), { ...readConfig({}), ...setting });
      const path = file(name, value);
      assert.deepEqual(readConfig({ [`${name}_FILE`]: path }), { ...readConfig({}), ...setting });
    });
  }
});

describe('invalid values', () => {
  const integers = {
    DATABASE_POOL_SIZE: [1, 100],
    DATABASE_TIMEOUT_MS: [100, 600_000],
    TRUST_PROXY: [0, 100],
    AUTH_FAILURES_PER_MINUTE: [0, 1000],
    BODY_LIMIT_BYTES: [1, 16_777_216],
    IDLE_TIMEOUT_MS: [1000, 86_400_000],
    SHUTDOWN_DELAY_MS: [0, 3_600_000],
    SHUTDOWN_TIMEOUT_MS: [0, 3_600_000],
  } as const;
  const secret = 'a key of at least 32 bytes of UTF-8';
  const origin = 'an origin such as https://app.example, or *';
  const database = 'sqlite:PATH, sqlite::memory:, or postgres://USER:PASSWORD@HOST:PORT/DATABASE';
  const user = 'a name without ":"';
  for (const { name, value, expected } of [
    ...[
      '-1',
      '65536',
      '3000.5',
      '3e3',
      '0x10',
      '+80',
      ' 80',
      '80 ',
      '٣',
      'http',
      '99999999999',
    ].flatMap((value) => [
      { name: 'PORT', value, expected: PORTS },
      { name: 'ADMIN_PORT', value, expected: PORTS },
    ]),
    ...Object.entries(integers).flatMap(([name, [min, max]]) =>
      [String(min - 1), String(max + 1), '', '1.5', 'x', 'Infinity', 'true']
        .filter(Boolean)
        .map((value) => ({
          name,
          value,
          expected: `an integer from ${min} to ${max}`,
        })),
    ),
    ...['data/service.db', 'mysql://x', 'sqlite:'].map((value) => ({
      name: 'DATABASE_URL',
      value,
      expected: database,
    })),
    ...['a:b', ':'].map((value) => ({
      name: 'AUTH_USER',
      value,
      expected: user,
    })),
    { name: 'AUTH_PASSWORD', value: '7 chars', expected: 'at least 8 characters' },
    { name: 'AUTH_PASSWORD', value: '😀'.repeat(7), expected: 'at least 8 characters' },
    { name: 'AUTH_PASSWORD', value: 'e\u0301'.repeat(7), expected: 'at least 8 characters' },
    { name: 'SIGNING_SECRET', value: 'x'.repeat(31), expected: secret },
    { name: 'SIGNING_SECRET', value: 'é'.repeat(15), expected: secret },
    { name: 'SIGNING_SECRET_PREVIOUS', value: 'x'.repeat(31), expected: secret },
    ...['TRUE', 'yes', '1', ' true'].map((value) => ({
      name: 'PROTECT_USERS',
      value,
      expected: 'one of true, false',
    })),
    ...[
      'https://app.example/',
      'https://app.example/x',
      'app.example',
      'null',
      'https://a.example, https://b.example',
      'HTTPS://app.example',
      'https://app.example:443',
      'https://u:secret@app.example',
      'https://exämple.com',
      'capacitor://localhost/',
      'capacitor://localhost/index.html',
      'capacitor://localhost?x',
      'capacitor://localhost#x',
      'capacitor://u@localhost',
      'capacitor://LocalHost',
      'Capacitor://localhost',
      'capacitor:localhost',
      'capacitor://',
      'capacitor://exämple',
      'tauri://localhost tauri://other',
      'chrome-extension://*',
      '1app://localhost',
      'blob:https://app.example',
      'file://',
      'data:text/html,x',
      '**',
    ].map((value) => ({ name: 'CORS_ORIGIN', value, expected: origin })),
    ...['INFO', 'warn', 'trace', 'none', 'constructor'].map((value) => ({
      name: 'LOG_LEVEL',
      value,
      expected: 'one of silent, error, info, debug',
    })),
  ]) {
    test(`${name}=${JSON.stringify(value).slice(0, 50)}`, () => {
      const problem = `${name}: invalid; expected ${expected}`;
      assert.deepEqual(problems({ [name]: value }), [problem]);
      assert.deepEqual(problems({ [`${name}_FILE`]: file(name, value) }), [problem]);
    });
  }

  const odd = {
    'a second line end': ['\n', 'U+000A'],
    'a carriage return': ['\r', 'U+000D'],
    'a tab': ['\t', 'U+0009'],
    'an escape': ['\u001b', 'U+001B'],
    DEL: ['\u007f', 'U+007F'],
    'a next line of C1': ['\u0085', 'U+0085'],
    'a line separator': ['\u2028', 'U+2028'],
    'a paragraph separator': ['\u2029', 'U+2029'],
    'a byte order mark': ['\ufeff', 'U+FEFF'],
    'what is left of Latin-1': ['\ufffd', 'U+FFFD'],
  } as const;
  const strange = VARIABLES.filter((name) => !name.startsWith('NOTE_'));
  for (const [why, [character, code]] of Object.entries(odd)) {
    test(`1.8 ${why} at either end or within is refused, and only its code is printed`, () => {
      for (const name of strange) {
        for (const value of [`${KEY}${character}`, `${character}${KEY}`, `1${character}${KEY}`]) {
          const [problem = '', ...rest] = problems({ [name]: value });
          assert.ok(problem.startsWith(`${name}: contains ${code}; expected `), problem);
          assert.ok(!problem.includes(KEY) && !problem.includes(character), problem);
          assert.deepEqual(
            rest.filter((other) => !other.startsWith('TLS_')),
            [],
          );
        }
      }
    });
  }

  test('1.8 a lone surrogate, which only start() can have, is refused', () =>
    assert.match(
      problems({ AUTH_PASSWORD: `${KEY}\ud800` }).join(),
      /^AUTH_PASSWORD: contains U\+D800; /,
    ));

  test('1.8 files: one line end is removed, and a second is refused', () => {
    for (const [text, code] of [
      ['correct horse\n\n', 'U+000A'],
      ['correct horse\r\n\r\n', 'U+000D'],
      ['correct horse\r', 'U+000D'],
      ['correct horse\r\r\n', 'U+000D'],
      ['\ufeffcorrect horse\n', 'U+FEFF'],
    ]) {
      const env = { AUTH_PASSWORD_FILE: file('password', text!) };
      const expected =
        'at least 8 characters, without control characters, line ends and byte order marks';
      assert.deepEqual(problems(env), [`AUTH_PASSWORD: contains ${code}; expected ${expected}`]);
    }
    const env = { AUTH_PASSWORD_FILE: file('password', 'correct horse\r\n') };
    assert.equal(readConfig(env).AUTH_PASSWORD, 'correct horse');
  });

  const hosts = 'malformed host; expected HOST, HOST:PORT or [IPV6]:PORT';
  for (const [value, fault] of [
    [
      '?sslmode=on',
      'sslmode invalid; expected one of disable, allow, prefer, require, verify-ca, verify-full',
    ],
    [
      '?target_session_attrs=master',
      'target_session_attrs invalid; expected one of any, read-write, read-only, primary, standby, prefer-standby',
    ],
    [
      '?sslcert=hunter2',
      'sslcert is not supported; expected one of host, port, user, password, dbname, sslmode, sslrootcert, target_session_attrs, application_name, channel_binding, connect_timeout',
    ],
    ['?channel_binding=require', 'channel_binding invalid; expected one of disable, prefer'],
    [
      '?timeout=hunter2',
      'unknown parameter; expected one of host, port, user, password, dbname, sslmode, sslrootcert, target_session_attrs, application_name, channel_binding, connect_timeout',
    ],
    ['h:99999/d', 'port invalid; expected an integer from 1 to 65535'],
    ['h/d?port=hunter2', 'port invalid; expected an integer from 1 to 65535'],
    [
      'a,b/d?port=1,2,3',
      'the number of ports differs from the number of hosts; expected one port for all hosts or one for each',
    ],
    ['u:hunter2@h:1:2/d', hosts],
    ['u:hunter2%@h/d', 'malformed percent-encoding; expected % followed by two hexadecimal digits'],
  ] as const) {
    test(`DATABASE_URL=postgres://${value}: ${fault}`, () =>
      assert.deepEqual(problems({ DATABASE_URL: `postgres://${value}` }), [
        `DATABASE_URL: ${fault}`,
      ]));
  }

  test('DATABASE_URL with an sslrootcert that cannot be read', () =>
    assert.deepEqual(problems({ DATABASE_URL: 'postgres://h/d?sslrootcert=/nowhere' }), [
      "DATABASE_URL: ENOENT: no such file or directory, open '/nowhere'; expected sslrootcert to be the path of a PEM file",
    ]));
});

describe('values from files', () => {
  for (const { why, text, value } of [
    { why: 'no newline', text: 'a b', value: 'a b' },
    { why: 'one trailing newline is dropped', text: 'a b\n', value: 'a b' },
    { why: 'one trailing newline of Windows is dropped', text: 'a b\r\n', value: 'a b' },
    { why: 'of two only the last is dropped', text: 'a b\n\n', value: 'a b\n' },
    { why: 'a newline inside stays', text: 'a\nb\n', value: 'a\nb' },
    { why: 'space around stays', text: ' a \n', value: ' a ' },
    { why: 'UTF-8', text: 'å😀', value: 'å😀' },
    { why: 'an empty file counts as unset', text: '', value: 'Welcome' },
    { why: 'only a newline counts as unset', text: '\n', value: 'Welcome' },
  ]) {
    test(why, () =>
      assert.equal(readConfig({ NOTE_TITLE_FILE: file('title', text) }).NOTE_TITLE, value),
    );
  }

  for (const name of VARIABLES.filter((variable) => !variable.startsWith('TLS_'))) {
    test(`${name} and ${name}_FILE at once are refused`, () => {
      const env = { [name]: 'x', [`${name}_FILE`]: file(name, 'x') };
      assert.deepEqual(problems(env), [
        `${name}: set together with ${name}_FILE; expected only one of the two`,
      ]);
    });

    test(`${name}_FILE that cannot be read is a problem of ${name}_FILE`, () => {
      const path = join(folder, 'missing');
      assert.deepEqual(problems({ [`${name}_FILE`]: path }), [
        `${name}_FILE: ENOENT: no such file or directory, open '${path}'; expected the path of a file that holds the value as UTF-8`,
      ]);
    });
  }

  test('an empty value next to its file is unset', () => {
    const env = { NOTE_TITLE: '', NOTE_TITLE_FILE: file('title', 'x') };
    assert.equal(readConfig(env).NOTE_TITLE, 'x');
  });

  test('a folder instead of a file is a problem', () => {
    const [problem, ...rest] = problems({ AUTH_PASSWORD_FILE: folder });
    assert.match(problem!, /^AUTH_PASSWORD_FILE: EISDIR: .*; expected the path of a file/);
    assert.deepEqual(rest, []);
  });
});

describe('TLS', () => {
  let certFile = '';
  let keyFile = '';
  let otherKeyFile = '';
  before(() => {
    certFile = join(folder, 'cert.pem');
    keyFile = join(folder, 'key.pem');
    otherKeyFile = join(folder, 'other.pem');
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    const subject = ['-x509', '-subj', '/CN=localhost', '-days', '1'];
    for (const [key, cert] of [
      [keyFile, certFile],
      [otherKeyFile, join(folder, 'other-cert.pem')],
    ] as const) {
      execFileSync('openssl', ['req', ...subject, ...curve, '-keyout', key, '-out', cert], {
        stdio: 'pipe',
      });
    }
  });

  test('both paths are accepted', () => {
    const env = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
    assert.deepEqual(readConfig(env), { ...readConfig({}), ...env });
  });

  test('only TLS_CERT_FILE: the other is missing', () => {
    const missing =
      'TLS_KEY_FILE: missing, but TLS_CERT_FILE is set; expected the path of a PEM file';
    assert.deepEqual(problems({ TLS_CERT_FILE: certFile }), [missing]);
  });

  test('only TLS_KEY_FILE: the other is missing', () => {
    const missing =
      'TLS_CERT_FILE: missing, but TLS_KEY_FILE is set; expected the path of a PEM file';
    assert.deepEqual(problems({ TLS_KEY_FILE: keyFile }), [missing]);
  });

  test('a key of another certificate is a problem', () => {
    const [problem, ...rest] = problems({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: otherKeyFile });
    assert.equal(
      problem,
      `TLS_KEY_FILE: ${otherKeyFile} has another key; expected the key of the first certificate in ${certFile}`,
    );
    assert.deepEqual(rest, []);
  });

  // OpenSSL compares the key only with a certificate of the same kind.
  test('a key of another kind is a problem', () => {
    const rsa = join(folder, 'rsa.pem');
    execFileSync('openssl', ['genrsa', '-out', rsa, '2048'], { stdio: 'pipe' });
    const [problem, ...rest] = problems({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: rsa });
    assert.match(problem!, /^TLS_KEY_FILE: .*rsa\.pem has another key; expected /);
    assert.deepEqual(rest, []);
  });

  for (const command of ['pkey', 'ec']) {
    test(`a key that openssl ${command} encrypted is a problem, and the line has the command that decrypts it`, () => {
      const encrypted = join(folder, `${command}.pem`);
      const options = ['-aes256', '-passout', 'pass:secret', '-in', keyFile, '-out', encrypted];
      execFileSync('openssl', [command, ...options], { stdio: 'pipe' });
      const [problem, ...rest] = problems({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: encrypted });
      assert.deepEqual(rest, []);
      const line = /^TLS_KEY_FILE: (.*) is encrypted; expected .*: openssl (.*) NEW_FILE$/;
      const [, file, found] = line.exec(problem!)!;
      assert.equal(file, encrypted);
      const decrypted = join(folder, 'decrypted.pem');
      const args = [...found!.split(' '), decrypted, '-passin', 'pass:secret'];
      execFileSync('openssl', args, { stdio: 'pipe' });
      assert.deepEqual(problems({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: decrypted }), []);
    });
  }

  test('a certificate that is not PEM is a problem', () => {
    const env = { TLS_CERT_FILE: file('no.pem', 'secret'), TLS_KEY_FILE: keyFile };
    const [problem, ...rest] = problems(env);
    assert.match(problem!, /^TLS_CERT_FILE: /);
    assert.deepEqual(rest, []);
  });

  for (const { why, isCertThere, isKeyThere, names } of [
    { why: 'a certificate', isCertThere: false, isKeyThere: true, names: ['TLS_CERT_FILE'] },
    { why: 'a key', isCertThere: true, isKeyThere: false, names: ['TLS_KEY_FILE'] },
    {
      why: 'a certificate and a key',
      isCertThere: false,
      isKeyThere: false,
      names: ['TLS_CERT_FILE', 'TLS_KEY_FILE'],
    },
  ]) {
    test(`${why} that cannot be read: one line each, with the variable and the path`, () => {
      const found = problems({
        TLS_CERT_FILE: isCertThere ? certFile : join(folder, 'TLS_CERT_FILE'),
        TLS_KEY_FILE: isKeyThere ? keyFile : join(folder, 'TLS_KEY_FILE'),
      });
      assert.deepEqual(
        found.map((line) => line.split(':')[0]),
        names,
      );
      for (const [i, line] of found.entries()) {
        assert.ok(line.includes(join(folder, names[i]!)), line);
      }
    });
  }
});

describe('problems', () => {
  test('all are reported at once, one line each, a missing TLS file last', () => {
    const env = {
      SHUTDOWN_TIMEOUT_MS: 'x',
      PORT: 'x',
      HOST_FILE: join(folder, 'missing'),
      DATABASE_URL: 'x',
      AUTH_USER: 'a:b',
      AUTH_PASSWORD: 'x',
      SIGNING_SECRET: 'x',
      SIGNING_SECRET_FILE: join(folder, 'missing'),
      PROTECT_USERS: 'x',
      TLS_KEY_FILE: join(folder, 'missing'),
      LOG_LEVEL: 'x',
    };
    const found = problems(env);
    assert.deepEqual(
      found.map((line) => line.slice(0, line.indexOf(':'))),
      [
        ...['PORT', 'HOST_FILE', 'DATABASE_URL', 'AUTH_USER', 'AUTH_PASSWORD', 'SIGNING_SECRET'],
        ...['PROTECT_USERS', 'TLS_KEY_FILE', 'LOG_LEVEL', 'SHUTDOWN_TIMEOUT_MS', 'TLS_CERT_FILE'],
      ],
    );
    assert.ok(found.every((line) => line.includes('; expected ') && !line.includes('\n')));
  });

  test('no message contains a value', () => {
    const names = VARIABLES.filter((name) => !/^(TLS_|HOST|ADMIN_HOST|AUTH_NAME|NOTE_)/.test(name));
    for (const value of ['hunt2:/', 'hunt2:/\n']) {
      const direct = problems(Object.fromEntries(names.map((name) => [name, value])));
      const path = file('value', `${value}\n`);
      const fromFiles = problems(Object.fromEntries(names.map((name) => [`${name}_FILE`, path])));
      assert.equal(direct.length, names.length);
      assert.deepEqual(fromFiles, direct);
      assert.ok(!direct.join().includes('hunt2'));
    }
  });

  test('no message contains the password of a URL', () => {
    const env = {
      DATABASE_URL: 'postgres://user:hunter2@h:99999/d',
      CORS_ORIGIN: 'https://hunter2/',
    };
    assert.ok(!problems(env).join().includes('hunter2'));
    assert.equal(problems(env).length, 2);
  });

  test('no message contains a private key that was given as certificate', () => {
    const key = file(
      'hunter2.txt',
      '-----BEGIN PRIVATE KEY-----\nhunter3\n-----END PRIVATE KEY-----\n',
    );
    assert.ok(!problems({ TLS_CERT_FILE: key, TLS_KEY_FILE: key }).join().includes('hunter3'));
  });

  test('1.1 variables that are not the service’s are ignored', () =>
    assert.deepEqual(
      readConfig({ PATH: '/bin', port: 'x', PORT_: 'x', TLS_CERT: 'x' }),
      readConfig({}),
    ));
});

describe('the address of the probes', () => {
  for (const { why, env, address } of [
    { why: 'by default', env: {}, address: { host: '127.0.0.1', port: 3001 } },
    { why: 'ADMIN_PORT', env: { ADMIN_PORT: '81' }, address: { host: '127.0.0.1', port: 81 } },
    { why: 'HOST', env: { HOST: '10.0.0.1' }, address: { host: '10.0.0.1', port: 3001 } },
    {
      why: 'ADMIN_HOST before HOST',
      env: { HOST: '10.0.0.1', ADMIN_HOST: '10.0.0.2' },
      address: { host: '10.0.0.2', port: 3001 },
    },
    {
      why: 'all interfaces of ADMIN_HOST',
      env: { HOST: '10.0.0.1', ADMIN_HOST: '::' },
      address: { host: '::1', port: 3001 },
    },
    { why: 'all interfaces', env: { HOST: '0.0.0.0' }, address: { host: '127.0.0.1', port: 3001 } },
    { why: 'all interfaces of IPv6', env: { HOST: '::' }, address: { host: '::1', port: 3001 } },
    {
      why: 'other variables are not read',
      env: { PORT: 'x' },
      address: { host: '127.0.0.1', port: 3001 },
    },
  ]) {
    test(why, () => assert.deepEqual(readAdminAddress(env), address));
  }

  test('an ADMIN_PORT in a file is read', () => {
    const env = { ADMIN_PORT_FILE: file('port', '81\n') };
    assert.deepEqual(readAdminAddress(env), { host: '127.0.0.1', port: 81 });
  });

  test('a wrong ADMIN_PORT is a problem', () => {
    const message = `ADMIN_PORT: invalid; expected ${PORTS}`;
    assert.throws(() => readAdminAddress({ ADMIN_PORT: 'x' }), { message });
  });
});
