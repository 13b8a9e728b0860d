// Rules 8.2 and 8.3 of the contract: the page of GET /docs, and the encodings and tags of the page
// and the document; values of Accept-Encoding are in test/http/static.test.ts. The tests in a browser are in
// test/docs.test.ts.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { send } from '../support/client.ts';
import { start } from '../support/program.ts';

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

test('8.3 each encoding has the same bytes, and its own strong tag, the same in every process, for which If-None-Match returns 304', async () => {
  await using program = await start();
  await using other = await start();
  for (const path of ['/openapi.json', '/docs']) {
    const ask = async (coding: string, { url } = program, headers = {}) =>
      send(url + path, { headers: { 'accept-encoding': coding, ...headers } });
    const { body } = await ask('identity');
    const tags = new Set<string>();
    for (const coding of ['br', 'gzip', 'identity']) {
      const response = await ask(coding);
      const tag = response.headers.get('etag')!;
      const encoding = response.headers.get('content-encoding') ?? 'identity';
      assert.deepEqual([response.status, encoding, response.body], [200, coding, body]);
      assert.equal((await ask(coding, other)).headers.get('etag'), tag);
      assert.equal((await ask(coding, program, { 'if-none-match': tag })).status, 304);
      tags.add(tag);
    }
    assert.equal(tags.size, 3);
  }
});

/** Returns the SHA-256 of the text between the tags, as a browser computes it. */
function hashOf(html: string, element: string): string {
  const start = html.indexOf('>', html.indexOf(`<${element}`)) + 1;
  const text = html.slice(start, html.indexOf(`</${element}>`));
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
