// .github/workflows: actionlint checks them, and their shell scripts if shellcheck is installed; zizmor their security.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { find } from './support/daemon.ts';
import { newFolder, ROOT } from './support/program.ts';
import { goProgram, requireTools } from './support/tools.ts';

const MODULE = 'github.com/rhysd/actionlint/cmd/actionlint@v1.7.12';

const files = globSync('.github/workflows/*.yml', { cwd: ROOT }).sort();
const { program, reason } = await goProgram('actionlint', MODULE);
const zizmor = find('zizmor');

requireTools(reason);

for (const { name, skip, command, right, wrong, finding } of [
  {
    name: 'actionlint',
    skip: reason,
    command: [program, '-no-color'],
    ...{ right: 'github.ref', wrong: 'github.reef', finding: /property "reef" is not defined/ },
  },
  {
    name: 'zizmor',
    skip: zizmor === undefined && 'zizmor is not installed (PyPI)',
    command: [zizmor!, '--offline', '--no-progress'],
    ...{ right: /@[0-9a-f]{40} # (v\d+).*/, wrong: '@$1', finding: /unpinned-uses/ },
  },
]) {
  test(`${name} finds no problem in the workflows, and finds an added one`, { skip }, () => {
    const check = (paths: readonly string[]) =>
      spawnSync(command[0]!, [...command.slice(1), ...paths], { cwd: ROOT, encoding: 'utf8' });
    assert.equal(files.length, 3);
    const { status, stdout, stderr } = check(files);
    assert.equal(status, 0, stdout + stderr);
    const changed = join(newFolder(), 'wrong.yml');
    writeFileSync(changed, readFileSync(join(ROOT, files[0]!), 'utf8').replace(right, wrong));
    assert.match(check([changed]).stdout, finding);
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
