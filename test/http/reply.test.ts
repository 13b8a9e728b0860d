// The bytes of responses and refusals, and what the connection is told and charged. The contract tests cover
// replies on a socket.
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Exchange } from '../../src/http/exchange.ts';
import { empty, type Pieces, type Reply, rawReply, send, text } from '../../src/http/reply.ts';
import { Peer } from '../server/peer.ts';

const KIB = 1024;
const ALL = Number.MAX_SAFE_INTEGER / 2;

test('the bytes of a refusal are one complete response with Connection: close', () => {
  const reply = { status: 431, type: 'text/plain', body: 'Zu groß', headers: ['Retry-After', '1'] };
  const [head = '', body] = rawReply(reply, ['X-Request-Id', 'r1']).split('\r\n\r\n');
  const [status, ...fields] = head.split('\r\n');
  assert.equal(status, 'HTTP/1.1 431 Request Header Fields Too Large');
  assert.deepEqual(fields.slice(0, -1), [
    'X-Request-Id: r1',
    'Retry-After: 1',
    'Cache-Control: private, no-cache',
    'Content-Type: text/plain',
    'Content-Length: 8',
    'Connection: close',
  ]);
  assert.match(fields.at(-1)!, /^Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/);
  assert.equal(body, 'Zu groß');
});

/** Sends the reply to the request, and records what the connection is told. The client takes so many bytes at once. */
async function respond(request: string, reply: Reply, windowBytes = ALL) {
  const server = createServer({ keepAliveTimeout: 0 });
  const calls: string[] = [];
  const { promise, resolve } = Promise.withResolvers<Exchange>();
  const handle = async (req: IncomingMessage, res: ServerResponse) => {
    res.sendDate = false;
    await turn(); // A short body has arrived.
    const exchange = new Exchange(
      {
        ...{ address: '', isLatest: true, hasReadMore: false },
        charge: (bytes) => calls.push(bytes < 0 ? `${bytes}` : `+${bytes}`),
        enter: (state) => calls.push(state),
        run: (task) => task(),
        endAfterCurrent: () => calls.push('end'),
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
  };
  server.on('request', handle).on('checkContinue', handle);
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

const request = (method = 'GET', fields = '', version = '1.1') =>
  `${method} / HTTP/${version}\r\nHost: x\r\n${fields}\r\n`;
const KEEP = 'Connection: keep-alive\r\n';

/** A body in pieces, with waits between them; after the end it begins again. */
function pieces(...parts: readonly (string | (() => Promise<void>))[]): Pieces {
  let next = 0;
  return {
    next() {
      const part = parts[next++];
      if (part === undefined) next = 0;
      return typeof part === 'string' ? Buffer.from(part) : part?.();
    },
  };
}

const PIECES = { status: 200, type: 'a/b', body: pieces('one', async () => {}, 'two') };
const PIECES_HEAD = ['200 OK', 'Content-Type: a/b'];
const CHUNKED = [...PIECES_HEAD, 'Transfer-Encoding: chunked'];
const OK = text(200, 'ok');
const TYPE = 'Content-Type: text/plain; charset=utf-8';
const LENGTH = 'Content-Length: 2';
const OK_HEAD = ['200 OK', TYPE, LENGTH];
const OLD = request('GET', KEEP, '1.0');
const OLD_TE = request('GET', `${KEEP}TE: chunked\r\n`, '1.0');
const post = (rest: string) => `POST / HTTP/1.1\r\nHost: x\r\n${rest}`;
const UNREAD_CHUNKS = post('Transfer-Encoding: chunked\r\n\r\n');

/** The head after its common first part, the body, and whether the connection ends. */
const RESPONSES: readonly (readonly [
  why: string,
  request: string,
  reply: Reply,
  head: readonly string[],
  body: string,
  isLast?: boolean,
])[] = [
  ['other text', request(), text(200, 'é'), OK_HEAD, '\xc3\xa9'],
  ['2.6 HEAD of pieces', request('HEAD'), PIECES, CHUNKED, ''],
  ['2.4 HEAD of pieces, HTTP/1.0', request('HEAD', KEEP, '1.0'), PIECES, PIECES_HEAD, '', true],
  ['pieces', request(), PIECES, CHUNKED, '3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n'],
  ['2.4 pieces, HTTP/1.0', OLD_TE, PIECES, PIECES_HEAD, 'onetwo', true],
  ['2.4 HTTP/1.0', OLD, OK, OK_HEAD, 'ok'],
  ['2.4 no body, HTTP/1.0', OLD, empty(304, []), ['304 Not Modified'], '', true],
  ['2.8 413', request(), text(413, 'no'), ['413 Payload Too Large', TYPE, LENGTH], 'no', true],
  ['a short body', post('Content-Length: 102400\r\n\r\n'), OK, OK_HEAD, 'ok'],
  ['2.13 a long body', post('Content-Length: 102401\r\n\r\n'), OK, OK_HEAD, 'ok', true],
  ['2.13 chunks', UNREAD_CHUNKS, OK, OK_HEAD, 'ok', true],
  ['chunks that have arrived', `${UNREAD_CHUNKS}0\r\n\r\n`, OK, OK_HEAD, 'ok'],
];

const sorted = (lines: readonly string[]) => [...lines].sort();

describe('a response', () => {
  for (const [why, bytes, reply, [status, ...fields], body, isLast = false] of RESPONSES) {
    test(why, async () => {
      const { exchange, peer, calls } = await respond(bytes, reply);
      const end = peer.output.indexOf('\r\n\r\n');
      const [line, ...lines] = peer.output.slice(0, end).split('\r\n');
      assert.equal(line, `HTTP/1.1 ${status}`);
      const connection = `Connection: ${isLast ? 'close' : 'keep-alive'}`;
      const cache = 'Cache-Control: private, no-cache';
      assert.deepEqual(sorted(lines), sorted(['A: b', connection, cache, ...fields]));
      assert.equal(peer.output.slice(end + 4), body);
      assert.deepEqual(calls.slice(0, isLast ? 2 : 1), isLast ? ['end', 'sending'] : ['sending']);
      assert.equal(calls.includes('end'), isLast);
      assert.equal(calls.filter((call) => call === 'done').length, 1);
      assert.equal(exchange.status, reply.status);
      const isWhole = typeof reply.body === 'string' || bytes.startsWith('HEAD');
      assert.equal(exchange.bytes, isWhole ? body.length : 6);
      assert.deepEqual([exchange.res.writableFinished, exchange.heldBytes], [true, 0]);
    });
  }
});

const shared = () => ({ ...text(200, ''), body: Buffer.alloc(31 * KIB) });
const inPieces = () => ({ ...PIECES, body: pieces('x'.repeat(20_000), 'y') });

/** Charges (`+`) and refunds (`-`) of a client that takes the response at once, and of one that doesn't yet. */
const CHARGES: readonly (readonly [why: string, reply: () => Reply, fast: string, slow: string])[] =
  [
    ['15 KiB', () => text(200, 'x'.repeat(15_360)), '', '+15360'],
    // For what is left of it.
    ['a byte more', () => text(200, `${'é'.repeat(7_680)}x`), '+15361 -15361 +1', '+15361'],
    ['a buffer that others share', shared, '+31744 -31744 +16384 -16384 +1024', '+31744'],
    ['pieces', inPieces, '+20000 -20000 +4640 -4640 +1 -1', '+20000'],
  ];

describe('6.17 a client is charged for a response', () => {
  for (const [why, reply, fast, slow] of CHARGES) {
    test(`6.17 ${why}`, async () => {
      const bytesOf = (calls: readonly string[]) =>
        calls.filter((call) => /^[+-]/.test(call)).join(' ');
      const { calls, exchange } = await respond(request(), reply());
      assert.equal(bytesOf(calls), fast);
      const slices = calls.filter((call) => call.startsWith('-')).length;
      assert.equal(calls.filter((call) => call === 'sending').length, 1 + slices);
      assert.equal(calls.at(-1), 'done');

      const late = await respond(request(), reply(), 0);
      assert.equal(bytesOf(late.calls), slow);
      assert.ok(!late.exchange.res.writableFinished);
      late.peer.receive(ALL);
      await late.settle();
      assert.ok(late.exchange.res.writableFinished);
      assert.equal(late.exchange.bytes, exchange.bytes);
      assert.equal(late.calls.filter((call) => call === 'done').length, 1);
    });
  }
});

test('6.17 a body that follows its response is dropped, also while the client does not read', async () => {
  const head = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n';
  const { exchange, peer, settle } = await respond(head, OK, 0);
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
      const page = Promise.withResolvers<void>();
      const body = pieces('one', () => page.promise, 'two');
      const { exchange, calls, peer, settle } = await respond(request(), { ...PIECES, body });
      assert.ok(!exchange.hasLeft);
      if (hasLeft) peer.destroy();
      if (fault) page.reject(fault);
      else page.resolve();
      await settle();
      assert.deepEqual(calls, ['sending', '+3', '-3', 'sending', ...ends]);
      assert.equal(exchange.fault, hasLeft ? undefined : fault);
      assert.ok(exchange.hasLeft && peer.output.endsWith('3\r\none\r\n'));
    });
  }
});
