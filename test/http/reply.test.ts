// Replies, the bytes of a refusal, and the responses that close the connection. The contract tests
// cover replies on a socket.
import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, test } from 'node:test';
import type { Exchange } from '../../src/http/exchange.ts';
import { empty, endsConnection, json, rawReply, text } from '../../src/http/reply.ts';

test('a JSON reply is 200 by default', () => {
  const type = 'application/json';
  assert.deepEqual(json('{}'), { status: 200, type, body: '{}', headers: [] });
  assert.deepEqual(json('[]', ['A', 'b'], 201), {
    status: 201,
    type,
    body: '[]',
    headers: ['A', 'b'],
  });
});

test('a text reply is plain text in UTF-8', () =>
  assert.deepEqual(text(200, 'å', ['X', 'y']), {
    status: 200,
    type: 'text/plain; charset=utf-8',
    body: 'å',
    headers: ['X', 'y'],
  }));

test('an empty reply has no type', () =>
  assert.deepEqual(empty(304, ['ETag', '"1"']), {
    status: 304,
    body: '',
    headers: ['ETag', '"1"'],
  }));

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

describe('a response closes its connection', () => {
  type Headers = Record<string, string>;
  for (const { why, status, complete, headers, isEnd } of [
    {
      why: 'a request that was read completely',
      status: 200,
      complete: true,
      headers: {},
      isEnd: false,
    },
    {
      why: 'a chunked request that was read completely',
      status: 400,
      complete: true,
      headers: { 'transfer-encoding': 'chunked' },
      isEnd: false,
    },
    { why: '413', status: 413, complete: true, headers: {}, isEnd: true },
    { why: '408', status: 408, complete: true, headers: {}, isEnd: true },
    {
      why: 'a rest of unknown length',
      status: 401,
      complete: false,
      headers: { 'transfer-encoding': 'chunked' },
      isEnd: true,
    },
    {
      why: 'an unfinished body that the client can withhold',
      status: 401,
      complete: false,
      headers: { 'content-length': '1', expect: '100-continue' },
      isEnd: true,
    },
    {
      why: 'an expectation without a rest',
      status: 401,
      complete: false,
      headers: { 'content-length': '1', expect: 'x' },
      isEnd: false,
    },
    {
      why: 'a rest of 102,400 bytes',
      status: 401,
      complete: false,
      headers: { 'content-length': '102400' },
      isEnd: false,
    },
    {
      why: 'a rest of 102,401 bytes',
      status: 401,
      complete: false,
      headers: { 'content-length': '102401' },
      isEnd: true,
    },
  ] as { why: string; status: number; complete: boolean; headers: Headers; isEnd: boolean }[]) {
    test(`${why}: ${isEnd ? 'yes' : 'no'}`, () => {
      const req = { complete, headers, httpVersionMinor: 1 } as IncomingMessage;
      const res = { shouldKeepAlive: true } as ServerResponse;
      const exchange = { req, res } as Exchange;
      assert.equal(endsConnection(exchange, { status, body: '' }), isEnd);
    });
  }
});
