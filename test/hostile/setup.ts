// Runs before the attacks: checks whether this machine can create a memory control group.
import { MemoryGroup } from './cgroup.ts';

export async function globalSetup(): Promise<void> {
  try {
    await using _group = MemoryGroup.create(2 ** 27);
  } catch (err) {
    process.stdout.write(`nothing is attacked: no memory control group (${err})\n`);
    process.exit(0); // instead of one line per test
  }
}
