// Every row of the contract has a test that is named after it. Rows are written as in the names of
// the tests: section.number, in section 1 the variable.
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { VARIABLES } from '../../src/config.ts';

const ROWS: Readonly<Record<string, number>> = { 2: 9, 3: 13, 4: 14, 5: 4, 6: 6, 7: 3, 8: 2 };

const sources = globSync('*.test.ts', { cwd: import.meta.dirname }).map((file) =>
  readFileSync(`${import.meta.dirname}/${file}`, 'utf8'),
);
const source = sources.join('\n');

/** What stands at the beginning of the names of tests: 'test("4.10 and 4.11 …" gives 4.10, 4.11. */
const named = [
  ...source.matchAll(/\b(?:test|it)\(\s*['"`]([^a-z$]*(?:and [\d.]+[^a-z$]*)?)/g),
].flatMap(([, start]) => start!.match(/\d\.\d+/g) ?? []);

for (const [section, count] of Object.entries(ROWS)) {
  for (let number = 1; number <= count; number++) {
    const row = `${section}.${number}`;
    test(`row ${row} has a test`, () => assert.ok(named.includes(row)));
  }
}

// 6.1 is about Postgres by nature; in 6.3 to 6.5 no store takes part but where a test names one,
// and in 8.2 never.
const STORELESS = ['6.1', '6.3', '6.4', '6.5', '8.2'];

test('the files that hold the rows of sections 2 to 8 loop over both stores', () => {
  for (const row of named.filter((name) => !STORELESS.includes(name))) {
    const files = sources.filter((text) => text.includes(`${row} `));
    assert.ok(
      files.some((text) => /\bof STORES\b/.test(text)),
      row,
    );
  }
});

for (const variable of VARIABLES) {
  test(`row 1 ${variable} has a test`, () =>
    assert.match(source, new RegExp(`1 [A-Z_, ]*\\b${variable}\\b`)));
}
