// .github/workflows: actionlint checks them, and their shell scripts if shellcheck is installed; zizmor their security.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { find } from './support/daemon.ts';
import { ROOT } from './support/program.ts';
import { goProgram, requireTools } from './support/tools.ts';

const MODULE = 'github.com/rhysd/actionlint/cmd/actionlint@v1.7.12';

const files = globSync('.github/workflows/*.yml', { cwd: ROOT }).sort();
const { program, reason } = await goProgram('actionlint', MODULE);
const zizmor = find('zizmor');

requireTools(reason);

for (const { name, skip, command } of [
  { name: 'actionlint', skip: reason, command: [program, '-no-color'] },
  {
    name: 'zizmor',
    skip: zizmor === undefined && 'zizmor is not installed (PyPI)',
    command: [zizmor!, '--offline', '--no-progress'],
  },
]) {
  test(`${name} finds no problem in the workflows`, { skip }, () => {
    assert.equal(files.length, 3);
    const args = [...command.slice(1), ...files];
    const { status, stdout, stderr } = spawnSync(command[0]!, args, {
      cwd: ROOT,
      encoding: 'utf8',
    });
    assert.equal(status, 0, stdout + stderr);
  });
}

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
