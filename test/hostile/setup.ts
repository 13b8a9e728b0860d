// Runs before the hostile tests: checks whether this machine can create a memory control group,
// and builds the image if there is an engine.
import { join } from 'node:path';
import { ENGINE, run } from '../../image/unpack.ts';
import { reasonWithoutGroups } from './cgroup.ts';

const SOURCE = join(import.meta.dirname, '../..');
const TAG = 'notes-users:hostile';

export async function globalSetup(): Promise<void> {
  const reason = await reasonWithoutGroups();
  if (reason !== undefined) {
    process.stdout.write(`hostile clients are not tested: no memory control group (${reason})\n`);
    process.exit(0); // instead of one line per test
  }
  try {
    await run(ENGINE, ['version']);
    await run(ENGINE, ['build', '-t', TAG, SOURCE]);
    process.env.TEST_IMAGE = TAG;
  } catch (err) {
    const line = (err as Error).message.trim().split('\n').at(-1);
    process.stdout.write(`the image is not attacked: it cannot be built (${line})\n`);
  }
}
