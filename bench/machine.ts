// The machine of the benchmark: assigns cores, and reads Linux's figures of a process.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism, cpus, release, tmpdir, totalmem } from 'node:os';

const CPUS = availableParallelism();
const HAS_TASKSET = has('taskset');
/** Cores in `taskset -c` syntax: of the contestant, of the load, and of Postgres. */
export interface Cores {
  readonly server: string;
  readonly load: string;
  readonly postgres: string;
}

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

/** Returns a command line that runs `command` on those cores, or on any without taskset. */
export function on(cores: string, command: readonly string[]): readonly [string, ...string[]] {
  const line = HAS_TASKSET ? ['taskset', '-c', cores, ...command] : command;
  return line as [string, ...string[]];
}

/** Moves a running process with its threads and current children to those cores. */
export function move(pid: number, cores: string): void {
  if (!HAS_TASKSET) return;
  for (const each of [pid, ...childrenOf(pid)]) {
    try {
      execFileSync('taskset', ['-a', '-c', '-p', cores, String(each)], { stdio: 'ignore' });
    } catch {
      // A child can exit meanwhile.
    }
  }
}

/**
 * Returns the CPU time of the process's current threads, user and system, in seconds. Reads
 * `schedstat`, which counts nanoseconds, because `/proc/PID/stat` counts ticks of 10 ms.
 */
export function cpuSeconds(pid: number): number {
  const folder = `/proc/${pid}/task`;
  const ns = readdirSync(folder).map((thread) => {
    try {
      return Number(readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ')[0]);
    } catch {
      return 0; // It has exited.
    }
  });
  return ns.reduce((sum, each) => sum + each, 0) / 1e9;
}

/** Returns the CPU time that the hypervisor gave to other machines, in seconds, summed over all cores. */
export function stolenSeconds(): number {
  const [, ...ticks] = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0]!.split(/ +/);
  return Number(ticks[7]) / 100;
}

/** Returns resident memory now (`VmRSS`) or at its peak (`VmHWM`), in MB of 1,000,000 bytes. */
export function memoryMb(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return (Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)?.[1]) * 1024) / 1e6;
}

/** Returns the properties of the machine that a reader of the figures needs. */
export function describeMachine(): Record<string, string | number> {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: CPUS,
    memoryGb: Math.round(totalmem() / 1e9),
    kernel: release(),
    node: process.version,
    commit: commit(),
    pinned: HAS_TASKSET ? 'taskset' : 'no taskset: not pinned',
    tmp: fileSystem(tmpdir()),
  };
}

/** Returns the commit of this checkout, marked if files differ from it. */
function commit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: import.meta.dirname, encoding: 'utf8', stdio: 'pipe' }).trim();
  try {
    const isChanged = git('status', '--porcelain', '--untracked-files=no') !== '';
    return git('rev-parse', '--short', 'HEAD') + (isChanged ? ' with changes' : '');
  } catch {
    return 'unknown';
  }
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
    return 0; // It has exited.
  }
}
