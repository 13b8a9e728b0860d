// .ci/run: which failures of the last suites fail the run.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { newFolder } from './support/program.ts';

const SCRIPT = readFileSync(join(import.meta.dirname, '../.ci/run'), 'utf8');
const [FUNCTIONS = ''] = /^output=.*(?=^export REQUIRE_TOOLS=1$)/ms.exec(SCRIPT) ?? [];

for (const { what, body, seconds = 60, isWrong } of [
  { what: 'passes', body: '() => {}', isWrong: false },
  { what: 'has a failed assertion', body: '() => assert.deepEqual([1], [2])', isWrong: true },
  { what: 'has another error', body: `() => { throw new Error('no etcd') }`, isWrong: false },
  { what: 'times out', body: '{ timeout: 1 }, () => new Promise(() => {})', isWrong: false },
  {
    what: 'has a failed assertion and does not finish',
    body: `async () => { setInterval(() => {}, 1000); assert.fail() }`,
    seconds: 1,
    isWrong: false,
  },
]) {
  test(`a suite that ${what} ${isWrong ? 'fails' : 'does not fail'} the run`, () => {
    const folder = newFolder();
    const file = join(folder, 'suite.test.mjs');
    writeFileSync(
      file,
      `import assert from 'node:assert/strict';
      import { describe, test } from 'node:test';
      describe('a suite', () => test('a test', ${body}));`,
    );
    const commands = `set -euo pipefail
      tools=${folder}
      ${FUNCTIONS}
      correct ${seconds} "$0" --test "$1"
      echo "wrong: \${#wrong[@]}"`;
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const args = ['-c', commands, process.execPath, file];
    const lines = execFileSync('bash', args, { env, encoding: 'utf8' }).trimEnd().split('\n');
    assert.equal(lines.at(-1), `wrong: ${isWrong ? 1 : 0}`, lines.join('\n'));
  });
}
