// Keeps docs/contract.md true. A rule names the code that keeps it by how a line begins, and this
// finds the line; the tests of a rule are those whose names begin with its number. `node
// scripts/contract.ts` writes the line numbers and the tests; test/contract.test.ts compares.
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const CONTRACT = join(ROOT, 'docs/contract.md');

/** A test, and the rules that its name begins with. */
export interface NamedTest {
  /** Relative to the root. */
  readonly file: string;
  readonly line: number;
  readonly name: string;
  readonly rules: readonly string[];
}

/**
 * The contract with every line number and every list of tests made anew.
 * @throws an Error with a line for each code that is not found, each claim without code, each rule
 * without a test and each test without a rule
 */
export function renew(contract: string, tests: readonly NamedTest[] = findTests()): string {
  const faults: string[] = [];
  const renewed = contract.replace(RULE, (block: string, id: string) => {
    const claims = block.replace(TESTS_LINE, '').trimEnd();
    for (const claim of claims.split(/\n(?= *- )/).filter((part) => !part.endsWith(':'))) {
      if (claim.search(CODE) === -1) faults.push(`${id}: no code: ${claim.trim()}`);
    }
    const withLines = claims.replace(CODE, (_all, file: string, start: string) => {
      const line = lineOf(file, start, faults);
      return `[\`${file}:${line}\`](../${file}#L${line} "${start}")`;
    });
    const list = testList(tests.filter(({ rules }) => rules.includes(id)));
    if (list === '') faults.push(`${id}: no test has a name that begins with it`);
    return `${withLines}\n  - Tests: ${list}\n`;
  });
  const known = ruleIds(contract);
  for (const { file, line, rules } of tests) {
    for (const id of rules.filter((rule) => !known.includes(rule))) {
      faults.push(`${file}:${line}: the contract has no rule ${id}`);
    }
  }
  if (faults.length > 0) throw new Error(faults.join('\n'));
  return renewed;
}

/** The numbers of the rules in their order; a variable's is `1 NAME`. */
export function ruleIds(contract: string): readonly string[] {
  return [...contract.matchAll(RULE)].map(([, id]) => id!);
}

/** All tests whose names begin with a rule's number, and all of test/contract. */
export function findTests(): readonly NamedTest[] {
  return globSync('test/**/*.test.ts', { cwd: ROOT })
    .sort()
    .flatMap((file) => {
      const text = readFileSync(join(ROOT, file), 'utf8');
      return [...text.matchAll(TEST)].map(({ 2: name = '', index }) => {
        const line = text.slice(0, index).split('\n').length;
        return { file, line, name, rules: rulesOf(name) };
      });
    })
    .filter(({ file, rules }) => rules.length > 0 || file.startsWith('test/contract/'));
}

// - **4.9** What the service does. [](../src/api/users.ts "function parseId")
//   - A claim of its own.
const RULE = /^- \*\*(\d\.\d+|1 [A-Z_]+)\*\* .*\n(?: +\S.*\n)*/gm;
const TESTS_LINE = /^ {2}- Tests:.*\n/gm;
// A backtick in a title could end the code span of another link.
const CODE = /\[[^\]]*\]\(\.\.\/((?:src|db)\/[\w./]+|package\.json)(?:#L\d+)? "([^"`]+)"\)/g;

// The first line of a test's call may end behind the parenthesis.
const TEST = /^ *(?:test|it)\(\s*(['"`])(.*?)\1/gm;

// "4.10 and 4.11 …", "2.1, 2.2 …", "3.6 3.8 …", "1 AUTH_USER, AUTH_NAME: …"
const NUMBERS = /^\d\.\d+(?:(?:,? |,? and )\d\.\d+)*(?=[ :])/;
const VARIABLES = /^1 ([A-Z_]+(?:, [A-Z_]+)*):/;

function rulesOf(name: string): readonly string[] {
  const variables = VARIABLES.exec(name)?.[1]?.split(', ') ?? [];
  return NUMBERS.exec(name)?.[0].match(/\d\.\d+/g) ?? variables.map((variable) => `1 ${variable}`);
}

/** A link for each file, to the first of its tests, with the number of the others. */
function testList(tests: readonly NamedTest[]): string {
  const byFile = Map.groupBy(tests, ({ file }) => file);
  return [...byFile]
    .map(([file, [first, ...others]]) => {
      const more = others.length === 0 ? '' : ` and ${others.length} more`;
      return `[\`${file}:${first!.line}\`](../${file}#L${first!.line})${more}`;
    })
    .join(', ');
}

// What can stand before a name that is declared.
const MODIFIERS = /^(?:(?:export|async|readonly|static|get|const|function\*?|class) )+/;

/**
 * The one line that begins so, with or without its modifiers, and ends there or at a word's end.
 */
function lineOf(file: string, start: string, faults: string[]): number {
  const found = readFileSync(join(ROOT, file), 'utf8')
    .split('\n')
    .flatMap((line, i) => {
      const code = line.trim();
      const texts = [code, code.replace(MODIFIERS, ''), code.replace(/^"/, '')];
      const isIt = texts.some(
        (text) => text.startsWith(start) && !/^\w/.test(text.slice(start.length)),
      );
      return isIt ? [i + 1] : [];
    });
  if (found.length !== 1) faults.push(`${file}: ${found.length} lines begin with: ${start}`);
  return found[0] ?? 0;
}

if (import.meta.main) writeFileSync(CONTRACT, renew(readFileSync(CONTRACT, 'utf8')));
