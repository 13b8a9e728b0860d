// Results of a batch of changes, from the rows that its statement returns.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Target, updateUsers } from '../../src/store/postgres.ts';
import { NOT_DONE } from '../../src/store/queue.ts';
import type { Session } from '../../src/store/session.ts';
import { ALWAYS, EmailTaken } from '../../src/user.ts';
import { storedUser } from '../support/users.ts';

const target = (id: number, email?: string): Target => ({
  ...{ id, name: `n${id}`, condition: ALWAYS },
  ...(email === undefined ? {} : { email }),
});
const user = (id: number) => storedUser({ id, name: `n${id}`, email: `${id}@b`, version: 2 });
const refused = (id: number, refusal: string) => ({ id, name: null, email: null, refusal });

/** A session whose statements return these rows, or fail with this error. */
function sessionOf(rows: object[] | Error) {
  const statements: string[] = [];
  const session: Session = {
    schema: 'public',
    query: (text) => {
      statements.push(text);
      return (rows instanceof Error ? Promise.reject(rows) : Promise.resolve(rows)) as never;
    },
    serverSeconds: (ms) => ms / 1000,
    end: async () => {},
    destroy: () => {},
    closed: Promise.resolve(),
  };
  return { session, statements };
}

test('4.10 refused targets cause no second statement', async () => {
  const rows = [user(1), refused(2, 'taken'), refused(3, 'stale'), refused(4, 'raced')];
  const { session, statements } = sessionOf(rows);
  const targets = [1, 2, 3, 4, 5].map((id) => target(id, `${id}@b`));
  const results = await updateUsers(session, targets, 0);
  assert.deepEqual(results, [user(1), new EmailTaken(), 'stale', NOT_DONE, undefined]);
  assert.equal(statements.length, 1);
});

test('4.10 a unique violation is the result of one target; of several, the target is unknown', async () => {
  const violation = Object.assign(new Error('x'), { code: '23505', severity: 'ERROR' });
  const { session } = sessionOf(violation);
  assert.deepEqual(await updateUsers(session, [target(1, 'a@b')], 0), [new EmailTaken()]);
  await assert.rejects(updateUsers(session, [target(1, 'a@b'), target(2, 'b@b')], 0), violation);
});
