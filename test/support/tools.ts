// Third-party programs for the tests. Tests whose program is missing are skipped, and one line
// names it. With REQUIRE_TOOLS=1, a missing program is a failure, but no failed assertion.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { find } from './daemon.ts';

/** With REQUIRE_TOOLS=1, adds a test that fails if there is a reason to skip tests. */
export function requireTools(...reasons: readonly (string | false)[]): void {
  if (process.env.REQUIRE_TOOLS !== '1') return;
  test('REQUIRE_TOOLS=1: no tool is missing', () => {
    const missing = [...new Set(reasons)].filter(Boolean);
    if (missing.length > 0) throw new Error(missing.join('\n'));
  });
}

/**
 * Fills a folder with a tool, unless it is filled. Empties an incomplete folder first.
 * @returns the reason why `action` failed, in one line; `false` if the folder is filled
 */
export async function fill(
  folder: string,
  tool: string,
  action: () => Promise<unknown>,
): Promise<string | false> {
  const marker = join(folder, '.complete');
  if (existsSync(marker)) return false;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    await action();
  } catch (err) {
    return `${tool} can't be installed: ${causeOf(err as Error)}`;
  }
  writeFileSync(marker, '');
  return false;
}

/** Reason to skip tests that need Go; `false` if the machine has it. */
export const NO_GO = find('go') === undefined && 'go is not installed';

/**
 * Returns this machine's program, or one that Go builds from a module in a folder that later runs use too;
 * otherwise the reason to skip.
 */
export async function goProgram(name: string, module: string) {
  const installed = find(name);
  if (installed !== undefined) return { program: installed, reason: false } as const;
  if (NO_GO) return { program: '', reason: `${name} is not installed, and ${NO_GO}` };
  const folder = join(tmpdir(), `notes-users-${basename(module)}-${userInfo().uid}`);
  const env = { ...process.env, GOBIN: folder, GOFLAGS: '-mod=mod', CGO_ENABLED: '0' };
  const reason = await fill(folder, name, () =>
    promisify(execFile)('go', ['install', module], { cwd: folder, env }),
  );
  return { program: join(folder, name), reason } as const;
}

/** Returns the line with the cause. `message` has the command, then its output. */
function causeOf({ message }: Error): string {
  const [command = '', ...output] = message.split('\n').filter((line) => line.trim() !== '');
  return output.find((line) => /error/i.test(line)) ?? output.at(-1) ?? command;
}
