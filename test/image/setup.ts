// Builds the image and starts the Postgres of the contract tests, before the image tests.
import { ENGINE, run } from '../../image/unpack.ts';
import { globalSetup as startPostgres } from '../support/postgres.ts';
import { ROOT } from '../support/program.ts';

export { globalTeardown } from '../support/postgres.ts';

const TAG = 'notes-users:test';

export async function globalSetup(): Promise<void> {
  try {
    await run(ENGINE, ['version']);
  } catch {
    process.stdout.write(`the image is not tested: no container engine responds (${ENGINE})\n`);
    process.exit(0); // Prints one line instead of one per test.
  }
  await run(ENGINE, ['build', '-t', TAG, ROOT]);
  process.env.TEST_IMAGE = TAG;
  await startPostgres();
}
