// Detection of bodies and parsing of their media types. The contract tests cover limits and the
// order of checks.
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { readBody } from '../../src/http/body.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import type { MediaType } from '../../src/http/media.ts';
import { hasBody } from '../../src/http/message.ts';

type Headers = Record<string, string>;

/** Returns the parts of a request that this module uses. */
function request(headers: Headers, pieces: readonly (string | Buffer)[] = [], method = 'POST') {
  const stream = Readable.from(pieces.map((piece) => Buffer.from(piece as string)));
  return Object.assign(stream, { headers, method }) as unknown as IncomingMessage;
}

/** Parses the body of a request on a connection without memory accounting. */
function parsed(
  req: IncomingMessage,
  accepts: readonly MediaType[],
  limitBytes: number,
  writeContinue = () => {},
): Promise<unknown> {
  const charges = { hold: () => {}, release: () => {} };
  const connection = { enter: () => {} };
  const res = Object.assign(new EventEmitter(), { writeContinue });
  const exchange = { req, res, connection, ...charges } as unknown as Exchange;
  return new Promise((resolve, reject) => {
    readBody(exchange, accepts, limitBytes, resolve, reject);
  });
}

function read(
  headers: Headers,
  body: string | Buffer,
  accepts: readonly MediaType[] = ['json', 'form'],
  method = 'POST',
) {
  const length = String(Buffer.byteLength(body));
  return parsed(request({ 'content-length': length, ...headers }, [body], method), accepts, 1000);
}

describe('a request announces a body', () => {
  for (const { why, headers, isBody } of [
    { why: 'no header', headers: {}, isBody: false },
    { why: 'length 0', headers: { 'content-length': '0' }, isBody: false },
    { why: 'length 00', headers: { 'content-length': '00' }, isBody: false },
    { why: 'length 1', headers: { 'content-length': '1' }, isBody: true },
    { why: 'chunks', headers: { 'transfer-encoding': 'chunked' }, isBody: true },
    { why: 'only a type', headers: { 'content-type': 'application/json' }, isBody: false },
  ] as { why: string; headers: Headers; isBody: boolean }[]) {
    test(`${why}: ${isBody ? 'yes' : 'no'}`, () => assert.equal(hasBody(request(headers)), isBody));
  }
});

describe('accepted media types', () => {
  for (const type of [
    'application/json',
    'APPLICATION/Json',
    ' application/json ',
    'application/json;charset=utf-8',
    'application/json; charset=UTF-8',
    'application/json ; charset="utf-8"',
    'application/json; charset="ut\\f-8"',
    'application/json; Charset=utf-8',
    'application/json; charset=utf8',
    'application/json; charset="UTF8"',
    'application/json; charset=us-ascii',
    'application/json; charset="ASCII"',
    'application/json; charset=utf8; charset=utf-8',
    'application/json;',
    'application/json;;',
    'application/json; x=y',
    'application/json; x="a b"',
    'application/json; x="a;b"; charset=utf-8',
    'application/json; x="\\"; charset=latin1"',
    'application/json; x=y; charset=utf-8; z=1',
  ]) {
    test(type, async () =>
      assert.deepEqual(await read({ 'content-type': type }, '{"a":1}'), { a: 1 }),
    );
  }

  test('a form', async () => {
    const type = 'application/x-www-form-urlencoded';
    assert.deepEqual(await read({ 'content-type': type }, 'a[b]=1'), { a: { b: '1' } });
  });

  test('identity as content coding', async () => {
    const headers = { 'content-type': 'application/json', 'content-encoding': ' Identity ' };
    assert.equal(await read(headers, '1'), 1);
  });

  test('a body in pieces that split a character', async () => {
    const bytes = Buffer.from('"€"');
    const pieces = [bytes.subarray(0, 2), bytes.subarray(2, 3), bytes.subarray(3)];
    const req = request(
      { 'transfer-encoding': 'chunked', 'content-type': 'application/json' },
      pieces,
    );
    assert.equal(await parsed(req, ['json'], 5), '€');
  });
});

describe('media types that return 415', () => {
  for (const type of [
    '',
    'text/plain',
    'application/jsonx',
    'application/json/x',
    'application/ld+json',
    'application/merge-patch+json',
    'application/json, text/plain',
    'application/json; charset=latin1',
    'application/json; charset="latin1"',
    'application/json; charset=utf-8x',
    'application/json; charset="utf8,ascii"',
    'application/json; charset=utf-16',
    'application/json; charset=',
    'application/json; charset="utf-8',
    'application/json; =x',
    'application/json; x y',
    'multipart/form-data; boundary=x',
    '__proto__',
  ]) {
    test(type || '(empty)', async () => {
      await assert.rejects(read({ 'content-type': type }, '{}'), {
        name: 'HttpError',
        status: 415,
        message:
          'The body must be application/json or application/x-www-form-urlencoded, in UTF-8.',
        headers: ['Accept', 'application/json, application/x-www-form-urlencoded'],
      });
    });
  }

  test('on PATCH, with Accept-Patch', async () => {
    const accepted = 'application/json, application/merge-patch+json';
    await assert.rejects(
      read({ 'content-type': 'text/plain' }, '{}', ['json', 'mergePatch'], 'PATCH'),
      {
        status: 415,
        headers: ['Accept', accepted, 'Accept-Patch', accepted],
      },
    );
  });

  for (const coding of ['gzip', 'br', 'identity, gzip', 'gzip, identity', 'x']) {
    test(`content coding ${coding}, with Accept-Encoding`, async () => {
      const headers = { 'content-type': 'application/json', 'content-encoding': coding };
      await assert.rejects(read(headers, '{}'), {
        status: 415,
        message: 'The body must not have a Content-Encoding other than identity.',
        headers: ['Accept-Encoding', 'identity'],
      });
    });
  }
});

describe('bodies that return 400', () => {
  for (const { why, body, message } of [
    {
      why: 'a byte that is not UTF-8',
      body: Buffer.from('"\xff"', 'latin1'),
      message: 'The body is not valid UTF-8.',
    },
    {
      why: 'a surrogate in UTF-8',
      body: Buffer.from('22eda08022', 'hex'),
      message: 'The body is not valid UTF-8.',
    },
    { why: 'half of a JSON text', body: '{"a":', message: 'The body is not valid JSON.' },
    { why: 'a byte order mark', body: '\ufeff{}', message: 'The body is not valid JSON.' },
  ]) {
    test(why, async () => {
      await assert.rejects(read({ 'content-type': 'application/json' }, body), {
        name: 'HttpError',
        status: 400,
        message,
      });
    });
  }
});

describe('limits', () => {
  const headers = { 'content-type': 'application/json' };

  test('a declared length at the limit is read', async () => {
    assert.equal(await read(headers, JSON.stringify('x'.repeat(998))), 'x'.repeat(998));
  });

  test('a declared length above it is refused before the body is read', async () => {
    const req = request({ ...headers, 'content-length': '1001' }, []);
    const refused = parsed(req, ['json'], 1000, () => assert.fail('wanted'));
    await assert.rejects(refused, { status: 413, message: 'The body is larger than 1000 bytes.' });
  });

  test('pieces beyond it are refused', async () => {
    const req = request({ ...headers, 'transfer-encoding': 'chunked' }, ['x'.repeat(1000), 'x']);
    await assert.rejects(parsed(req, ['json'], 1000), { status: 413 });
  });

  test('the limit also applies on routes that take no body', async () => {
    const req = request({ 'transfer-encoding': 'chunked' }, ['x'.repeat(1001)]);
    await assert.rejects(parsed(req, [], 1000), { status: 413 });
  });

  test('a body on a route without bodies is not parsed', async () => {
    assert.equal(await read({ 'content-type': 'text/plain' }, '\xff', []), undefined);
  });

  test('an empty body is undefined, with any type', async () => {
    const req = request({ 'transfer-encoding': 'chunked' }, []);
    assert.equal(await parsed(req, ['json'], 1000), undefined);
  });
});

describe('large bodies', () => {
  const BODY = Buffer.from(JSON.stringify('x'.repeat(98_000)));
  const headers = { 'content-type': 'application/json', 'content-length': String(BODY.length) };

  test('their memory is freed without a garbage collection', async () => {
    const before = process.memoryUsage().arrayBuffers;
    for (let i = 0; i < 50; i++) {
      const pieces = [BODY.subarray(0, 65_000), BODY.subarray(65_000)];
      const text = await parsed(request(headers, pieces), ['json'], 100_000);
      assert.equal(String(text).length, 98_000);
    }
    const grownBytes = process.memoryUsage().arrayBuffers - before;
    assert.ok(grownBytes < 5 * BODY.length, `${grownBytes} bytes are left of 50 bodies`);
  });
});
