// The measured store: callers get the store's own results, and each call is recorded.
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { Metrics } from '../../src/ops/metrics.ts';
import {
  ALWAYS,
  CallerLeft,
  EmailTaken,
  StoreUnavailable,
  type UserStore,
} from '../../src/user.ts';

/** The connections of a listener without any. */
const API = {
  maxConnections: 10,
  heldBytes: 0,
  budgetBytes: 99,
  states: { idle: 0 },
  closed: { room: 0 },
};

const TIMEOUT_MS = 100;

/** Returns a store whose methods all run `call`. The test advances the clock. */
function measured(t: TestContext, call: (name: string, args: unknown[]) => Promise<unknown>) {
  const clock = { ms: 0 };
  const metrics = new Metrics({}, 'sqlite', {});
  t.after(() => metrics.close());
  const store = new Proxy({} as UserStore, {
    get:
      (_target, name) =>
      (...args: unknown[]) =>
        call(String(name), args),
  });
  /** Returns the labels of each series and the sum of its durations in milliseconds. */
  const recorded = () => {
    const sums =
      /^db_client_operation_duration_seconds_sum\{db_system_name="sqlite",(.*)\} (.*)$/gm;
    return Array.from(metrics.exposition(API, 0).matchAll(sums), ([, labels, seconds]) => [
      labels!.replace('db_operation_name=', '').replace('error_type=', ''),
      Number(seconds) * 1000,
    ]);
  };
  return { clock, recorded, store: metrics.measure(store, TIMEOUT_MS, () => clock.ms) };
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
  test(`${operation} passes its arguments on and returns the store's promise`, async (t) => {
    const called: unknown[] = [];
    const result = Promise.resolve('result');
    const { clock, store, recorded } = measured(t, (name, args) => {
      called.push(name, args);
      // The store can do all its work before it returns.
      clock.ms += 3;
      return result;
    });
    const call = store[operation] as (...args: unknown[]) => Promise<unknown>;
    assert.equal(call.apply(store, ARGUMENTS[operation]), result);
    await result;
    assert.deepEqual(called, [operation, ARGUMENTS[operation]]);
    assert.deepEqual(recorded(), [[`"${operation}"`, 3]]);
  });
}

test('every method of a store except close is an operation', (t) => {
  const { store } = measured(t, async () => undefined);
  assert.deepEqual(Object.keys(store).sort(), ['close', ...OPERATIONS].sort());
});

test('close is passed on and not measured', async (t) => {
  const called: string[] = [];
  const { store, recorded } = measured(t, async (name) => called.push(name));
  await store.close();
  assert.deepEqual([called, recorded()], [['close'], []]);
});

describe('failures', () => {
  for (const { why, err, ms, labels } of [
    { why: 'a taken email is not a failure', err: new EmailTaken(), ms: 1, labels: '"find"' },
    { why: 'nor is a late one', err: new EmailTaken(), ms: TIMEOUT_MS, labels: '"find"' },
    { why: 'nor a client that has left', err: new CallerLeft(), ms: 1, labels: '"find"' },
    {
      why: 'a failure before the timeout is unavailable',
      err: new StoreUnavailable('gone'),
      ms: TIMEOUT_MS - 1,
      labels: '"find","unavailable"',
    },
    {
      why: 'a failure at the timeout is timeout',
      err: new StoreUnavailable('late'),
      ms: TIMEOUT_MS,
      labels: '"find","timeout"',
    },
    { why: 'any other error is _OTHER', err: new TypeError('x'), ms: 1, labels: '"find","_OTHER"' },
  ]) {
    test(why, async (t) => {
      const { clock, store, recorded } = measured(t, async () => {
        clock.ms = ms;
        throw err;
      });
      await assert.rejects(store.find(1), (thrown) => thrown === err);
      assert.deepEqual(recorded(), [[labels, ms]]);
    });
  }
});
