// Before the tests of the laboratory: whether this machine lets them create a memory control group,
// and the image, where there is an engine for it.
import { join } from 'node:path';
import { ENGINE, run } from '../../image/unpack.ts';
import { reasonWithoutGroups } from './cgroup.ts';

const SOURCE = join(import.meta.dirname, '../..');
const TAG = 'notes-users:hostile';

export async function globalSetup(): Promise<void> {
  const reason = await reasonWithoutGroups();
  if (reason !== undefined) {
    process.stdout.write(`hostile clients are not tested: no memory control group (${reason})\n`);
    process.exit(0); // instead of a line for each test
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
