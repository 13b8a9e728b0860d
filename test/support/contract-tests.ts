// Runs the contract tests in processes of their own, against another program or another database.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import { ENV, ROOT } from './program.ts';

/** Returns the output. @throws an AssertionError with the tests that failed */
export async function contractTests(
  t: TestContext,
  variables: Readonly<Record<string, string>>,
  ...flags: readonly string[]
): Promise<string> {
  const files = globSync('test/contract/*.test.ts', { cwd: ROOT });
  const env = { ...ENV, ...variables };
  const args = ['--test', '--test-reporter=spec', ...flags, ...files];
  const options = { cwd: ROOT, env, signal: t.signal, maxBuffer: 2 ** 30 };
  const ended = promisify(execFile)(process.execPath, args, options);
  const { code = 0, stdout } = await ended.catch((err) => err);
  assert.equal(code, 0, stdout.slice(stdout.indexOf('failing tests:')));
  const counts = stdout.matchAll(/^ℹ ((?:tests|fail|skipped) \d+)$/gm);
  t.diagnostic(Array.from(counts, ([, count]) => count).join(', '));
  return stdout;
}
