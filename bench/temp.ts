// Removes folders and kills processes when the benchmark ends, in any way.
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

// By default a signal ends the process without the event.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));

/** Creates an empty folder that is removed when the benchmark ends. */
export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-bench-'));
  removeAtExit(folder);
  return folder;
}

/** Registers a folder that another module created. */
export function removeAtExit(folder: string): void {
  folders.add(folder);
}

/** Removes a folder before the benchmark ends. */
export function remove(folder: string): void {
  folders.delete(folder);
  rmSync(folder, { recursive: true, force: true });
}

/** Kills the process when the benchmark ends, if it still runs. */
export function killAtExit(child: ChildProcess): void {
  processes.add(child);
  child.once('exit', () => processes.delete(child));
}
