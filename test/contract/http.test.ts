// Section 2 of the contract: headers of every response, refusals of input that reached no route,
// and failures of the service. Paths are in paths.test.ts, bodies in bodies.test.ts. The client checks
// each response against openapi.json: its type, its headers, and the sentence of an error.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { GET, items, open, outcomes, request } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { exchange, responsesIn, send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';
import { ACCEPTED, REFUSED } from '../vectors/messages.ts';

const CLOSE = 'Connection: close\r\n';
const CONNECT = 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n';
// Java's HttpClient sends such an offer with every plain-text request.
const OFFER =
  'Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA\r\nUpgrade: h2c\r\n';
const get = (path: string, fields = '', version = '1.1') =>
  `GET ${path} HTTP/${version}\r\n${version === '1.1' ? 'Host: x\r\n' : ''}${fields}\r\n`;
const post = (email: string, fields = '') =>
  request('POST /users', JSON.stringify({ name: 'Ben', email }), { fields });

describe('2 every response', () => {
  let program: Program;
  before(async () => {
    program = await start();
  });

  const exchanged = (...bytes: string[]) => exchange(program.url, ...bytes);

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
      await program.until(({ log }) => log.some((line) => line.requestId === id));
      seen.add(id);
    }
    assert.equal(seen.size, valid.length + invalid.length);
  });

  for (const [bytes, status, why] of REFUSED) {
    test(`2.1, 2.2, 2.4, 2.10, 6.3 ${why} returns ${status}, closes, and nothing after it is processed`, async () => {
      const responses = await exchanged(bytes);
      assert.deepEqual(outcomes(responses), [`${status} close`]);
      const id = responses[0]!.headers.get('x-request-id');
      await program.until(({ log }) => log.some((line) => line.requestId === id));
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
    test(`2.4 6.3 ${why} is served`, async () =>
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

  test('2.12 CONNECT with any Host returns 405 with Allow and closes', async () => {
    for (const bytes of [CONNECT, 'CONNECT x:443 HTTP/1.1\r\n\r\n']) {
      const responses = await exchanged(bytes);
      assert.deepEqual(outcomes(responses), ['405 close']);
      const allowed = items(responses[0]!.headers.get('allow'));
      assert.deepEqual(allowed, ['delete', 'get', 'head', 'options', 'patch', 'post', 'put']);
    }
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
      socket.write(CONNECT, () => socket.resetAndDestroy());
      await closed;
    }
    assert.equal((await send(program.url)).status, 200);
    assert.ok(!program.log.some(({ message }) => message === 'fault outside a request'));
  });
});
