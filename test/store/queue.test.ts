// Batching: the limits and the deadlines of a queue. The simulation has the rest (test/simulate).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as settled } from 'node:timers/promises';
import { type FailedOutcome, Queue, type QueueOptions } from '../../src/store/queue.ts';

const TIMEOUT_MS = 1000;

type Fault = Error & { outcome: FailedOutcome };
const fault = (text: string, outcome: FailedOutcome) => Object.assign(new Error(text), { outcome });

/** A queue of words whose statement returns capitals and records its items. */
function queueOf(options: Partial<QueueOptions<unknown, string, string>> = {}) {
  const clock = { ms: 0 };
  const statements: string[][] = [];
  const deadlines: number[] = [];
  const queue = new Queue<unknown, string, string>({
    statement: async (_connection, items, expires) => {
      statements.push(items);
      deadlines.push(expires);
      const bad = items.find((item) => item.startsWith('bad'));
      if (bad) throw fault(bad, 'rolled back');
      return items.map((item) => (item === 'taken' ? new Error() : item.toUpperCase()));
    },
    outcomeAfter: (err) => (err as Fault).outcome,
    timeoutMs: TIMEOUT_MS,
    now: () => clock.ms,
    schedule: () => {},
    ...options,
  });
  const outcomes: string[] = [];
  /** Calls the queue with words, each by the client of its first letter: that of `gone` has left, and `b` is of none. */
  const call = (...words: string[]) => {
    for (const word of words) {
      const caller = { network: word[0]!, hasLeft: word === 'gone' };
      queue.call(word, word === 'b' ? undefined : caller).then(
        (result) => outcomes.push(result),
        (err: Error) => outcomes.push(`${word}: ${err}, ${err.cause}`),
      );
    }
  };
  const runAll = async () => {
    for (let batch = queue.take(clock.ms); batch; batch = queue.take(clock.ms)) {
      await batch.run(undefined);
    }
    await settled();
  };
  return { queue, clock, statements, deadlines, outcomes, call, runAll };
}

const failed = (word: string, cause: unknown) =>
  `${word}: StoreUnavailable: the store failed, ${cause}`;

/** Words such as `n7=a@x` give user 7 an email, and `n=a@x` creates one with it. */
const keyed = (): Partial<QueueOptions<unknown, string, string>> => ({
  writes: {
    running: new Set(),
    keysOf: (word) => ({
      id: Number.parseInt(word.slice(1), 10) || undefined,
      email: word.split('=')[1],
    }),
  },
});

for (const [what, options] of [
  ['calls', {}],
  ['users', keyed()],
] as const) {
  test(`500 ${what} share a statement, and the 501st waits for the next`, async () => {
    const { call, runAll, statements } = queueOf(options);
    call('a', ...Array.from({ length: 500 }, (_, i) => `w${i}`));
    await runAll();
    assert.equal(statements[0]!.length, 500);
    assert.deepEqual(statements.slice(1), [['w499']]);
  });
}

test('a batch is chosen among as many calls as it can have', () => {
  const { call, queue } = queueOf(keyed());
  call('n1=a@x');
  const batch = queue.take(0)!;
  call(...Array.from({ length: 600 }, (_, i) => `n${i + 2}=a@x`), 'n1000');
  // 500 calls are blocked and go behind the others.
  assert.equal(queue.take(0), undefined);
  assert.equal(queue.take(0)?.size, 1);
  batch.fail(new Error('cut'));
  assert.equal(queue.take(0)?.size, 500);
});

test('5.11 a write that waits holds up only the later ones for its user', async () => {
  const { call, queue, statements, runAll } = queueOf(keyed());
  call('n=a@x');
  const first = queue.take(0)!;
  call('n1=a@x', ...Array.from({ length: 600 }, () => 'n1'), 'n2', 'n=a@x', 'n=b@x');
  await queue.take(0)!.run(undefined);
  await first.run(undefined);
  await runAll();
  assert.deepEqual(statements.slice(0, 4), [
    ['n2', 'n=b@x'],
    ['n=a@x'],
    ['n1=a@x', 'n=a@x'],
    ['n1'],
  ]);
  assert.equal(queue.size, 0);
});

test('5.6 a batch that is released twice releases its keys once', async () => {
  const { call, queue, outcomes } = queueOf(keyed());
  call('n1');
  const lost = queue.take(0)!;
  assert.ok(lost.isWrite);
  lost.fail('cut');
  call('n1');
  const next = queue.take(0)!;
  await lost.run(undefined);
  call('n1');
  assert.equal(queue.take(0), undefined);
  await next.run(undefined);
  assert.deepEqual(outcomes, [failed('n1', 'cut'), 'N1']);
});

test('4.13 deadlines are checked once for each call of a page, whoever calls', () => {
  const { queue } = queueOf({ pageOf: () => 'page' });
  let checks = 0;
  for (let i = 0; i < 300; i++) {
    void queue.call('page', {
      network: `${i % 100}`,
      get hasLeft() {
        return ++checks < 0;
      },
    });
  }
  queue.expire(0);
  assert.deepEqual([checks, queue.size], [300, 300]);
  assert.equal(queue.take(0)?.isWrite, false);
});

test('4.13 a statement has the earliest deadline of its calls, whichever client is next', async () => {
  const { call, clock, deadlines, runAll } = queueOf();
  // Calls of `a` are left after 500, when it is the turn of `c`.
  for (const [ms, word] of ['a', 'b', 'c'].entries()) {
    clock.ms = ms;
    call(...Array.from({ length: 200 }, () => word));
  }
  await runAll();
  assert.deepEqual(deadlines, [TIMEOUT_MS, TIMEOUT_MS]);
});

test('4 bad calls of 500 fail alone, within 63 statements', async () => {
  const places = [0, 125, 250, 499]; // The worst case is one in each quarter of the batch.
  const { queue, call, statements, outcomes } = queueOf();
  call(...Array.from({ length: 500 }, (_, i) => (places.includes(i) ? `bad${i}` : `w${i}`)));
  assert.equal(await queue.take(0)!.run(undefined), undefined);
  const alone = outcomes.filter((outcome) => outcome.includes('the store failed'));
  const expected = places.map((place) => failed(`bad${place}`, `Error: bad${place}`));
  assert.deepEqual(alone, expected);
  assert.equal(outcomes.length, 500);
  assert.ok(statements.length <= 63, `${statements.length} statements`);
});

test('4.13 4.17 a call that has waited for three quarters of its time, or whose client has left, never runs', async () => {
  const { queue, call, clock, statements, outcomes, runAll } = queueOf();
  call('gone', 'a');
  queue.expire(0);
  assert.equal(queue.size, 1);
  clock.ms = 1;
  call('b', 'good', 'taken'); // The client that has left keeps no turn before others.
  clock.ms = 0.75 * TIMEOUT_MS - 1;
  queue.expire(clock.ms);
  await settled();
  const left = 'gone: CallerLeft, undefined';
  assert.deepEqual(outcomes, [left]);
  clock.ms++;
  await runAll();
  assert.deepEqual(statements, [['b', 'good', 'taken']]);
  const tooLong = failed('a', 'the store was busy or unreachable for too long');
  assert.deepEqual(outcomes.toSorted(), ['B', 'GOOD', tooLong, left, 'taken: Error, undefined']);
});

test('5.11 pages of each client are read in turn, and shared with others who wait for them', async () => {
  const { queue, call, runAll, statements } = queueOf({ pageOf: (item) => item.slice(1) });
  call('a1', 'a2', 'a3', 'b3', 'c2');
  await runAll();
  // Afterwards every client gets its turn again.
  call('a1', 'a4', 'b5');
  await runAll();
  const groups = statements.map((items) => items.join(' '));
  assert.deepEqual(groups, ['a1', 'a3 b3', 'a2 c2', 'a1', 'b5', 'a4']);
  // `b` got its page with `a`, and its turn then changes nothing for those who wait for that page anew.
  for (const words of [['a1', 'b1'], ['d2', 'c1'], ['e1']]) {
    call(...words);
    await queue.take(0)!.run(undefined);
  }
  assert.deepEqual(statements.slice(6), [['a1', 'b1'], ['d2'], ['c1', 'e1']]);
});

test('4.13 calls that expire while halves run, or while they wait for their statement, fail and do not run again', async () => {
  const { queue, call, clock, statements, outcomes } = queueOf({
    statement: async (_connection, items) => {
      statements.push(items);
      clock.ms = TIMEOUT_MS;
      throw fault('bad', 'rolled back');
    },
  });
  call('d');
  const late = queue.take(0)!;
  call('a', 'b');
  assert.equal(await queue.take(0)!.run(undefined), undefined);
  call('c');
  queue.take(clock.ms)!.expire(2 * TIMEOUT_MS);
  await late.run(undefined);
  assert.deepEqual(statements, [['a', 'b']]);
  const bad = [failed('a', 'Error: bad'), failed('b', 'Error: bad')];
  const over = 'no response in time';
  assert.deepEqual(outcomes, [...bad, failed('c', over), failed('d', over)]);
});
