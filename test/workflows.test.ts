// .github/workflows: actionlint checks them, and their shell scripts if shellcheck is installed; zizmor their security.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { find } from './support/daemon.ts';
import { newFolder } from './support/program.ts';
import { goProgram, requireTools } from './support/tools.ts';

const ROOT = join(import.meta.dirname, '..');
const MODULE = 'github.com/rhysd/actionlint/cmd/actionlint@v1.7.12';

const files = globSync('.github/workflows/*.yml', { cwd: ROOT }).sort();
const { program, reason } = await goProgram('actionlint', MODULE);

requireTools(reason);

test('actionlint finds no problem in the workflows, and finds an added one', {
  skip: reason,
}, () => {
  const lint = (paths: readonly string[]) =>
    spawnSync(program, ['-no-color', ...paths], { cwd: ROOT, encoding: 'utf8' });
  assert.deepEqual(
    files,
    ['ci', 'nightly', 'release'].map((name) => `.github/workflows/${name}.yml`),
  );
  const { status, stdout } = lint(files);
  assert.equal(status, 0, stdout);
  const wrong = join(newFolder(), 'wrong.yml');
  const text = readFileSync(join(ROOT, files[0]!), 'utf8');
  writeFileSync(wrong, text.replace('github.ref', 'github.reef'));
  assert.match(lint([wrong]).stdout, /property "reef" is not defined/);
});

const ZIZMOR = find('zizmor');
test('zizmor finds no problem in the workflows, and finds an action that is not pinned by hash', {
  skip: ZIZMOR === undefined && 'zizmor is not installed (PyPI)',
}, () => {
  const audit = (paths: readonly string[]) =>
    spawnSync(ZIZMOR!, ['--offline', '--no-progress', ...paths], { cwd: ROOT, encoding: 'utf8' });
  const { status, stdout, stderr } = audit(files);
  assert.equal(status, 0, stdout + stderr);
  const folder = newFolder();
  const wrong = join(folder, 'wrong.yml');
  const text = readFileSync(join(ROOT, files[0]!), 'utf8');
  writeFileSync(wrong, text.replace(/@[0-9a-f]{40} # (v\d+).*/, '@$1'));
  assert.match(audit([wrong]).stdout, /unpinned-uses/);
});

test('a release publishes only after the jobs that check', () => {
  const text = readFileSync(join(ROOT, '.github/workflows/release.yml'), 'utf8');
  const jobs = text
    .slice(text.indexOf('\njobs:\n'))
    .matchAll(/^ {2}(\w+):\n(?: {4}needs: (.*)\n)? {4}\S/gm);
  assert.deepEqual(
    Array.from(jobs, ([, name, needs]) => `${name}: ${needs}`),
    ['test: undefined', 'build: test', 'image: [test, build]', 'package: image'],
  );
  const [checking = ''] = text.split(/^ {2}image:$/m);
  assert.doesNotMatch(checking, /: write\b/); // Only a job that can write can publish.
});
