// Section 2 of the contract: request bodies, their media types, codings and limits (2.8).
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { newDatabase, PASSWORD, type Program, STORES, start, USER } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const LIMIT = 16_384;
const UNREAD_LIMIT = 102_400;

const CREDENTIALS = JSON.stringify({ id: USER, pw: PASSWORD });
const FORM = new URLSearchParams({ id: USER, pw: PASSWORD }).toString();
const FORM_TYPE = 'application/x-www-form-urlencoded';
const PATCH_TYPES = ['application/json', 'application/merge-patch+json'];

/** Each route that takes a body, its media types, and a body of the first type. */
const ROUTES = [
  ['POST', '/token', ['application/json', FORM_TYPE], CREDENTIALS, 200],
  ['POST', '/users', ['application/json'], '{"name":"Ann","email":"EMAIL"}', 201],
  ['PUT', '/users/1', ['application/json'], '{"name":"Ann","email":"EMAIL"}', 200],
  ['PATCH', '/users/1', PATCH_TYPES, '{"name":"Ann"}', 200],
] as const;

/** Spellings of Content-Type that each route above accepts as JSON. */
const SPELLINGS = [
  ['application/json', 'plain'],
  ['Application/JSON', 'another case'],
  ['application/json; charset=utf-8', 'the charset'],
  ['application/json;charset="UTF-8"', 'the charset in quotes'],
  ['application/json ; Charset=Utf-8', 'spaces and another case'],
  ['application/json; charset=utf8', 'the common name of the charset'],
  ['application/json; charset="UTF8"', 'the same in quotes and another case'],
  ['application/json; charset=US-ASCII', 'a subset of UTF-8'],
  ['application/json;charset=ascii', 'the common name of the subset'],
  ['application/json; version=1', 'another parameter'],
] as const;

/** Content-Types that no route accepts. */
const FOREIGN = [
  ['text/plain', 'text'],
  ['text/json', 'text that claims to be JSON'],
  ['application/jsonx', 'a longer word'],
  ['application/xml', 'XML'],
  ['application', 'no subtype'],
  ['application/json, text/plain', 'two types'],
  ['multipart/form-data; boundary=x', 'the other form type'],
  ['application/json; charset=iso-8859-1', 'Latin-1'],
  ['application/json; charset=utf-16', 'UTF-16'],
  ['application/json; charset=utf-16le', 'UTF-16 in one order'],
  ['application/json; charset=utf-7', 'UTF-7'],
  ['application/json; charset=ascii2', 'a longer name'],
  ['application/json; charset=utf-8; charset=latin1', 'a second charset'],
] as const;

const MALFORMED_JSON = [
  ['{', 'an end too early'],
  ['{"name":"Ann","email":"a@b",}', 'a comma too many'],
  ["{'name':'Ann'}", 'single quotes'],
  ['{"name":NaN}', 'NaN'],
  ['{} {}', 'two values'],
  ['name=Ann', 'a form'],
  [' ', 'white space alone'],
  ['{"name":"\xff"}', 'a byte that UTF-8 lacks'],
  ['{"name":"\xc0\xaf"}', 'an overlong slash'],
  ['{"name":"\xed\xa0\x80"}', 'a surrogate'],
  ['{"name":"Ann","email":"a@b"}\xe2\x82', 'a cut character'],
] as const;

const MALFORMED_FORMS = [
  ['id=%zz', 'no digits behind a percent sign'],
  ['id=%', 'a percent sign alone'],
  ['%E0%A4=x', 'a name that is no UTF-8'],
  ['id=%FF', 'an encoded byte that UTF-8 lacks'],
  ['id=\xff', 'a byte that UTF-8 lacks'],
] as const;

for (const store of STORES) {
  describe(`2.8 bodies, ${store}`, { timeout: 300_000 }, () => {
    let program: Program;
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
      const body = { name: 'First', email: 'first@example.com' };
      assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
    });
    after(() => program[Symbol.asyncDispose]());

    /** Sends a body, by default as JSON, with its length. */
    async function ask(
      method: string,
      path: string,
      body: string,
      headers: Record<string, string> = { 'content-type': 'application/json' },
    ): Promise<HttpResponse> {
      const bytes = Buffer.from(body.replace('EMAIL', email()), 'latin1');
      return send(program.url + path, { method, headers, body: bytes });
    }

    for (const [method, path, types, body, status] of ROUTES) {
      for (const [type, why] of SPELLINGS) {
        test(`2.8 ${method} ${path} accepts Content-Type: ${type} (${why})`, async () => {
          assert.equal((await ask(method, path, body, { 'content-type': type })).status, status);
        });
      }

      for (const [type, why] of FOREIGN) {
        test(`2.8 ${method} ${path} with Content-Type: ${type} (${why}) returns 415`, async () => {
          const response = await ask(method, path, body, { 'content-type': type });
          assert.equal(response.status, 415);
          assert.equal(response.headers.get('content-type'), TEXT);
        });
      }

      const others = [
        'application/json',
        FORM_TYPE,
        'application/merge-patch+json',
        'text/plain',
        '',
      ];
      test(`2.8 ${method} ${path} lists its types in the 415 for another type and for none`, async () => {
        const refused = others.filter((type) => !(types as readonly string[]).includes(type));
        assert.ok(refused.length >= 3);
        for (const type of refused) {
          const head = type && `Content-Type: ${type}\r\n`;
          const response = await responseTo(program.url, request(method, path, head, body));
          assert.equal(response.status, 415, type);
          assert.equal(response.headers.get('content-type'), TEXT);
          assert.deepEqual(items(response.headers.get('accept')), types);
          const patch = method === 'PATCH' ? types : [''];
          assert.deepEqual(items(response.headers.get('accept-patch')), patch);
        }
      });

      for (const coding of ['gzip', 'br', 'deflate', 'identity, gzip', 'zstd']) {
        test(`2.8 ${method} ${path} with Content-Encoding: ${coding} returns 415`, async () => {
          const headers = { 'content-type': 'application/json', 'content-encoding': coding };
          const response = await ask(method, path, body, headers);
          assert.deepEqual(
            [
              response.status,
              response.headers.get('accept-encoding'),
              response.headers.get('content-type'),
            ],
            [415, 'identity', TEXT],
          );
        });
      }

      for (const coding of ['identity', 'Identity']) {
        test(`2.8 ${method} ${path} accepts Content-Encoding: ${coding}`, async () => {
          const headers = { 'content-type': 'application/json', 'content-encoding': coding };
          assert.equal((await ask(method, path, body, headers)).status, status);
        });
      }

      for (const [text, why] of MALFORMED_JSON) {
        test(`2.8 ${method} ${path} with malformed JSON (${why}) returns 400`, async () => {
          const response = await ask(method, path, text);
          assert.deepEqual([response.status, response.headers.get('content-type')], [400, TEXT]);
        });
      }

      test(`2.8 ${method} ${path} accepts ${LIMIT} bytes, with a length and in chunks`, async () => {
        for (const framing of [request, chunked]) {
          const padded = body.replace('EMAIL', email()).padEnd(LIMIT);
          const bytes = framing(method, path, 'Content-Type: application/json\r\n', padded);
          assert.equal((await responseTo(program.url, bytes)).status, status, framing.name);
        }
      });

      test(`2.8 ${method} ${path} refuses ${LIMIT + 1} bytes with 413 and Connection: close`, async () => {
        for (const framing of [request, chunked]) {
          const padded = body.replace('EMAIL', email()).padEnd(LIMIT + 1);
          const bytes = framing(method, path, 'Content-Type: application/json\r\n', padded, '');
          assertTooLarge(await responseTo(program.url, bytes));
        }
      });

      test(`2.8 ${method} ${path} refuses a Content-Length over the limit before reading the body`, async () => {
        const head = `${method} ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`;
        const length = `Content-Length: ${LIMIT + 1}\r\n`;
        for (const expect of ['', 'Expect: 100-continue\r\n']) {
          assertTooLarge(await responseTo(program.url, `${head}${length}${expect}\r\n`));
        }
      });

      for (const { why, version, expect } of [
        { why: 'HTTP/1.0', version: '1.0', expect: '100-continue' },
        { why: 'another expectation', version: '1.1', expect: 'the-impossible' },
      ]) {
        test(`2.8 ${method} ${path} never sends 100 to ${why}`, async () => {
          const head = `${method} ${path} HTTP/${version}\r\nHost: x\r\nExpect: ${expect}\r\n`;
          const rest =
            'Connection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}';
          const response = await responseTo(program.url, head + rest);
          assert.notEqual(response.status, 100);
          assert.ok(response.status >= 200 && response.status < 500, String(response.status));
        });
      }

      for (const expect of ['100-continue', 'the-impossible, 100-Continue']) {
        test(`2.8 ${method} ${path} sends 100 for Expect: ${expect} within the limit`, async () => {
          const text = body.replace('EMAIL', email());
          await using client = await open(program.url);
          const [head, content] = request(
            method,
            path,
            'Content-Type: application/json\r\n',
            text,
            '',
          )
            .replace('\r\n\r\n', `\r\nExpect: ${expect}\r\nConnection: close\r\n\r\n`)
            .split(/(?<=\r\n\r\n)/);
          client.socket.write(String(head));
          await once(client.socket, 'data');
          assert.equal(client.text(), 'HTTP/1.1 100 Continue\r\n\r\n');
          client.socket.write(String(content));
          await client.closed;
          assert.equal(parse(client.text().slice(25)).status, status);
        });
      }
    }

    for (const framing of ['Content-Length: 2', 'Transfer-Encoding: chunked']) {
      test(`2.14 a refused type gets 415 and never 100, with ${framing}`, async () => {
        const head = 'POST /users HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n';
        const response = await responseTo(
          program.url,
          `${head}Content-Type: text/plain\r\n${framing}\r\n\r\n`,
        );
        assert.deepEqual([response.status, response.headers.get('connection')], [415, 'close']);
      });
    }

    for (const [declared, framing] of [
      ['with its length', request],
      ['in chunks', chunked],
    ] as const) {
      test(`2.8, 2.13 a client that sends 1 MiB ${declared} before it reads can read the 413`, async () => {
        await using client = await open(program.url);
        client.socket.pause();
        const text = JSON.stringify({ name: 'x'.repeat(2 ** 20), email: 'x@example.com' });
        const bytes = framing('POST', '/users', 'Content-Type: application/json\r\n', text, '');
        const half = bytes.length / 2;
        for (const part of [bytes.slice(0, half), bytes.slice(half)]) {
          await new Promise((resolve) => client.socket.write(part, resolve));
          // Once another connection has a response, the service has read the first half.
          assert.equal((await send(program.url)).status, 200);
        }
        client.socket.resume();
        await client.closed;
        assertTooLarge(parse(client.text()));
      });
    }

    test('2.8 a body in chunks of one byte takes memory only for its bytes', async () => {
      await using own = await start();
      const resident = async () => {
        const { body } = await send(`${own.adminUrl}/metrics`);
        return Number(/^process_memory_usage_bytes (\S+)$/m.exec(body)![1]);
      };
      const before = await resident();
      const head = 'POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n';
      const type = 'Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
      const clients = await Promise.all(Array.from({ length: 8 }, () => open(own.url)));
      const chunks = '1\r\n \r\n'.repeat(LIMIT);
      for (const { socket } of clients) {
        await new Promise((resolve) => socket.write(head + type + chunks, resolve));
      }
      // Once another connection has a response, the service holds all of them.
      assert.equal((await send(own.url)).status, 200);
      const grown = (await resident()) - before;
      assert.ok(grown < 100e6, `${grown} bytes more`);
      for (const { socket } of clients) socket.write('0\r\n\r\n');
      await Promise.all(clients.map(({ closed }) => closed));
      const statuses = clients.map((client) => parse(client.text()).status);
      assert.deepEqual(
        statuses,
        clients.map(() => 400),
      );
    });

    test('2.8 POST /token accepts a form, with parameters in its media type', async () => {
      for (const type of [FORM_TYPE, `${FORM_TYPE}; charset=UTF-8`, FORM_TYPE.toUpperCase()]) {
        assert.equal(
          (await ask('POST', '/token', FORM, { 'content-type': type })).status,
          200,
          type,
        );
      }
      const type = `${FORM_TYPE}; charset=iso-8859-1`;
      assert.equal((await ask('POST', '/token', FORM, { 'content-type': type })).status, 415);
    });

    for (const [text, why] of MALFORMED_FORMS) {
      test(`2.8 POST /token with a malformed form (${why}) returns 400`, async () => {
        const response = await ask('POST', '/token', text, { 'content-type': FORM_TYPE });
        assert.deepEqual([response.status, response.headers.get('content-type')], [400, TEXT]);
      });
    }

    test('2.8 PATCH accepts application/merge-patch+json', async () => {
      for (const type of [
        'application/merge-patch+json',
        'Application/Merge-Patch+JSON; charset=utf-8',
      ]) {
        const response = await ask('PATCH', '/users/1', '{"name":"Ann"}', { 'content-type': type });
        assert.deepEqual([response.status, JSON.parse(response.body).name], [200, 'Ann']);
      }
    });

    test('2.8 a request without a body needs no Content-Type', async () => {
      const rows = [
        ['POST', '/token', 401],
        ['POST', '/users', 400],
        ['GET', '/users/1', 200],
      ] as const;
      for (const [method, path, status] of rows) {
        const head = `${method} ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`;
        assert.equal((await responseTo(program.url, head)).status, status, `${method} ${path}`);
      }
    });

    const tooLong = `POST /users HTTP/1.1\r\nHost: x\r\nContent-Length: ${LIMIT + 1}\r\n\r\n`;
    for (const { why, bytes, statuses } of [
      { why: 'that was refused', bytes: tooLong, statuses: [413] },
      {
        why: 'refused after a response',
        bytes: 'GET /users HTTP/1.1\r\nHost: x\r\n\r\nno HTTP\r\n\r\n',
        statuses: [200, 400],
      },
    ]) {
      test(`2.13 a connection ${why} is read for 2 s and then closed`, async () => {
        const { hostname, port } = new URL(program.url);
        const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
        socket.on('error', () => {});
        let text = '';
        const seen = () => Array.from(text.matchAll(/HTTP\/1\.1 (\d+)/g), ([, status]) => status);
        socket.setEncoding('latin1').on('data', (part: string) => {
          text += part;
        });
        const began = performance.now();
        socket.write(bytes);
        await once(socket, 'end');
        assert.deepEqual(seen().map(Number), statuses);
        // Our side stays open. The service drops its data, then closes the connection.
        const more = setInterval(() => socket.write('x'.repeat(100)), 100);
        await new Promise((resolve) => socket.once('close', resolve));
        clearInterval(more);
        const took = performance.now() - began;
        assert.ok(took > 1_990 && took < 6_000, `after ${took} ms`);
      });
    }

    for (const { why, version, fields } of [
      { why: 'HTTP/1.1 with Connection: close', version: '1.1', fields: 'Connection: close\r\n' },
      { why: 'HTTP/1.0', version: '1.0', fields: '' },
    ]) {
      test(`2.13 a client of ${why} that sends its whole body before it reads gets its response`, async () => {
        for (const [target, status] of [
          ['/users', 413],
          ['/nowhere', 404],
        ] as const) {
          await using client = await open(program.url);
          client.socket.pause();
          const head = `POST ${target} HTTP/${version}\r\nHost: x\r\n${fields}`;
          const rest = 'Content-Type: text/plain\r\nContent-Length: 90000\r\n\r\n';
          client.socket.write(head + rest);
          for (let i = 0; i < 9; i++) {
            // Once another connection has a response, this request has its own.
            assert.equal((await send(program.url)).status, 200);
            await new Promise((resolve) => client.socket.write('x'.repeat(10_000), resolve));
          }
          client.socket.resume();
          await client.closed;
          assert.equal(parse(client.text()).status, status, target);
        }
      });
    }

    for (const [length, close, why] of [
      [UNREAD_LIMIT, 'keep-alive', 'at the limit'],
      [UNREAD_LIMIT + 1, 'close', 'over it'],
    ] as const) {
      test(`2.13 a refusal before a body of known length ${why} has Connection: ${close}`, async () => {
        const { hostname, port } = new URL(program.url);
        const socket = connect(Number(port), hostname);
        socket.write(`POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`);
        const [first] = await once(socket, 'data');
        assert.match(
          String(first),
          new RegExp(`^HTTP/1.1 404 .*\r\nConnection: ${close}\r\n`, 's'),
        );
        socket.destroy();
      });
    }

    for (const [method, path, status] of [
      ['GET', '/', 200],
      ['GET', '/users/1', 200],
      ['DELETE', '/users/999', 404],
    ] as const) {
      test(`2.15 ${method} ${path} drops a body of any type`, async () => {
        for (const head of ['', 'Content-Type: text/plain\r\n', 'Content-Encoding: gzip\r\n']) {
          const small = await responseTo(program.url, request(method, path, head, '{\xff'));
          assert.equal(small.status, status, head);
        }
      });

      test(`2.15 ${method} ${path} with a body over the limit returns 413`, async () => {
        const large = 'x'.repeat(LIMIT + 1);
        for (const bytes of [request(method, path, '', large), chunked(method, path, '', large)]) {
          assert.equal((await responseTo(program.url, bytes)).status, 413);
        }
      });
    }

    test('2.13 after a refusal with an unread body the connection stays in sync, or closes', async () => {
      const smuggled = 'GET /users/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
      const rows = [
        ['POST', '/users', 'Content-Type: text/plain\r\n', 415],
        ['PUT', '/token', 'Content-Type: application/json\r\n', 405],
        ['POST', '/nowhere', 'Content-Type: application/json\r\n', 404],
      ] as const;
      for (const [method, path, head, status] of rows) {
        const next = 'GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
        const text = await raw(program.url, request(method, path, head, smuggled, ''), next);
        const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((match) => Number(match[1]));
        assert.deepEqual(statuses, [status, 404].slice(0, statuses.length));
        assert.ok(statuses.length >= 1);
      }
    });
  });
}

let emails = 0;

/** Returns a new email. */
function email(): string {
  return `user-${++emails}@example.com`;
}

/** Returns the bytes of a request with Content-Length and, by default, Connection: close. */
function request(
  method: string,
  path: string,
  head: string,
  body: string,
  close = 'Connection: close\r\n',
): string {
  const length = `Content-Length: ${Buffer.byteLength(body)}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nHost: x\r\n${close}${head}${length}\r\n${body}`;
}

/** Returns the bytes of the same request in two chunks. */
function chunked(
  method: string,
  path: string,
  head: string,
  body: string,
  close = 'Connection: close\r\n',
): string {
  const half = Math.floor(body.length / 2);
  const chunks = [body.slice(0, half), body.slice(half), ''];
  const coded = chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('');
  const coding = 'Transfer-Encoding: chunked\r\n';
  return `${method} ${path} HTTP/1.1\r\nHost: x\r\n${close}${head}${coding}\r\n${coded}`;
}

/** Sends the bytes, reads until the server closes, and returns the only response. */
async function responseTo(url: string, bytes: string): Promise<HttpResponse> {
  return parse(await raw(url, bytes));
}

/** Parses one response. Its body is the rest of the text. */
function parse(text: string): HttpResponse {
  const end = text.indexOf('\r\n\r\n');
  const [line, ...fields] = text.slice(0, end).split('\r\n');
  const pairs = fields.map((field) => field.split(/: (.*)/s).slice(0, 2) as [string, string]);
  return {
    status: Number(/^HTTP\/1\.1 (\d{3}) /.exec(String(line))?.[1]),
    headers: new Headers(pairs),
    body: text.slice(end + 4),
  };
}

/** Opens a connection that collects the bytes it receives. */
async function open(url: string) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname)
    .setEncoding('latin1')
    .on('error', () => {});
  const closed = new Promise((resolve) => socket.once('close', resolve));
  let text = '';
  socket.on('data', (part) => {
    text += part;
  });
  await once(socket, 'connect');
  return {
    socket,
    closed,
    text: () => text,
    [Symbol.asyncDispose]: async () => void socket.destroy(),
  };
}

/** Returns the elements of a header's list, sorted. */
function items(value: string | null): string[] {
  return (value ?? '').split(/\s*,\s*/).sort();
}

function assertTooLarge(response: HttpResponse): void {
  assert.equal(response.status, 413);
  assert.equal(response.headers.get('connection'), 'close');
  assert.equal(response.headers.get('content-type'), TEXT);
  assert.equal(response.headers.get('content-length'), String(response.body.length));
  assert.match(response.body, /^\S[^\r\n<>]+$/);
}
