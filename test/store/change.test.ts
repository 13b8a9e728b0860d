// What becomes of a batch of changes of which one has to be run again, as another client changed
// its user meanwhile: the others are committed by then.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { change, type Target } from '../../src/store/change.ts';
import type { Session } from '../../src/store/connection.ts';
import { ALWAYS } from '../../src/user.ts';

const row = (id: number) => ({ id, name: `n${id}`, email: `${id}@b`, version: 2 });
/** User 1 was changed meanwhile, user 2 is changed. */
const ROWS = [{ ...row(1), name: null, isMet: true }, row(2)];
const TARGETS: Target[] = [1, 2].map((id) => ({
  ...{ id, name: `n${id}` },
  condition: { ...ALWAYS, oneOf: [1] },
}));

/** A session whose first statement gives the rows, and whose second fails. */
function failing(err: object): Session {
  const answers = [Promise.resolve(ROWS), Promise.reject(Object.assign(new Error('x'), err))];
  answers[1]!.catch(() => {});
  return { query: () => answers.shift() as never, serverSeconds: (ms) => ms / 1000 };
}

test('4.13 a change that comes too late when it is run again fails alone', async () => {
  const [first, second] = await change(failing({ severity: 'ERROR', code: '22012' }), TARGETS, 0);
  assert.equal((first as Error).name, 'StoreUnavailable');
  assert.deepEqual(second, row(2));
});

test('4.13 a change that loses its connection when it is run again fails with its batch', async () => {
  await assert.rejects(change(failing({ code: 'CONNECTION_CLOSED' }), TARGETS, 0), {
    message: 'x',
  });
});
