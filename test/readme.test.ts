// The README is true: its tables are those of the source, and its session goes as it says.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { masked, renew } from '../scripts/readme.ts';
import { VARIABLES } from '../src/config.ts';

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

test('the generated parts are new and the session goes as written: npm run readme', async () => {
  assert.equal(masked(readme), masked(await renew(readme)));
});

test('every variable stands in the configuration table, and nothing else does', () => {
  const section = /## Configuration\n(.*?)\n## /s.exec(readme)![1]!;
  const rows = [...section.matchAll(/^\| `([A-Z_]+)`/gm)].map(([, name]) => name);
  assert.deepEqual(rows, VARIABLES);
});
