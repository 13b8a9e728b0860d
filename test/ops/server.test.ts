// How long a connection may stand still while it is answered, and how much of a pipeline waits. All
// else of the listener is the contract tests' business.
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { readBody } from '../../src/http/body.ts';
import type { HttpError } from '../../src/http/errors.ts';
import { type Reply, send } from '../../src/http/reply.ts';
import { MAX_DROPPED, MAX_QUEUED } from '../../src/ops/limits.ts';
import { type Handler, type KeyPair, Server } from '../../src/ops/server.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';

const INACTIVITY_MS = 1500;
/** More than the kernel takes for a client that does not read. */
const LARGE = 'x'.repeat(2 ** 24);
/** The same in pieces of 256 KiB: over TLS node sees only when it is rid of a whole one. */
const SMALLER = Array.from({ length: 64 }, () => 'x'.repeat(2 ** 18));
const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

/** Answers with pieces, each when the one before is taken; tells the server's connections. */
async function serve(
  pieces: readonly string[],
  onSocket: (socket: Socket) => void = () => {},
  tls?: KeyPair,
) {
  const handle = (req: IncomingMessage, res: ServerResponse) => {
    onSocket(req.socket);
    Readable.from(pieces).pipe(res);
  };
  const handler: Handler = { handle, refusal: () => '', allow: '' };
  const server = new Server(handler, INACTIVITY_MS, tls);
  const port = await server.listen(0, '127.0.0.1');
  return { port, [Symbol.asyncDispose]: async () => server.destroy() };
}

describe('6.3 readers', { concurrency: true, timeout: 300_000 }, () => {
  test('6.3 a reader that stands still is cut after the time of inactivity', async () => {
    const accepted = Promise.withResolvers<Socket>();
    await using server = await serve([LARGE], accepted.resolve);
    const client = connect(server.port, '127.0.0.1').pause();
    client.on('error', () => {}).write(GET.repeat(3));
    const began = performance.now();
    await once(await accepted.promise, 'close');
    const took = performance.now() - began;
    client.destroy();
    assert.ok(took >= INACTIVITY_MS && took < 5 * INACTIVITY_MS, `after ${took} ms`);
  });

  for (const { why, pieces, isTls, skip } of [
    { why: 'in one piece', pieces: [LARGE], isTls: false, skip: false },
    { why: 'in pieces over TLS', pieces: SMALLER, isTls: true, skip: NO_OPENSSL },
  ]) {
    test(`6.3 a reader that is slow but moves gets all of its answer ${why}`, {
      skip,
    }, async () => {
      await using server = await serve(pieces, undefined, isTls ? pem() : undefined);
      const options = { port: server.port, host: '127.0.0.1', rejectUnauthorized: false };
      const client = isTls ? connectTls(options) : connect(options);
      client.write(GET);
      const began = performance.now();
      let length = 0;
      for await (const part of client) {
        length += part.length;
        if (length >= LARGE.length) break;
        await pause(part.length / 3_000);
      }
      assert.ok(length >= LARGE.length);
      assert.ok(performance.now() - began > 3 * INACTIVITY_MS);
    });
  }

  test('6.3, 6.14 an idle connection is kept for longer than that', async () => {
    await using server = await serve(['x']);
    const client = connect(server.port, '127.0.0.1');
    for (let i = 0; i < 2; i++) {
      client.write(GET);
      const [answer] = await once(client, 'data');
      assert.match(String(answer), /^HTTP\/1\.1 200 /);
      await pause(2 * INACTIVITY_MS);
    }
    client.destroy();
  });
});

describe('what comes behind a last answer', { timeout: 300_000 }, () => {
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
  /** More of them than the kernel gives at once. */
  const MANY = TINY.repeat(20_000);

  /** A server whose every answer is the last of its connection. */
  async function serveOnce() {
    const sockets: Socket[] = [];
    const handle: Handler['handle'] = (req, res, connection) => {
      sockets.push(req.socket);
      connection.isClosing = true;
      send(req, res, { status: 200, body: '' }, [], true);
    };
    const server = new Server({ handle, refusal: () => '', allow: '' }, 60_000);
    const port = await server.listen(0, '127.0.0.1');
    const open = () => connect({ port, host: '127.0.0.1', allowHalfOpen: true }).resume();
    return { sockets, open, [Symbol.asyncDispose]: async () => server.destroy() };
  }

  test('2.10 is not even parsed', async () => {
    await using server = await serveOnce();
    const client = server.open().on('error', () => {});
    client.on('end', () => client.end(MANY)).write(TINY);
    while (server.sockets.length === 0) await pause(1);
    await once(server.sockets[0]!, 'close');
    assert.equal(parsed, 1);
  });

  test('2.11 is dropped where it came together with it: 10,000 requests, and one more is cut', async () => {
    await using server = await serveOnce();
    const each = MAX_DROPPED / 100;
    // Those that have gone leave room.
    for (const { count, cut } of [
      { count: 100, cut: 0 },
      { count: 100, cut: 0 },
      { count: 101, cut: 1 },
    ]) {
      parsed = 0;
      server.sockets.length = 0;
      const clients = Array.from({ length: count }, server.open);
      for (const client of clients) client.on('error', () => {}).write(TINY.repeat(1 + each));
      while (parsed < count * (1 + each)) await pause(1);
      assert.equal(server.sockets.filter(({ destroyed }) => destroyed).length, cut);
      const closed = server.sockets.map((socket) => socket.closed || once(socket, 'close'));
      for (const client of clients) client.end();
      await Promise.all(closed);
    }
  });

  test('2.11 is not read while answers before a refusal wait', async () => {
    const held: ServerResponse[] = [];
    const handle: Handler['handle'] = (_req, res) => held.push(res);
    const server = new Server({ handle, refusal: () => 'refused', allow: '' }, 60_000);
    const port = await server.listen(0, '127.0.0.1');
    const clients: Socket[] = [];
    // All that may wait, and then one request that is refused, and what follows it.
    while (parsed <= MAX_QUEUED + clients.length) {
      const client = connect(port, '127.0.0.1');
      client.on('error', () => {}).write(TINY.repeat(1000));
      clients.push(client);
      while (held.length < clients.length) await pause(1);
    }
    const before = parsed;
    const refused = connect(port, '127.0.0.1').on('error', () => {});
    refused.write(MANY);
    clients.push(refused);
    // Longer than all of it takes to be read.
    await pause(INACTIVITY_MS);
    assert.ok(parsed > before + 1 && parsed < before + 5000, `${parsed - before} parsed`);
    for (const client of clients) client.destroy();
    server.destroy();
  });
});

/** Behind it node takes its own listeners off the socket. */
const CONNECT = 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n';

/** A server whose every answer has this body, and its first connection. */
async function serveBody(body: () => Reply['body'], inactivityMs = INACTIVITY_MS) {
  const accepted = Promise.withResolvers<Socket>();
  const handle: Handler['handle'] = (req, res) => {
    accepted.resolve(req.socket);
    send(req, res, { status: 200, type: 'text/plain', body: body() }, [], false);
  };
  const server = new Server({ handle, refusal: () => '', allow: '' }, inactivityMs);
  const port = await server.listen(0, '127.0.0.1');
  const client = connect(port, '127.0.0.1')
    .pause()
    .on('error', () => {});
  const dispose = async () => server.destroy();
  return { client, accepted: accepted.promise, [Symbol.asyncDispose]: dispose };
}

for (const { why, body } of [
  { why: 'a whole answer', body: () => LARGE },
  { why: 'a streamed answer', body: () => Readable.from(Array(64).fill(LARGE)) },
]) {
  for (const behind of ['', CONNECT]) {
    test(`6.3 a reader that stands still is cut, whatever it sends meanwhile: ${why} ${behind.slice(0, 7)}`, async () => {
      await using server = await serveBody(body);
      const { client } = server;
      client.write(GET + behind);
      const began = performance.now();
      const drip = setInterval(() => client.write('\r\n'), INACTIVITY_MS / 5);
      await once(await server.accepted, 'close', { signal: AbortSignal.timeout(60_000) });
      clearInterval(drip);
      const took = performance.now() - began;
      client.destroy();
      assert.ok(took >= INACTIVITY_MS && took < 5 * INACTIVITY_MS, `after ${took} ms`);
    });
  }
}

test('6.3 a reader that goes on after a pause gets all of a streamed answer, also before CONNECT', {
  timeout: 60_000,
}, async () => {
  const pieces = 4;
  await using server = await serveBody(() => Readable.from(Array(pieces).fill(LARGE)), 30_000);
  const { client } = server;
  client.write(GET + CONNECT);
  const socket = await server.accepted;
  while (!socket.writableNeedDrain) await pause(1);
  let length = 0;
  for await (const part of client) length += part.length;
  assert.ok(length > pieces * LARGE.length, `${length} bytes`);
});

test('6.3 an idle connection does not keep the body of its last request', async () => {
  const handle: Handler['handle'] = async (req, res) => {
    await readBody(req, ['json'], 1_000_000, () => {}).catch(() => {});
    res.end();
  };
  const server = new Server({ handle, refusal: () => '', allow: '' }, 60_000);
  const port = await server.listen(0, '127.0.0.1');
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
  // What sockets read into is theirs.
  const most = before + (clients.length * length) / 4;
  // V8 sweeps arrays on another thread, after the collection.
  let tries = 0;
  for (; process.memoryUsage().arrayBuffers > most && tries < 100; tries++) {
    collect();
    await pause(1);
  }
  for (const client of clients) client.destroy();
  server.destroy();
  assert.ok(tries < 100, `more than ${most - before} bytes`);
});

test('2.11 nothing more of a pipeline is read while requests of it wait', async () => {
  const held = Promise.withResolvers<ServerResponse>();
  const order: string[] = [];
  const handle = (req: IncomingMessage, res: ServerResponse) => {
    order.push(req.url!);
    if (order.length === 1) held.resolve(res);
    else res.end();
  };
  const server = new Server({ handle, refusal: () => '', allow: '' }, 60_000);
  const client = connect(await server.listen(0, '127.0.0.1'), '127.0.0.1').resume();
  const targets = Array.from({ length: 2000 }, (_, i) => `/${i}`);
  const padding = 'x'.repeat(12_000);
  let isTaken = false;
  for (const target of targets) {
    isTaken = false;
    client.write(`GET ${target} HTTP/1.1\r\nHost: x\r\nX: ${padding}\r\n\r\n`, () => {
      isTaken = target === targets.at(-1);
    });
  }
  const first = await held.promise;
  // Longer than all of it takes to be read.
  await pause(INACTIVITY_MS);
  assert.deepEqual([order, isTaken], [['/0'], false]);
  first.end();
  while (order.length < targets.length) await once(client, 'data');
  assert.deepEqual(order, targets);
  server.destroy();
});

test('2.11 where too many requests wait, one more is refused behind the answers before it', async () => {
  const held: ServerResponse[] = [];
  let isHolding = true;
  const handle = (_req: IncomingMessage, res: ServerResponse) => {
    if (isHolding) held.push(res);
    else res.end();
  };
  const refusal = ({ status }: HttpError) => `HTTP/1.1 ${status} Refused\r\n\r\n`;
  const server = new Server({ handle, refusal, allow: '' }, 60_000);
  const port = await server.listen(0, '127.0.0.1');
  const request = GET.repeat(2000);
  const clients = Array.from({ length: 8 }, () => connect(port, '127.0.0.1'));
  const answers = clients.map(() => '');
  for (const [i, client] of clients.entries()) {
    client.setEncoding('latin1').on('data', (text: string) => {
      answers[i] += text;
    });
    client.write(request);
    while (held.length <= i) await pause(1);
  }
  // 16,000 of them in all; the last two connections have room for none.
  isHolding = false;
  for (const res of held) res.end();
  const refused = (text: string) => text.endsWith('HTTP/1.1 503 Refused\r\n\r\n');
  await once(clients.at(-1)!, 'end');
  assert.ok(refused(answers.at(-1)!));
  assert.equal(answers.at(-1)!.split('HTTP/1.1 200 ').length - 1, 1);
  while (answers[0]!.split('HTTP/1.1 200 ').length - 1 < 2000) await once(clients[0]!, 'data');
  // Those that have had their answers, or have gone, have left the queue.
  for (const client of clients) client.destroy();
  const later = connect(port, '127.0.0.1').setEncoding('latin1');
  later.end(request);
  let text = '';
  for await (const part of later) text += part;
  assert.equal(text.split('HTTP/1.1 200 ').length - 1, 2000);
  server.destroy();
});

test('6.2 a stop serves a connection whose TLS handshake is still to come, and closes one without', {
  skip: NO_OPENSSL,
}, async () => {
  const handle = (_req: IncomingMessage, res: ServerResponse) => void res.end();
  const server = new Server({ handle, refusal: () => '', allow: '' }, 60_000, pem());
  const port = await server.listen(0, '127.0.0.1');
  const [silent, late] = [connect(port, '127.0.0.1'), connect(port, '127.0.0.1')];
  await Promise.all([once(silent, 'connect'), once(late, 'connect')]);
  const order: string[] = [];
  // As the service does: after a timer the event loop looks for new connections first.
  await pause(1);
  const stopped = server.stop(1000, 1000).then(() => order.push('stopped'));
  const client = connectTls({ socket: late, rejectUnauthorized: false });
  client.write(GET);
  const [answer] = await once(client, 'data');
  order.push('answered');
  assert.match(String(answer), /^HTTP\/1\.1 200 /);
  await Promise.all([stopped, once(silent.resume(), 'close')]);
  assert.deepEqual(order, ['answered', 'stopped']);
});

test('6.2 clients that connect anew all the time do not put off a stop', async () => {
  let served = 0;
  const handle = (_req: IncomingMessage, res: ServerResponse) => {
    served++;
    res.setHeader('connection', 'close').end();
  };
  const server = new Server({ handle, refusal: () => '', allow: '' }, 60_000);
  const port = await server.listen(0, '127.0.0.1');
  /** Connects again and again until it is refused. */
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
  while (served < 100) await pause(1);
  const before = served;
  await Promise.all([server.stop(0, 20), ...clients]);
  assert.ok(served - before < 2_000, `${served - before} more`);
});

function pem(): KeyPair {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = certificate();
  return { cert: readFileSync(TLS_CERT_FILE, 'utf8'), key: readFileSync(TLS_KEY_FILE, 'utf8') };
}
