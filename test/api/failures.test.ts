// Errors and their responses in plain text (contract 2.1, 2.9).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failureReply } from '../../src/api/failures.ts';
import { HttpError } from '../../src/http/errors.ts';
import { CallerLeft, EmailTaken, InvalidUser } from '../../src/user.ts';

const internal = [500, 'Internal Server Error'] as const;

for (const [thrown, [status, body, ...headers]] of [
  [new HttpError(404), [404, 'Not Found']],
  [new HttpError(405, 'No.', ['Allow', 'GET']), [405, 'No.', 'Allow', 'GET']],
  [new InvalidUser('name is wrong.'), [400, 'name is wrong.']],
  [new EmailTaken('secret'), [400, 'Another user has this email.']],
  [new CallerLeft(), [400, 'The client has left.']],
  [Object.assign(new Error('select 1'), { status: 200 }), internal],
  [undefined, internal],
] as [unknown, readonly [number, string, ...string[]]][]) {
  test(`2.1 2.9 ${thrown} returns ${status} ${body}`, () => {
    const type = 'text/plain; charset=utf-8';
    assert.deepEqual(failureReply(thrown), { status, type, body, headers });
  });
}
