// Rule 8.2 of the contract: the policy of GET /docs. The tests in a browser are in test/docs.test.ts; encodings and
// tags (8.3) are in test/http/static.test.ts, and description.test.ts asks for each.
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

/** Returns the SHA-256 of the text between the tags, as a browser computes it. */
function hashOf(html: string, element: string): string {
  const start = html.indexOf('>', html.indexOf(`<${element}`)) + 1;
  const text = html.slice(start, html.indexOf(`</${element}>`));
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
