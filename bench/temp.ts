// What must not outlive the benchmark, however it ends: its folders and the processes it started.
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const folders = new Set<string>();
const processes = new Set<ChildProcess>();

process.once('exit', () => {
  for (const child of processes) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** A new empty folder that is gone when the benchmark has ended. */
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-bench-'));
  removeAtExit(folder);
  return folder;
}

/** Also removes a folder that another module made. */
export function removeAtExit(folder: string): void {
  folders.add(folder);
}

/** Removes a folder before that. */
export function remove(folder: string): void {
  folders.delete(folder);
  rmSync(folder, { recursive: true, force: true });
}

/** Kills the process at the end if it still runs then. */
export function killAtExit(child: ChildProcess): void {
  processes.add(child);
  child.once('exit', () => processes.delete(child));
}
