// The measured store: callers get the store's own results, and each call is recorded.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { measure } from '../../src/ops/metrics.ts';
import { ALWAYS, EmailTaken, StoreUnavailable, type UserStore } from '../../src/user.ts';

const TIMEOUT_MS = 100;

/** Returns a store whose methods all run `call`. The test advances the clock. */
function measured(call: (name: string, args: unknown[]) => Promise<unknown>) {
  const clock = { ms: 0 };
  const told: [string, number, string | undefined][] = [];
  const store = new Proxy({} as UserStore, {
    get:
      (_target, name) =>
      (...args: unknown[]) =>
        call(String(name), args),
  });
  const recorder = { recordOperation: (...what: (typeof told)[number]) => void told.push(what) };
  return { clock, told, store: measure(store, TIMEOUT_MS, () => clock.ms, recorder) };
}

const ARGUMENTS = {
  create: [{ name: 'Ada', email: 'a@b' }],
  find: [1],
  findByEmail: ['a@b'],
  list: [{ after: 0, limit: 1 }],
  update: [1, { name: 'Ada' }, ALWAYS],
  delete: [1, ALWAYS],
  ping: [],
};
const OPERATIONS = Object.keys(ARGUMENTS) as (keyof typeof ARGUMENTS)[];

for (const operation of OPERATIONS) {
  test(`${operation} passes its arguments on and returns the store's promise`, async () => {
    const called: unknown[] = [];
    const result = Promise.resolve('result');
    const { clock, store, told } = measured((name, args) => {
      called.push(name, args);
      // The store can do all its work before it returns.
      clock.ms += 3;
      return result;
    });
    const call = store[operation] as (...args: unknown[]) => Promise<unknown>;
    assert.equal(call.apply(store, ARGUMENTS[operation]), result);
    await result;
    assert.deepEqual(called, [operation, ARGUMENTS[operation]]);
    assert.deepEqual(told, [[operation, 3, undefined]]);
  });
}

test('every method of a store except close is an operation', () => {
  const { store } = measured(async () => undefined);
  assert.deepEqual(Object.keys(store).sort(), ['close', ...OPERATIONS].sort());
});

test('close is passed on and not measured', async () => {
  const called: string[] = [];
  const { store, told } = measured(async (name) => called.push(name));
  await store.close();
  assert.deepEqual([called, told], [['close'], []]);
});

describe('failures', () => {
  for (const { why, err, ms, failure } of [
    { why: 'a taken email is not a failure', err: new EmailTaken(), ms: 1, failure: undefined },
    {
      why: 'nor is a late one',
      err: new EmailTaken(),
      ms: TIMEOUT_MS,
      failure: undefined,
    },
    {
      why: 'a failure before the timeout is unavailable',
      err: new StoreUnavailable('gone'),
      ms: TIMEOUT_MS - 1,
      failure: 'unavailable',
    },
    {
      why: 'a failure at the timeout is timeout',
      err: new StoreUnavailable('late'),
      ms: TIMEOUT_MS,
      failure: 'timeout',
    },
    { why: 'any other error is _OTHER', err: new TypeError('x'), ms: 1, failure: '_OTHER' },
  ]) {
    test(why, async () => {
      const { clock, store, told } = measured(async () => {
        clock.ms = ms;
        throw err;
      });
      await assert.rejects(store.find(1), (thrown) => thrown === err);
      assert.deepEqual(told, [['find', ms, failure]]);
    });
  }
});
