// What the service relies on in node without documentation (docs/design.md), each as a sentence. Runs on node 24 too
// (.ci/oldest).
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { type AddressInfo, connect, Server as NetServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as pause, setImmediate } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { keyPair, NO_OPENSSL } from './support/certificate.ts';

const HEAD = 'GET / HTTP/1.1\r\nHost: x\r\n';
const LAST = `${HEAD}Connection: close\r\n\r\n`;
const WAIT_MS = 10_000; // for the end of a connection; the runner would wait 15 minutes

/** Listens on a free port until it is disposed. */
async function serve(listener: http.RequestListener) {
  const server = http.createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const dispose = () => void server.close().closeAllConnections();
  return Object.assign(server, { [Symbol.dispose]: dispose });
}

/** Opens a connection for a while, and writes. */
function open(server: NetServer, bytes: string): Socket {
  const { port } = server.address() as AddressInfo;
  const signal = AbortSignal.timeout(WAIT_MS);
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, signal });
  socket.on('error', () => {}).write(bytes);
  return socket;
}

test('server.httpAllowHalfOpen keeps a connection whose client has closed its side', async () => {
  using server = await serve((_req, res) => setTimeout(() => res.end('late'), 50));
  Object.assign(server, { httpAllowHalfOpen: true });
  const socket = open(server, `${HEAD}\r\n`);
  socket.end();
  assert.match(await text(socket), /late$/);
});

test('net.Server.prototype.close closes no connection of an http.Server', async () => {
  using server = await serve((_req, res) => res.end('x'));
  const socket = open(server, `${HEAD}\r\n`);
  await once(socket, 'data');
  NetServer.prototype.close.call(server);
  socket.write(`${HEAD}\r\n`);
  await once(socket, 'data');
});

test('rawHeaders has as many fields as maxHeadersCount', async () => {
  let count = 0;
  using server = await serve((req, res) => {
    count = req.rawHeaders.length / 2;
    res.end();
  });
  server.maxHeadersCount = 101;
  await text(open(server, HEAD + 'a:b\r\n'.repeat(99) + LAST.slice(HEAD.length)));
  assert.equal(count, 101);
});

test('replacing the data listeners of a socket ends parsing, and further input overwrites one buffer', async () => {
  let count = 0;
  const dropped = Buffer.alloc(65_536);
  using server = await serve((req, res) => {
    count++;
    req.socket.removeAllListeners('data').on('data', () => {});
    Reflect.get(req.socket, '_handle').useUserBuffer(dropped);
    req.socket.destroySoon = () => {};
    res.end('x');
  });
  const socket = open(server, `${HEAD}\r\n`);
  await once(socket, 'data');
  socket.write(`${HEAD}\r\n`);
  await pause(50);
  assert.deepEqual([count, dropped.toString('latin1', 0, HEAD.length)], [1, HEAD]);
});

test('node calls socket.destroySoon after the last response', async () => {
  let calls = 0;
  using server = await serve(({ socket }, res) => {
    socket.destroySoon = () => {
      calls++;
      socket.destroy();
    };
    res.writeHead(200, ['Connection', 'close']).end('x');
  });
  await text(open(server, `${HEAD}\r\n`));
  assert.equal(calls, 1);
});

test('emitting close on a destroyed socket aborts its requests at once', async () => {
  const requests: http.IncomingMessage[] = [];
  const responses: http.ServerResponse[] = [];
  using server = await serve((req, res) => {
    requests.push(req);
    responses.push(res);
  });
  open(server, `${HEAD}\r\n`.repeat(3));
  await once(server, 'request');
  const { socket } = requests[0]!;
  socket.destroy();
  socket.emit('close');
  // `equal` would print 1,400 lines of the parser.
  assert.ok((socket as { parser?: unknown }).parser === null);
  // Node 24.0 keeps the responses that wait.
  const waiting = process.version.startsWith('v24.0.') ? [] : responses.slice(1);
  assert.ok([...requests, ...waiting].every(({ destroyed }) => destroyed));
  assert.equal(requests.length, 3);
});

test('res.shouldKeepAlive is false after Connection: close', async () => {
  const seen: boolean[] = [];
  using server = await serve((_req, res) => {
    seen.push(res.shouldKeepAlive);
    res.end();
  });
  await text(open(server, `${HEAD}\r\n${LAST}`));
  assert.deepEqual(seen, [true, false]);
});

test('a response emits socket once the response before it has been written', async () => {
  const responses: http.ServerResponse[] = [];
  using server = await serve((_req, res) => {
    responses.push(res);
    if (responses.length === 1) return;
    assert.ok(res.socket === null);
    res.once('socket', (socket) => res.end(String(socket === responses[0]!.req.socket)));
    responses[0]!.end();
  });
  assert.match(await text(open(server, `${HEAD}\r\n${LAST}`)), /\r\n\r\ntrue$/);
});

test('res.useChunkedEncodingByDefault ends a body without chunks', async () => {
  using server = await serve((_req, res) => {
    Object.assign(res, { useChunkedEncodingByDefault: false });
    res.writeHead(200, ['Connection', 'close']);
    res.write('x');
    res.end();
  });
  const socket = open(server, `${HEAD.replace('1.1', '1.0')}TE: chunked\r\n\r\n`);
  assert.match(await text(socket), /\r\n\r\nx$/);
});

/** Connects over TLS. Returns the client, the TCP socket below it, and when the server emits its own. */
async function connectBoth(t: TestContext) {
  const server = https.createServer(keyPair()).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const transport = connect(port, '127.0.0.1');
  const client = connectTls({ socket: transport, rejectUnauthorized: false }).on('error', () => {});
  const connected = once(server, 'connection');
  const secured = once(server, 'secureConnection');
  await once(client, 'secureConnect');
  return { client, transport, connected, secured };
}

describe('a TLS socket', { skip: NO_OPENSSL }, () => {
  test('tlsSocket._parent is the TCP socket, and its bytesRead counts TLS records', async (t) => {
    const { client, connected, secured } = await connectBoth(t);
    const [socket] = (await secured) as [TlsSocket];
    assert.ok(socket._parent === (await connected)[0]);
    assert.ok(socket._parent.bytesRead > socket.bytesRead);
    client.destroy();
  });

  test('writeQueueSize of both sockets counts what the client has not read', async (t) => {
    const { client, secured } = await connectBoth(t);
    const [socket] = (await secured) as [TlsSocket];
    const sizes = () => [socket, socket._parent].map(({ _handle }) => _handle.writeQueueSize);
    assert.deepEqual(sizes(), [0, 0]);
    socket.write(Buffer.alloc(16 * 1024 * 1024));
    await setImmediate();
    assert.ok(Math.min(...sizes()) > 64 * 1024, sizes().join());
    client.destroy();
  });

  test('below TLS a write fails after a reset that looks like an end', async (t) => {
    const { client, transport, secured } = await connectBoth(t);
    client.write(`${HEAD}\r\n`, () => transport.resetAndDestroy());
    const [socket] = (await secured) as [TlsSocket];
    Object.assign(socket, { allowHalfOpen: true }).resume();
    await once(socket, 'end');
    const [err] = await new Promise<unknown[]>((resolve) =>
      socket._parent.write('', (...args) => resolve(args)),
    );
    assert.equal((err as NodeJS.ErrnoException).code, 'EPIPE');
  });

  test('the event `close` of the socket below destroys a TLS socket at once', async (t) => {
    const { client, transport } = await connectBoth(t);
    transport.emit('close');
    assert.equal(client.destroyed, true);
    transport.destroy();
  });
});

type Queued = { readonly _handle: { readonly writeQueueSize: number } };
type TlsSocket = Socket & Queued & { readonly _parent: Socket & Queued };
