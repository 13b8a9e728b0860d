// Errors that no test provokes through HTTP, and their responses (contract 2.1, 2.9). The contract tests have the others.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failureReply } from '../../src/api/failures.ts';
import { CallerLeft } from '../../src/user.ts';

for (const [thrown, status, body] of [
  [new CallerLeft(), 400, 'The client has left.'],
  [Object.assign(new Error('select 1'), { status: 200 }), 500, 'Internal Server Error'],
  [undefined, 500, 'Internal Server Error'],
] as const) {
  test(`2.1 2.9 ${thrown} returns ${status} ${body}`, () => {
    const type = 'text/plain; charset=utf-8';
    assert.deepEqual(failureReply(thrown), { status, type, body, headers: [] });
  });
}
