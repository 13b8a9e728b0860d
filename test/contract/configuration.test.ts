// Section 1 of the contract: valid values of the variables, values from files, and secrets. The
// tests of their effects are in configuration-store, -access and -server.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { send } from '../support/client.ts';
import { claims, token } from '../support/login.ts';
import { freePort } from '../support/postgres.ts';
import { COMPLETE, fileOf as file, newFolder, run, SECRET, start } from '../support/program.ts';

/** A wrong value of every variable that can have one. test/config.test.ts has all kinds. */
const WRONG = {
  PORT: '65536',
  ADMIN_PORT: '-1',
  DATABASE_URL: 'mysql://127.0.0.1/service',
  DATABASE_POOL_SIZE: '0',
  DATABASE_TIMEOUT_MS: '5s',
  AUTH_USER: 'ad:min',
  AUTH_PASSWORD: '1234567',
  AUTH_NAME: 'Ada\n',
  SIGNING_SECRET: 'x'.repeat(31),
  VERIFY_ONLY_SECRET: 'x',
  SIGNING_SECRET_PREVIOUS: `${SECRET}\u2028`,
  PROTECT_USERS: 'maybe',
  TRUST_PROXY: '0.5',
  AUTH_FAILURES_PER_MINUTE: 'many',
  BODY_LIMIT_BYTES: '100kb',
  MEMORY_LIMIT_BYTES: '67108863',
  CORS_ORIGIN: 'app.example',
  LOG_LEVEL: 'verbose',
  IDLE_TIMEOUT_MS: '999',
  SHUTDOWN_DELAY_MS: '-1',
  SHUTDOWN_TIMEOUT_MS: '5s',
};

describe('1 configuration: the environment', { concurrency: 2, timeout: 300_000 }, () => {
  test('1.6 all problems are reported together, one line each, and nothing listens', async () => {
    const { exit, stdout, lines } = await run({ ...COMPLETE, ...WRONG });
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.equal(stdout, '');
    for (const line of lines) assert.match(line, /^[A-Z_]+: \S.*; expected \S.{4,}/);
    assert.deepEqual(
      lines.map((line) => line.split(':')[0]),
      Object.keys(WRONG),
    );
  });

  test('1.2 1.6 every variable can be given as NAME_FILE, and each unreadable file has its line', async () => {
    const missing = join(newFolder(), 'missing');
    const files = ['HOST', 'ADMIN_HOST', 'NOTE_TITLE', 'NOTE_CONTENTS', ...Object.keys(WRONG)].map(
      (name) => `${name}_FILE`,
    );
    const all = [...files, 'TLS_CERT_FILE', 'TLS_KEY_FILE'];
    const { exit, stdout, lines } = await run(
      Object.fromEntries(all.map((name) => [name, missing])),
    );
    assert.deepEqual(exit, { code: 78, signal: null });
    assert.equal(stdout, '');
    assert.deepEqual(lines.map((line) => line.split(':')[0]).sort(), all.sort());
  });

  test('1.2, 1.5 one trailing newline of a file is not part of the value, and an empty value counts as unset', async () => {
    await using program = await start({
      AUTH_PASSWORD: '',
      AUTH_PASSWORD_FILE: file('pass word from a file\n'),
      SIGNING_SECRET: '',
      SIGNING_SECRET_FILE: file(SECRET),
      AUTH_NAME_FILE: file('é, as UTF-8'),
      NOTE_TITLE_FILE: file('one newline stays\n\n'),
      NOTE_CONTENTS: 'given',
      NOTE_CONTENTS_FILE: '',
      BODY_LIMIT_BYTES_FILE: file('\n'),
      ADMIN_PORT: '',
      TLS_CERT_FILE: '',
    });
    const jwt = await token(program, 'pass word from a file');
    assert.deepEqual([claims(jwt).name, program.adminUrl], ['é, as UTF-8', '']);
    const headers = { authorization: `Bearer ${jwt}` };
    const note = JSON.parse((await send(`${program.url}/notes`, { headers })).body);
    assert.deepEqual(note, { title: 'one newline stays\n', contents: 'given' });
  });

  test('1.1, 1.3 unknown variables are ignored, and TLS_CERT_FILE and TLS_KEY_FILE have no _FILE variant', async () => {
    await using program = await start({ TLS_CERT_FILE_FILE: '/missing', TLS_KEY_FILE_FILE: '/no' });
    assert.match(program.url, /^http:/);
  });

  test('1.7 the log names a database that fails without its credentials', async () => {
    const url = `postgres://someone:sesame@127.0.0.1:${await freePort()}/none`;
    const env = { DATABASE_URL: url, DATABASE_TIMEOUT_MS: '300', LOG_LEVEL: 'debug' };
    await using program = await start(env);
    await program.logged('store unavailable');
    assert.equal((await send(`${program.url}/users`)).status, 500);
    await program.stop();
    assert.match(program.stdout, /"store":"postgres 127\.0\.0\.1:\d+\/none"/);
    assert.doesNotMatch(program.stdout + program.stderr, /sesame|someone/);
  });
});
