// Builds the image and starts the Postgres of the contract tests, before the image tests.
import { join } from 'node:path';
import { ENGINE, run } from '../../image/unpack.ts';
import { globalSetup as startPostgres } from '../support/postgres.ts';

export { globalTeardown } from '../support/postgres.ts';

const SOURCE = join(import.meta.dirname, '../..');
const TAG = 'notes-users:test';

export async function globalSetup(): Promise<void> {
  const hasEngine = await run(ENGINE, ['version']).then(
    () => true,
    () => false,
  );
  if (!hasEngine) {
    process.stdout.write(`the image is not tested: no container engine responds (${ENGINE})\n`);
    process.exit(0); // Prints one line instead of one per test.
  }
  await run(ENGINE, ['build', '-t', TAG, SOURCE]);
  process.env.TEST_IMAGE = TAG;
  await startPostgres();
}
