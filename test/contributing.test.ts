// CONTRIBUTING.md adds a route step by step. This test follows the page in a copy of the tree.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, globSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { routeTable } from '../scripts/readme.ts';
import { newFolder } from './support/program.ts';

const ROOT = join(import.meta.dirname, '..');
const PARTS = ['src', 'scripts', 'db', 'docs', 'test', 'image'];
const FILES = [
  'biome.json',
  'package.json',
  'tsconfig.json',
  'openapi.json',
  'README.md',
  'SECURITY.md',
];
const MOST_FILES = 6;

/** A code block of the page, and its place: a new file, or next to the line with this start. */
interface Step {
  readonly file: string;
  readonly side: 'after' | 'before' | undefined;
  readonly anchor: string;
  readonly code: string;
}

const STEP = /`([\w./]+)`(?:, (after|before) `([^\n]+)`)?:\n\n```(?:json|md|ts)\n(.*?)```/gs;

function steps(): readonly Step[] {
  const page = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
  const section = /^## Add a route\n(.*?)^## /ms.exec(page)![1]!;
  return Array.from(section.matchAll(STEP), ([, file, side, anchor = '', code]) => {
    return { file: file!, side: side as Step['side'], anchor, code: code! };
  });
}

function apply(folder: string, { file, side, anchor, code }: Step): void {
  const path = join(folder, file);
  if (side === undefined) {
    writeFileSync(path, code, { flag: 'wx' });
    return;
  }
  const lines = readFileSync(path, 'utf8').split('\n');
  const at = lines.findIndex((line) => line.startsWith(anchor));
  assert.notEqual(at, -1, `${file} has no line that starts with ${anchor}`);
  lines.splice(side === 'after' ? at + 1 : at, 0, code.trimEnd());
  writeFileSync(path, lines.join('\n'));
}

/** Copies the tree and adds the new route. */
function copy(): string {
  const folder = newFolder();
  const filter = (path: string) => !path.endsWith('/node_modules');
  for (const part of [...PARTS, ...FILES]) {
    cpSync(join(ROOT, part), join(folder, part), { recursive: true, filter });
  }
  for (const modules of ['node_modules', 'test/client/node_modules']) {
    symlinkSync(join(ROOT, modules), join(folder, modules));
  }
  for (const step of steps()) apply(folder, step);
  return folder;
}

/** @throws with the output of a command that fails */
async function run(cwd: string, ...args: readonly string[]): Promise<void> {
  // With this variable, the tests in the copy would report to this process and not by their status.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  await promisify(execFile)(process.execPath, args, { cwd, env }).catch((err) => {
    throw new Error(`${args.join(' ')}:\n${err.stdout}${err.stderr}`);
  });
}

function edit(folder: string, file: string, from: string | RegExp, to: string): void {
  const path = join(folder, file);
  const text = readFileSync(path, 'utf8');
  assert.notEqual(text.replace(from, to), text);
  writeFileSync(path, text.replace(from, to));
}

describe('the new route of CONTRIBUTING.md', { concurrency: 2, timeout: 300_000 }, () => {
  test('it type-checks, is in the rule map and passes its test and those of the description', async () => {
    const folder = copy();
    await Promise.all([
      run(folder, join(ROOT, 'node_modules/typescript/bin/tsc')),
      run(
        folder,
        join(ROOT, 'node_modules/@biomejs/biome/bin/biome'),
        'ci',
        'src',
        'test/contract',
      ),
      run(folder, '--test', 'test/contract.test.ts'),
      run(folder, '--test', 'test/contract/audit.test.ts'),
      run(
        folder,
        '--test',
        '--test-name-pattern=audit|3[.]19',
        'test/contract/description.test.ts',
      ),
      run(folder, '--test', '--test-name-pattern=8[.]1|route', 'test/openapi.test.ts'),
    ]);
    const { routeTable } = await import(join(folder, 'scripts/readme.ts'));
    assert.match(routeTable(), /`GET \/users\/\{id\}\/audit` \| Bearer token \|/);
  });

  test('it changes at most six files', () => {
    const folder = copy();
    const changed = globSync([...FILES, ...PARTS.map((part) => `${part}/**/*.*`)], { cwd: folder })
      .filter((file) => !file.includes('node_modules'))
      .filter((file) => contents(join(folder, file)) !== contents(join(ROOT, file)));
    const all = [...changed, 'README.md']; // The output of step 6.
    assert.ok(all.length <= MOST_FILES, `${all.length}: ${all}`);
    assert.ok(!routeTable().includes('audit'));
  });

  test('a route without a rule fails', async () => {
    const folder = copy();
    edit(folder, 'docs/contract.md', /^- \*\*4\.99\*\* .*\n/m, '');
    await assert.rejects(
      run(folder, '--test', 'test/contract.test.ts'),
      /no rule begins with GET \/users\/\{id\}\/audit/,
    );
  });
});

function contents(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
