// Section 2 of the contract: request bodies, their media types, codings and limits. The vectors of
// media types and of malformed bodies are in test/http/body.test.ts. The client checks the type of a
// response, and that a 413 closes its connection.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import {
  assertRefusal,
  exchange,
  items,
  open,
  request,
  responsesIn,
  statusesOf,
} from '../support/bytes.ts';
import { send } from '../support/client.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';

const LIMIT = 16_384;
const UNREAD_LIMIT = 102_400;
const CLOSE = 'Connection: close\r\n';
const FORM = 'application/x-www-form-urlencoded';
const PATCH = 'application/merge-patch+json';
const FRAMINGS = ['length', 'chunks'] as const;

/** Each route that takes a body, its media types, and a body of the first. */
const ROUTES = [
  ['POST /token', ['application/json', FORM], JSON.stringify({ id: USER, pw: PASSWORD }), 200],
  ['POST /users', ['application/json'], '{"name":"Ann","email":"EMAIL"}', 201],
  ['PUT /users/1', ['application/json'], '{"name":"Ann","email":"EMAIL"}', 200],
  ['PATCH /users/1', ['application/json', PATCH], '{"name":"Ann"}', 200],
] as const;

let emails = 0;
const fresh = (body: string) => body.replace('EMAIL', `user-${++emails}@example.com`);
/** Splits a request behind its head. */
const parts = (bytes: string) => bytes.split(/(?<=\r\n\r\n)/) as [head: string, body?: string];

describe('2.8 bodies', { timeout: 300_000 }, () => {
  let program: Program;
  before(async () => {
    program = await start();
    const body = { name: 'First', email: 'first@example.com' };
    assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
  });
  after(() => program[Symbol.asyncDispose]());

  /** Sends a body on a connection that closes after it. */
  async function ask(route: string, body: string, type = 'application/json', fields = '') {
    const options = { type, fields: CLOSE + fields };
    return (await exchange(program.url, request(route, fresh(body), options)))[0]!;
  }

  for (const [route, types, body, status] of ROUTES) {
    test(`2.8 ${route} accepts its types in UTF-8, and lists them in the 415 for another and for none`, async () => {
      for (const type of [
        ...[types[0], 'Application/JSON ; charset="UTF-8"', 'application/json;charset=ascii'],
        ...(types.length > 1 ? [`${types[1]}; charset=utf8`] : []),
      ]) {
        const form = `id=${USER}&pw=${encodeURIComponent(PASSWORD)}`;
        assert.equal((await ask(route, type.startsWith(FORM) ? form : body, type)).status, status);
      }
      const others = ['application/json', FORM, PATCH, 'text/plain', ''];
      for (const type of [
        ...others.filter((other) => !(types as readonly string[]).includes(other)),
        ...types.map((own) => `${own}; charset=iso-8859-1`),
      ]) {
        const { status, headers } = await ask(route, body, type);
        assert.equal(status, 415, type);
        assert.deepEqual(items(headers.get('accept')), types);
        const patch = route.startsWith('PATCH') ? types : [''];
        assert.deepEqual(items(headers.get('accept-patch')), patch);
      }
    });

    test(`2.8 ${route} refuses a Content-Encoding other than identity, malformed JSON, and what is not UTF-8`, async () => {
      const coded = (coding: string) =>
        ask(route, body, types[0], `Content-Encoding: ${coding}\r\n`);
      for (const coding of ['gzip', 'identity, br']) {
        const { status, headers } = await coded(coding);
        assert.deepEqual([status, headers.get('accept-encoding')], [415, 'identity']);
      }
      assert.equal((await coded('Identity')).status, status);
      for (const text of ['{', ' ', '{"name":"\xff"}']) {
        assert.equal((await ask(route, text)).status, 400, text);
      }
    });

    test(`2.8 ${route} accepts ${LIMIT} bytes, and refuses one more with 413, before reading it if it is announced`, async () => {
      for (const framing of FRAMINGS) {
        const sent = (length: number, fields: string) =>
          exchange(program.url, request(route, fresh(body).padEnd(length), { framing, fields }));
        assert.deepEqual(statusesOf(await sent(LIMIT, CLOSE)), [status], framing);
        assert.deepEqual(statusesOf(await sent(LIMIT + 1, '')), [413], framing);
      }
      for (const fields of ['', 'Expect: 100-continue\r\n']) {
        const [head] = parts(request(route, 'x'.repeat(LIMIT + 1), { fields }));
        assert.deepEqual(statusesOf(await exchange(program.url, head)), [413], fields);
      }
    });
  }

  for (const [route, body, status] of [
    ['PATCH /users/1', '{}', 200],
    ['GET /', 'x', 200],
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
        const expected = isTold ? [100, status] : [status];
        assert.deepEqual(statusesOf(responsesIn(client.text())), expected, expect);
      }
    });
  }

  test('2.14 a request without a body gets no 100, and the connection closes', async () => {
    const head = 'GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n';
    const [response, ...others] = await exchange(program.url, head);
    assert.deepEqual([response?.status, others], [200, []]);
    assert.equal(response?.headers.get('connection'), 'close');
  });

  test('2.14 a refused type gets 415 and never 100, with a length and with chunks', async () => {
    for (const framing of FRAMINGS) {
      const options = { type: 'text/plain', fields: 'Expect: 100-continue\r\n', framing };
      const [response, ...others] = await exchange(
        program.url,
        parts(request('POST /users', '{}', options))[0],
      );
      assert.deepEqual([response?.status, others], [415, []]);
      assert.equal(response?.headers.get('connection'), 'close');
    }
  });

  for (const framing of FRAMINGS) {
    test(`2.8, 2.13 a client that sends 1 MiB (${framing}) before it reads can read the 413`, async () => {
      await using client = await open(program.url);
      client.socket.pause();
      const bytes = request('POST /users', 'x'.repeat(2 ** 20), { framing });
      for (const part of [bytes.slice(0, 2 ** 19), bytes.slice(2 ** 19)]) {
        await client.write(part);
        // Once another connection has a response, the service has read the first half.
        assert.equal((await send(program.url)).status, 200);
      }
      client.socket.resume();
      await client.closed;
      const [response, ...others] = responsesIn(client.text());
      assert.deepEqual([response?.status, others], [413, []]);
      assertRefusal(response!);
    });
  }

  test('2.8 a body in chunks of one byte takes memory only for its bytes', async () => {
    await using own = await start();
    const resident = async () => {
      const { body } = await send(`${own.adminUrl}/metrics`);
      return Number(/^process_memory_usage_bytes (\S+)$/m.exec(body)![1]);
    };
    const before = await resident();
    const type = 'Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
    const clients = await Promise.all(Array.from({ length: 8 }, () => open(own.url)));
    for (const client of clients) {
      const head = `POST /token HTTP/1.1\r\nHost: x\r\n${CLOSE}${type}`;
      await client.write(head + '1\r\n \r\n'.repeat(LIMIT));
    }
    // Once another connection has a response, the service holds all of them.
    assert.equal((await send(own.url)).status, 200);
    const grown = (await resident()) - before;
    assert.ok(grown < 100e6, `${grown} bytes more`);
    for (const client of clients) await client.write('0\r\n\r\n');
    await Promise.all(clients.map(({ closed }) => closed));
    for (const { text } of clients) assert.deepEqual(statusesOf(responsesIn(text())), [400]);
  });

  test('2.8 a request without a body needs no Content-Type', async () => {
    for (const [route, status] of [
      ['POST /token', 401],
      ['POST /users', 400],
      ['GET /users/1', 200],
    ] as const) {
      assert.equal((await ask(route, '', '')).status, status, route);
    }
  });

  for (const [why, bytes, statuses] of [
    ['that was refused', parts(request('POST /users', 'x'.repeat(LIMIT + 1)))[0], [413]],
    ['refused after a response', 'GET / HTTP/1.1\r\nHost: x\r\n\r\nno HTTP\r\n\r\n', [200, 400]],
  ] as const) {
    test(`2.13 a connection ${why} is read for 2 s and then closed`, async () => {
      await using client = await open(program.url, { allowHalfOpen: true });
      const began = performance.now();
      await client.write(bytes);
      await once(client.socket, 'end');
      assert.deepEqual(statusesOf(responsesIn(client.text())), statuses);
      // Our side stays open. The service drops its data, then closes the connection.
      const more = setInterval(() => client.socket.write('x'.repeat(100)), 100);
      await client.closed;
      clearInterval(more);
      const took = performance.now() - began;
      assert.ok(took > 1_990 && took < 6_000, `after ${took} ms`);
    });
  }

  test('2.13 a client that sends its whole body before it reads gets its response', async () => {
    for (const [version, route, status] of [
      ['1.1', 'POST /users', 413],
      ['1.1', 'POST /nowhere', 404],
      ['1.0', 'POST /nowhere', 404],
    ] as const) {
      await using client = await open(program.url);
      client.socket.pause();
      const options = { version, fields: CLOSE, type: 'text/plain' };
      const [head, body = ''] = parts(request(route, 'x'.repeat(90_000), options));
      await client.write(head);
      for (let i = 0; i < 9; i++) {
        // Once another connection has a response, this request has its own.
        assert.equal((await send(program.url)).status, 200);
        await client.write(body.slice(10_000 * i, 10_000 * (i + 1)));
      }
      client.socket.resume();
      await client.closed;
      assert.deepEqual(statusesOf(responsesIn(client.text())), [status], route);
    }
  });

  test(`2.13 a refusal before a body of more than ${UNREAD_LIMIT} bytes closes the connection`, async () => {
    for (const [length, connection] of [
      [UNREAD_LIMIT, 'keep-alive'],
      [UNREAD_LIMIT + 1, 'close'],
    ] as const) {
      await using client = await open(program.url);
      await client.write(`POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`);
      await client.received(/\r\n\r\n/);
      const [response] = responsesIn(client.text());
      const seen = [response?.status, response?.headers.get('connection')];
      assert.deepEqual(seen, [404, connection]);
    }
  });

  test('2.13 after a refusal with an unread body the connection stays in sync', async () => {
    const smuggled = `GET /users/1 HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`;
    for (const [route, type, status] of [
      ['POST /users', 'text/plain', 415],
      ['PUT /token', 'application/json', 405],
      ['POST /nowhere', 'application/json', 404],
    ] as const) {
      await using client = await open(program.url);
      await client.write(request(route, smuggled, { type }));
      await client.received(/\r\n\r\n./);
      await client.write(`DELETE /users/999 HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`);
      await client.closed;
      const responses = responsesIn(client.text());
      assert.deepEqual(statusesOf(responses), [status, 404]);
      assert.equal(responses[1]!.body, 'No user has this id.');
    }
  });

  test('2.15 a route without a body drops one of any type, and returns 413 for one over the limit', async () => {
    for (const [route, status] of [
      ['GET /', 200],
      ['GET /users/1', 200],
      ['DELETE /users/999', 404],
    ] as const) {
      const response = await ask(route, '{\xff', 'text/plain', 'Content-Encoding: gzip\r\n');
      assert.equal(response.status, status, route);
      for (const framing of FRAMINGS) {
        const bytes = request(route, 'x'.repeat(LIMIT + 1), { framing, fields: CLOSE, type: '' });
        assert.deepEqual(statusesOf(await exchange(program.url, bytes)), [413], route);
      }
    }
  });
});
