// Rule 2.12 of the contract: Upgrade offers. Java's HttpClient sends one with every plain-text request.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { type Client, GET, open, outcomes, request } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { responsesIn } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';

// The offer of Java 17.
const OFFER =
  'Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA\r\nUpgrade: h2c\r\n';
const OFFERING = GET.replace(/\r\n$/, `${OFFER}\r\n`);
const post = (body = '{}') => request('POST /token', body, { fields: OFFER });

for (const [transport, env, skip] of [
  ['plain text', {}, false],
  ['TLS', NO_OPENSSL ? {} : certificate(), NO_OPENSSL],
] as const) {
  describe(`2.12 an Upgrade offer over ${transport}`, { skip, timeout: 120_000 }, () => {
    let program: Program;
    before(async () => {
      program = await start(env);
    });

    const connect = () => open(program.url, {}, transport === 'TLS');

    /** Sends the parts, each of which the service reads before the next. */
    async function sendIn(client: Client, parts: readonly string[]): Promise<void> {
      for (const part of parts) {
        await client.write(part);
        // By the time that later connections have responses, the service has read it.
        for (let i = 0; i < 3; i++) {
          await using other = await connect();
          await other.ask();
        }
      }
    }

    test('2.12 an offer that arrives alone, in one read or in many, is ignored, and the connection is kept', async () => {
      await using client = await connect();
      for (const bytes of [OFFERING, OFFERING, post(), GET]) {
        const status = bytes.startsWith('POST') ? 401 : 200;
        assert.deepEqual(outcomes([await client.ask(bytes)]), [`${status} keep-alive`]);
      }
      const bytes = post('{"id":"a","pw":"b"}');
      const head = bytes.indexOf('{');
      for (const cut of [40, 120]) {
        const ends = [0, cut, head, head + 3];
        await sendIn(
          client,
          ends.slice(1).map((end, i) => bytes.slice(ends[i], end)),
        );
        const response = await client.ask(bytes.slice(head + 3));
        assert.deepEqual(outcomes([response]), ['401 keep-alive']);
      }
      assert.deepEqual(outcomes([await client.ask()]), ['200 keep-alive']);
    });

    // Node's parser hides its errors from an offer to the end of the next head.
    test('2.12 2.10 malformed input after an offer gets 408, and nothing after it is processed', async () => {
      const inputs = [
        'FOO / HTTP/1.1\r\n\r\n',
        '\0',
        GET.replace('Host', 'Host '),
        'GET / HTTP/3.0\r\n\r\n',
      ];
      await Promise.all(
        inputs.map(async (input) => {
          await using client = await connect();
          await client.ask(OFFERING);
          await client.write(input + GET);
          await client.closed;
          assert.deepEqual(outcomes(responsesIn(client.text())), ['200 keep-alive', '408 close']);
        }),
      );
    });

    for (const [why, ...parts] of [
      ['a request behind it in one read', OFFERING + GET],
      ['bytes of the new protocol behind it', `${OFFERING}PRI * HTTP/2.0`],
      ['a request behind its body in one read', post() + GET],
      ['a request behind the end of its body', post().slice(0, -2), `{}${GET}`],
      // The end of the head is split over two reads, so its position is unknown.
      ['its last line break in two reads', OFFERING.slice(0, -2), `\r\n${GET}`],
      ['its last byte in another read', OFFERING.slice(0, -1), `\n${GET}`],
      [
        'a body of unknown length',
        request('POST /token', '{}', { fields: OFFER, framing: 'chunks' }),
      ],
      ['another request before it in one read', GET + OFFERING + GET],
    ] as const) {
      test(`2.12 an offer with ${why} closes the connection with the response`, async () => {
        await using client = await connect();
        await sendIn(client, parts);
        await client.closed;
        const allowed = why.startsWith('another')
          ? /^200 keep-alive,200 close$/
          : /^(?:200|401) close$/;
        assert.match(outcomes(responsesIn(client.text())).join(), allowed);
      });
    }
  });
}
