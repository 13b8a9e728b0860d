// Forbids driver calls that look right but lose a failed commit or a connection. biome.json has the import rules of
// the folders.
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const SRC = join(import.meta.dirname, '../src');

test('no code calls sql.begin() or reserve(), which hold a slot of the driver’s pool', () => {
  for (const path of globSync('store/*.ts', { cwd: SRC })) {
    assert.doesNotMatch(readFileSync(join(SRC, path), 'utf8'), /\bsql\.begin\(|\.reserve\(/, path);
  }
});
