// Row 8.2 of the contract: the page of GET /docs, as far as it can be seen without a browser.
// test/docs.test.ts uses it in one.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { raw, send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';

describe('8.2 the page', { timeout: 300_000 }, () => {
  let program: Program;
  before(async () => {
    program = await start({ PROTECT_USERS: 'true' });
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('8.2 GET /docs answers 200 and HTML that ends, whoever asks, also with a slash', async () => {
    for (const path of ['/docs', '/docs/', '/docs?a=b']) {
      const { status, headers, body } = await send(program.url + path);
      assert.equal(status, 200);
      assert.equal(headers.get('content-type'), 'text/html; charset=utf-8');
      assert.equal(headers.get('content-length'), String(Buffer.byteLength(body)));
      assert.match(body, /^<!doctype html>\n/);
      assert.match(body, /<\/html>\n$/);
    }
  });

  test('8.2 its policy lets in its own script, its own style and its own origin alone', async () => {
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
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
    assert.equal(headers.get('cache-control'), 'no-cache');
  });

  test('8.2 it has one script, one style, and nothing from elsewhere', async () => {
    const { body } = await send(`${program.url}/docs`);
    assert.equal(body.match(/<script/g)?.length, 1);
    assert.equal(body.match(/<style/g)?.length, 1);
    assert.doesNotMatch(body, /https?:|\bsrc=|@import|url\(| on\w+=| style=/);
  });

  test('8.2 HEAD answers with the same headers and no body; POST with 405', async () => {
    const head = await raw(
      program.url,
      'HEAD /docs HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    );
    const { headers } = await send(`${program.url}/docs`);
    assert.match(head, /^HTTP\/1\.1 200 OK\r\n/);
    assert.ok(head.includes(`\r\nContent-Length: ${headers.get('content-length')}\r\n`));
    assert.ok(
      head.includes(`\r\nContent-Security-Policy: ${headers.get('content-security-policy')}\r\n`),
    );
    assert.ok(head.endsWith('\r\n\r\n'));
    const post = await send(`${program.url}/docs`, { method: 'POST', body: {} });
    assert.equal(post.status, 405);
    assert.equal(post.headers.get('allow'), 'GET, HEAD, OPTIONS');
  });

  test('8.2 other answers than the page carry no policy', async () => {
    const { headers } = await send(`${program.url}/`);
    assert.equal(headers.get('content-security-policy'), null);
  });
});

/** What a browser computes: SHA-256 of all that stands between the tags. */
function hashOf(html: string, element: string): string {
  const start = html.indexOf('>', html.indexOf(`<${element}`)) + 1;
  const text = html.slice(start, html.indexOf(`</${element}>`));
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
