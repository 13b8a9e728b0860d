// Batching: the calls of a statement, and failures. A checker searches for a serial order that
// explains the results of calls that ran together, on either engine. FAST_CHECK_SEED repeats the
// random calls of a run, but not the order in which the database ran them.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import fc from 'fast-check';
import postgres from 'postgres';
import { openStore, type StoreOptions } from '../../src/store/index.ts';
import { type FailedOutcome, Queue, type QueueOptions } from '../../src/store/queue.ts';
import { parseDatabaseUrl } from '../../src/store/url.ts';
import {
  ALWAYS,
  type Condition,
  type NewUser,
  type User,
  type UserChange,
  type UserStore,
} from '../../src/user.ts';
import { createDatabase } from '../support/postgres.ts';
import { newUser, storedUser } from '../support/users.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);
const TIMEOUT_MS = 1000;

describe('a queue', () => {
  type Fault = Error & { outcome: FailedOutcome };
  const fault = (message: string, outcome: FailedOutcome): Fault =>
    Object.assign(new Error(message), { outcome });

  /** A queue of words whose statement returns capitals and records its items. */
  function queueOf(options: Partial<QueueOptions<unknown, string, string>> = {}) {
    const scheduler = { scheduled: 0 };
    const clock = { ms: 0 };
    const statements: string[][] = [];
    const queue = new Queue<unknown, string, string>({
      statement: async (_connection, items) => {
        statements.push(items);
        const bad = items.find((item) => item.startsWith('bad'));
        const lost = items.find((item) => item.startsWith('lost'));
        if (bad) throw fault(bad, 'rolled back');
        if (lost) throw fault(lost, 'unknown');
        return items.map((item) =>
          item.startsWith('refused') ? new TypeError(item) : item.toUpperCase(),
        );
      },
      outcomeAfter: (err) => (err as Fault).outcome,
      timeoutMs: TIMEOUT_MS,
      now: () => clock.ms,
      schedule: () => void scheduler.scheduled++,
      ...options,
    });
    const outcomes: string[] = [];
    /** Clients that have disconnected. Each word belongs to the client of its first letter. */
    const left = new Set<string>();
    const callerOf = ([network = '']: string) => ({
      network,
      get hasLeft() {
        return left.has(network);
      },
    });
    /** Calls the queue with words. `outcomes` has each outcome, in the order of the results. */
    const call = (...words: string[]) =>
      words.map((word) =>
        queue.call(word, callerOf(word)).then(
          (result) => outcomes.push(result),
          (err: Error) => outcomes.push(`${word}: ${err.name}`),
        ),
      );
    const runAll = async () => {
      for (let batch = queue.take(clock.ms); batch; batch = queue.take(clock.ms)) {
        await batch.run(undefined);
      }
      await new Promise((resolve) => setImmediate(resolve));
    };
    return { queue, scheduler, clock, statements, outcomes, call, runAll, left };
  }

  test('500 calls share a statement, and the 501st waits for the next', async () => {
    const { call, runAll, statements } = queueOf();
    call(...Array.from({ length: 501 }, (_, i) => `w${i}`));
    await runAll();
    assert.deepEqual(
      statements.map(({ length }) => length),
      [500, 1],
    );
    assert.deepEqual(statements[1], ['w500']);
  });

  /** Words such as `7a` are changes of user 7, and words such as `7a@x` give it an email. */
  const keyed = (): Partial<QueueOptions<unknown, string, string>> => ({
    running: new Map(),
    keysOf: (word) => ({ id: Number.parseInt(word, 10), email: /\w@\w+/.exec(word)?.[0] }),
  });

  test('a batch is chosen among as many calls as it can have', () => {
    const { call, queue } = queueOf({
      ...keyed(),
      keysOf: (word) => ({ id: Number.parseInt(word.slice(1), 10), email: word.split('=')[1] }),
    });
    call('n1=a@x');
    const batch = queue.take(0)!;
    call(...Array.from({ length: 600 }, (_, i) => `n${i + 2}=a@x`), 'n1000');
    // 500 calls are blocked and go behind the others.
    assert.equal(queue.take(0), undefined);
    assert.equal(queue.take(0)?.size, 1);
    batch.fail(new Error('cut'));
    assert.equal(queue.take(0)?.size, 500);
  });

  test('4.13 if a statement does not start in time, only its expired calls fail and the others share one', async () => {
    const { call, runAll, statements, outcomes, clock } = queueOf({
      statement: async (_connection, items, expires) => {
        statements.push(items);
        clock.ms = Math.max(clock.ms, expires);
        if (statements.length < 3) throw fault('late', 'not started');
        return items;
      },
    });
    call('a', 'b');
    clock.ms = 10;
    call('c');
    clock.ms = 20;
    call('d', 'e');
    await runAll();
    assert.deepEqual(statements, [
      ['a', 'b', 'c', 'd', 'e'],
      ['c', 'd', 'e'],
      ['d', 'e'],
    ]);
    assert.deepEqual(outcomes, [
      'a: StoreUnavailable',
      'b: StoreUnavailable',
      'c: StoreUnavailable',
      'd',
      'e',
    ]);
  });

  test('500 users share a statement, and the 501st waits for the next', async () => {
    const { call, runAll, statements } = queueOf(keyed());
    call(...Array.from({ length: 501 }, (_, i) => `${i}`));
    await runAll();
    assert.deepEqual(
      statements.map(({ length }) => length),
      [500, 1],
    );
  });

  test('only calls for the same page share a statement', async () => {
    const { call, runAll, statements } = queueOf({ pageOf: (item) => item[0]! });
    call('a1', 'b1', 'a2', 'b2', 'a3');
    await runAll();
    assert.deepEqual(statements, [
      ['a1', 'a2', 'a3'],
      ['b1', 'b2'],
    ]);
  });

  test('an error instead of a result fails only that call, unchanged', async () => {
    const { call, runAll, statements, outcomes } = queueOf();
    call('a', 'refused', 'b');
    await runAll();
    assert.equal(statements.length, 1);
    assert.deepEqual(outcomes, ['A', 'refused: TypeError', 'B']);
  });

  test('a statement that fails runs again in halves, until only the bad calls fail', async () => {
    const { queue, call, statements, outcomes } = queueOf();
    call('a', 'z', 'bad', 'c', 'd', 'e');
    const unknown = await queue.take(0)!.run(undefined);
    assert.equal(unknown, undefined);
    assert.deepEqual(statements, [
      ['a', 'z', 'bad', 'c', 'd', 'e'],
      ['a', 'z', 'bad'],
      ['a', 'z'],
      ['bad'],
      ['c', 'd', 'e'],
    ]);
    assert.deepEqual(outcomes, ['A', 'Z', 'bad: StoreUnavailable', 'C', 'D', 'E']);
  });

  test('any 4 bad calls of 500 fail alone, within 63 statements', async () => {
    // The worst case is one in each quarter of the batch.
    for (const places of [
      [0, 125, 250, 375],
      [124, 249, 374, 499],
      [0, 1, 2, 3],
      [0, 1, 250, 499],
    ]) {
      const { queue, call, statements, outcomes } = queueOf();
      call(...Array.from({ length: 500 }, (_, i) => (places.includes(i) ? `bad${i}` : `w${i}`)));
      await queue.take(0)!.run(undefined);
      const failed = outcomes.filter((outcome) => outcome.includes('StoreUnavailable'));
      assert.deepEqual(
        failed,
        places.map((place) => `bad${place}: StoreUnavailable`),
      );
      assert.equal(outcomes.length, 500);
      assert.ok(statements.length <= 63, `${statements.length} statements`);
    }
  });

  test('each call of a batch of bad ones fails alone', async () => {
    const { queue, call, statements, outcomes } = queueOf();
    call(...Array.from({ length: 500 }, (_, i) => `bad${i}`));
    assert.equal(await queue.take(0)!.run(undefined), undefined);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(statements.length, 999);
    assert.equal(outcomes.length, 500);
  });

  test('a call that fails alone does not run again, and its cause is reported', async () => {
    const { queue, statements } = queueOf();
    const called = queue.call('bad');
    await queue.take(0)!.run(undefined);
    await assert.rejects(called, (err: Error) => {
      assert.deepEqual(
        [err.name, err.message, (err.cause as Error).message],
        ['StoreUnavailable', 'the store failed', 'bad'],
      );
      return true;
    });
    assert.deepEqual(statements, [['bad']]);
  });

  test('if the connection is lost while halves run, earlier calls keep their results and later ones never run', async () => {
    const { queue, call, statements, outcomes } = queueOf();
    call('a', 'bad', 'z', 'lost', 'c');
    const unknown = await queue.take(0)!.run(undefined);
    assert.match(String(unknown), /lost/);
    assert.deepEqual(statements.slice(1), [
      ['a', 'bad', 'z'],
      ['a', 'bad'],
      ['a'],
      ['bad'],
      ['z'],
      ['lost', 'c'],
    ]);
    assert.deepEqual(outcomes, [
      'A',
      'bad: StoreUnavailable',
      'Z',
      'lost: StoreUnavailable',
      'c: StoreUnavailable',
    ]);
  });

  test('4.13 a call that has waited for three quarters of its time never runs', async () => {
    const { queue, call, clock, statements, outcomes, runAll } = queueOf();
    call('a');
    clock.ms = 1;
    call('b');
    clock.ms = 0.75 * TIMEOUT_MS - 1;
    queue.expire(clock.ms);
    assert.deepEqual(outcomes, []);
    clock.ms++;
    await runAll();
    assert.deepEqual(statements, [['b']]);
    assert.deepEqual(outcomes.toSorted(), ['B', 'a: StoreUnavailable']);
  });

  test('5.11 pages of each client are read in turn', async () => {
    const { call, runAll, statements } = queueOf({ pageOf: (item) => item });
    call('a1', 'a2', 'a3', 'a2', 'b1', 'c1', 'b1');
    await runAll();
    const expected = [['a1'], ['b1', 'b1'], ['c1'], ['a2', 'a2'], ['a3']];
    assert.deepEqual(statements, expected);
    // Afterwards every client gets its turn again.
    call('a1', 'b1');
    await runAll();
    assert.deepEqual(statements, [...expected, ['a1'], ['b1']]);
  });

  test('5.11 a client’s page is read in its turn, although others wait for it too', async () => {
    const { call, runAll, statements } = queueOf({ pageOf: (item) => item.slice(1) });
    call('a1', 'a2', 'a3', 'b3', 'c2');
    await runAll();
    assert.deepEqual(statements, [['a1'], ['a3', 'b3'], ['a2', 'c2']]);
  });

  test('5.6 queues that share their running keys never run one user twice at once', async () => {
    const options = keyed();
    const [updates, deletes] = [queueOf(options), queueOf(options)];
    updates.call('1a', '2a');
    const batch = updates.queue.take(0)!;
    deletes.call('2b', '3b');
    assert.equal(deletes.queue.take(0)?.size, 1);
    assert.equal(deletes.queue.take(0), undefined);
    batch.fail(new Error('cut'));
    assert.equal(deletes.queue.take(0)?.size, 1);
  });

  test('4.13 calls that expire while halves run fail, and do not run again', async () => {
    const { queue, call, clock, statements, outcomes } = queueOf({
      statement: async (_connection, items) => {
        statements.push(items);
        clock.ms = TIMEOUT_MS;
        throw fault('bad', 'rolled back');
      },
    });
    call('a', 'b');
    assert.equal(await queue.take(0)!.run(undefined), undefined);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(statements, [['a', 'b']]);
    assert.deepEqual(outcomes, ['a: StoreUnavailable', 'b: StoreUnavailable']);
  });

  test('after fail() a late result changes nothing, and settled calls keep their results', async () => {
    const late = Promise.withResolvers<string[]>();
    const { queue, call, outcomes } = queueOf({ statement: () => late.promise });
    call('a');
    const batch = queue.take(0)!;
    const ran = batch.run(undefined);
    batch.fail(new Error('cut'));
    late.resolve(['A']);
    await ran;
    batch.fail(new Error('again'));
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(outcomes, ['a: StoreUnavailable']);
  });

  test('4.13 while a statement runs, each of its calls fails at its own deadline', async () => {
    const results = Promise.withResolvers<string[]>();
    const { queue, call, clock, outcomes } = queueOf({ statement: () => results.promise });
    call('a');
    clock.ms = 500;
    call('b');
    const batch = queue.take(clock.ms)!;
    const ran = batch.run(undefined);
    batch.expire(TIMEOUT_MS - 1);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(outcomes, []);
    batch.expire(TIMEOUT_MS);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(outcomes, ['a: StoreUnavailable']);
    results.resolve(['A', 'B']);
    assert.equal(await ran, undefined);
    assert.deepEqual(outcomes, ['a: StoreUnavailable', 'B']);
  });

  test('a statement gets the deadline of its first call', async () => {
    const due: number[] = [];
    const { queue, call, clock } = queueOf({
      statement: async (_connection, _items, expires) => {
        due.push(expires);
        throw fault('bad', 'rolled back');
      },
    });
    call('a');
    clock.ms = 500;
    call('b');
    await queue.take(clock.ms)!.run(undefined);
    assert.deepEqual(due, [TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS + 500]);
  });

  test('4.17 20,000 calls can wait, and the 20,001st fails at once', async () => {
    const { queue, call, outcomes } = queueOf();
    call(...Array.from({ length: 20_000 }, () => 'a'));
    await assert.rejects(queue.call('b'), {
      name: 'StoreUnavailable',
      message: 'too many calls are waiting for the store',
    });
    assert.deepEqual(outcomes, []);
    queue.take(0);
    call('c');
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(outcomes, []);
  });
});

/** One call of a UserStore. */
type Call =
  | { readonly kind: 'create'; readonly user: NewUser }
  | { readonly kind: 'find'; readonly id: number }
  | { readonly kind: 'findByEmail'; readonly email: string }
  | { readonly kind: 'list'; readonly after: number; readonly limit: number }
  | {
      readonly kind: 'change';
      readonly id: number;
      readonly change: UserChange;
      readonly condition: Condition;
    }
  | { readonly kind: 'remove'; readonly id: number; readonly condition: Condition };

/** A finished call: its result as JSON, its start and its end. */
interface Made {
  readonly call: Call;
  readonly result: string;
  readonly began: number;
  readonly ended: number;
}

type Table = ReadonlyMap<number, User>;

const shown = (result: unknown): string => JSON.stringify(result) ?? 'nothing';
const refused = (err: Error): string => err.name;

function make(store: UserStore, call: Call): Promise<unknown> {
  if (call.kind === 'create') return store.create(call.user);
  if (call.kind === 'find') return store.find(call.id);
  if (call.kind === 'findByEmail') return store.findByEmail(call.email);
  if (call.kind === 'list') return store.list(call);
  if (call.kind === 'change') return store.update(call.id, call.change, call.condition);
  return store.delete(call.id, call.condition);
}

/** Returns the table after a call that runs alone, and the result. A create uses the store's id. */
function runAlone(
  table: Table,
  { call, result }: Made,
  newestId: number,
): { table: Table; result: string } {
  const users = [...table.values()];
  const owner = (email: string | undefined) => users.find((user) => user.email === email);
  const unchanged = (value: unknown) => ({ table, result: shown(value) });
  switch (call.kind) {
    case 'find':
      return unchanged(table.get(call.id));
    case 'findByEmail':
      return unchanged(owner(call.email));
    case 'list': {
      const page = users.filter(({ id }) => id > call.after).toSorted((a, b) => a.id - b.id);
      return unchanged(page.slice(0, call.limit));
    }
    case 'create': {
      if (owner(call.user.email)) return { table, result: 'EmailTaken' };
      const id = Number(/"id":(\d+)/.exec(result)?.[1]);
      // Ids ascend and are never reused.
      if (!(id > newestId) || table.has(id)) return { table, result: 'a new id' };
      const user = storedUser({ ...call.user, id });
      return { table: new Map(table).set(id, user), result: shown(user) };
    }
  }
  const user = table.get(call.id);
  if (user === undefined) return unchanged(undefined);
  const { oneOf, noneOf } = call.condition;
  const isMet =
    (oneOf === 'any' || oneOf.includes(user.version)) &&
    noneOf !== 'any' &&
    !noneOf.includes(user.version);
  if (!isMet) return unchanged('stale');
  const rest = new Map(table);
  if (call.kind === 'remove') {
    rest.delete(call.id);
    return { table: rest, result: shown(user) };
  }
  const next = { ...user, ...call.change };
  const other = owner(next.email);
  if (other !== undefined && other.id !== call.id) return { table, result: 'EmailTaken' };
  const changed = { ...next, version: user.version + (shown(next) === shown(user) ? 0 : 1) };
  return { table: rest.set(call.id, changed), result: shown(changed) };
}

/**
 * True if the calls, run one at a time in some order, give these results and this table. A call
 * that had ended before another began comes before it.
 */
function isExplained(table: Table, calls: readonly Made[], end: string, newestId: number): boolean {
  if (calls.length === 0) return shownTable(table) === end;
  return calls.some((next) => {
    const rest = calls.filter((call) => call !== next);
    if (rest.some((call) => call.ended < next.began)) return false;
    const alone = runAlone(table, next, newestId);
    return alone.result === next.result && isExplained(alone.table, rest, end, newestId);
  });
}

function shownTable(table: Table): string {
  return shown([...table.values()].toSorted((a, b) => a.id - b.id));
}

/** Makes a random call. Its id is one of those that are known at that time. */
type Recipe = (ids: readonly number[]) => Call;

const email = fc.constantFrom('a@x', 'b@x', 'c@x', 'd@x');
const name = fc.constantFrom('A', 'B', 'C');
const version = fc.integer({ min: 1, max: 4 });
const condition = fc.oneof(
  { weight: 5, arbitrary: fc.constant(ALWAYS) },
  { weight: 3, arbitrary: version.map((v): Condition => ({ oneOf: [v], noneOf: [] })) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(version, version)
      .map(([v, w]): Condition => ({ oneOf: [v, w], noneOf: [] })),
  },
  { weight: 1, arbitrary: version.map((v): Condition => ({ oneOf: 'any', noneOf: [v] })) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Condition>(
      { oneOf: [], noneOf: [] },
      { oneOf: 'any', noneOf: 'any' },
    ),
  },
);
const nth = fc.nat(6);
const change = fc.oneof(
  fc.record({ name }),
  fc.record({ email }),
  fc.record({ name, email }),
  fc.constant<UserChange>({}),
);
const idOf = (n: number, ids: readonly number[]) => ids[n] ?? 999_999;
const recipe = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ name, email }).map(
      (user): Recipe =>
        () => ({ kind: 'create', user: newUser(user) }),
    ),
  },
  {
    weight: 2,
    arbitrary: nth.map(
      (n): Recipe =>
        (ids) => ({ kind: 'find', id: idOf(n, ids) }),
    ),
  },
  {
    weight: 1,
    arbitrary: email.map(
      (text): Recipe =>
        () => ({ kind: 'findByEmail', email: text }),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(nth, fc.constantFrom(1, 2, 100)).map(
      ([n, limit]): Recipe =>
        (ids) => ({ kind: 'list', after: n === 0 ? 0 : idOf(n, ids), limit }),
    ),
  },
  {
    weight: 5,
    arbitrary: fc.tuple(nth, change, condition).map(
      ([n, fields, iff]): Recipe =>
        (ids) => ({ kind: 'change', id: idOf(n, ids), change: fields, condition: iff }),
    ),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(nth, condition).map(
      ([n, iff]): Recipe =>
        (ids) => ({ kind: 'remove', id: idOf(n, ids), condition: iff }),
    ),
  },
);
/** Up to six calls, each with the number of event-loop turns that it waits first. */
const group = fc.array(fc.record({ recipe, turns: fc.constantFrom(0, 0, 0, 0, 1, 2) }), {
  minLength: 1,
  maxLength: 6,
  size: 'max',
});

const folder = mkdtempSync(join(tmpdir(), 'notes-users-batch-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const OPTIONS: StoreOptions = {
  poolSize: 4,
  timeoutMs: 10_000,
  now: () => performance.now(),
  onUnavailable: () => {},
  onAvailable: () => {},
  info: () => {},
  debug: () => {},
  onFatal: () => {},
};
const open = (url: string) => openStore(parseDatabaseUrl(url)!, OPTIONS);

describe('calls that run together give the results of some serial order', () => {
  for (const { why, newUrl, count, runs } of [
    { why: 'SQLite in memory', newUrl: async () => 'sqlite::memory:', count: 1, runs: 2000 },
    {
      why: 'SQLite, two stores of one file',
      newUrl: async () => `sqlite:${join(folder, 'two.db')}`,
      count: 2,
      runs: 100,
    },
    { why: 'Postgres', newUrl: () => createDatabase(), count: 1, runs: 700 },
    {
      why: 'Postgres, two stores of one database',
      newUrl: () => createDatabase(),
      count: 2,
      runs: 700,
    },
  ]) {
    test(`${why}: ${runs} groups of calls`, async (t: TestContext) => {
      t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
      const url = await newUrl();
      const stores: UserStore[] = [];
      for (let i = 0; i < count; i++) stores.push(await open(url));
      let table: Table = new Map();
      let newestId = 0;
      // Existing users come first, then recently removed ones.
      let ids: number[] = [];

      const property = fc.asyncProperty(group, async (members) => {
        let time = 0;
        const made = await Promise.all(
          members.map(async ({ recipe: cook, turns }, i): Promise<Made> => {
            const call = cook(ids);
            for (let turn = 0; turn < turns; turn++)
              await new Promise((resolve) => setImmediate(resolve));
            const began = time++;
            const result = await make(stores[i % count]!, call).then(shown, refused);
            return { call, result, began, ended: time++ };
          }),
        );
        const users = await stores[0]!.list({ after: 0, limit: 1000 });
        const end = shown(users);
        const isGood = isExplained(table, made, end, newestId);
        const report = [
          `before ${shownTable(table)}`,
          ...made.map((call) => shown(call)),
          `after ${end}`,
        ];
        table = new Map(users.map((user) => [user.id, user]));
        const created = made.map(({ call, result }) =>
          call.kind === 'create' ? /"id":(\d+)/.exec(result)?.[1] : 0,
        );
        newestId = Math.max(newestId, ...created.map((id) => Number(id ?? 0)), ...table.keys());
        ids = [...new Set([...table.keys(), ...ids])].slice(0, 6);
        assert.ok(isGood, `no order explains\n${report.join('\n')}`);
      });
      try {
        await fc.assert(property, { seed: SEED, numRuns: runs, endOnFailure: true });
      } finally {
        await Promise.all(stores.map((store) => store.close()));
      }
    });
  }

  test('the checker accepts results that a serial order explains, and no others', () => {
    const ada = storedUser({ name: 'A', email: 'a@x' });
    const table = new Map([[1, ada]]);
    const remove = { kind: 'remove', id: 1, condition: ALWAYS } as const;
    const create = { kind: 'create', user: newUser({ name: 'B', email: 'a@x' }) } as const;
    const bob = storedUser({ id: 2, name: 'B', email: 'a@x' });
    const made = (call: Call, result: unknown, began = 0, ended = 9): Made => ({
      call,
      result: shown(result),
      began,
      ended,
    });
    const taken = { ...made(create, ''), result: 'EmailTaken' };
    for (const { calls, end, isGood } of [
      { calls: [made(create, bob), made(remove, ada)], end: [bob], isGood: true },
      { calls: [made(create, bob, 0, 1), made(remove, ada, 2, 3)], end: [bob], isGood: false },
      { calls: [taken, made(remove, ada)], end: [], isGood: true },
      { calls: [taken, made(remove, ada)], end: [ada], isGood: false },
      { calls: [made(create, bob), made(remove, undefined)], end: [bob], isGood: false },
      {
        calls: [made(create, { ...bob, id: 1 }), made(remove, ada)],
        end: [{ ...bob, id: 1 }],
        isGood: false,
      },
      { calls: [made(remove, ada), made(remove, ada)], end: [], isGood: false },
      { calls: [made(remove, ada), made(remove, undefined)], end: [], isGood: true },
      {
        calls: [
          made(remove, ada),
          made({ ...remove, condition: { oneOf: [1], noneOf: [] } }, 'stale'),
        ],
        end: [],
        isGood: false,
      },
    ]) {
      assert.equal(isExplained(table, calls, shown(end), 1), isGood, shown([calls, end]));
    }
  });
});

describe('two stores of one Postgres that write at once', () => {
  let url = '';
  let stores: UserStore[] = [];
  before(async () => {
    url = await createDatabase();
    stores = [await open(url), await open(url)];
    await Promise.all(
      stores.map((store) => store.ping().catch(() => store.list({ after: 0, limit: 1 }))),
    );
  });
  after(() => Promise.all(stores.map((store) => store.close())));

  /** Deadlocks that the server has detected in our database so far. */
  async function deadlocks(): Promise<number> {
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    // A session reports its counts when it has been idle for a second.
    await new Promise((resolve) => setTimeout(resolve, 1200));
    const [row] =
      await sql`select deadlocks from pg_stat_database where datname = current_database()`;
    await sql.end();
    return Number(row?.deadlocks);
  }

  function shuffled<T>(items: readonly T[]): T[] {
    const keyed = items.map((item) => ({ item, key: Math.random() }));
    return keyed.toSorted((a, b) => a.key - b.key).map(({ item }) => item);
  }

  /** Both stores make the same calls at once, each in its own order. */
  async function race<T>(
    items: readonly T[],
    action: (store: UserStore, item: T, i: number) => Promise<unknown>,
  ) {
    const settled = await Promise.allSettled(
      stores.flatMap((store, i) => shuffled(items).map((item) => action(store, item, i))),
    );
    const failed = settled.filter((result) => result.status === 'rejected');
    assert.deepEqual(
      [...new Set(failed.map(({ reason }) => reason.name))].filter((n) => n !== 'EmailTaken'),
      [],
    );
    return { done: settled.length - failed.length, failed: failed.length };
  }

  const numbers = Array.from({ length: 200 }, (_, i) => i);

  test('creating the same users in different orders: each is created once, without a deadlock', async () => {
    for (let round = 0; round < 10; round++) {
      const counts = await race(numbers, (store, n) =>
        store.create(newUser({ name: 'A', email: `${round}.${n}@x` })),
      );
      assert.deepEqual(counts, { done: 200, failed: 200 });
    }
    assert.equal(await deadlocks(), 0);
  });

  test('5.6 a call that the server rolled back to resolve a deadlock is retried', async (t: TestContext) => {
    const store = stores[0]!;
    const user = await store.create(newUser({ name: 'Ada', email: 'before@z' }));
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    t.after(() => sql.end({ timeout: 1 }));
    await sql.unsafe(`set deadlock_timeout = '60s'`);
    await sql.unsafe('begin');
    await sql.unsafe(`insert into users (name, email) values ('Bob', 'after@z')`);
    // The update waits for our email, then we wait for its user. Its check for deadlocks runs
    // before ours, so Postgres rolls it back.
    const changed = store.update(user.id, { email: 'after@z' }, ALWAYS);
    const settled = changed.then(
      () => 'done',
      (err: Error) => err.name,
    );
    await untilOneWaits(sql);
    await sql.unsafe(`update users set name = 'Eve' where id = ${user.id}`);
    await sql.unsafe('commit');
    assert.equal(await settled, 'EmailTaken');
  });

  /** Resolves when a statement of another session waits for ours. */
  async function untilOneWaits(sql: postgres.Sql): Promise<void> {
    for (;;) {
      const waiting = await sql`
        select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))`;
      if (waiting.length > 0) return;
    }
  }
});
