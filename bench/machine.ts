// The machine of the benchmark: its cores, the CPU time of a process, and what ends with the benchmark.
import { type ChildProcess, execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';

const CPUS = availableParallelism();
const IS_PINNED = has('taskset') && CPUS > 1;

/** True if this machine has the command: `has('wrk')`. */
export function has(command: string): boolean {
  try {
    execFileSync('which', [command], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Leaves core 0 to the contestants. Postgres and the load inherit the other cores. */
export function leaveServerCore(): void {
  if (!IS_PINNED) return;
  const cores = `1-${CPUS - 1}`;
  execFileSync('taskset', ['-a', '-c', '-p', cores, `${process.pid}`], { stdio: 'ignore' });
}

/** Returns a command line that runs the command on core 0, or on any core without taskset. */
export function onServerCore(command: readonly string[]): readonly [string, ...string[]] {
  const line = IS_PINNED ? ['taskset', '-c', '0', ...command] : command;
  return line as [string, ...string[]];
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

/** Returns the properties of the machine that a reader of the figures needs. */
export function describeMachine(postgresVersion: string): string {
  const pinned = IS_PINNED ? '' : ', without pinning';
  return (
    `${CPUS} cores of ${cpus()[0]?.model ?? 'an unknown processor'}, Linux ${release()}, ` +
    `node ${process.version}, Postgres ${postgresVersion}${pinned}`
  );
}

const root = mkdtempSync(join(tmpdir(), 'notes-users-bench-'));
const processes = new Set<ChildProcess>();

process.once('exit', () => {
  for (const child of processes) child.kill('SIGKILL');
  rmSync(root, { recursive: true, force: true });
});
// By default a signal ends the process without the event.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));

/** Creates an empty folder, which is removed when the benchmark ends. */
export function newFolder(): string {
  return mkdtempSync(join(root, 'run-'));
}

/** Kills the process when the benchmark ends, if it still runs. */
export function killAtExit(child: ChildProcess): void {
  processes.add(child);
  child.once('exit', () => processes.delete(child));
}
