// Section 1 of the contract: valid values of the variables, values from files, and secrets. The
// tests of their effects are in configuration-store, -access and -server.
import assert from 'node:assert/strict';
import { once as event } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { basic, send } from '../support/client.ts';
import { freePort } from '../support/postgres.ts';
import { newFolder, PASSWORD, Program, SECRET, start, USER } from '../support/program.ts';

type Row = readonly [name: string, value: string, why: string];

/** With these settings, a start generates no secret and leaves no file. */
const COMPLETE = {
  PORT: '0',
  HOST: '127.0.0.1',
  DATABASE_URL: 'sqlite::memory:',
  AUTH_PASSWORD: PASSWORD,
  SIGNING_SECRET: SECRET,
};

/** Every variable that can also be given as NAME_FILE. */
const VARIABLES = [
  'PORT',
  'HOST',
  'ADMIN_PORT',
  'ADMIN_HOST',
  'DATABASE_URL',
  'DATABASE_POOL_SIZE',
  'DATABASE_TIMEOUT_MS',
  'AUTH_USER',
  'AUTH_PASSWORD',
  'AUTH_NAME',
  'SIGNING_SECRET',
  'SIGNING_SECRET_PREVIOUS',
  'NOTE_TITLE',
  'NOTE_CONTENTS',
  'PROTECT_USERS',
  'TRUST_PROXY',
  'AUTH_FAILURES_PER_MINUTE',
  'BODY_LIMIT_BYTES',
  'MEMORY_LIMIT_BYTES',
  'CORS_ORIGIN',
  'LOG_LEVEL',
  'IDLE_TIMEOUT_MS',
  'SHUTDOWN_DELAY_MS',
  'SHUTDOWN_TIMEOUT_MS',
];

const EMOJI = '\u{1F600}';

/** Values that make the program exit with 78, and why each is invalid. */
const REFUSED: readonly Row[] = [
  ['PORT', '65536', 'one more than the highest port'],
  ['PORT', '-1', 'negative'],
  ['PORT', '1.5', 'no integer'],
  ['PORT', 'http', 'no number'],
  ['ADMIN_PORT', '65536', 'one more than the highest port'],
  ['ADMIN_PORT', '-1', 'negative'],
  ['ADMIN_PORT', 'x', 'no number'],
  ['DATABASE_URL', 'mysql://127.0.0.1/service', 'another engine'],
  ['DATABASE_URL', 'service.db', 'no scheme'],
  ['DATABASE_URL', 'sqlite:', 'no path'],
  ['DATABASE_URL', 'sqlite:file:data.db?mode=memory', 'a URI of SQLite'],
  ['DATABASE_URL', 'postgres://127.0.0.1:65536/service', 'a port that cannot be'],
  ['DATABASE_URL', 'postgres://127.0.0.1/service?sslmode=maybe', 'an sslmode that libpq lacks'],
  [
    'DATABASE_URL',
    'postgres://127.0.0.1/service?sslrootcert=/missing',
    'an unreadable sslrootcert',
  ],
  [
    'DATABASE_URL',
    'postgres://127.0.0.1/service?target_session_attrs=leader',
    'a target_session_attrs that libpq lacks',
  ],
  ['DATABASE_POOL_SIZE', '0', 'no connection at all'],
  ['DATABASE_POOL_SIZE', '-1', 'negative'],
  ['DATABASE_POOL_SIZE', '1.5', 'no integer'],
  ['DATABASE_TIMEOUT_MS', '-1', 'negative'],
  ['DATABASE_TIMEOUT_MS', '5s', 'a unit'],
  ['AUTH_USER', 'ad:min', 'Basic could never match it'],
  ['AUTH_USER', 'admin\r', 'the carriage return of a file from Windows'],
  ['AUTH_PASSWORD', `${PASSWORD}\r`, 'the carriage return of a file from Windows'],
  ['AUTH_PASSWORD', `\ufeff${PASSWORD}`, 'a byte order mark'],
  ['AUTH_NAME', 'Ada\n', 'a line end'],
  ['AUTH_PASSWORD', '1234567', '7 code points'],
  ['AUTH_PASSWORD', EMOJI.repeat(7), '7 code points in 14 UTF-16 units'],
  ['SIGNING_SECRET', `${SECRET}\n${SECRET}`, 'two lines'],
  ['SIGNING_SECRET_PREVIOUS', `${SECRET}\u2028`, 'a line separator'],
  ['SIGNING_SECRET', 'x'.repeat(31), '31 bytes'],
  ['SIGNING_SECRET', `${'é'.repeat(15)}x`, '31 bytes in 16 characters'],
  ['PROTECT_USERS', 'maybe', 'neither true nor false'],
  ['TRUST_PROXY', '-1', 'negative'],
  ['TRUST_PROXY', '0.5', 'no integer'],
  ['TRUST_PROXY', 'all', 'no number'],
  ['AUTH_FAILURES_PER_MINUTE', '-1', 'negative'],
  ['AUTH_FAILURES_PER_MINUTE', 'many', 'no number'],
  ['BODY_LIMIT_BYTES', '-1', 'negative'],
  ['BODY_LIMIT_BYTES', '100kb', 'a unit'],
  ['MEMORY_LIMIT_BYTES', '67108863', 'less than 64 MiB'],
  ['MEMORY_LIMIT_BYTES', '128m', 'a unit'],
  ['CORS_ORIGIN', 'app.example', 'no scheme'],
  ['CORS_ORIGIN', 'https://app.example/path', 'a path'],
  ['CORS_ORIGIN', 'https://a.example https://b.example', 'two origins'],
  ['CORS_ORIGIN', 'capacitor://localhost/', 'a trailing slash in any scheme'],
  ['LOG_LEVEL', 'verbose', 'no such level'],
  ['IDLE_TIMEOUT_MS', '0', 'no idle connection at all'],
  ['IDLE_TIMEOUT_MS', '999', 'less than a second'],
  ['IDLE_TIMEOUT_MS', '65s', 'a unit'],
  ['SHUTDOWN_DELAY_MS', '-1', 'negative'],
  ['SHUTDOWN_DELAY_MS', '5s', 'a unit'],
  ['SHUTDOWN_TIMEOUT_MS', '-1', 'negative'],
  ['SHUTDOWN_TIMEOUT_MS', '5s', 'a unit'],
];

/** Valid values at the edge of the range. */
const ACCEPTED: readonly Row[] = [
  ['PORT', '65535', 'the highest port'],
  ['ADMIN_PORT', '65535', 'the highest port'],
  ['DATABASE_URL', 'postgresql://user:p%40ss@127.0.0.1:5432/service', 'the longer scheme'],
  ['DATABASE_URL', 'postgres://user:pass@[::1]:65535/service', 'an IPv6 address'],
  ['DATABASE_URL', 'postgres://user@one:1,two:2,three/service', 'several hosts'],
  ...['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'].map(
    (mode) => ['DATABASE_URL', `postgres://h/service?sslmode=${mode}`, mode] as const,
  ),
  ...['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby'].map(
    (value) => ['DATABASE_URL', `postgres://h/d?target_session_attrs=${value}`, value] as const,
  ),
  ['DATABASE_POOL_SIZE', '1', 'the fewest'],
  ['AUTH_PASSWORD', '12345678', '8 code points'],
  ['AUTH_PASSWORD', EMOJI.repeat(8), '8 code points in 16 UTF-16 units'],
  ['SIGNING_SECRET', 'x'.repeat(32), '32 bytes'],
  ['SIGNING_SECRET', 'é'.repeat(16), '32 bytes in 16 characters'],
  ['PROTECT_USERS', 'true', 'on'],
  ['PROTECT_USERS', 'false', 'off'],
  ['TRUST_PROXY', '0', 'no proxy'],
  ['AUTH_FAILURES_PER_MINUTE', '0', 'no limit'],
  ['CORS_ORIGIN', '*', 'every origin'],
  ['CORS_ORIGIN', 'http://localhost:5173', 'an origin with a port'],
  ['CORS_ORIGIN', 'capacitor://localhost', 'an app'],
  ['CORS_ORIGIN', 'chrome-extension://abcdefghijklmnopabcdefghijklmnop', 'an extension'],
  ['IDLE_TIMEOUT_MS', '1000', 'the shortest'],
  ['IDLE_TIMEOUT_MS', '86400000', 'a day'],
  ['SHUTDOWN_DELAY_MS', '0', 'no delay'],
];

describe('1 configuration: values', { concurrency: 2, timeout: 300_000 }, () => {
  for (const batch of batches(REFUSED)) {
    // The program reports all problems together, so one run tests many values.
    const ended = once(() => run({ ...COMPLETE, ...Object.fromEntries(batch) }));
    for (const [name, value, why] of batch) {
      test(`1.6 ${name}: ${JSON.stringify(value)} is refused (${why})`, async () => {
        const { exit, stdout, lines } = await ended();
        assert.deepEqual(exit, { code: 78, signal: null });
        assert.equal(stdout, '');
        assert.equal(lines.length, batch.length, lines.join('\n'));
        assert.match(String(lines.find((line) => line.startsWith(name))), /^[A-Z_]+: \S.{8,}/);
      });
    }
  }

  for (const batch of batches(ACCEPTED)) {
    // An invalid LOG_LEVEL ends the program before it listens, and has its own line.
    const env = { ...COMPLETE, ...Object.fromEntries(batch), LOG_LEVEL: 'verbose' };
    const ended = once(() => run(env));
    for (const [name, value, why] of batch) {
      test(`1.6 ${name}: "${value}" is accepted (${why})`, async () => {
        const { exit, lines } = await ended();
        assert.deepEqual(exit, { code: 78, signal: null });
        assert.deepEqual(
          lines.filter((line) => line.startsWith(name)),
          [],
        );
        assert.equal(lines.filter((line) => line.startsWith('LOG_LEVEL: ')).length, 1);
      });
    }
  }
});

describe('1 configuration: the environment', { concurrency: 2, timeout: 300_000 }, () => {
  test('1.6 all problems are reported together, one line each, and nothing listens', async () => {
    const bad = Object.fromEntries(REFUSED.map(([name, value]) => [name, value]));
    await using busy = await listener();
    const { exit, stdout, lines } = await run({ ...COMPLETE, ...bad, PORT: String(busy.port) });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.equal(stdout, '');
    assert.deepEqual(
      lines.map((line) => line.split(':')[0]).sort(),
      Object.keys(bad)
        .filter((name) => name !== 'PORT')
        .sort(),
    );
  });

  test('1.2 every variable can be given as NAME_FILE, and each unreadable file has its line', async () => {
    const missing = join(newFolder(), 'missing');
    const files = VARIABLES.map((name) => [`${name}_FILE`, missing]);
    const { exit, stdout, lines } = await run({
      ...Object.fromEntries(files),
      TLS_CERT_FILE: missing,
      TLS_KEY_FILE: missing,
    });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.equal(stdout, '');
    assert.deepEqual(
      lines.map((line) => line.split(':')[0]!.replace(/_FILE$/, '')).sort(),
      [...VARIABLES, 'TLS_CERT', 'TLS_KEY'].sort(),
    );
  });

  test('1.6 a folder as NAME_FILE is an error with its own line', async () => {
    const { exit, lines } = await run({ ...COMPLETE, NOTE_TITLE_FILE: newFolder() });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.equal(lines.length, 1, lines.join('\n'));
    assert.match(lines[0]!, /^NOTE_TITLE(_FILE)?: /);
  });

  test('1.2 a file that is not UTF-8 is an error with its own line', async () => {
    const path = join(newFolder(), 'key');
    writeFileSync(path, Buffer.alloc(32, 0xff));
    const { exit, lines } = await run({
      ...COMPLETE,
      SIGNING_SECRET: '',
      SIGNING_SECRET_FILE: path,
    });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.deepEqual(lines, [
      `SIGNING_SECRET_FILE: ${path} is not valid UTF-8; expected the path of a file that holds the value as UTF-8`,
    ]);
  });

  test('1.4 NAME together with NAME_FILE is an error that prints neither value', async () => {
    const secret = 'a file that holds a secret of many bytes';
    const { exit, lines, output } = await run({ ...COMPLETE, SIGNING_SECRET_FILE: file(secret) });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.equal(lines.length, 1, output);
    assert.match(lines[0]!, /^SIGNING_SECRET(_FILE)?: /);
    assert.ok(!output.includes(secret) && !output.includes(SECRET), output);
  });

  test('1.2 one trailing newline of a file is not part of the value', async () => {
    await using program = await start({
      AUTH_PASSWORD: '',
      AUTH_PASSWORD_FILE: file('pass word from a file\n'),
      SIGNING_SECRET: '',
      SIGNING_SECRET_FILE: file(SECRET),
      NOTE_TITLE_FILE: file('one newline stays\n\n'),
      NOTE_CONTENTS_FILE: file('é, as UTF-8'),
    });
    const response = await send(`${program.url}/notes`, {
      headers: { authorization: `Bearer ${await token(program, 'pass word from a file')}` },
    });
    assert.equal(response.status, 200);
    assert.deepEqual(JSON.parse(response.body), {
      title: 'one newline stays\n',
      contents: 'é, as UTF-8',
    });
  });

  test('1.2 1.8 a secret file with one line end too many is an error that prints no secret', async () => {
    const values = ['correct horse\n\n', 'correct horse\r', `${SECRET}\r\n\r\n`];
    const { exit, lines, output } = await run({
      ...COMPLETE,
      AUTH_USER_FILE: file(values[0]!),
      ...{ AUTH_PASSWORD: '', AUTH_PASSWORD_FILE: file(values[1]!) },
      ...{ SIGNING_SECRET: '', SIGNING_SECRET_FILE: file(values[2]!) },
    });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.deepEqual(
      lines.map((line) => line.split(';')[0]),
      [
        'AUTH_USER: contains U+000A',
        'AUTH_PASSWORD: contains U+000D',
        'SIGNING_SECRET: contains U+000D',
      ],
    );
    assert.ok(!output.includes('horse') && !output.includes(SECRET), output);
  });

  test('1.3 TLS_CERT_FILE and TLS_KEY_FILE have no _FILE variant', async () => {
    await using program = await start({ TLS_CERT_FILE_FILE: '/missing', TLS_KEY_FILE_FILE: '/no' });
    assert.match(program.url, /^http:/);
  });

  test('1.5 an empty value counts as unset, also in a file and together with a file', async () => {
    await using program = await start({
      AUTH_NAME: '',
      AUTH_NAME_FILE: file('By file'),
      AUTH_USER: '',
      ADMIN_PORT: '',
      PROTECT_USERS: '',
      LOG_LEVEL: '',
      TLS_CERT_FILE: '',
      BODY_LIMIT_BYTES_FILE: file('\n'),
      NOTE_TITLE: 'given',
      NOTE_TITLE_FILE: '',
    });
    const jwt = await token(program);
    assert.deepEqual([claims(jwt).id, claims(jwt).name], ['admin', 'By file']);
    assert.equal(program.adminUrl, '');
    assert.equal((await send(`${program.url}/users`)).status, 200);
    const note = await send(`${program.url}/notes`, {
      headers: { authorization: `Bearer ${jwt}` },
    });
    assert.equal(JSON.parse(note.body).title, 'given');
  });

  test('1.7 a wrong value of a secret is never printed', async () => {
    const secrets = ['hunter2', 'too short a secret', 'sesame-in-the-url'];
    const { exit, lines, output } = await run({
      ...COMPLETE,
      AUTH_PASSWORD: secrets[0]!,
      SIGNING_SECRET: secrets[1]!,
      DATABASE_URL: `postgres://user:${secrets[2]}@127.0.0.1:99999/service?sslmode=maybe`,
    });
    assert.equal(exit.code, 78);
    assert.equal(new Set(lines.map((line) => line.split(':')[0])).size, 3, output);
    for (const secret of secrets) assert.ok(!output.includes(secret), output);
  });

  for (const { why, url } of [
    { why: 'an @', url: 'postgres://app:s3cr@t-tail@127.0.0.1:1/d' },
    { why: 'a slash', url: 'postgres://app:12/t-tail@127.0.0.1:1/d' },
  ]) {
    test(`1.7 a DATABASE_URL whose password has an unencoded ${why} is refused`, async () => {
      const { exit, output } = await run({ ...COMPLETE, DATABASE_URL: url });
      assert.equal(exit.code, 78);
      assert.match(output, /^DATABASE_URL: /);
      assert.ok(!output.includes('tail'), output);
    });
  }

  test('1.7 no secret is logged at any level, from start to stop', async () => {
    const previous = 'the signing secret of the day before';
    const url = new URL(`postgres://someone:sesame-in-the-url@127.0.0.1:${await freePort()}/none`);
    await using program = await start({
      DATABASE_URL: url.href,
      DATABASE_TIMEOUT_MS: '300',
      SIGNING_SECRET_PREVIOUS: previous,
      LOG_LEVEL: 'debug',
    });
    await program.logged('store unavailable');
    const jwt = await token(program);
    const statuses = [
      await send(`${program.url}/protected`, { headers: { authorization: basic(USER, PASSWORD) } }),
      await send(`${program.url}/notes`, { headers: { authorization: `Bearer ${jwt}` } }),
      await send(`${program.url}/token`, { method: 'POST', body: { id: PASSWORD, pw: 'x' } }),
      await send(`${program.url}/users`),
    ].map((response) => response.status);
    assert.deepEqual(statuses, [200, 200, 401, 500]);
    assert.deepEqual(await program.stop(), { code: 0, signal: null });
    const output = program.stdout + program.stderr;
    assert.match(output, /"status":500/);
    const credentials = basic(USER, PASSWORD).slice('Basic '.length);
    for (const secret of [PASSWORD, SECRET, previous, url.password, jwt, credentials]) {
      assert.ok(!output.includes(secret), `${secret} is in the log`);
    }
  });
});

/** Runs the program until it exits. Fails the test if it listens instead. */
async function run(env: Record<string, string>) {
  await using program = new Program(env);
  const listens = program.logged('listening').then(() => assert.fail('it listens'));
  const exit = await Promise.race([program.exited, listens]);
  const { stdout, stderr } = program;
  return { exit, stdout, output: stdout + stderr, lines: stderr.split('\n').filter(Boolean) };
}

/** Returns the path of a new file with that text. */
function file(text: string): string {
  const path = join(newFolder(), 'value');
  writeFileSync(path, text);
  return path;
}

/** Groups the rows into as few lists as possible, with no variable twice in a list. */
function batches(rows: readonly Row[]): Row[][] {
  const lists: Row[][] = [];
  for (const row of rows) {
    const list = lists.find((rows) => rows.every(([name]) => name !== row[0]));
    if (list) list.push(row);
    else lists.push([row]);
  }
  return lists;
}

/** Returns a function that calls the given one only once. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Listens on a free port until disposed. */
async function listener() {
  const server = createServer().listen(0, '127.0.0.1');
  await event(server, 'listening');
  return {
    port: (server.address() as { port: number }).port,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await event(server, 'close');
    },
  };
}

async function token(program: Program, pw = PASSWORD, id = USER): Promise<string> {
  const response = await send(`${program.url}/token`, { method: 'POST', body: { id, pw } });
  assert.equal(response.status, 200, response.body);
  return JSON.parse(response.body).token;
}

function claims(jwt: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(jwt.split('.')[1]!, 'base64url').toString());
}
