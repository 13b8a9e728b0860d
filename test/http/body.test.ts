// Reading a body (contract 2.8): media types, syntax, limits and memory. The contract tests cover the order of
// checks.
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { readBody } from '../../src/http/body.ts';
import { HttpError } from '../../src/http/errors.ts';
import type { Exchange } from '../../src/http/exchange.ts';

type Headers = Record<string, string>;
const FORM = 'application/x-www-form-urlencoded';
const JSON_TYPE = { 'content-type': 'application/json' };
const TEXT = { 'content-type': 'text/plain' };
const CHUNKED = { 'transfer-encoding': 'chunked' };

type Piece = string | Buffer | Error;
type Options = { accepts?: readonly string[] | undefined; limitBytes?: number };

const read = async (headers: Headers, pieces: readonly Piece[], options: Options = {}) =>
  (await charged(headers, pieces, options)).body;

/**
 * Reads a body that arrives in these pieces, or ends with an error. Also returns the most that the client is
 * charged, and checks that this is returned, and that a refusal by the head alone reads nothing.
 */
async function charged(
  headers: Headers,
  pieces: readonly Piece[],
  { accepts = [JSON_TYPE['content-type'], FORM], limitBytes = 1000 }: Options,
) {
  const buffers = pieces.map((piece) => (typeof piece === 'string' ? Buffer.from(piece) : piece));
  const bytes = buffers.reduce((sum, one) => sum + (Buffer.isBuffer(one) ? one.length : 0), 0);
  const isChunked = 'transfer-encoding' in headers;
  const all = { ...(!isChunked && { 'content-length': String(bytes) }), ...headers };
  const arriving = function* () {
    for (const one of buffers) {
      if (one instanceof Error) throw one;
      yield one;
    }
  };
  const stream = Readable.from(arriving());
  const rawHeaders = Object.entries(all).flat();
  const rawTrailers = ['X', 'which nobody reads'];
  const req = Object.assign(stream, { headers: all, rawHeaders, rawTrailers, httpVersionMinor: 1 });
  const states: string[] = [];
  const seen = [...(headers.expect === undefined ? [] : ['100']), 'receiving', 'working'];
  let held = 0;
  let mostHeld = 0;
  const exchange = {
    req,
    res: { writeContinue: () => states.push('100') },
    connection: { enter: (state: string) => states.push(state), run: (task: () => void) => task() },
    hold(bytes: number) {
      held += bytes;
      mostHeld = Math.max(held, mostHeld);
    },
  } as unknown as Exchange;
  try {
    const body = await new Promise((resolve, reject) => {
      readBody(exchange, accepts, limitBytes, resolve, reject);
    });
    const keptBytes = accepts.length === 0 ? 0 : bytes;
    assert.ok(mostHeld >= 8 * keptBytes && mostHeld <= 8 * Math.max(keptBytes, limitBytes));
    assert.deepEqual(states, seen);
    assert.deepEqual(req.rawTrailers, []);
    return { body, mostHeld };
  } catch (err) {
    const { status } = err as HttpError;
    const isEarly = status === 413 ? Number(all['content-length']) > limitBytes : status === 415;
    const isKnown = !isChunked || headers.expect !== undefined;
    assert.deepEqual(states, isEarly && isKnown ? [] : seen);
    throw err;
  } finally {
    assert.equal(held, 0);
  }
}

const MAX_CHARACTERS = 256;
/** Parameters that follow `application/json`. */
const ACCEPTED = [
  ...[';charset=utf-8', ' ; charset="utf-8"', '; charset="ut\\f-8"', '; Charset=utf8', ';;'],
  ...['; charset=us-ascii', '; charset="ASCII"', '; charset=utf8; charset=utf-8', '\t;\tx=y\t'],
  ...['; x="\\"; charset=latin1"', `; x=${'y'.repeat(MAX_CHARACTERS - 20)}`],
];
const REFUSED = [
  ...['x', '; x, text/plain', '; charset=latin1', '; charset="latin1"', '; charset="utf8,ascii"'],
  ...['; charset="utf-16', '; x y; charset=latin1', `; x=${'y'.repeat(MAX_CHARACTERS - 19)}`],
];
const typesOf = (parameters: readonly string[]) =>
  parameters.map((text) => `application/json${text}`);

describe('2.8 media types', () => {
  for (const type of ['application/json', ' APPLICATION/Json ', ...typesOf(ACCEPTED)]) {
    test(`2.8 ${type} is accepted`, async () =>
      assert.deepEqual(await read({ 'content-type': type }, ['{"a":1}']), { a: 1 }));
  }

  const both = `application/json, ${FORM}`;
  const refused = ['', 'text/plain', 'application/merge-patch+json', '__proto__'];
  for (const type of [...refused, ...typesOf(REFUSED)]) {
    test(`2.8 ${type || '(empty)'} returns 415 with Accept`, async () => {
      await assert.rejects(read({ 'content-type': type }, ['{}']), {
        name: 'HttpError',
        status: 415,
        message: `The body must be ${both.replace(',', ' or')}, in UTF-8.`,
        headers: ['Accept', both],
      });
    });
  }

  for (const coding of ['gzip', 'identity, gzip']) {
    test(`2.8 content coding ${coding} returns 415 with Accept-Encoding`, async () => {
      await assert.rejects(read({ ...JSON_TYPE, 'content-encoding': coding }, ['{}']), {
        status: 415,
        message: 'The body must not have a Content-Encoding other than identity.',
        headers: ['Accept-Encoding', 'identity'],
      });
    });
  }
});

const FULL = JSON.stringify('x'.repeat(998));

describe('2.8 bodies', () => {
  const form = { 'content-type': FORM };
  const euro = Buffer.from('"€"');
  for (const [why, headers, pieces, body, accepts] of [
    ['a form', form, ['a[b]=1'], { a: { b: '1' } }],
    ['identity', { ...JSON_TYPE, 'content-encoding': ' Identity ' }, ['1'], 1],
    ['bytes of a character', { ...JSON_TYPE, ...CHUNKED }, [...euro].map((b) => Buffer.of(b)), '€'],
    ['1000 bytes in pieces', JSON_TYPE, FULL.split(/(?<=^.{300}|^.{999})/), 'x'.repeat(998)],
    ['1000 bytes in chunks', { ...JSON_TYPE, ...CHUNKED }, [...FULL], 'x'.repeat(998)],
    ['a client that waits for 100', { ...JSON_TYPE, expect: 'a, 100-Continue; b' }, ['[]'], []],
    ['nothing, of any type', CHUNKED, [], undefined],
    ['a body on a route without bodies', TEXT, ['\xff'], undefined, []],
  ] as [string, Headers, Piece[], unknown, string[]?][]) {
    test(`2.8 2.14 2.15 ${why}`, async () =>
      assert.deepEqual(await read(headers, pieces, { accepts }), body));
  }

  const utf8 = 'The body is not valid UTF-8.';
  const json = 'The body is not valid JSON.';
  for (const [why, headers, pieces, status, message] of [
    ['a byte that is not UTF-8', JSON_TYPE, [Buffer.from('"\xff"', 'latin1')], 400, utf8],
    ['half of a JSON text', JSON_TYPE, ['{"a":'], 400, json],
    ['a byte order mark', JSON_TYPE, ['\ufeff{}'], 400, json],
    ['1001 bytes, awaited', { 'content-length': '1001', expect: '100-continue' }, [], 413],
    ['1001 bytes in chunks of no type', CHUNKED, [FULL, ' '], 413],
    ['a body of no type', {}, ['{}'], 415],
    ['chunks of another type', { ...CHUNKED, ...TEXT }, ['{}'], 415],
    ['another type, awaited', { ...CHUNKED, ...TEXT, expect: '100-continue' }, ['{}'], 415],
    ['a client that leaves', JSON_TYPE, ['{', new Error('aborted')], 400, 'Bad Request'],
    ['a timeout of the server', JSON_TYPE, ['{', new HttpError(408)], 408, 'Request Timeout'],
    ['1001 bytes, then a reset', CHUNKED, [FULL, ' ', new Error('aborted')], 413],
  ] as [string, Headers, Piece[], number, string?][]) {
    test(`2.8 ${why} returns ${status}`, async () => {
      const text = status === 413 ? 'The body is larger than 1000 bytes.' : message;
      const expected = { name: 'HttpError', status, ...(text && { message: text }) };
      await assert.rejects(read(headers, pieces), expected);
    });
  }
});

describe('6.17 a client is charged for its buffer, which grows by doubling', () => {
  for (const [why, lengths, isDeclared, kept] of [
    ['one piece of unknown length', [10], false, 10],
    ['two pieces', [10, 10], true, 20],
    ['two pieces of unknown length', [10, 10], false, 8_192],
    ['a full buffer', [4_100, 1, 4_101], false, 8_202],
    ['one byte more', [4_100, 1, 4_102], false, 16_406],
    ['the limit', [9_999, 10_001], false, 20_000],
  ] as const) {
    test(`6.17 ${why}: ${kept} bytes`, async () => {
      const headers = { ...JSON_TYPE, ...(isDeclared ? {} : CHUNKED) };
      const pieces = lengths.map((length) => '1'.repeat(length));
      const { mostHeld } = await charged(headers, pieces, { limitBytes: 20_000 });
      assert.equal(mostHeld, 8 * kept);
    });
  }
});

test('6.17 the chunks of large bodies and their buffers are freed without a garbage collection', async () => {
  const body = Buffer.from(JSON.stringify('x'.repeat(98_000)));
  const kept: Buffer[] = []; // They own their memory. A collection frees nothing of these.
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 50; i++) {
    const first = Buffer.from(body.subarray(0, 65_000));
    const last = Buffer.from(body.subarray(65_001));
    const dropped = Buffer.from(body);
    kept.push(first, last, dropped);
    await read({}, [dropped], { accepts: [], limitBytes: 100_000 });
    const pieces = [first, body.subarray(65_000, 65_001), last];
    assert.equal(String(await read(JSON_TYPE, pieces, { limitBytes: 100_000 })).length, 98_000);
  }
  const grownBytes = process.memoryUsage().arrayBuffers - before;
  assert.equal(kept.length, 150);
  assert.ok(grownBytes < 5 * body.length, `${grownBytes} bytes are left of 50 bodies`);
});
