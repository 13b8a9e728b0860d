// The rule map is complete: every rule has code and a test, and every citation names a rule.
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { findCode, findTests, mapRules, ruleIds } from '../scripts/contract.ts';
import { VARIABLES } from '../src/config.ts';
import { routes } from '../src/routes.ts';
import { ROOT } from './support/program.ts';

const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const contract = read('docs/contract.md');
const tests = findTests();

test('every rule has code and a test, and every citation names a rule', () => {
  assert.deepEqual(mapRules(contract, findCode(), tests).faults, []);
});

test('every variable has a rule, and every rule of section 1 a variable', () => {
  const named = ruleIds(contract).filter((id) => id.startsWith('1 '));
  assert.deepEqual(named.sort(), VARIABLES.map((name) => `1 ${name}`).sort());
});

test('every route has a rule that begins with it', () => {
  for (const route of Object.keys(routes)) {
    assert.ok(contract.includes(`** \`${route}\` `), `no rule begins with ${route}`);
  }
});

test('every test of test/contract is named after a rule', () => {
  const own = tests.filter(({ file }) => file.startsWith('test/contract/'));
  const unnamed = own.filter(({ rules }) => rules.length === 0);
  assert.deepEqual(unnamed, []);
});

// "[4.8](docs/contract.md#4-users)"
const LINK = /\[(\d\.\d+|`[A-Z_]+`)\]\(([\w./]*)contract\.md#([\w-]*)\)/g;

test('pages cite rules that are there', () => {
  const headings = [...contract.matchAll(/^## (.*)/gm)].map(([, text]) => slug(text!));
  for (const file of ['README.md', 'SECURITY.md', ...globSync('docs/*.md', { cwd: ROOT })]) {
    for (const [link, rule = '', folder, heading = ''] of read(file).matchAll(LINK)) {
      const id = rule.startsWith('`') ? `1 ${rule.slice(1, -1)}` : rule;
      assert.ok(ruleIds(contract).includes(id), link);
      assert.equal(folder, file.includes('/') ? '' : 'docs/', link);
      assert.ok(headings.includes(heading) && heading.startsWith(id[0]!), link);
    }
  }
});

/** Returns the anchor that GitHub gives a heading. */
function slug(heading: string): string {
  const words = heading.toLowerCase().replace(/[^\w -]/g, '');
  return words.replaceAll(' ', '-');
}
