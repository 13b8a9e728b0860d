// Tests `start` from the source. package.test.ts tests the packed form.
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { VARIABLES } from '../src/config.ts';
import { type Settings, start } from '../src/start.ts';
import { halfSent, open } from './support/bytes.ts';
import { send } from './support/client.ts';
import { collect } from './support/garbage.ts';
import { Page } from './support/metrics.ts';
import { newFolder } from './support/program.ts';
import { create, insertUsers } from './support/service.ts';
import { until } from './support/until.ts';

describe('settings', () => {
  test('a setting can be a text, a number or a boolean', async () => {
    const settings = { AUTH_USER: 'ann', ADMIN_PORT: 0, PROTECT_USERS: true };
    await using service = await start(settings);
    assert.equal(service.credential.user, 'ann');
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    assert.equal((await fetch(`${service.url}/users`)).status, 401);
    const { values } = await Page.of(service.adminUrl!);
    const budgetBytes = values.get('http_server_charges_limit_bytes')!;
    assert.ok(budgetBytes > 2 ** 31, `9.1 no budget: ${budgetBytes} bytes`);
  });

  test('9.1 1.5 undefined and an empty text count as absent', async (t) => {
    const folder = newFolder();
    const cwd = process.cwd();
    process.chdir(folder);
    t.after(() => process.chdir(cwd));
    const names = VARIABLES.filter((name) => name !== 'LOG_LEVEL');
    const empty = names.map((name) => [name, '']);
    await using service = await start({ ...Object.fromEntries(empty), AUTH_USER: undefined });
    assert.deepEqual([service.adminUrl, service.credential.user], [undefined, 'admin']);
    assert.match(service.url, /^http:\/\/127\.0\.0\.1:(?!3000$)\d+$/);
    assert.deepEqual(readdirSync(folder), []);
  });

  test('9.5 unknown names and invalid values are refused, all at once', async () => {
    const unknown = { PROT: 1, LOG_LEVEL: 'info', toString: 'x' };
    const invalid = { AUTH_NAME: {}, NOTE_TITLE: null, PORT: 65_536, TRUST_PROXY: 1.5 };
    const names = VARIABLES.filter((name) => name !== 'LOG_LEVEL').join(', ');
    await assert.rejects(start({ ...unknown, ...invalid } as unknown as Settings), {
      name: 'InvalidConfig',
      problems: [
        ...Object.keys(unknown).map((name) => `${name}: not a setting; expected ${names}`),
        'AUTH_NAME: invalid; expected a string, number or boolean',
        'NOTE_TITLE: invalid; expected a string, number or boolean',
        'PORT: invalid; expected an integer from 0 to 65535',
        'TRUST_PROXY: invalid; expected an integer from 0 to 100',
      ],
    });
  });
});

test('9.3 ten services run side by side, each with its own users and password', async () => {
  const services = await Promise.all(Array.from({ length: 10 }, () => start()));
  const ids = new Set<string>();
  for (const [i, { url }] of services.entries()) {
    const body = { name: String(i), email: 'same@example.com' };
    const { status, headers } = await send(`${url}/users`, { method: 'POST', body });
    assert.equal(status, 201);
    ids.add(headers.get('x-request-id')!);
  }
  for (const [i, { url, close }] of services.entries()) {
    const users = JSON.parse((await send(`${url}/users`)).body);
    assert.deepEqual([users.length, users[0].name], [1, String(i)]);
    await close();
  }
  assert.equal(new Set(services.map(({ credential }) => credential.password)).size, 10);
  assert.equal(ids.size, 10); // 2.2
});

test('9.9 every request is served while a library replaces Promise', async () => {
  const DATABASE_URL = `sqlite:${join(newFolder(), 'service.db')}`;
  await using service = await start({ DATABASE_URL });
  await insertUsers(DATABASE_URL, 600);
  const RealPromise = Promise;
  globalThis.Promise = class extends RealPromise<unknown> {} as PromiseConstructor;
  try {
    await create(service);
    assert.equal(JSON.parse((await send(`${service.url}/users`)).body).length, 601);
  } finally {
    globalThis.Promise = RealPromise;
  }
});

describe('close', () => {
  test('9.4 close() finishes a request in flight, a second one has no effect, nothing responds any more, and the store is closed', async () => {
    const folder = newFolder();
    const service = await start({ DATABASE_URL: `sqlite:${join(folder, 'service.db')}` });
    const held = await halfSent(service.url);
    const closed = Promise.all([service.close(), service.close()]);
    held.finish();
    await held.received(/\r\n\r\nHTTP\/1\.1 201 Created\r\n.*\r\nConnection: close\r\n/s);
    await closed;
    await service.close();
    await assert.rejects(open(service.url), { code: 'ECONNREFUSED' });
    assert.deepEqual(readdirSync(folder), ['service.db']);
  });

  test('9.4 finishes a request to the admin listener', async () => {
    await using silent = createServer((socket) => socket.resume()).listen(0);
    await once(silent, 'listening');
    const DATABASE_URL = `postgres://u@127.0.0.1:${(silent.address() as AddressInfo).port}/d`;
    await using service = await start({ DATABASE_URL, DATABASE_TIMEOUT_MS: 1000, ADMIN_PORT: 0 });
    const probe = fetch(`${service.adminUrl}/ready`);
    const waiting = 'db_client_connection_pending_requests';
    await until(async () => (await Page.of(service.adminUrl!)).values.get(waiting) === 1);
    await service.close();
    assert.equal((await probe).status, 503);
  });

  test('9.4 ends an attempt to connect, also if an AbortError is no native error, as in jsdom and node 24.0', async (t) => {
    const RealController = AbortController;
    t.after(() => {
      globalThis.AbortController = RealController;
    });
    globalThis.AbortController = class extends RealController {
      constructor() {
        super();
        this.signal.throwIfAborted = () => {
          this.abort();
          throw Object.create(Error.prototype);
        };
      }
    };
    const { close } = await start({ DATABASE_URL: 'postgres://u@127.0.0.1:1/d' });
    await close();
    await nextTurn(); // An unhandled rejection fails the test.
  });

  test('9.4 no timer and no observer is left, not even one that lets the process end', async (t) => {
    const { mock } = t.mock.method(PerformanceObserver.prototype, 'disconnect');
    const timers = new Set<number>();
    const see = (id: number, type: string) => type === 'Timeout' && timers.add(id);
    const hook = createHook({ init: see, destroy: (id) => timers.delete(id) }).enable();
    const { close } = await start({ ADMIN_PORT: 0 });
    await close();
    await nextTurn();
    hook.disable();
    assert.deepEqual([timers.size, mock.callCount()], [0, 1]);
  });
});

test('a start that fails, because a port is in use, closes the store', async () => {
  await using other = await start();
  const folder = newFolder();
  const DATABASE_URL = `sqlite:${join(folder, 'service.db')}`;
  for (const name of ['PORT', 'ADMIN_PORT']) {
    const failed = start({ [name]: Number(new URL(other.url).port), DATABASE_URL });
    await assert.rejects(failed, { code: 'EADDRINUSE' });
    assert.deepEqual(readdirSync(folder), ['service.db']);
  }
});

// A request that is kept keeps its exchange, and with it the body and all values in it.
for (const [why, head, atOnce, later] of [
  ['after its response', 'POST /token HTTP/1.1\r\nContent-Type: application/json\r\n', '1', ''],
  ['that got its response before its body', 'POST /nowhere HTTP/1.1\r\n', '', '1'],
] as const) {
  test(`6.17 an idle connection does not keep a request ${why}`, async () => {
    await using service = await start();
    await using client = await open(service.url);
    const seen = Promise.withResolvers<WeakRef<{ url: string }>>();
    const see = (event: unknown) =>
      seen.resolve(new WeakRef((event as { request: { url: string } }).request));
    subscribe('http.server.request.start', see);
    await client.ask(`${head}Host: x\r\nContent-Length: 1\r\n\r\n${atOnce}`);
    unsubscribe('http.server.request.start', see);
    const request = await seen.promise;
    if (later) await until(() => request.deref()!.url === ''); // Node keeps it, without its head.
    await client.write(later);
    await until(() => {
      collect();
      return request.deref() === undefined;
    });
    assert.equal((await client.ask()).status, 200);
  });
}
