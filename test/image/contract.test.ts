// Runs the contract tests on both stores against a container with all hardening flags instead of
// the source. TEST_PROGRAM is the command that they start.
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { contractTests } from '../support/contract-tests.ts';
import { IMAGE, NO_IMAGE } from './engine.ts';

const STAND_IN = join(import.meta.dirname, 'run-container.ts');

/**
 * Names of tests that the stand-in can't run. They freeze the program with SIGSTOP, change its
 * user, use a read-only folder, look at open files, leave the log unread, or give node options.
 */
const NOT_HERE = [
  'a startup',
  'log reader',
  'an error outside a request',
  'the process survives errors of the driver',
  'connections that the kernel has already queued',
  'both fail if it hangs',
  'after a stall',
  'a read-only file system is named',
  'is named, with a fix',
  '6.19 ',
];

describe('the image: the contract', { skip: NO_IMAGE, timeout: 1_800_000 }, () => {
  test('the contract tests pass with 128 MB', async (t) => {
    const TEST_PROGRAM = JSON.stringify([process.execPath, STAND_IN, IMAGE]);
    const skipped = NOT_HERE.map((name) => `--test-skip-pattern=${name}`);
    await contractTests(t, { TEST_PROGRAM }, ...skipped);
  });
});
