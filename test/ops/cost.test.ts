// The cost of measuring: less than a twentieth of the 10 microseconds of the cheapest request.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

const MAX_NANOSECONDS = 500;

test('measuring a request or a store call is cheap', (t) => {
  const script = join(import.meta.dirname, '../support/cost.ts');
  const output = execFileSync(process.execPath, [script], { encoding: 'utf8' });
  t.diagnostic(output.trim());
  const { request, call } = JSON.parse(output);
  assert.ok(request > 0 && request < MAX_NANOSECONDS, `${request} ns a request`);
  assert.ok(call < MAX_NANOSECONDS, `${call} ns a call of the store`);
});
