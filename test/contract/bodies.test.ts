// Section 2 of the contract: request bodies and their limits. Media types, codings and malformed bodies are in
// test/http/body.test.ts, and description.test.ts provokes each 415. The client checks each response against
// openapi.json: the lists of a 415, and that a 413 closes its connection.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { open, request } from '../support/bytes.ts';
import { exchange, responsesIn, send, statusesOf } from '../support/client.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';
import { create } from '../support/service.ts';

const LIMIT = 10_000;
const UNREAD_LIMIT = 102_400;
const CLOSE = 'Connection: close\r\n';
const JSON_TYPE = 'application/json';
const FRAMINGS = ['length', 'chunks'] as const;
const EXPECT = 'Expect: 100-continue\r\n';
const LOGIN = JSON.stringify({ id: USER, pw: PASSWORD });

/** Splits a request behind its head. */
const parts = (bytes: string) => bytes.split(/(?<=\r\n\r\n)/) as [head: string, body?: string];

describe('2.8 bodies', () => {
  let program: Program;
  before(async () => {
    program = await start({ BODY_LIMIT_BYTES: String(LIMIT) });
    await create(program);
  });

  test('2.8 two types return 415, also if both are the same', async () => {
    for (const second of [JSON_TYPE, 'text/plain', '']) {
      const fields = `${CLOSE}Content-Type: ${second}\r\n`;
      const bytes = request('POST /token', LOGIN, { type: JSON_TYPE, fields });
      assert.deepEqual(statusesOf(await exchange(program.url, bytes)), [415], second);
    }
  });

  test('1 BODY_LIMIT_BYTES: as many bytes are accepted, and one more returns 413, before it is read if it is announced (2.8, 2.15)', async () => {
    for (const [route, body, status] of [
      ['POST /token', LOGIN, 200],
      ['PATCH /users/1', '{}', 200],
      // These take no body: one of any type is dropped.
      ['GET /', '\xff', 200],
      ['DELETE /users/999', '{', 404],
    ] as const) {
      const type = /^P/.test(route) ? JSON_TYPE : 'text/csv';
      for (const framing of FRAMINGS) {
        const options = {
          type,
          framing,
          fields: `${CLOSE}${type === JSON_TYPE ? '' : 'Content-Encoding: gzip\r\n'}`,
        };
        const sent = (length: number) =>
          exchange(program.url, request(route, body.padEnd(length), options));
        assert.deepEqual(statusesOf(await sent(LIMIT)), [status], route);
        assert.deepEqual(statusesOf(await sent(LIMIT + 1)), [413], route);
      }
      for (const fields of ['', EXPECT]) {
        const [head] = parts(request(route, body.padEnd(LIMIT + 1), { fields }));
        assert.deepEqual(statusesOf(await exchange(program.url, head)), [413], route);
      }
    }
  });

  for (const [route, body] of [
    ['PATCH /users/1', '{}'],
    ['GET /', 'x'],
  ] as const) {
    test(`2.14 ${route} sends 100 to a client of HTTP/1.1 that expects it, in a list too`, async () => {
      for (const [version, expect, isTold] of [
        ['1.1', '100-continue', true],
        ['1.1', 'the-impossible, 100-Continue', true],
        ['1.1', 'the-impossible', false],
        ['1.0', '100-continue', false],
      ] as const) {
        const fields = `Expect: ${expect}\r\n${CLOSE}`;
        const [head, content = ''] = parts(request(route, body, { version, fields }));
        await using client = await open(program.url);
        await client.write(head);
        if (isTold) await client.received(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
        await client.write(content);
        await client.closed;
        const expected = isTold ? [100, 200] : [200];
        assert.deepEqual(statusesOf(responsesIn(client.text())), expected, expect);
      }
    });
  }

  test('2.8, 2.13 a client that sends its whole body before it reads gets its response', async () => {
    for (const [version, route, length, framing, status] of [
      ['1.1', 'POST /users', 90_000, 'length', 413],
      ['1.1', 'POST /users', 2 ** 20, 'length', 413],
      ['1.1', 'POST /users', 2 ** 20, 'chunks', 413],
      ['1.1', 'POST /nowhere', 90_000, 'length', 404],
      ['1.0', 'POST /nowhere', 90_000, 'length', 404],
    ] as const) {
      await using client = await open(program.url);
      client.socket.pause();
      const fields = framing === 'chunks' || length > UNREAD_LIMIT ? '' : CLOSE;
      const bytes = request(route, 'x'.repeat(length), { version, fields, framing });
      const pieces = 3; // few, because the server waits for 2 s (2.13)
      for (let i = 0; i < pieces; i++) {
        const [from, to] = [i, i + 1].map((n) => Math.ceil((n * bytes.length) / pieces));
        await client.write(bytes.slice(from, to));
        // Once another connection has a response, this request has its own.
        assert.equal((await send(program.url)).status, 200);
      }
      client.socket.resume();
      await client.closed;
      assert.deepEqual(statusesOf(responsesIn(client.text())), [status], route);
    }
  });
});
