// Rule 2.12 of the contract: Upgrade offers. Java's HttpClient sends one with every plain-text
// request.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { request } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { find } from '../support/daemon.ts';
import { newFolder, type Program, start } from '../support/program.ts';

// The offer of Java 17.
const OFFER =
  'Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA\r\nUpgrade: h2c\r\n';

const get = (fields = '') => `GET / HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;
const post = (body = '{}') => request('POST /token', body, { fields: OFFER });

/** A connection that the test reads response by response. */
async function openClient(url: string) {
  const { hostname: host, port, protocol } = new URL(url);
  const options = { host, port: Number(port), rejectUnauthorized: false };
  const socket = protocol === 'https:' ? connectTls(options) : connect(options);
  socket.setNoDelay(true).setEncoding('latin1');
  socket.on('error', () => {});
  let received = '';
  socket.on('data', (text: string) => {
    received += text;
  });
  return {
    send: (bytes: string) => void socket.write(bytes),
    /** Resolves with the status of the next response and `keep` or `close`, or with `end`. */
    async response(): Promise<string> {
      for (;;) {
        const [head] = /^.*?\r\n\r\n/s.exec(received) ?? [];
        const length = Number(/^content-length: (\d+)/im.exec(head ?? '')?.[1] ?? 0);
        if (head !== undefined && received.length >= head.length + length) {
          received = received.slice(head.length + length);
          return `${head.split(' ')[1]} ${/^connection: close/im.test(head) ? 'close' : 'keep'}`;
        }
        if (socket.readableEnded) return 'end';
        await Promise.race([once(socket, 'data'), once(socket, 'end')]);
      }
    },
    [Symbol.asyncDispose]: async () => void socket.destroy(),
  };
}

/** Resolves when the service has read the earlier data of another connection. */
async function settle(url: string): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await using other = await openClient(url);
    other.send(get());
    await other.response();
  }
}

const TLS = NO_OPENSSL ? undefined : certificate();

for (const [transport, env, skip] of [
  ['plain text', {}, false],
  ['TLS', TLS ?? {}, NO_OPENSSL],
] as const) {
  describe(`2.12 an Upgrade offer over ${transport}`, { skip, timeout: 120_000 }, () => {
    let program: Program;
    before(async () => {
      program = await start(env);
    });
    after(() => program?.[Symbol.asyncDispose]());

    test('2.12 an offer that arrives alone is ignored, and the connection is kept', async () => {
      await using client = await openClient(program.url);
      for (const bytes of [get(OFFER), get(OFFER), post(), get()]) {
        client.send(bytes);
        const status = bytes.startsWith('POST') ? 401 : 200;
        assert.equal(await client.response(), `${status} keep`);
      }
    });

    test('2.12 an offer whose head and body arrive in many reads keeps the connection', async () => {
      await using client = await openClient(program.url);
      for (const cut of [40, 120]) {
        const bytes = post('{"id":"a","pw":"b"}');
        const head = bytes.indexOf('{');
        for (const [from, to] of [
          [0, cut],
          [cut, head],
          [head, head + 3],
          [head + 3, bytes.length],
        ] as const) {
          client.send(bytes.slice(from, to));
          await settle(program.url);
        }
        assert.equal(await client.response(), '401 keep');
      }
      client.send(get());
      assert.equal(await client.response(), '200 keep');
    });

    for (const [why, parts] of [
      ['a request behind it in one read', [get(OFFER) + get()]],
      ['bytes of the new protocol behind it', [`${get(OFFER)}PRI * HTTP/2.0`]],
      ['a request behind its body in one read', [post() + get()]],
      ['a request behind the end of its body', [post().slice(0, -2), `{}${get()}`]],
      // The end of the head is split over two reads, so its position is unknown.
      [
        'a head cut in its last line break, and a request behind it',
        [get(OFFER).slice(0, -2), `\r\n${get()}`],
      ],
      [
        'a head cut in its last byte, and a request behind it',
        [get(OFFER).slice(0, -1), `\n${get()}`],
      ],
      [
        'a body of unknown length',
        [request('POST /token', '{}', { fields: OFFER, framing: 'chunks' })],
      ],
    ] as const) {
      test(`2.12 ${why} closes the connection with the response`, async () => {
        await using client = await openClient(program.url);
        for (const part of parts) {
          client.send(part);
          await settle(program.url);
        }
        assert.match(await client.response(), /^(?:200|401) close$/);
        assert.equal(await client.response(), 'end');
      });
    }

    test('2.12 an offer after another request in one read loses no byte silently', async () => {
      await using client = await openClient(program.url);
      client.send(get() + get(OFFER) + get());
      // An offer doesn't wait for a response that is still to be written: the connection ends after it (2.11).
      const responses = [];
      while (responses.at(-1) !== 'end') responses.push(await client.response());
      assert.match(responses.join(), /^200 (?:keep,200 close|keep|close),end$/);
    });
  });
}

const JAVA = find('java');

/** Sends requests one at a time; prints the number of responses by status. */
const JAVA_CLIENT = `
import java.net.URI;
import java.net.http.*;
import java.util.*;

class Client {
  public static void main(String[] args) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    Map<Integer, Integer> statuses = new TreeMap<>();
    for (int i = 0; i < 400; i++) {
      HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(args[0] + "/users"));
      if (i % 2 == 1) {
        String user = "{\\"name\\":\\"Ada\\",\\"email\\":\\"ada-" + i + "@example.com\\"}";
        request.header("Content-Type", "application/json")
          .POST(HttpRequest.BodyPublishers.ofString(user));
      }
      HttpResponse<String> response =
        client.send(request.build(), HttpResponse.BodyHandlers.ofString());
      statuses.merge(response.statusCode(), 1, Integer::sum);
    }
    System.out.println(statuses);
  }
}
`;

test("2.12 Java's HttpClient reuses its connection", {
  skip: JAVA === undefined && 'no java is installed',
  timeout: 300_000,
}, async () => {
  await using program = await start();
  // Counts connections and forwards their bytes.
  let connections = 0;
  let offers = 0;
  const { port } = new URL(program.url);
  const counter = createServer((client) => {
    connections++;
    const service = connect(Number(port), '127.0.0.1');
    client.on('data', (bytes) => {
      if (bytes.includes('Upgrade: h2c')) offers++;
    });
    client.pipe(service).pipe(client);
    client.on('error', () => service.destroy());
    service.on('error', () => client.destroy());
  }).listen(0, '127.0.0.1');
  await once(counter, 'listening');
  const { port: counterPort } = counter.address() as { port: number };
  const file = join(newFolder(), 'Client.java');
  writeFileSync(file, JAVA_CLIENT);
  const java = spawn(JAVA!, [file, `http://127.0.0.1:${counterPort}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  java.stdout.setEncoding('utf8').on('data', (text) => {
    output += text;
  });
  await once(java, 'close');
  counter.close();
  assert.equal(output, '{200=200, 201=200}\n');
  assert.equal(offers, 400);
  // The client can open a few more connections.
  assert.ok(connections <= 4, `${connections} connections`);
});
