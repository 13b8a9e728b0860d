// The listener: timeouts of slow readers, pipelines and stops. The contract tests cover the rest.
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type ConnectionOptions, connect as connectTlsSocket } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { readBody } from '../../src/http/body.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import { type Pieces, type Reply, send } from '../../src/http/reply.ts';
import type { Handler } from '../../src/server/connection.ts';
import type { LedgerLimits } from '../../src/server/ledger.ts';
import { type KeyPair, Listener } from '../../src/server/listener.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { until } from '../support/until.ts';

const INACTIVITY_MS = 1500;
/** This is more than the kernel buffers for a client that does not read. */
const LARGE = 'x'.repeat(2 ** 24);
/** The same in pieces of 256 KiB, because over TLS node reports only completed pieces. */
const SMALLER = Array.from({ length: 64 }, () => 'x'.repeat(2 ** 18));
const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

const LIMITS: LedgerLimits = {
  budgetBytes: 480 * 1024 * 1024,
  maxConnections: 10_000,
  connectionBytes: 16 * 1024,
};

const LIMITED = { timeout: 60_000 };

// A test that fails or times out leaves these open, which would keep this file running.
const opened = new Set<{ destroy(): unknown }>();
after(() => {
  for (const one of opened) one.destroy();
});

function track<T extends { destroy(): unknown }>(one: T): T {
  opened.add(one);
  return one;
}

const connect = ((...args: [number, string]) => track(connectTcp(...args))) as typeof connectTcp;
const connectTls = (options: ConnectionOptions) => track(connectTlsSocket(options));

/** Starts a listener on a free port with the given handler. */
async function listen(
  handle: Handler['handle'],
  {
    inactivityMs = 60_000,
    limits = {},
    refusal = () => '',
    tls,
    host = '127.0.0.1',
  }: {
    inactivityMs?: number;
    limits?: Partial<LedgerLimits>;
    refusal?: Handler['refusal'];
    tls?: KeyPair | undefined;
    host?: string;
  } = {},
) {
  const options = { limits: { ...LIMITS, ...limits }, idleTimeoutMs: 65_000 };
  const timeouts = { unreadTimeoutMs: inactivityMs, tls };
  const server = track(new Listener({ handle, refusal, allow: '' }, { ...options, ...timeouts }));
  const port = await server.listen(0, host);
  const dispose = async () => {
    server.destroy();
  };
  return { server, port, [Symbol.asyncDispose]: dispose };
}

/** Sends this body and keeps the connection. */
function response(exchange: Exchange, body: Reply['body'] = '', isLast = false): void {
  exchange.isLast ||= isLast;
  send(exchange, { status: 200, type: 'text/plain', body }, [], () => {});
}

function piecesOf(parts: readonly string[]): Pieces {
  const left = parts.map((part) => Buffer.from(part));
  return { next: () => left.shift() };
}

/** Responds in pieces, each after the previous was written; returns the server's connections. */
function serve(parts: readonly string[], tls?: KeyPair) {
  const handle = (exchange: Exchange) => {
    response(exchange, parts.length === 1 ? parts[0] : piecesOf(parts));
  };
  return listen(handle, { inactivityMs: INACTIVITY_MS, tls });
}

describe('6.3 readers', { concurrency: true, timeout: 300_000 }, () => {
  for (const { why, pieces, isTls, skip } of [
    { why: 'in one piece', pieces: [LARGE], isTls: false, skip: false },
    { why: 'in pieces over TLS', pieces: SMALLER, isTls: true, skip: NO_OPENSSL },
  ]) {
    test(`6.3 a slow reader gets its whole response ${why}`, {
      skip,
    }, async () => {
      await using server = await serve(pieces, isTls ? pem() : undefined);
      const options = { port: server.port, host: '127.0.0.1', rejectUnauthorized: false };
      const client = isTls ? connectTls(options) : connect(options);
      client.write(GET);
      const began = performance.now();
      let length = 0;
      for await (const part of client) {
        length += part.length;
        if (length >= LARGE.length) break;
        await pause(part.length / 6_000);
      }
      assert.ok(length >= LARGE.length);
      assert.ok(performance.now() - began > 1.5 * INACTIVITY_MS);
    });
  }

  test('6.3, 6.14 an idle connection is kept longer than the inactivity timeout', async () => {
    await using server = await serve(['x']);
    const client = connect(server.port, '127.0.0.1');
    for (let i = 0; i < 2; i++) {
      client.write(GET);
      const [response] = await once(client, 'data');
      assert.match(String(response), /^HTTP\/1\.1 200 /);
      await pause(2 * INACTIVITY_MS);
    }
    client.destroy();
  });
});

describe('6.17 what a closed connection held', LIMITED, () => {
  for (const isTls of [false, true]) {
    const skip = isTls && NO_OPENSSL;
    test(`is freed in the turn that closes it${isTls ? ' (TLS)' : ''}`, { skip }, async () => {
      const requests: Exchange['req'][] = [];
      const { promise, resolve } = Promise.withResolvers<readonly boolean[]>();
      // The event loop runs immediates before it reports that a descriptor has closed. With the parser, node
      // gives up the requests.
      const isFreed = ({ socket }: Exchange['req']) => !(socket as { parser?: unknown }).parser;
      const check = () => setImmediate(() => resolve(requests.map(isFreed)));
      const handle = ({ req }: Exchange) => {
        requests.push(req);
        if (requests.length === 2) check();
      };
      const limits = { budgetBytes: 100_000, connectionBytes: 10_000 };
      await using server = await listen(handle, { limits, tls: isTls ? pem() : undefined });
      const options = { port: server.port, host: '127.0.0.1', rejectUnauthorized: false };
      const open = () => (isTls ? connectTls(options) : connect(options)).on('error', () => {});
      const [first, second] = [open(), open()];
      await Promise.all(
        [first, second].map((one) => once(one, isTls ? 'secureConnect' : 'connect')),
      );
      first.write(GET);
      await until(() => requests.length === 1);
      second.write(GET.repeat(10));
      assert.deepEqual(await promise, [false, true]);
    });
  }
});

describe('input after the last response', { timeout: 300_000 }, () => {
  let parsed = 0;
  const count = () => {
    parsed++;
  };
  before(() => subscribe('http.server.request.start', count));
  beforeEach(() => {
    parsed = 0;
  });
  after(() => unsubscribe('http.server.request.start', count));

  const TINY = 'GET / HTTP/1.1\r\n\r\n';
  /** This is more than the kernel delivers at once. */
  const MANY = TINY.repeat(20_000);

  /** Starts a server that closes each connection after its first response. */
  async function serveOnce(limits: Partial<LedgerLimits> = {}) {
    const sockets: Socket[] = [];
    const handle = (exchange: Exchange) => {
      sockets.push(exchange.req.socket);
      response(exchange, '', true);
    };
    const { port, ...server } = await listen(handle, { limits });
    const open = () => connect({ port, host: '127.0.0.1', allowHalfOpen: true }).resume();
    return { ...server, sockets, open };
  }

  test('2.10 is not even parsed', async () => {
    await using server = await serveOnce();
    const client = server.open().on('error', () => {});
    client.on('end', () => client.end(MANY)).write(TINY);
    await until(() => server.sockets.length > 0);
    await once(server.sockets[0]!, 'close');
    assert.equal(parsed, 1);
  });

  test('2.11, 6.17 is dropped if it arrived with the request, and the largest is closed first', async () => {
    await using server = await serveOnce({ budgetBytes: 8 * 1024 * 1024 });
    const [small, large] = [server.open(), server.open()];
    for (const client of [small, large]) client.on('error', () => {});
    small.write(TINY.repeat(10));
    await until(() => parsed >= 10);
    large.write(TINY.repeat(3000));
    await until(() => parsed >= 1000 && server.sockets.length === 2);
    await until(() => server.sockets[1]!.destroyed);
    assert.deepEqual(
      server.sockets.map(({ destroyed }) => destroyed),
      [false, true],
    );
    small.destroy();
  });
});

/** After a CONNECT, node removes its own listeners from the socket. */
const CONNECT = 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n';

/** Starts a server whose responses have this body; returns it with its first connection. */
async function serveBody(body: () => Reply['body'], inactivityMs = INACTIVITY_MS) {
  const accepted = Promise.withResolvers<Socket>();
  const handle = (exchange: Exchange) => {
    accepted.resolve(exchange.req.socket);
    response(exchange, body());
  };
  // A large budget, because the memory of the test must not close the connection.
  const limits = { budgetBytes: 2 ** 40 };
  const { port, ...server } = await listen(handle, { inactivityMs, limits });
  const client = connect(port, '127.0.0.1')
    .pause()
    .on('error', () => {});
  return { ...server, client, accepted: accepted.promise };
}

for (const { why, body } of [
  { why: 'a complete response', body: () => LARGE },
  { why: 'a streamed response', body: () => piecesOf(Array(64).fill(LARGE)) },
]) {
  for (const behind of ['', CONNECT]) {
    test(
      `6.3, 7.3 a reader that stops is disconnected even if it sends: ${why} ${behind.slice(0, 7)}`,
      LIMITED,
      async () => {
        await using server = await serveBody(body);
        const { client } = server;
        client.write(GET + behind);
        const began = performance.now();
        const drip = setInterval(() => client.write('\r\n'), INACTIVITY_MS / 5);
        await once(await server.accepted, 'close', { signal: AbortSignal.timeout(60_000) });
        clearInterval(drip);
        const took = performance.now() - began;
        client.destroy();
        assert.ok(took >= INACTIVITY_MS, `after ${took} ms`);
        assert.equal(server.server.usage().closed.unread, 1);
      },
    );
  }
}

test('6.3 a reader that resumes gets all of a streamed response, also before CONNECT', {
  timeout: 60_000,
}, async () => {
  const pieces = 4;
  await using server = await serveBody(() => piecesOf(Array(pieces).fill(LARGE)), 30_000);
  const { client } = server;
  client.write(GET + CONNECT);
  const socket = await server.accepted;
  await until(() => socket.writableLength > 0);
  let length = 0;
  for await (const part of client) length += part.length;
  assert.ok(length > pieces * LARGE.length, `${length} bytes`);
});

test('6.3 an idle connection does not keep the body of its last request', LIMITED, async () => {
  const handle = (exchange: Exchange) => {
    const done = () => response(exchange);
    readBody(exchange, ['json'], 1_000_000, done, done);
  };
  const { server, port } = await listen(handle);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = process.memoryUsage().arrayBuffers;
  const length = 900_000;
  const head = `POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
  const clients = Array.from({ length: 30 }, () => connect(port, '127.0.0.1'));
  for (const client of clients) {
    client.write(head + 'x'.repeat(length));
    await once(client, 'data');
  }
  // The read buffers belong to the sockets.
  const most = before + (clients.length * length) / 4;
  // V8 frees arrays on another thread after the collection.
  let tries = 0;
  for (; process.memoryUsage().arrayBuffers > most && tries < 100; tries++) {
    collect();
    await pause(1);
  }
  for (const client of clients) client.destroy();
  server.destroy();
  assert.ok(tries < 100, `more than ${most - before} bytes`);
});

test('6.2 a stop serves a connection with a late TLS handshake, and closes one without any', {
  ...LIMITED,
  skip: NO_OPENSSL,
}, async () => {
  const { server, port } = await listen((exchange) => response(exchange), { tls: pem() });
  const [silent, late] = [connect(port, '127.0.0.1'), connect(port, '127.0.0.1')];
  await Promise.all([once(silent, 'connect'), once(late, 'connect')]);
  const order: string[] = [];
  // After a timer, the event loop first accepts new connections, as in the service.
  await pause(1);
  const stopped = server.stop(1000, 1000).then(() => order.push('stopped'));
  const client = connectTls({ socket: late, rejectUnauthorized: false });
  client.write(GET);
  const [bytes] = await once(client, 'data');
  order.push('responded');
  assert.match(String(bytes), /^HTTP\/1\.1 200 /);
  await Promise.all([stopped, once(silent.resume(), 'close')]);
  assert.deepEqual(order, ['responded', 'stopped']);
});

test('4.14, 6.15, 7.3 a response that fails and an idle connection at a stop are counted', async () => {
  const { server, port } = await listen((exchange) => {
    response(exchange, { next: () => Promise.reject(new Error('no page')) });
  });
  const failing = connect(port, '127.0.0.1').on('error', () => {});
  failing.write(GET);
  const idle = connect(port, '127.0.0.1');
  await once(idle, 'connect');
  await until(() => failing.closed && server.usage().states.idle === 1);
  await server.stop(1, 0);
  const { failed, stopped, ...others } = server.usage().closed;
  assert.deepEqual([failed, stopped], [1, 1]);
  assert.ok(Object.values(others).every((count) => count === 0));
});

test('6.2 a stop without grace serves all requests of a pipeline', LIMITED, async () => {
  let isStopping = false;
  const { server, port } = await listen((exchange) => {
    setImmediate(() => response(exchange, '', isStopping && exchange.connection.isLatest));
  });
  const client = connect(port, '127.0.0.1');
  let received = '';
  client.on('data', (text) => {
    received += String(text);
  });
  client.write(GET.repeat(33));
  await until(() => received !== '');
  isStopping = true;
  await server.stop(0, 1000);
  if (!client.closed) await once(client, 'close');
  assert.equal(received.match(/HTTP\/1\.1 200/g)?.length, 33);
});

test('6.13 handshakes from one address and port to two addresses are two connections', {
  ...LIMITED,
  skip: NO_OPENSSL,
}, async () => {
  await using service = await listen((exchange) => response(exchange), {
    tls: pem(),
    host: '0.0.0.0',
  });
  const free = connectTcp({ port: service.port, host: '127.0.0.1', localAddress: '127.0.0.9' });
  await once(free, 'connect');
  const { localPort } = free;
  const sockets = [free];
  const other = { port: service.port, host: '127.0.0.2', localAddress: '127.0.0.9' };
  sockets.push(connectTcp({ ...other, localPort: localPort! }));
  await once(sockets[1]!, 'connect');
  const clients = sockets.map((socket) =>
    connectTls({ socket: track(socket), rejectUnauthorized: false }),
  );
  for (const client of [...clients, ...clients]) {
    client.write(GET);
    const [bytes] = await once(client, 'data');
    assert.match(String(bytes), /^HTTP\/1\.1 200 /);
  }
});

test('6.13 a handshake from the port of a just reset connection succeeds', {
  ...LIMITED,
  skip: NO_OPENSSL,
}, async (t) => {
  await using service = await listen((exchange) => response(exchange), { tls: pem() });
  const client = new Worker(PORT_REUSE, { eval: true, workerData: [service.port, GET] });
  t.after(() => client.terminate());
  await once(client, 'message');
  await pause(50);
  client.postMessage('');
  // This turn ends after the reset and the new connection, so the server sees both at once.
  const end = performance.now() + 200;
  while (performance.now() < end);
  const [text] = await once(client, 'message');
  assert.match(text, /^HTTP\/1\.1 200 /);
});

/** Resets a connection on request, and sends a request over another from the same port. */
const PORT_REUSE = `
  const { parentPort, workerData: [port, text] } = require('node:worker_threads');
  const { connect } = require('node:net');
  // An address of its own: no connection of another test can get this port meanwhile.
  const target = { port, host: '127.0.0.1', localAddress: '127.0.0.8' };
  const first = connect(target, () => parentPort.postMessage('connected'));
  parentPort.once('message', () => {
    const { localPort } = first;
    first.resetAndDestroy().once('close', () => {
      const socket = connect({ ...target, localPort });
      const client = require('node:tls').connect({ socket, rejectUnauthorized: false });
      client.on('error', ({ message }) => parentPort.postMessage(message));
      client.on('data', (bytes) => parentPort.postMessage(String(bytes)));
      client.write(text);
    });
  });`;

test('6.2 clients that reconnect all the time do not delay a stop', LIMITED, async () => {
  let served = 0;
  const { server, port } = await listen((exchange) => {
    served++;
    response(exchange, '', true);
  });
  /** Connects repeatedly until it is refused. */
  const client = async () => {
    for (;;) {
      const socket = connect(port, '127.0.0.1');
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

function pem(): KeyPair {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = certificate();
  return { cert: readFileSync(TLS_CERT_FILE, 'utf8'), key: readFileSync(TLS_KEY_FILE, 'utf8') };
}
