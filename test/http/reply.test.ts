// Replies, and the bytes of a refusal. The contract tests cover replies on a socket.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { empty, json, rawReply, text } from '../../src/http/reply.ts';

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
