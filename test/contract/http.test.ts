// Section 2 of the contract: headers of every response, refusals of input that reached no route, failures of the
// service, and the limits of bodies. Paths are in paths.test.ts; media types, codings and malformed bodies in
// test/http/body.test.ts. The client checks each response against openapi.json: its type, its headers, and the
// sentence of an error.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchange, GET, open, outcomes, request } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { type HttpResponse, responsesIn, send, statusesOf } from '../support/client.ts';
import { PASSWORD, start, USER } from '../support/program.ts';
import { create } from '../support/service.ts';
import { ACCEPTED, REFUSED } from '../vectors/messages.ts';

const LIMIT = 10_000;
const CLOSE = 'Connection: close\r\n';
const EXPECT = 'Expect: 100-continue\r\n';
const JSON_TYPE = 'application/json';
const LOGIN = JSON.stringify({ id: USER, pw: PASSWORD });
// Java's HttpClient sends such an offer with every plain-text request.
const OFFER =
  'Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA\r\nUpgrade: h2c\r\n';
const get = (path: string, fields = '') => `GET ${path} HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;
const post = (email: string, fields = '') =>
  request('POST /users', JSON.stringify({ name: 'Ben', email }), { fields });
/** Splits a request behind its head. */
const parts = (bytes: string) => bytes.split(/(?<=\r\n\r\n)/) as [head: string, body?: string];

const program = await start({ BODY_LIMIT_BYTES: String(LIMIT) });
await create(program);

const exchanged = (bytes: string) => exchange(program.url, bytes);
const logged = ({ headers }: HttpResponse) => {
  const id = headers.get('x-request-id');
  return program.until(({ log }) => log.some(({ requestId }) => requestId === id));
};

test('2.2 a valid X-Request-Id is kept and any other is replaced by a new one, also in the log', async () => {
  const valid = [['a'], ['x'.repeat(128)], ['ABCXYZabcxyz0189._-']];
  const invalid = [[''], ['x'.repeat(129)], ['a b'], ['a/b'], ['caf\xc3\xa9'], ['a', 'b'], []];
  const seen = new Set<string>();
  for (const ids of [...valid, ...invalid]) {
    const fields = ids.map((id) => `X-Request-Id: ${id}\r\n`).join('');
    const [response] = await exchanged(get('/nowhere', CLOSE + fields));
    const id = String(response?.headers.get('x-request-id'));
    if (valid.includes(ids)) assert.equal(id, ids[0]);
    else assert.match(id, /^[A-Za-z0-9._-]{8,128}$/);
    await logged(response!);
    seen.add(id);
  }
  assert.equal(seen.size, valid.length + invalid.length);
});

for (const [bytes, status, why] of REFUSED) {
  test(`2.1, 2.2, 2.4, 2.10, 6.3 ${why} returns ${status}, closes, and nothing after it is processed`, async () => {
    const responses = await exchanged(bytes);
    assert.deepEqual(outcomes(responses), [`${status} close`]);
    await logged(responses[0]!);
  });
}

test('2.1 2.10 a target with characters that are not ASCII, as curl sends them, gets 400 with the reason', async () => {
  for (const target of ['/users?email=j\xc3\xb6@x', '/caf\xc3\xa9']) {
    const [response] = await exchanged(get(target));
    assert.equal(response!.status, 400);
    assert.match(response!.body, /^The URL .* percent-encode/);
  }
});

for (const [bytes, why] of ACCEPTED) {
  test(`2.4 2.14 6.3 ${why} is served`, async () =>
    assert.deepEqual(outcomes(await exchanged(bytes)), ['200 close']));
}

for (const isTls of [false, true]) {
  // Node reports later that it has written a response: over TLS, after the client has it.
  test(`2.11 2.12 a request with a body that follows a response at once is served, with an offer or without${isTls ? ', over TLS' : ''}`, {
    skip: isTls && NO_OPENSSL,
  }, async () => {
    await using own = await start(isTls ? certificate() : {});
    await using client = await open(own.url, {}, isTls);
    let served = 0;
    const ask = async () => {
      for (; served < 100; served++) {
        const offer = served % 2 ? OFFER : '';
        const response = await client.ask(post(`at-once-${served}@example.com`, offer));
        assert.deepEqual(outcomes([response]), ['201 keep-alive']);
        // A document is sent in slices.
        const from = client.text().length;
        await client.write(get('/docs'));
        await client.received(/<\/html>\n$/, from);
      }
    };
    await Promise.race([ask(), client.closed]);
    assert.equal(served, 100);
  });
}

test('2.16 a client that closes its side gets its responses, on whichever socket of the port', async () => {
  const statuses = Array.from({ length: 9 }, async () => {
    const { socket, closed, text } = await open(program.url, { allowHalfOpen: true });
    socket.end(get('/users').repeat(9));
    await closed;
    return statusesOf(responsesIn(text()));
  });
  assert.deepEqual((await Promise.all(statuses)).flat(), Array(81).fill(200));
});

// Node's parser hides its errors from an offer to the end of the next head.
test('2.12 2.10 malformed input after an offer gets 408, and nothing after it is processed', async () => {
  const spaced = GET.replace('Host', 'Host ');
  const inputs = ['FOO / HTTP/1.1\r\n\r\n', '\0', spaced, 'GET / HTTP/3.0\r\n\r\n'];
  const clients = inputs.map(async (input) => {
    await using client = await open(program.url);
    await client.ask(get('/', OFFER));
    await client.write(input + GET);
    await client.closed;
    assert.deepEqual(outcomes(responsesIn(client.text())), ['200 keep-alive', '408 close']);
  });
  await Promise.all(clients);
});

test('2.9 a client that resets after CONNECT causes no error line', async () => {
  for (let i = 0; i < 5; i++) {
    const { socket, closed } = await open(program.url);
    socket.write('CONNECT x:1 HTTP/1.1\r\n\r\n', () => socket.resetAndDestroy());
    await closed;
  }
  await logged(await send(program.url));
  assert.ok(!program.log.some(({ message }) => message === 'fault outside a request'));
});

test('1 BODY_LIMIT_BYTES: as many bytes are accepted, and one more returns 413, before it is read if it is announced (2.8, 2.15)', async () => {
  for (const [route, body, type, coding] of [
    ['POST /token', LOGIN, JSON_TYPE, 'identity'],
    ['GET /', '\xff', 'text/csv', 'gzip'], // It takes no body: one of any type is dropped.
  ] as const) {
    for (const framing of ['length', 'chunks'] as const) {
      const fields = `${CLOSE}Content-Encoding: ${coding}\r\n`;
      const options = { type, framing, fields };
      const sent = (length: number) => exchanged(request(route, body.padEnd(length), options));
      assert.deepEqual(statusesOf(await sent(LIMIT)), [200], route);
      assert.deepEqual(statusesOf(await sent(LIMIT + 1)), [413], route);
    }
    for (const fields of ['', EXPECT]) {
      const [head] = parts(request(route, body.padEnd(LIMIT + 1), { fields }));
      assert.deepEqual(statusesOf(await exchanged(head)), [413], route);
    }
  }
});

test('2.8 a body larger than a 160th of the budget returns 413 too, not a reset (6.17)', async () => {
  const env = { MEMORY_LIMIT_BYTES: '67108865', BODY_LIMIT_BYTES: '16777216' };
  await using own = await start(env);
  const limit = 2 ** 16; // The budget is 10 MiB and a quarter of a byte.
  const sent = (body: string) => exchange(own.url, request('POST /token', body, { fields: CLOSE }));
  assert.deepEqual(statusesOf(await sent(LOGIN.padEnd(limit))), [200]);
  const [refused] = await sent(LOGIN.padEnd(limit + 1));
  assert.equal(refused?.body, `The body is larger than ${limit} bytes.`);
});

test('2.14 a client of HTTP/1.1 that expects 100 gets it, in a list too', async () => {
  for (const [version, expect, isTold] of [
    ['1.1', '100-continue', true],
    ['1.1', 'the-impossible, 100-Continue', true],
    ['1.1', 'the-impossible', false],
    ['1.0', '100-continue', false],
  ] as const) {
    const fields = `Expect: ${expect}\r\n${CLOSE}`;
    const [head, content = ''] = parts(request('PATCH /users/1', '{}', { version, fields }));
    await using client = await open(program.url);
    await client.write(head);
    if (isTold) await client.received(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
    await client.write(content);
    await client.closed;
    const expected = isTold ? [100, 200] : [200];
    assert.deepEqual(statusesOf(responsesIn(client.text())), expected, expect);
  }
});

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
    const fields = framing === 'chunks' || length > 102_400 ? '' : CLOSE; // 2.13
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
