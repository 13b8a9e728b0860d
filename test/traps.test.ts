// Forbids driver calls that look right but lose a failed commit, a connection or a request.
// biome.json has the import rules of the folders.
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const SRC = join(import.meta.dirname, '../src');
const files = globSync('**/*.ts', { cwd: SRC }).map((path) => {
  const text = readFileSync(join(SRC, path), 'utf8');
  return { path, code: text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1') };
});

for (const { why, pattern } of [
  {
    why: 'sql.begin() and reserve() hold a slot of the driver’s pool',
    pattern: /\bsql\.begin\(|\.reserve\(/,
  },
  { why: 'setHeader() costs a tenth of a request', pattern: /\.setHeader\(/ },
  {
    why: 'SQL is never put together from values',
    pattern: /`[^`]*\b(?:select|insert|update|delete)\b[^`]*'\$\{/i,
  },
]) {
  test(why, () => {
    const found = files.filter(({ code }) => pattern.test(code));
    assert.deepEqual(
      found.map(({ path }) => path),
      [],
    );
  });
}
