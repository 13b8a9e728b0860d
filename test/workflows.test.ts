// .github/workflows: actionlint checks them, and their shell scripts if shellcheck is installed; zizmor their security.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from './support/program.ts';
import { missing, requireTools } from './support/tools.ts';

const files = globSync('.github/workflows/*.yml', { cwd: ROOT }).sort();
const NO_ACTIONLINT = missing('actionlint');

requireTools(NO_ACTIONLINT);

for (const { name, skip, flags } of [
  { name: 'actionlint', skip: NO_ACTIONLINT, flags: ['-no-color'] },
  { name: 'zizmor', skip: missing('zizmor'), flags: ['--offline', '--no-progress'] },
]) {
  test(`${name} finds no problem in the workflows`, { skip }, () => {
    assert.equal(files.length, 3);
    const { status, stdout, stderr } = spawnSync(name, [...flags, ...files], {
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
  const found = Array.from(jobs, ([, name, needs]) => `${name}: ${needs}`);
  const expected = ['test: undefined', 'build: test', 'image: [test, build]', 'package: image'];
  assert.deepEqual(found, expected);
  const [checking = ''] = text.split(/^ {2}image:$/m);
  assert.doesNotMatch(checking, /: write\b/); // Only a job that can write can publish.
  // A release does all of this, in this order.
  const steps = [
    ...['= "$GITHUB_REF_NAME"', 'run: npm test\n', 'run: npm run test:image\n'],
    ...['node image/verify.ts "$name"\n', 'copy --all --preserve-digests', 'cosign sign --yes'],
    ...[':$VERSION"\n', 'npm publish --provenance'],
  ];
  const places = [0, ...steps.map((step) => text.indexOf(step))];
  const inOrder = places.toSorted((a, b) => a - b);
  assert.deepEqual(places, inOrder);
});
