// Memory control groups of Linux, version 1 and 2: a limit for the processes in a group, without swap.
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

// The folder and the files of each version, and the names of their counters.
const VERSIONS = {
  1: {
    root: '/sys/fs/cgroup/memory',
    limit: 'memory.limit_in_bytes',
    swap: 'memory.memsw.limit_in_bytes', // memory and swap together
    used: ['rss', 'shmem'], // everything except page cache
    kernel: 'memory.kmem.usage_in_bytes', // The kernel's memory for the group has its own file.
    events: 'memory.oom_control',
  },
  2: {
    root: '/sys/fs/cgroup',
    limit: 'memory.max',
    swap: 'memory.swap.max',
    used: ['anon', 'shmem', 'kernel', 'sock'],
    kernel: undefined,
    events: 'memory.events',
  },
} as const;

const REMOVE_ATTEMPTS = 100; // after its last process has ended

export class MemoryGroup {
  static #count = 0;
  readonly version = existsSync(VERSIONS[1].root) ? 1 : 2;
  readonly #folder: string;

  /** Creates a group. @throws the system's error without the right to */
  constructor(limitBytes: number) {
    const { root, limit, swap } = VERSIONS[this.version];
    this.#folder = join(root, `notes-users-hostile-${process.pid}-${MemoryGroup.#count++}`);
    if (this.version === 2) writeFileSync(join(root, 'cgroup.subtree_control'), '+memory');
    mkdirSync(this.#folder);
    writeFileSync(join(this.#folder, limit), String(limitBytes));
    // Absent where the kernel does not account for swap.
    const file = join(this.#folder, swap);
    if (existsSync(file)) writeFileSync(file, String(this.version === 1 ? limitBytes : 0));
  }

  /** The command that enters the group and becomes this command, so that all its memory counts. */
  wrap(command: readonly string[]): readonly string[] {
    const script = 'echo $$ > "$0" && exec "$@"';
    return ['/bin/sh', '-c', script, join(this.#folder, 'cgroup.procs'), ...command];
  }

  /** Memory that the kernel cannot reclaim by dropping page cache. */
  get usedBytes(): number {
    const { used, kernel } = VERSIONS[this.version];
    const stat = this.#read('memory.stat');
    const of = (key: string) => Number(new RegExp(`^${key} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0);
    return used.reduce((sum, key) => sum + of(key), kernel ? Number(this.#read(kernel)) : 0);
  }

  /** Number of processes that the kernel has killed here at the memory limit. */
  get kills(): number {
    const { events } = VERSIONS[this.version];
    return Number(/^oom_kill (\d+)$/m.exec(this.#read(events))?.[1] ?? 0);
  }

  /** Removes the group, whose processes must have ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        return rmdirSync(this.#folder);
      } catch (err) {
        if (attempt === REMOVE_ATTEMPTS) throw err;
        await pause(10);
      }
    }
  }

  #read(name: string): string {
    return readFileSync(join(this.#folder, name), 'utf8');
  }
}
