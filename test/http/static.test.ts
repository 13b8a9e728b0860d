// A document in several codings (contract 8.3, 2.17).
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { compress } from '../../src/http/static.ts';

const BODY = Buffer.from('Ada '.repeat(1000));
const reply = compress(BODY, 'text/plain', ['X-A', 'b']);
const DECODE = { br: brotliDecompressSync, gzip: gunzipSync, identity: (body: Buffer) => body };

/** Values of Accept-Encoding by the coding that they select. */
const SELECTIONS: Readonly<Record<keyof typeof DECODE, readonly (string | undefined)[]>> = {
  br: [
    ...['gzip, deflate, br', 'BR;q=1.000', '*', 'gzip;q=0.8, br;q=0.9', 'br;q=1', ',,br'],
    ...[' br\t;\t Q=0.5 ', 'gzip;q=0.5,br;q=1.'],
    'br;q=0.1, gzip;q=0.1, *', // "*" is not identity.
  ],
  gzip: [...['X-GZip', 'gzip ;q=0.001', 'br;q=0, *', '*;q=0.1, gzip', 'br;q=0.123, gzip;q=0.124']],
  identity: [
    ...[undefined, 'deflate', 'br;q=0', 'br;q=0.5, identity;q=0.6', 'x-x-gzip', '*;q=0'],
    // Malformed, so ignored.
    ...['br;q=2', 'br gzip', 'br;q=0.1234', 'br;q=', '(br', 'br;x=1', 'br;q = 1', 'br;q=1.x'],
  ],
};

for (const coding of ['br', 'gzip', 'identity'] as const) {
  describe(`8.3 ${coding}`, () => {
    const { headers: [, tag] = [] } = reply({ 'accept-encoding': coding });
    const common = ['ETag', tag!, 'Vary', 'Accept-Encoding'];
    const fixed = { cacheControl: 'no-cache' };

    for (const value of SELECTIONS[coding]) {
      test(`8.3 Accept-Encoding: ${JSON.stringify(value)} selects ${coding}`, () => {
        const { body, ...others } = reply(value === undefined ? {} : { 'accept-encoding': value });
        const own = coding === 'identity' ? [] : ['Content-Encoding', coding];
        const headers = [...common, ...own, 'X-A', 'b'];
        assert.deepEqual(others, { status: 200, type: 'text/plain', headers, ...fixed });
        assert.deepEqual(DECODE[coding](body as Buffer), BODY);
      });
    }

    test('8.3 2.17 its tag is strong, its own, and the same in every process; If-None-Match with it returns 304', () => {
      assert.match(tag!, /^"[\w-]{22}"$/);
      assert.equal(compress(BODY, 'text/html')({ 'accept-encoding': coding }).headers![1], tag);
      for (const [condition, status] of [
        ...[tag!, `W/${tag}`, `"x", ${tag}`, '*'].map((known) => [known, 304] as const),
        ...['"x"', tag!.slice(1, -1), `${tag!.slice(0, -1)}x"`].map((one) => [one, 200] as const),
      ]) {
        const request = { 'accept-encoding': coding, 'if-none-match': condition };
        const response = reply(request);
        assert.equal(response.status, status, condition);
        const expected = { status, body: '', headers: common, ...fixed };
        if (status === 304) assert.deepEqual(response, expected);
      }
      const another = coding === 'br' ? 'gzip' : 'br';
      const request = { 'accept-encoding': another, 'if-none-match': tag! };
      assert.equal(reply(request).status, 200);
    });
  });
}
