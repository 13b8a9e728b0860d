// The bytes of a refusal. The contract tests cover replies on a socket.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rawReply } from '../../src/http/reply.ts';

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
