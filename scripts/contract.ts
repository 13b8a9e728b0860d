// Maps each rule of docs/contract.md to the code and the tests that cite it. `npm run contract`
// prints the map. It fails if a rule lacks code or a test, or if a citation names an unknown rule.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');

/** A comment or a test name that cites rules. */
export interface Citation {
  readonly file: string; // relative to the root
  readonly line: number;
  readonly rules: readonly string[];
}

/** Returns the rules by id, each with its citations. `faults` lists missing and unknown ones. */
export function mapRules(contract: string, code: readonly Citation[], tests: readonly Citation[]) {
  const ids = ruleIds(contract);
  const citing = (all: readonly Citation[], id: string) =>
    all.filter(({ rules }) => rules.includes(id));
  const rules = new Map(
    ids.map((id) => [id, { code: citing(code, id), tests: citing(tests, id) }]),
  );
  const twice = ids.filter((id, i) => ids.indexOf(id) < i).map((id) => `${id}: defined twice`);
  const unknown = [...code, ...tests].flatMap(({ file, line, rules: cited }) =>
    cited.filter((id) => !rules.has(id)).map((id) => `${file}:${line}: cites unknown rule ${id}`),
  );
  const missing = Array.from(rules).flatMap(([id, found]) => [
    ...(found.code.length === 0 ? [`${id}: no code cites it`] : []),
    ...(found.tests.length === 0 ? [`${id}: no test is named after it`] : []),
  ]);
  return { rules, faults: [...twice, ...unknown, ...missing] };
}

/** Returns the ids of the rules in order. "1 A, B" is a rule of each of these variables: `1 A`, `1 B`. */
export function ruleIds(contract: string): readonly string[] {
  const items = contract.matchAll(/^- \*\*(\d\.\d+|1 [A-Z_]+(?:, [A-Z_]+)*)\*\* /gm);
  return [...items].flatMap(([, ids]) => ids!.replaceAll(', ', ', 1 ').split(', '));
}

/** Returns the citations in src, scripts and db. A row of src/config.ts cites its variable's rule. */
export function findCode(): readonly Citation[] {
  return globSync(['src/**/*.{js,ts}', 'scripts/**/*.ts', 'db/**/*.sql'], { cwd: ROOT })
    .sort()
    .flatMap((file) => {
      const lines = readFileSync(join(ROOT, file), 'utf8').split('\n');
      return lines.map((text, i) => {
        const variable = file === 'src/config.ts' && /^ {2}([A-Z_]+):/.exec(text)?.[1];
        const rules = variable ? [`1 ${variable}`] : citedRules(text);
        return { file, line: i + 1, rules };
      });
    })
    .filter(({ rules }) => rules.length > 0);
}

/** Returns the tests whose names start with a rule's number, and all of test/contract. */
export function findTests(): readonly (Citation & { readonly name: string })[] {
  return globSync('test/**/*.test.ts', { cwd: ROOT })
    .sort()
    .flatMap((file) => {
      const text = readFileSync(join(ROOT, file), 'utf8');
      return [...text.matchAll(TEST)].map(({ 2: name = '', index }) => {
        const line = text.slice(0, index).split('\n').length;
        return { file, line, name, rules: testedRules(name) };
      });
    })
    .filter(({ file, rules }) => rules.length > 0 || file.startsWith('test/contract/'));
}

// "// 4.8, 4.13", "// contract 4.4, 4.10", "(contract 4.8)", "(4.8)"
const COMMENT = /(?:\/\/|\/\*\*|^ *\*|--) (.*)$/;
const CITATION = /(?:^|\(|\bcontract )(\d\.\d+(?:, \d\.\d+)*)(?=$|[\s),.;:])/g;

function citedRules(line: string): readonly string[] {
  const comment = COMMENT.exec(line)?.[1] ?? '';
  return [...comment.matchAll(CITATION)].flatMap(([, list]) => list!.match(/\d\.\d+/g)!);
}

// A test's name may be on the line after the parenthesis.
const TEST = /^ *(?:test|it)\(\s*(['"`])(.*?)\1/gm;

// "4.10 and 4.11 …", "2.1, 2.2 …", "3.6 3.8 …", "1 AUTH_USER, AUTH_NAME: …"
const NUMBERS = /^\d\.\d+(?:(?:,? |,? and )\d\.\d+)*(?=[ :])/;
const VARIABLES = /^1 ([A-Z_]+(?:, [A-Z_]+)*):/;

function testedRules(name: string): readonly string[] {
  const variables = VARIABLES.exec(name)?.[1]?.split(', ') ?? [];
  return NUMBERS.exec(name)?.[0].match(/\d\.\d+/g) ?? variables.map((variable) => `1 ${variable}`);
}

if (import.meta.main) {
  // A reader such as `head` can close the pipe early.
  process.stdout.on('error', (err: NodeJS.ErrnoException) => {
    if (err.code !== 'EPIPE') throw err;
  });
  const contract = readFileSync(join(ROOT, 'docs/contract.md'), 'utf8');
  const { rules, faults } = mapRules(contract, findCode(), findTests());
  const places = (found: readonly Citation[]) =>
    found.map(({ file, line }) => `  ${file}:${line}\n`).join('');
  for (const [id, { code, tests }] of rules) {
    process.stdout.write(`${id}\n${places(code)}${places(tests)}`);
  }
  process.stderr.write(faults.map((fault) => `${fault}\n`).join(''));
  process.exitCode = faults.length > 0 ? 1 : 0;
}
