// The contract's map is true: each rule has its code and its tests, each test of test/contract its
// rule, and what cites a rule cites one that is there.
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { findTests, renew, ruleIds } from '../scripts/contract.ts';
import { VARIABLES } from '../src/config.ts';

const ROOT = join(import.meta.dirname, '..');
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const contract = read('docs/contract.md');
const tests = findTests();

test('the line numbers and the lists of tests are new: npm run readme', () => {
  assert.equal(contract, renew(contract));
});

test('every variable has a rule, and nothing else does', () => {
  const named = ruleIds(contract).filter((id) => id.startsWith('1 '));
  assert.deepEqual(
    named,
    VARIABLES.map((name) => `1 ${name}`),
  );
});

test('no number is given twice', () => {
  const ids = ruleIds(contract);
  assert.deepEqual(
    ids,
    ids.filter((id, i) => ids.indexOf(id) === i),
  );
});

test('every test of test/contract is named after a rule', () => {
  const unnamed = tests.filter(
    ({ file, rules }) => file.startsWith('test/contract/') && rules.length === 0,
  );
  assert.deepEqual(unnamed, []);
});

test('the contract tests of sections 2 to 5 run against both stores', () => {
  const named = tests.filter(({ file }) => file.startsWith('test/contract/'));
  const rules = new Set(named.flatMap((found) => found.rules).filter((id) => /^[2-5]\./.test(id)));
  const files = new Map(named.map(({ file }) => [file, /\bof STORES\b/.test(read(file))]));
  for (const rule of rules) {
    const own = named.filter(({ rules }) => rules.includes(rule));
    assert.ok(
      own.some(({ file }) => files.get(file)),
      rule,
    );
  }
});

// "[4.8](docs/contract.md#4-users)"; in src and test "contract 4.8", "contract 4.4, 4.10 to 4.12".
const LINK = /\[(\d\.\d+|`[A-Z_]+`)\]\(([\w./]*)contract\.md#([\w-]*)\)/g;
const MENTION = /\bcontract (\d\.\d+(?:(?:, | and | to )\d\.\d+)*)/g;

describe('citations', () => {
  for (const file of ['README.md', 'SECURITY.md', ...globSync('docs/*.md', { cwd: ROOT })]) {
    test(`${file} cites rules that are there`, () => {
      const headings = [...contract.matchAll(/^## (.*)/gm)].map(([, text]) => slug(text!));
      for (const [link, rule = '', folder, heading = ''] of read(file).matchAll(LINK)) {
        const id = rule.startsWith('`') ? `1 ${rule.slice(1, -1)}` : rule;
        assert.ok(ruleIds(contract).includes(id), link);
        assert.equal(folder, file.includes('/') ? '' : 'docs/', link);
        assert.ok(headings.includes(heading) && heading.startsWith(id[0]!), link);
      }
    });
  }

  test('comments cite rules that are there', () => {
    const cited = globSync('{src,test,scripts}/**/*.ts', { cwd: ROOT }).flatMap((file) =>
      [...read(file).matchAll(MENTION)].flatMap(([, list]) => list!.match(/\d\.\d+/g)!),
    );
    assert.ok(cited.length > 10);
    assert.deepEqual(
      cited.filter((rule) => !ruleIds(contract).includes(rule)),
      [],
    );
  });
});

describe('a map that is not true', () => {
  const none: Parameters<typeof renew>[1] = [];
  const found = { file: 'test/a.test.ts', line: 7, name: '2.1 a claim', rules: ['2.1'] };
  const code = '[](../src/http/errors.ts "errorReply")';
  for (const { why, text, named = [found], message } of [
    {
      why: 'a line that is gone',
      text: code.replace('errorReply', 'gone'),
      message: /0 lines begin/,
    },
    {
      why: 'a line that is there twice',
      text: code.replace('errorReply', 'if'),
      message: /[2-9] lines/,
    },
    {
      why: 'the beginning of a word',
      text: code.replace('errorReply', 'errorRep'),
      message: /0 lines/,
    },
    { why: 'a claim without code', text: 'nothing', message: /2\.1: no code/ },
    {
      why: 'a second claim without code',
      text: `${code}\n  - More.`,
      message: /2\.1: no code: - More/,
    },
    { why: 'a rule without a test', text: code, named: none, message: /2\.1: no test/ },
    {
      why: 'a test without a rule',
      text: code,
      named: [found, { ...found, rules: ['2.2'] }],
      message: /no rule 2\.2/,
    },
  ]) {
    test(`${why} is refused`, () =>
      assert.throws(() => renew(`- **2.1** ${text}\n`, named), message));
  }

  test('a stale line and a stale list of tests are made anew', () => {
    const stale = '- **2.1** A. [`src/http/errors.ts:1`](../src/http/errors.ts#L1 "errorReply")\n';
    const [line, list] = renew(`${stale}  - Tests: none\n`, [found]).split('\n');
    assert.match(
      String(line),
      /\[`src\/http\/errors\.ts:\d{2}`\]\(\.\.\/src\/http\/errors\.ts#L\d{2} /,
    );
    assert.equal(list, '  - Tests: [`test/a.test.ts:7`](../test/a.test.ts#L7)');
  });
});

/** The anchor that GitHub gives a heading. */
function slug(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w -]/g, '')
    .replaceAll(' ', '-');
}
