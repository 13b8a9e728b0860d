// Rules 8.2 and 8.3 of the contract: the page of GET /docs, and the encodings and tags of the page
// and the document; values of Accept-Encoding are in test/http/static.test.ts. The tests in a browser are in
// test/docs.test.ts.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { before, describe, test } from 'node:test';
import { exchange, send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';

test('8.2 its policy allows only its one script, its one style and its own origin', async () => {
  await using program = await start();
  const { headers, body } = await send(`${program.url}/docs`);
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(body, 'script')}'`,
    `style-src '${hashOf(body, 'style')}'`,
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ];
  assert.equal(headers.get('content-security-policy'), policy.join('; '));
  assert.equal(headers.get('referrer-policy'), 'no-referrer');
  assert.deepEqual([body.match(/<script/g), body.match(/<style/g)], [['<script'], ['<style']]);
  assert.doesNotMatch(body, /https?:|\bsrc=|@import|url\(| on\w+=| style=/);
});

describe('8.3 encodings and tags', { timeout: 300_000 }, () => {
  let program: Program;
  before(async () => {
    program = await start();
  });

  async function get(path: string, fields: Record<string, string | undefined>, method = 'GET') {
    const lines = Object.entries(fields).map(([name, value]) =>
      value === undefined ? '' : `${name}: ${value}\r\n`,
    );
    const request = `${method} ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${lines.join('')}\r\n`;
    const [response] = await exchange(program.url, request);
    const { status, headers, body } = response!;
    return {
      status,
      coding: headers.get('content-encoding') ?? 'identity',
      tag: headers.get('etag') ?? '',
      vary: headers.get('vary'),
      cache: headers.get('cache-control'),
      length: Number(headers.get('content-length')),
      body,
    };
  }

  for (const path of ['/openapi.json', '/docs']) {
    test(`8.3 ${path}: each encoding has the same bytes, and its own strong tag, the same in every process, for which If-None-Match returns 304`, async () => {
      await using other = await start();
      const plain = await get(path, {});
      assert.equal(plain.length, Buffer.byteLength(plain.body));
      const tags = new Set<string>();
      for (const coding of ['br', 'gzip', 'identity']) {
        const accept = { 'Accept-Encoding': coding };
        const response = await get(path, accept);
        assert.deepEqual([response.status, response.coding], [200, coding]);
        assert.equal(response.body, plain.body);
        assert.equal(response.vary, 'Accept-Encoding');
        assert.equal(response.cache, 'no-cache'); // 2.17
        if (coding !== 'identity') assert.ok(response.length < plain.length / 2);
        const { tag } = response;
        assert.match(tag, /^"[\w-]{22}"$/);
        tags.add(tag);
        const same = await send(other.url + path, { headers: { 'accept-encoding': coding } });
        assert.equal(same.headers.get('etag'), tag);
        assert.deepEqual(await get(path, accept, 'HEAD'), { ...response, body: '' });
        for (const method of ['GET', 'HEAD']) {
          const same = await get(path, { ...accept, 'If-None-Match': tag }, method);
          assert.deepEqual(
            [same.status, same.tag, same.vary, same.cache, same.body],
            [304, tag, 'Accept-Encoding', 'no-cache', ''],
          );
        }
        const another = { 'Accept-Encoding': coding === 'br' ? 'gzip' : 'br' };
        assert.equal((await get(path, { ...another, 'If-None-Match': tag })).status, 200);
      }
      assert.equal(tags.size, 3);
    });
  }
});

/** Returns the SHA-256 of the text between the tags, as a browser computes it. */
function hashOf(html: string, element: string): string {
  const start = html.indexOf('>', html.indexOf(`<${element}`)) + 1;
  const text = html.slice(start, html.indexOf(`</${element}>`));
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
