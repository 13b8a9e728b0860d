// The README's tables match the source, and its session shows the real output.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { masked, renew } from '../scripts/readme.ts';
import { VARIABLES } from '../src/config.ts';

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

test('the generated parts and the session are up to date (scripts/readme.ts)', async () => {
  assert.equal(masked(readme), masked(await renew(readme)));
});

test('the configuration table has every variable, and no other', () => {
  const section = /## Configuration\n(.*?)\n## /s.exec(readme)![1]!;
  const rows = [...section.matchAll(/^\| `([A-Z_]+)`/gm)].map(([, name]) => name);
  assert.deepEqual(rows, VARIABLES);
});
