// Reads a Config from the environment (contract section 1).
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { InvalidConfig, readAdminAddress, readConfig, VARIABLES } from '../src/config.ts';
import { certificate, NO_OPENSSL } from './support/certificate.ts';
import { fileOf as file, newFolder } from './support/program.ts';

const KEY = 'x'.repeat(32);

function problems(env: Record<string, string>): readonly string[] {
  try {
    readConfig(env);
  } catch (err) {
    assert.ok(err instanceof InvalidConfig);
    assert.equal(err.message, err.problems.join('\n'));
    return err.problems;
  }
  return [];
}

test('1.1, 1.3, 1.5 an unknown variable, an empty value, and an empty path of its file, count as unset', () => {
  const config = readConfig({});
  const unknown = { TLS_CERT_FILE_FILE: '/missing', TLS_KEY_FILE_FILE: '/missing' };
  assert.deepEqual(readConfig(unknown), config);
  for (const suffix of ['', '_FILE']) {
    const empty = VARIABLES.map((name) => [name + suffix, '']);
    assert.deepEqual(readConfig(Object.fromEntries(empty)), config);
  }
  const named = { AUTH_NAME: '', AUTH_NAME_FILE: file('é'), PORT_FILE: file('\n') };
  const env = { ...named, NOTE_TITLE: 'a', NOTE_TITLE_FILE: '' };
  assert.deepEqual(readConfig(env), { ...config, AUTH_NAME: 'é', NOTE_TITLE: 'a' });
});

/** The least and the most of each integer as the README's table has them, which test/readme.test.ts compares. */
const README = readFileSync(join(import.meta.dirname, '../README.md'), 'utf8');
const INTEGERS = Object.fromEntries(
  Array.from(README.matchAll(/^\| `(\w+)` \|.*\| (\d+) to (\d+) \|/gm), ([, name, min, max]) => {
    return [name!, [Number(min), Number(max)] as const];
  }),
);

describe('valid values', () => {
  test('the README has the integers', () => assert.equal(Object.keys(INTEGERS).length, 11));

  const same: Readonly<Record<string, readonly string[]>> = {
    HOST: ['::1'],
    ADMIN_HOST: ['::1'],
    AUTH_USER: ['ådmin @ "home"'],
    AUTH_PASSWORD: ['8 chars:', '😀'.repeat(8)],
    AUTH_NAME: ['Ada: "x"'],
    SIGNING_SECRET: [KEY, 'é'.repeat(16)],
    VERIFY_ONLY_SECRET: [KEY],
    SIGNING_SECRET_PREVIOUS: [KEY],
    NOTE_TITLE: [' a\nb '],
    NOTE_CONTENTS: ['😀'],
    CORS_ORIGIN: [
      ...['*', 'https://app.example', 'http://localhost:5173', 'http://[::1]:81'],
      ...['capacitor://localhost', 'http://tauri.localhost', 'app://-', 'app://obsidian.md'],
      ...['chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'vscode-webview://1f2e3d'],
      ...['moz-extension://6ccd1b4a-3a5c-4c0e-9c3c-1d6f4e2b7a90', 'x+y.z-1://host:8080'],
    ],
    LOG_LEVEL: ['silent', 'error', 'info', 'debug'],
  };
  const memory = { engine: 'sqlite', path: ':memory:', autocheckpoint: true };
  const rows: readonly (readonly [name: string, value: string, setting: unknown])[] = [
    ...Object.entries(same).flatMap(([name, values]) =>
      values.map((value) => [name, value, value] as const),
    ),
    ...Object.entries(INTEGERS).flatMap(([name, edges]) =>
      edges.map((value) => [name, String(value), value] as const),
    ),
    ['DATABASE_URL', 'sqlite::memory:', memory],
    ['PROTECT_USERS', 'true', true],
    ['PROTECT_USERS', 'false', false],
  ];
  for (const [name, value, setting] of rows) {
    test(`${name}=${value.slice(0, 40)}`, () => {
      const config = { ...readConfig({}), [name]: setting };
      assert.deepEqual(readConfig({ [name]: value }), config);
      assert.deepEqual(readConfig({ [`${name}_FILE`]: file(value) }), config);
    });
  }
});

describe('invalid values', () => {
  const secret = 'a key of at least 32 bytes of UTF-8';
  const password = 'at least 8 characters';
  const rows: readonly (readonly [name: string, expected: string, values: readonly string[]])[] = [
    ...Object.entries(INTEGERS).map(([name, [min, max]]) => {
      const odd = ['1.5', '3e3', '0x10', '+80', ' 80', '80 ', '٣', 'x', 'Infinity', 'true', '5s'];
      const values = [String(min - 1), String(max + 1), '99999999999', ...odd];
      return [name, `an integer from ${min} to ${max}`, values] as const;
    }),
    [
      'DATABASE_URL',
      'sqlite:PATH, sqlite::memory:, or percent-encoded postgres://USER:PASSWORD@HOST:PORT/DATABASE',
      ['data/service.db', 'mysql://x', 'sqlite:'],
    ],
    ['AUTH_USER', 'a name without ":"', ['a:b', ':']],
    ['AUTH_PASSWORD', password, ['7 chars', '😀'.repeat(7), 'e\u0301'.repeat(7)]],
    ['SIGNING_SECRET', secret, ['x'.repeat(31), `${'é'.repeat(15)}x`]],
    ['VERIFY_ONLY_SECRET', secret, ['x'.repeat(31)]],
    ['SIGNING_SECRET_PREVIOUS', secret, ['x'.repeat(31)]],
    ['PROTECT_USERS', 'one of true, false', ['TRUE', 'yes', '1', ' true']],
    [
      'CORS_ORIGIN',
      'an origin such as https://app.example, or *',
      [
        ...['https://app.example/', 'https://app.example/x', 'app.example', 'null', '**'],
        ...['https://a.example, https://b.example', 'HTTPS://app.example', 'file://'],
        ...['https://app.example:443', 'https://u:secret@app.example', 'https://exämple.com'],
        ...['capacitor://localhost/', 'capacitor://localhost?x', 'capacitor://localhost#x'],
        ...['capacitor://u@localhost', 'capacitor://LocalHost', 'Capacitor://localhost'],
        ...['capacitor:localhost', 'capacitor://', 'capacitor://exämple', 'data:text/html,x'],
        ...['tauri://localhost tauri://other', 'chrome-extension://*', '1app://localhost'],
        'blob:https://app.example',
      ],
    ],
    ['LOG_LEVEL', 'one of silent, error, info, debug', ['INFO', 'warn', 'trace', 'constructor']],
  ];
  for (const [name, expected, value] of rows.flatMap(([name, expected, values]) =>
    values.map((value) => [name, expected, value] as const),
  )) {
    test(`${name}=${JSON.stringify(value).slice(0, 50)}`, () => {
      const problem = `${name}: invalid; expected ${expected}`;
      assert.deepEqual(problems({ [name]: value }), [problem]);
      assert.deepEqual(problems({ [`${name}_FILE`]: file(value) }), [problem]);
    });
  }

  test('1.8 a character that nobody can type is refused anywhere, and only its code is printed', () => {
    // Only start() can have a lone surrogate.
    for (const character of '\n\r\t\u001b\u007f\u0085\u2028\u2029\ufeff\ufffd\ud800') {
      const code = character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0');
      for (const name of VARIABLES.filter((variable) => !variable.startsWith('NOTE_'))) {
        for (const value of [`${KEY}${character}`, `${character}${KEY}`, `1${character}${KEY}`]) {
          const found = problems({ [name]: value });
          const [problem = '', ...rest] = found.filter((line) => !line.includes(': missing, but '));
          assert.ok(problem.startsWith(`${name}: contains U+${code}; expected `), problem);
          assert.ok(!problem.includes(KEY) && !problem.includes(character), problem);
          assert.deepEqual(rest, []);
        }
      }
    }
  });

  test('1.2, 1.8 files: one line end is removed, and a second is refused unless the value may have it', () => {
    for (const [text, code] of [
      ['correct horse\n\n', 'U+000A'],
      ['correct horse\r\n\r\n', 'U+000D'],
      ['correct horse\r', 'U+000D'],
      ['correct horse\r\r\n', 'U+000D'],
      ['\ufeffcorrect horse\n', 'U+FEFF'],
    ]) {
      const env = { AUTH_PASSWORD_FILE: file(text!) };
      const expected = `${password}, without control characters, line ends and byte order marks`;
      assert.deepEqual(problems(env), [`AUTH_PASSWORD: contains ${code}; expected ${expected}`]);
    }
    const files = { AUTH_PASSWORD_FILE: file('correct horse\r\n'), NOTE_TITLE_FILE: file('a\n\n') };
    const { AUTH_PASSWORD, NOTE_TITLE } = readConfig(files);
    assert.deepEqual([AUTH_PASSWORD, NOTE_TITLE], ['correct horse', 'a\n']);
  });

  test('1.2, 1.4, 1.6 a file that is missing, one that is not UTF-8, and one beside the variable itself, are problems', () => {
    const variables = VARIABLES.filter((name) => !name.startsWith('TLS_'));
    const files = variables.map((name) => `${name}_FILE`);
    const missing = join(newFolder(), 'missing');
    const found = problems(Object.fromEntries(files.map((name) => [name, missing])));
    const names = found.map((problem) => problem.split(':')[0]);
    assert.deepEqual(names, files);
    assert.deepEqual(problems({ NOTE_TITLE_FILE: `${missing}\n` }), [
      'NOTE_TITLE_FILE: contains U+000A; expected the path of a file that holds the value as UTF-8',
    ]);
    const SIGNING_SECRET_FILE = file(Buffer.alloc(32, 0xff));
    assert.deepEqual(problems({ SIGNING_SECRET_FILE }), [
      `SIGNING_SECRET_FILE: ${SIGNING_SECRET_FILE} is not valid UTF-8; expected the path of a file that holds the value as UTF-8`,
    ]);
    const [problem, ...rest] = problems({ SIGNING_SECRET: KEY, SIGNING_SECRET_FILE: file(KEY) });
    assert.match(problem ?? '', /^SIGNING_SECRET(_FILE)?: (?!.*xxx)/);
    assert.deepEqual(rest, []);
  });
});

describe('keys and certificates', { skip: NO_OPENSSL }, () => {
  for (const command of ['pkey', 'ec']) {
    test(`a key that openssl ${command} encrypted is a problem, and the line has the command that decrypts it`, () => {
      const { TLS_CERT_FILE, TLS_KEY_FILE } = certificate();
      const openssl = (args: string) => execFileSync('openssl', args.split(' '), { stdio: 'pipe' });
      const folder = newFolder();
      const encrypted = join(folder, `${command}.pem`);
      const decrypted = join(folder, 'decrypted.pem');
      openssl(`${command} -aes256 -passout pass:secret -in ${TLS_KEY_FILE} -out ${encrypted}`);
      const [problem, ...rest] = problems({ TLS_CERT_FILE, TLS_KEY_FILE: encrypted });
      assert.deepEqual(rest, []);
      const line =
        /^TLS_KEY_FILE: (.*) is encrypted; to decrypt it: openssl (.*) NEW_FILE; expected /;
      const [, path, found] = line.exec(problem!)!;
      assert.equal(path, encrypted);
      openssl(`${found} ${decrypted} -passin pass:secret`);
      const withText = file(`Bag: NOT ENCRYPTED\n${readFileSync(decrypted, 'utf8')}`);
      assert.deepEqual(problems({ TLS_CERT_FILE, TLS_KEY_FILE: withText }), []);
    });
  }

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: a wrong pair is one problem, which names its variable and no text of a key', () => {
    const { TLS_CERT_FILE: cert, TLS_KEY_FILE: key } = certificate();
    const missing = join(newFolder(), 'missing');
    const damaged = file('-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n');
    const chain = `${readFileSync(cert)}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`;
    for (const [TLS_CERT_FILE, TLS_KEY_FILE, line] of [
      [cert, '', /^TLS_KEY_FILE: missing, but TLS_CERT_FILE is set; expected/],
      ['', key, /^TLS_CERT_FILE: missing, but TLS_KEY_FILE is set; expected/],
      [missing, key, RegExp(`^TLS_CERT_FILE: .*${missing}`)],
      [cert, missing, RegExp(`^TLS_KEY_FILE: .*${missing}`)],
      [file('no PEM'), key, /^TLS_CERT_FILE: .* is not PEM; expected the path of a PEM file$/],
      [cert, file(''), /^TLS_KEY_FILE: .* is not PEM;/],
      [file(chain), key, /^TLS_CERT_FILE: .*; expected a PEM certificate chain$/],
      [cert, cert, /^TLS_KEY_FILE: .*; expected a PEM private key without a passphrase$/],
      [cert, damaged, /^TLS_KEY_FILE: (?!.*hunter2)/s],
      [cert, certificate().TLS_KEY_FILE, /^TLS_KEY_FILE: .* another key;/],
      [cert, certificate('rsa').TLS_KEY_FILE, /another key;/],
    ] as const) {
      const [, problem, ...rest] = problems({ PORT: 'x', TLS_CERT_FILE, TLS_KEY_FILE });
      assert.match(problem!, line);
      assert.deepEqual(rest, []);
    }
  });
});

test('9.6 an origin is valid in jsdom too, whose URL has no parse in older versions', (t) => {
  const { URL } = globalThis;
  t.after(() => Object.assign(globalThis, { URL }));
  Object.assign(globalThis, { URL: undefined });
  assert.deepEqual(problems({ CORS_ORIGIN: 'https://app.example' }), []);
});

test('the address of the probes', () => {
  for (const [env, host, port] of [
    [{}, '127.0.0.1', 3001],
    [{ ADMIN_PORT_FILE: file('81\n') }, '127.0.0.1', 81],
    [{ HOST: '10.0.0.1' }, '10.0.0.1', 3001],
    [{ HOST: '10.0.0.1', ADMIN_HOST: '10.0.0.2' }, '10.0.0.2', 3001],
    [{ HOST: '10.0.0.1', ADMIN_HOST: '::' }, '127.0.0.1', 3001],
    [{ PORT: 'x' }, '127.0.0.1', 3001],
  ] as const) {
    assert.deepEqual(readAdminAddress(env), { host, port }, JSON.stringify(env));
  }
  for (const [ADMIN_PORT, fault] of [
    ['x', 'invalid; expected an integer from 0 to 65535'],
    ['0', '0 names no port; expected the one to connect to'],
  ] as const) {
    const message = `ADMIN_PORT: ${fault}`;
    assert.throws(() => readAdminAddress({ ADMIN_PORT }), { name: 'Error', message }); // 6.5
  }
});
