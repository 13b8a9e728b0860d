// Rule 2.12 of the contract: Upgrade offers. Java's HttpClient sends one with every plain-text
// request.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { find } from '../support/daemon.ts';
import { newFolder, type Program, start } from '../support/program.ts';

// The offer of Java 17.
const OFFER =
  'Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA\r\nUpgrade: h2c\r\n';

function get(path: string, fields = ''): string {
  return `GET ${path} HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;
}

function post(fields: string, body: string): string {
  const length = `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return `POST /token HTTP/1.1\r\nHost: x\r\n${fields}${length}\r\n${body}`;
}

/** A connection that the test writes to and reads from step by step. */
class Client {
  readonly #socket: Socket;
  #received = '';

  constructor(url: string) {
    const { hostname, port, protocol } = new URL(url);
    this.#socket =
      protocol === 'https:'
        ? connectTls({ host: hostname, port: Number(port), rejectUnauthorized: false })
        : connect(Number(port), hostname);
    this.#socket.setNoDelay(true).setEncoding('latin1');
    this.#socket.on('data', (text: string) => {
      this.#received += text;
    });
    this.#socket.on('error', () => {});
  }

  send(bytes: string): void {
    this.#socket.write(bytes);
  }

  /** Resolves with the status of the next response and `keep` or `close`, or with `end`. */
  async response(): Promise<string> {
    for (;;) {
      const [head] = /^.*?\r\n\r\n/s.exec(this.#received) ?? [];
      const length = Number(/^content-length: (\d+)/im.exec(head ?? '')?.[1] ?? 0);
      if (head !== undefined && this.#received.length >= head.length + length) {
        this.#received = this.#received.slice(head.length + length);
        const ends = /^connection: close/im.test(head);
        return `${head.split(' ')[1]} ${ends ? 'close' : 'keep'}`;
      }
      if (this.#socket.readableEnded) return 'end';
      await Promise.race([once(this.#socket, 'data'), once(this.#socket, 'end')]);
    }
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}

/** Resolves when the service has read the earlier data of another connection. */
async function settle(url: string): Promise<void> {
  for (let i = 0; i < 3; i++) {
    using other = new Client(url);
    other.send(get('/'));
    await other.response();
  }
}

const PLAIN = {};
const TLS = NO_OPENSSL ? undefined : certificate();

for (const [transport, env, skip] of [
  ['plain text', PLAIN, false],
  ['TLS', TLS ?? {}, NO_OPENSSL],
] as const) {
  describe(`2.12 an Upgrade offer over ${transport}`, { skip, timeout: 120_000 }, () => {
    let program: Program;
    before(async () => {
      program = await start(env);
    });
    after(() => program?.[Symbol.asyncDispose]());

    test('2.12 an offer that arrives alone is ignored, and the connection is kept', async () => {
      using client = new Client(program.url);
      for (const request of [get('/', OFFER), get('/', OFFER), post(OFFER, '{}'), get('/')]) {
        client.send(request);
        const status = request.startsWith('POST') ? 401 : 200;
        assert.equal(await client.response(), `${status} keep`);
      }
    });

    test('2.12 an offer whose head and body arrive in many reads keeps the connection', async () => {
      using client = new Client(program.url);
      for (const cut of [40, 120]) {
        const request = post(OFFER, '{"id":"a","pw":"b"}');
        const head = request.indexOf('{');
        for (const [from, to] of [
          [0, cut],
          [cut, head],
          [head, head + 3],
          [head + 3, request.length],
        ] as const) {
          client.send(request.slice(from, to));
          await settle(program.url);
        }
        assert.equal(await client.response(), '401 keep');
      }
      client.send(get('/'));
      assert.equal(await client.response(), '200 keep');
    });

    for (const [why, parts] of [
      ['a request behind it in one read', [get('/', OFFER) + get('/')]],
      ['bytes of the new protocol behind it', [`${get('/', OFFER)}PRI * HTTP/2.0`]],
      ['a request behind its body in one read', [post(OFFER, '{}') + get('/')]],
      ['a request behind the end of its body', [post(OFFER, '{}').slice(0, -2), `{}${get('/')}`]],
      // The end of the head is split over two reads, so its position is unknown.
      [
        'a head cut in its last line break, and a request behind it',
        [get('/', OFFER).slice(0, -2), `\r\n${get('/')}`],
      ],
      [
        'a head cut in its last byte, and a request behind it',
        [get('/', OFFER).slice(0, -1), `\n${get('/')}`],
      ],
      [
        'a body of unknown length',
        [
          `POST /token HTTP/1.1\r\nHost: x\r\n${OFFER}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
        ],
      ],
    ] as const) {
      test(`2.12 ${why} closes the connection with the response`, async () => {
        using client = new Client(program.url);
        for (const part of parts) {
          client.send(part);
          await settle(program.url);
        }
        assert.match(await client.response(), /^(?:200|401) close$/);
        assert.equal(await client.response(), 'end');
      });
    }

    test('2.12 an offer after another request in one read loses no byte silently', async () => {
      using client = new Client(program.url);
      client.send(get('/') + get('/', OFFER) + get('/'));
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
