// Tests `start` from the source. package.test.ts tests the packed form.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { VARIABLES } from '../src/config.ts';
import { type Settings, start } from '../src/start.ts';
import { certificate, NO_OPENSSL } from './support/certificate.ts';
import { newFolder } from './support/program.ts';

/** Every setting except the two of TLS, with a value other than its default. */
const ALL: Required<Omit<Settings, 'TLS_CERT_FILE' | 'TLS_KEY_FILE'>> = {
  PORT: 0,
  HOST: '127.0.0.1',
  ADMIN_PORT: 0,
  ADMIN_HOST: '127.0.0.2',
  DATABASE_URL: 'sqlite::memory:',
  DATABASE_POOL_SIZE: 1,
  DATABASE_TIMEOUT_MS: 100,
  AUTH_USER: 'ann',
  AUTH_PASSWORD: 'correct horse',
  AUTH_NAME: 'Ann',
  SIGNING_SECRET: 'x'.repeat(32),
  VERIFY_ONLY_SECRET: 'y'.repeat(32),
  SIGNING_SECRET_PREVIOUS: 'z'.repeat(32),
  NOTE_TITLE: 'A title',
  NOTE_CONTENTS: 'Contents',
  PROTECT_USERS: true,
  TRUST_PROXY: 1,
  AUTH_FAILURES_PER_MINUTE: 1,
  BODY_LIMIT_BYTES: 10,
  MEMORY_LIMIT_BYTES: 134_217_728,
  CORS_ORIGIN: '*',
  IDLE_TIMEOUT_MS: 1000,
  SHUTDOWN_DELAY_MS: 1,
  SHUTDOWN_TIMEOUT_MS: 1000,
};

describe('settings', () => {
  test('every setting is accepted', async () => {
    await using service = await start(ALL);
    assert.deepEqual(service.credential, { user: 'ann', password: 'correct horse' });
    assert.equal((await fetch(`${service.url}/users`)).status, 401);
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    assert.match(service.adminUrl ?? '', /^http:\/\/127\.0\.0\.2:/);
    const res = await fetch(service.url);
    assert.equal(res.headers.get('access-control-allow-origin'), '*');
  });

  test('undefined counts as absent', async () => {
    await using service = await start({ PORT: undefined, AUTH_USER: undefined });
    assert.match(service.url, /^http:\/\/127\.0\.0\.1:\d+$/);
    assert.equal(service.adminUrl, undefined);
    assert.equal(service.credential.user, 'admin');
  });

  test('9.1 1.5 an empty text counts as absent', async (t) => {
    const folder = newFolder();
    const cwd = process.cwd();
    process.chdir(folder);
    t.after(() => process.chdir(cwd));
    const empty = Object.keys(ALL).map((name) => [name, '']);
    await using service = await start(Object.fromEntries(empty));
    assert.match(service.url, /^http:\/\/127\.0\.0\.1:(?!3000$)\d+$/);
    assert.deepEqual(readdirSync(folder), []);
  });

  const names = VARIABLES.filter((name) => name !== 'LOG_LEVEL').join(', ');
  test('9.5 unknown names and invalid values are refused, all at once', () => {
    const settings = { PROT: 1, LOG_LEVEL: 'info', toString: 'x', AUTH_NAME: {}, NOTE_TITLE: null };
    const problems = [
      ...['PROT', 'LOG_LEVEL', 'toString'].map(
        (name) => `${name}: not a setting; expected ${names}`,
      ),
      'AUTH_NAME: invalid; expected a string, number or boolean',
      'NOTE_TITLE: invalid; expected a string, number or boolean',
    ];
    return assert.rejects(start(settings as unknown as Settings), {
      name: 'InvalidConfig',
      problems,
    });
  });

  test('9.5 values outside the limits are refused, next to an unknown name', () => {
    const settings = { PROT: 1, PORT: 65_536, TRUST_PROXY: 1.5 };
    const problems = [
      `PROT: not a setting; expected ${names}`,
      'PORT: invalid; expected an integer from 0 to 65535',
      'TRUST_PROXY: invalid; expected an integer from 0 to 100',
    ];
    return assert.rejects(start(settings as Settings), { name: 'InvalidConfig', problems });
  });
});

test('9.1 the memory of the test suite closes no connection', async () => {
  await using service = await start();
  const body = `{"id":"a","pw":"${'b'.repeat(12_000)}"}`;
  const upload = request(`${service.url}/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': body.length },
  });
  const response = once(upload, 'response');
  upload.write(body.slice(0, 6_000));
  // More than the 512 MiB that the program assumes without a control group.
  const held = Buffer.alloc(700 * 2 ** 20, 1);
  for (let i = 0; i < 20; i++) {
    assert.equal((await fetch(service.url)).status, 200);
    await pause(60);
  }
  upload.end(body.slice(6_000));
  const [{ statusCode }] = await response;
  assert.equal(statusCode, 401);
  assert.equal(held.at(-1), 1);
});

describe('close', () => {
  test('a second close() has no effect, nothing responds any more, and the store is closed', async () => {
    const folder = newFolder();
    const service = await start({ DATABASE_URL: `sqlite:${join(folder, 'service.db')}` });
    await Promise.all([service.close(), service.close()]);
    await service.close();
    await assert.rejects(fetch(service.url), (err: Error) => {
      return (err.cause as { code?: string }).code === 'ECONNREFUSED';
    });
    assert.deepEqual(readdirSync(folder), ['service.db']);
  });

  test('a request in flight finishes first', async () => {
    const service = await start();
    const body = '{"name":"Ann","email":"ann@example.com"}';
    const headers = {
      'content-type': 'application/json',
      'content-length': body.length,
      expect: '100-continue',
    };
    const req = request(`${service.url}/users`, { method: 'POST', headers });
    const responded = once(req, 'response');
    req.flushHeaders();
    await once(req, 'continue');
    const closed = service.close();
    req.end(body);
    const [res] = await responded;
    assert.equal(res.statusCode, 201);
    res.resume();
    await closed;
  });

  test('close() ends a stalled TLS handshake', { skip: NO_OPENSSL }, async () => {
    const service = await start(certificate());
    const { hostname, port } = new URL(service.url);
    const socket = connect(Number(port), hostname);
    await once(socket, 'connect');
    const closed = once(socket.resume(), 'close');
    await service.close();
    await closed;
  });
});

test('9.2 a start that fails, because its port is in use, closes the store', async () => {
  await using other = await start();
  const folder = newFolder();
  const DATABASE_URL = `sqlite:${join(folder, 'service.db')}`;
  const failed = start({ PORT: Number(new URL(other.url).port), DATABASE_URL });
  await assert.rejects(failed, { code: 'EADDRINUSE' });
  assert.deepEqual(readdirSync(folder), ['service.db']);
});

test('6.17 an idle connection does not keep the values of a body that was refused', async () => {
  await using service = await start({ BODY_LIMIT_BYTES: 102_400 });
  const { hostname, port } = new URL(service.url);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const depth = 49_000;
  const body = '['.repeat(depth) + ']'.repeat(depth);
  const head = `POST /token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  collect();
  const before = process.memoryUsage().heapUsed;
  const clients = Array.from({ length: 10 }, () => connect(Number(port), hostname));
  for (const client of clients) {
    client.write(head + body);
    assert.match(String(await once(client, 'data')), /^HTTP\/1.1 401 /);
  }
  // Each body has values of 2.6 MB.
  const most = before + 10_000_000;
  for (let tries = 0; tries < 100 && process.memoryUsage().heapUsed > most; tries++) {
    await pause(10);
    collect();
  }
  const grown = process.memoryUsage().heapUsed - before;
  for (const client of clients) client.destroy();
  assert.ok(grown < 10_000_000, `${grown} bytes`);
});
