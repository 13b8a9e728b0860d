// Third-party programs for the tests. Tests whose program is missing are skipped, and one line names it. With
// REQUIRE_TOOLS=1, it is a failure in the files that call requireTools(), but no failed assertion.
import { test } from 'node:test';
import { find } from './daemon.ts';

/** With REQUIRE_TOOLS=1, adds a test that fails if there is a reason to skip tests. */
export function requireTools(...reasons: readonly (string | false)[]): void {
  if (process.env.REQUIRE_TOOLS !== '1') return;
  test('REQUIRE_TOOLS=1: no tool is missing', () => {
    const found = [...new Set(reasons)].filter(Boolean);
    if (found.length > 0) throw new Error(found.join('\n'));
  });
}

/** Reason to skip tests that need these programs; `false` if all are installed. */
export function missing(...programs: readonly string[]): string | false {
  const absent = programs.filter((program) => find(program) === undefined);
  return absent.length > 0 && `not installed: ${absent.join(', ')} (see .ci/run and .ci/tools)`;
}
