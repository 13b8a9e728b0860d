// Runs the contract tests on both stores against a container with all hardening flags instead of
// the source. TEST_PROGRAM is the command that they start.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { IMAGE, NO_IMAGE } from './engine.ts';

const SOURCE = join(import.meta.dirname, '../..');
const STAND_IN = join(import.meta.dirname, 'run-container.ts');

/** Each idle connection is charged 40 KiB, so 10,000 of them don't fit into 128 MB. */
const MANY_CONNECTIONS = '6.3 connection 10,001';

/**
 * Names of tests that the stand-in can't run. They freeze the program with SIGSTOP, change its
 * user, use a read-only folder, look at open files, leave the log unread, or inject code.
 */
const NOT_HERE = [
  'during startup',
  'log reader',
  'an error outside a request',
  'the process survives errors of the driver',
  'connections that the kernel has already queued',
  'the service hangs',
  'a read-only file system is named',
  'is named, with a fix',
  '6.19 ',
];

describe('the image: the contract', { skip: NO_IMAGE, timeout: 1_800_000 }, () => {
  test('the contract tests pass with 128 MB', async (t) => {
    const skipped = [...NOT_HERE, MANY_CONNECTIONS].map((name) => `--test-skip-pattern=${name}`);
    const { output, status } = await contract('128m', skipped);
    t.diagnostic(summary(output));
    assert.equal(status, 0, failures(output));
  });

  test('10,000 connections are served with 1 GB', async (t) => {
    const only = `--test-name-pattern=${MANY_CONNECTIONS}`;
    const { output, status } = await contract('1g', [only]);
    t.diagnostic(summary(output));
    assert.equal(status, 0, failures(output));
    if (/ulimit -n is below/.test(output)) return t.skip('ulimit -n is too low');
    assert.match(output, /✔ 6\.3 connection 10,001/);
  });
});

async function contract(memory: string, flags: readonly string[]) {
  const files = globSync('test/contract/*.test.ts', { cwd: SOURCE });
  // With this variable, node would report to this test's runner instead of printing.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(process.execPath, ['--test', '--test-reporter=spec', ...flags, ...files], {
    cwd: SOURCE,
    env: { ...env, TEST_PROGRAM: JSON.stringify([process.execPath, STAND_IN, IMAGE, memory]) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const [status] = await once(child, 'close');
  return { output, status };
}

function summary(output: string): string {
  return Array.from(output.matchAll(/^ℹ ((?:tests|fail|skipped) \d+)$/gm), ([, text]) => text).join(
    ', ',
  );
}

function failures(output: string): string {
  return output.slice(output.indexOf('failing tests:'));
}
