// Runs before the image tests: builds the image, and starts the Postgres of the contract tests.
import { join } from 'node:path';
import { ENGINE, run } from '../../image/unpack.ts';
import * as postgres from '../support/postgres.ts';

const SOURCE = join(import.meta.dirname, '../..');
const TAG = 'notes-users:test';

export async function globalSetup(): Promise<void> {
  const hasEngine = await run(ENGINE, ['version']).then(
    () => true,
    () => false,
  );
  if (!hasEngine) {
    process.stdout.write(`the image is not tested: no container engine responds (${ENGINE})\n`);
    process.exit(0); // instead of one line per test
  }
  await run(ENGINE, ['build', '-t', TAG, SOURCE]);
  process.env.TEST_IMAGE = TAG;
  await postgres.globalSetup();
}

export async function globalTeardown(): Promise<void> {
  await postgres.globalTeardown();
}
