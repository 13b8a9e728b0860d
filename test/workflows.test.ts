// .github/workflows: actionlint checks them, and their shell scripts if shellcheck is installed.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { find } from './support/daemon.ts';
import { newFolder } from './support/program.ts';

const ROOT = join(import.meta.dirname, '..');
const MODULE = 'github.com/rhysd/actionlint/cmd/actionlint@v1.7.12';
const GO = find('go');
const INSTALLED = find('actionlint');

describe('the workflows', {
  skip: INSTALLED === undefined && GO === undefined && 'neither actionlint nor go is installed',
}, () => {
  let program = INSTALLED;
  const files = globSync('.github/workflows/*.yml', { cwd: ROOT }).sort();
  const lint = (paths: readonly string[]) =>
    spawnSync(program!, ['-no-color', ...paths], { cwd: ROOT, encoding: 'utf8' });

  before(() => {
    if (program !== undefined) return;
    const folder = newFolder();
    const env = { ...process.env, GOBIN: folder, GOFLAGS: '-mod=mod' };
    execFileSync(GO!, ['install', MODULE], { cwd: folder, env, stdio: 'pipe' });
    program = join(folder, 'actionlint');
  });

  test('actionlint finds no problem in them, and finds one that is added', () => {
    assert.deepEqual(files, ['.github/workflows/ci.yml', '.github/workflows/release.yml']);
    const { status, stdout } = lint(files);
    assert.equal(status, 0, stdout);
    const wrong = join(newFolder(), 'wrong.yml');
    const text = readFileSync(join(ROOT, files[0]!), 'utf8');
    writeFileSync(wrong, text.replace('github.ref', 'github.reef'));
    assert.match(lint([wrong]).stdout, /property "reef" is not defined/);
  });

  test('every npm command that they run is a script of package.json', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const text = files.map((file) => readFileSync(join(ROOT, file), 'utf8')).join('\n');
    const names = [...text.matchAll(/npm (?:run(?: --silent)? ([\w:]+)|test\b)/g)];
    assert.ok(names.length > 3);
    for (const [command, script = 'test'] of names) assert.ok(script in scripts, command);
  });
});
