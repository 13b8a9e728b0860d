// Runs before the attacks: checks whether this machine can create a memory control group, and limits what it counts.
import { readFileSync } from 'node:fs';
import { MemoryGroup } from './cgroup.ts';

const MAX_SOCKET_BUFFER = 65_536; // docs/operations.md, "Sizing"

export async function globalSetup(): Promise<void> {
  try {
    await using group = new MemoryGroup(2 ** 27);
    const sizes = readFileSync('/proc/sys/net/ipv4/tcp_wmem', 'utf8').trim();
    if (group.version === 2 && Number(sizes.split(/\s+/)[2]) > MAX_SOCKET_BUFFER) {
      throw new Error(`net.ipv4.tcp_wmem is ${sizes}; expected 4096 16384 ${MAX_SOCKET_BUFFER}`);
    }
  } catch (err) {
    process.stdout.write(`nothing is attacked (${err})\n`);
    process.exit(0); // instead of one line per test
  }
}
