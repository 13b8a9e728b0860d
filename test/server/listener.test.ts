// The listener: ports and their locks, memory, resets over TLS, and stops. The contract tests and connection.test.ts cover the rest.
import assert from 'node:assert/strict';
import cluster from 'node:cluster';
import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type ConnectionOptions, connect as connectTlsSocket } from 'node:tls';
import type { Exchange } from '../../src/http/exchange.ts';
import { send } from '../../src/http/reply.ts';
import type { Handler } from '../../src/server/connection.ts';
import { type KeyPair, Listener } from '../../src/server/listener.ts';
import { GET } from '../support/bytes.ts';
import { keyPair, NO_OPENSSL } from '../support/certificate.ts';
import { freePort, socketsOn } from '../support/daemon.ts';
import { usedBytes } from '../support/garbage.ts';
import { ROOT } from '../support/program.ts';
import { blockEventLoop, until } from '../support/until.ts';

// They close no connection.
const limits = {
  budgetBytes: 2 ** 40,
  maxConnections: 10_000,
  connectionBytes: 9,
  modestBytes: 9,
  sockets: process.platform === 'linux' ? 16 : 1,
};

const TCP_LISTEN = '0A';
const LINUX = { skip: process.platform !== 'linux' && 'other systems have no 127.0.0.2' };

const connect = (port: number) => connectTcp(port, '127.0.0.1').on('error', () => {});
const connectTls = (options: ConnectionOptions) =>
  connectTlsSocket({ rejectUnauthorized: false, ...options }).on('error', () => {});

async function listen(
  t: TestContext,
  handle: Handler['handle'],
  options: { idleTimeoutMs?: number; tls?: KeyPair | undefined } = {},
  place: [port: number, host: string | undefined] = [0, '127.0.0.1'],
) {
  const defaults = { limits, idleTimeoutMs: 65_000, unreadTimeoutMs: 60_000 };
  const handler = { handle, refusal: () => '', allow: '' };
  const server = new Listener(handler, { ...defaults, ...options });
  t.after(() => server[Symbol.dispose]());
  return { server, port: await server.listen(...place) };
}

function response(exchange: Exchange, isLast = false): void {
  exchange.isLast ||= isLast;
  send(exchange, { status: 200, type: 'text/plain', body: 'x' }, [], () => {});
}

test('new connections are accepted between the requests of others', async (t) => {
  const [BUSY, NEW] = [12, 20];
  const seen: number[] = []; // connections at each request
  const { server, port } = await listen(t, (exchange) => {
    seen.push(Object.values(server.usage().states).reduce((sum, count) => sum + count));
    blockEventLoop(15);
    response(exchange);
  });
  const busy = Array.from({ length: BUSY }, () => connect(port));
  const ask = async () => {
    seen.length = 0;
    for (const socket of busy) socket.write(GET);
    await Promise.all(busy.map((socket) => once(socket, 'data')));
  };
  await ask();
  for (let i = 0; i < NEW; i++) connect(port);
  await new Promise(process.nextTick); // The kernel has them before the requests.
  await ask();
  assert.ok(seen[1]! < BUSY + NEW, 'requests run although clients connect');
  const least = limits.sockets > 1 ? NEW : 9; // One socket accepts one at a time.
  assert.ok(seen.at(-1)! >= BUSY + least, 'clients connect although requests wait');
});

test('6.4 a port in use is found if the addresses overlap, and only then', LINUX, async (t) => {
  const at = (port: number, host?: string) => listen(t, () => {}, {}, [port, host]);
  const { port, server } = await at(0, '127.0.0.2');
  for (const host of ['127.0.0.2', '0.0.0.0', '::', undefined]) {
    await assert.rejects(at(port, host), { code: 'EADDRINUSE' }, host);
  }
  await at(port, '127.0.0.3'); // The first one has the lock of the port, so this one has one socket.
  assert.equal(socketsOn(port, TCP_LISTEN), limits.sockets + 1);
  await server.stop(0, 3_600_000); // at once, because no connection is queued (6.2)
  assert.equal(server.draining, undefined);
  const atOnce = await Promise.allSettled([1, 2, 3, 4].map(() => at(port, '127.0.0.2')));
  assert.equal(atOnce.filter(({ status }) => status === 'fulfilled').length, 1);
  assert.equal(socketsOn(port, TCP_LISTEN), limits.sockets + 1);
});

test('who holds the lock of a port delays no start', { ...LINUX, timeout: 30_000 }, async (t) => {
  const port = await freePort();
  const intrude = () => connectTcp(`\0notes-users ${port}`).on('error', () => {});
  const timer = setInterval(intrude, 0);
  t.after(() => clearInterval(timer));
  await listen(t, () => {}, {}, [port, 'localhost']);
});

test('workers of node:cluster share a port', async () => {
  cluster.setupPrimary({ exec: join(ROOT, 'src/launch.js'), silent: true });
  const env = { PORT: String(await freePort()), DATABASE_URL: 'sqlite::memory:' };
  const events = [cluster.fork(env), cluster.fork(env)].map(async (worker) => {
    const exit = once(worker, 'exit').then(() => 'exit');
    const first = await Promise.race([exit, once(worker, 'listening').then(() => 'listening')]);
    return { first, exit, worker };
  });
  const workers = await Promise.all(events);
  for (const { worker } of workers) worker.kill();
  await Promise.all(workers.map(({ exit }) => exit));
  for (const { first } of workers) assert.equal(first, 'listening');
});

test('6.17 a call that runs keeps no part of the head once its client has left', async (t) => {
  const kept: Exchange[] = [];
  const { server, port } = await listen(t, (exchange) => {
    const { req, headers } = exchange;
    exchange.client = String(headers['x-forwarded-for']).slice(0, 15);
    exchange.traceId = String(headers.traceparent).slice(0, 32);
    exchange.query = req.url!.slice(1);
    exchange.parameters = { id: req.url!.slice(2) };
    kept.push(exchange);
  });
  const part = 'x'.repeat(5_000);
  const head = `GET /${part} HTTP/1.1\r\nX-Forwarded-For: ${part}\r\ntraceparent: ${part}\r\n\r\n`;
  const leave = async () => {
    const clients = Array.from({ length: 100 }, () => connectTcp(port, '127.0.0.1'));
    for (const client of clients) client.write(head.repeat(2)); // The second one waits.
    await until(() => server.usage().states.working === clients.length);
    for (const client of clients) client.resetAndDestroy();
    await until(() => server.usage().states.working === 0);
  };
  await leave();
  const before = usedBytes();
  await leave();
  const grown = (usedBytes() - before) / 100;
  assert.ok(grown < 10_000, `${grown} bytes`);
  assert.equal(kept.length, 200);
});

describe('over TLS', { skip: NO_OPENSSL }, () => {
  test('6.2 a stop serves a connection with a late TLS handshake, and closes one without any', async (t) => {
    const { server, port } = await listen(t, (exchange) => response(exchange), { tls: keyPair() });
    const [silent, late] = [connect(port), connect(port)];
    await Promise.all([once(silent, 'connect'), once(late, 'connect')]);
    const order: string[] = [];
    // After a timer, the event loop first accepts new connections, as in the service.
    await pause(1);
    const stopped = server.stop(1000, 1000).then(() => order.push('stopped'));
    const client = connectTls({ socket: late });
    client.write(GET);
    const [bytes] = await once(client, 'data');
    order.push('responded');
    assert.match(String(bytes), /^HTTP\/1\.1 200 /);
    await Promise.all([stopped, once(silent.resume(), 'close')]);
    assert.deepEqual(order, ['responded', 'stopped']);
    assert.equal(server.usage().closed.stopped, 2); // the silent one not by the timeout of its handshake
  });

  // The reset arrives with the end of the handshake and the request, so it fails the tickets that node writes first.
  test('6.3 a client that resets its connection with its first request has left', async (t) => {
    const handle = (exchange: Exchange) => {
      if (exchange.req.url === '/') setImmediate(() => response(exchange));
    };
    const { server, port } = await listen(t, handle, { tls: keyPair() });
    const transport = connect(port);
    const client = connectTls({ socket: transport });
    await once(client, 'secureConnect');
    client.write(GET, () => transport.resetAndDestroy());
    const ended = () => Object.entries(server.usage().closed).filter(([, count]) => count > 0);
    await until(() => ended().length > 0);
    assert.deepEqual(ended(), [['client', 1]]);
    // One that has a request is not reset: node throws.
    connectTls({ port }).write(GET.replace('/', '/waits'));
    await until(() => server.usage().states.working === 1);
    server[Symbol.dispose]();
    assert.equal(server.usage().closed.stopped, 1);
  });
});

test('6.15 a connection whose response ends during a stop may send one more request', async (t) => {
  const exchanges: Exchange[] = [];
  const { server, port } = await listen(t, (exchange) => void exchanges.push(exchange));
  const [idle, client] = [connect(port), connect(port)];
  client.write(GET);
  await until(() => exchanges.length === 1);
  const stopped = server.stop(500, 500);
  await pause(250);
  response(exchanges[0]!); // Its head doesn't announce the end, as if it had been sent before the stop.
  await once(client, 'data');
  await once(idle.resume(), 'close');
  client.write(GET);
  await until(() => exchanges.length === 2 || client.closed);
  assert.equal(exchanges.length, 2);
  response(exchanges[1]!, true);
  await Promise.all([once(client, 'data'), stopped]);
});

test('6.2 a stop accepts those who connect again once the responses before it are sent', async (t) => {
  const { server, port } = await listen(t, (exchange) => response(exchange, true));
  const connected = new Promise<Socket>((resolve) => {
    setImmediate(() => resolve(connect(port)));
  });
  const stopped = server.stop(500, 500);
  const client = await connected;
  client.write(GET);
  await Promise.all([once(client, 'data'), stopped]);
});

test('6.2 clients that reconnect all the time do not delay a stop', async (t) => {
  let served = 0;
  const { server, port } = await listen(t, (exchange) => {
    served++;
    response(exchange, true);
  });
  const client = async () => {
    for (;;) {
      const socket = connect(port);
      const isOpen = await new Promise<boolean>((resolve) => {
        socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
      });
      if (!isOpen) return;
      socket.resume().end(GET);
      await once(socket, 'close').catch(() => {});
    }
  };
  const clients = Array.from({ length: 100 }, client);
  await until(() => served >= 100);
  const before = served;
  await Promise.all([server.stop(0, 20), ...clients]);
  assert.ok(served - before < 2_000, `${served - before} more`);
});
