// What the connection is told and charged of a response. Heads, and responses that end their connection, are in
// test/server/connection.test.ts and the contract tests.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { runInNewContext } from 'node:vm';
import { Exchange } from '../../src/http/exchange.ts';
import { type Reply, send, text } from '../../src/http/reply.ts';
import { GET } from '../support/bytes.ts';
import { Peer } from '../support/peer.ts';

const KIB = 1024;
const ALL = Number.MAX_SAFE_INTEGER / 2;

/** Sends the reply to the request, and records what the connection is told. The client takes so many bytes at once. */
async function respond(request: string, reply: Reply, windowBytes = ALL) {
  const server = createServer({ keepAliveTimeout: 0 });
  const calls: string[] = [];
  const { promise, resolve } = Promise.withResolvers<Exchange>();
  server.on('request', (req, res) => {
    const exchange = new Exchange(
      {
        ...{ address: '', hasReadMore: false },
        charge: (bytes) => calls.push(bytes < 0 ? `${bytes}` : `+${bytes}`),
        enter: (state) => calls.push(state),
        run: (task) => task(),
        ...{ endAfterCurrent() {}, endAfterReceived() {} },
        close: (reason) => {
          calls.push(reason);
          req.socket.destroy();
        },
      },
      req,
      res,
    );
    send(exchange, reply, ['A', 'b'], () => calls.push('done'));
    resolve(exchange);
  });
  const peer = new Peer('192.0.2.1', windowBytes);
  peer.on('error', () => {});
  server.emit('connection', peer);
  peer.send(request);
  const exchange = await promise;
  const settle = async () => {
    for (let i = 0; i < 20; i++) await turn();
  };
  await settle();
  return { exchange, peer, calls, settle };
}

/** A response in pieces, with waits between them. */
function pieces(...parts: (string | Promise<Buffer>)[]): Reply {
  return { status: 200, type: 'a/b', body: { next: () => parts.shift() } };
}

const shared = () => ({ ...text(200, ''), body: Buffer.alloc(31 * KIB) });
const inPieces = () => pieces('x'.repeat(20_000), 'y');

/** Charges (`+`) and refunds (`-`) of a client that takes the response at once, and of one that doesn't yet. */
const CHARGES = [
  [15_360, () => text(200, 'x'.repeat(15_360)), '', '+15360'],
  // For what is left of it.
  [15_361, () => text(200, `${'é'.repeat(7_680)}x`), '+15361 -15361 +1', '+15361'],
  [31_744, shared, '+31744 -31744 +16384 -16384 +1024', '+31744'],
  [20_001, inPieces, '+20000 -20000 +4640 -4640 +1 -1', '+20000'],
] as const;

describe('6.17 a client is charged for a response', () => {
  for (const [bytes, reply, fast, slow] of CHARGES) {
    test(`6.17 of ${bytes} bytes`, async () => {
      const bytesOf = (calls: readonly string[]) =>
        calls.filter((call) => /^[+-]/.test(call)).join(' ');
      const { calls, exchange } = await respond(GET, reply());
      assert.equal(bytesOf(calls), fast);
      const slices = calls.filter((call) => call.startsWith('-')).length;
      assert.equal(calls.filter((call) => call === 'sending').length, 1 + slices);
      assert.equal(calls.at(-1), 'done');

      const late = await respond(GET, reply(), 0);
      assert.equal(bytesOf(late.calls), slow);
      assert.ok(!late.exchange.res.writableFinished);
      late.peer.receive(ALL);
      await late.settle();
      assert.ok(late.exchange.res.writableFinished);
      assert.equal(late.exchange.bytes, exchange.bytes);
      assert.equal(exchange.bytes, bytes);
      assert.equal(late.calls.filter((call) => call === 'done').length, 1);
    });
  }
});

test('6.17 a body that follows its response is dropped, also while the client does not read', async () => {
  const head = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n';
  const { exchange, peer, settle } = await respond(head, text(200, 'ok'), 0);
  peer.send('x'.repeat(50_000));
  await settle();
  assert.equal(peer.output, '');
  assert.equal(exchange.req.readableLength, 0);
});

describe('4.14 a response that ends early', () => {
  const broken = new Error('no page');
  for (const [why, hasLeft, fault, ...ends] of [
    ['a piece that fails closes the connection, and is its fault', false, broken, 'failed', 'done'],
    ['7.3: not if the client has left', true, broken, 'done'],
    ['4.1: it ends once the client has left', true, undefined, 'done'],
  ] as const) {
    test(`4.14 ${why}`, async () => {
      // No instance of Promise, like those of async functions where a library replaces it.
      const page: PromiseWithResolvers<Buffer> = runInNewContext('Promise.withResolvers()');
      const reply = pieces('one', page.promise, 'three');
      const { exchange, calls, peer, settle } = await respond(GET, reply);
      assert.ok(!exchange.hasLeft);
      if (hasLeft) peer.destroy();
      if (fault) page.reject(fault);
      else page.resolve(Buffer.from('two'));
      await settle();
      assert.deepEqual(calls, ['sending', '+3', '-3', 'sending', ...ends]);
      assert.equal(exchange.fault, hasLeft ? undefined : fault);
      assert.ok(exchange.hasLeft && peer.output.endsWith('3\r\none\r\n'));
    });
  }
});

test('4.1 no piece is made for a client that has left before it took the last one', async (t) => {
  const next = t.mock.fn(() => Buffer.from('one'));
  const reply = { status: 200, type: 'a/b', body: { next } };
  const { calls, peer, settle } = await respond(GET, reply, 0);
  peer.destroy();
  await settle();
  assert.deepEqual([next.mock.callCount(), calls.at(-1)], [1, 'done']);
});
