// The README's tables match the source, and its session shows the real output.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { masked, renew } from '../scripts/readme.ts';

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

test('the generated parts and the session are up to date (scripts/readme.ts)', async () => {
  assert.equal(masked(readme), masked(await renew(readme)));
});
