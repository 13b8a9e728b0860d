// The machine under the benchmark: which core runs what, and what Linux says about a process.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism, cpus, release, tmpdir, totalmem } from 'node:os';

const CPUS = availableParallelism();
const HAS_TASKSET = has('taskset');
/** Cores as `taskset -c` takes them: the contestant's own, the load's, and Postgres's. */
export interface Cores {
  readonly server: string;
  readonly load: string;
  readonly postgres: string;
}

/** Every core, as `taskset -c` takes them. */
export const ALL_CORES = `0-${CPUS - 1}`;

/** Core 0 for the contestant, core 1 for the load, all but core 0 for Postgres. */
export const DEFAULT_CORES: Cores = {
  server: '0',
  load: CPUS > 1 ? '1' : '0',
  postgres: CPUS > 1 ? `1-${CPUS - 1}` : '0',
};

/** True when this machine can run the command: `has('wrk')`. */
export function has(command: string): boolean {
  try {
    execFileSync('which', [command], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** The command line that runs `command` on those cores, or anywhere where there is no taskset. */
export function on(cores: string, command: readonly string[]): readonly [string, ...string[]] {
  const line = HAS_TASKSET ? ['taskset', '-c', cores, ...command] : command;
  return line as [string, ...string[]];
}

/** Moves a running process, all its threads and its children of today, to those cores. */
export function move(pid: number, cores: string): void {
  if (!HAS_TASKSET) return;
  for (const each of [pid, ...childrenOf(pid)]) {
    try {
      execFileSync('taskset', ['-a', '-c', '-p', cores, String(each)], { stdio: 'ignore' });
    } catch {
      // A child of a moment ago may have ended.
    }
  }
}

/**
 * CPU time of all threads that the process has now, user and system, in seconds. From `schedstat`,
 * which counts nanoseconds; `/proc/PID/stat` counts ticks of 10 ms.
 */
export function cpuSeconds(pid: number): number {
  const folder = `/proc/${pid}/task`;
  const ns = readdirSync(folder).map((thread) => {
    try {
      return Number(readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ')[0]);
    } catch {
      return 0; // It has ended since.
    }
  });
  return ns.reduce((sum, each) => sum + each, 0) / 1e9;
}

/** Resident memory now (`VmRSS`) or at its peak (`VmHWM`), in MB of 1,000,000 bytes. */
export function memoryMb(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return (Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)?.[1]) * 1024) / 1e6;
}

/** What a reader needs to know of the machine to read the figures. */
export function describeMachine(): Record<string, string | number> {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: CPUS,
    memoryGb: Math.round(totalmem() / 1e9),
    kernel: release(),
    node: process.version,
    pinned: HAS_TASKSET ? 'taskset' : 'no taskset: not pinned',
    tmp: fileSystem(tmpdir()),
  };
}

function fileSystem(path: string): string {
  return execFileSync('stat', ['-f', '-c', '%T', path], { encoding: 'utf8' }).trim();
}

function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => parentOf(name) === pid)
    .map(Number);
}

function parentOf(pid: string): number {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return 0; // It has ended.
  }
}
