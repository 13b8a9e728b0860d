// Batches the calls that arrive in one turn of the event loop into one statement and one commit.
// Most of the throughput of both stores comes from this. Results are those of calls that ran one at
// a time:
//
// - A call gets its result only after its statement has committed.
// - A statement that fails is rolled back whole. Its calls run again in two halves, and so on, until
//   the calls that fail are alone, within a limited number of statements.
// - If the outcome of a statement is unknown, all its calls fail and none runs again.
// - If a statement couldn't start in time, only the expired calls fail. The rest run again together.
// - A call that has waited too long is dropped from the queue and never runs. The time that is left
//   is reserved for its statement: otherwise, after an outage, each batch would fail with its first
//   call.
import { StoreUnavailable } from '../user.ts';

/** Maximum number of calls in one statement. */
const MAX_BATCH_SIZE = 500;

/** Maximum number of waiting calls; further calls fail at once. */
const MAX_WAITING = 20_000;

/** Part of its time that a call may spend in the queue (contract 4.13). */
const QUEUE_TIME = 0.75;

/**
 * Maximum number of statements that one batch runs again. Halving isolates 4 failing calls of 500
 * within 62 statements.
 */
const MAX_RERUNS = 64;

/** In place of a result: the statement committed without doing this call, which runs again. */
export const NOT_DONE = Symbol('not done');

/** What an error says about its statement: it never ran, it was rolled back whole, or neither. */
export type FailedOutcome = 'not started' | 'rolled back' | 'unknown';

/** One waiting call. */
interface Call<Item, Result> {
  readonly item: Item;
  /** When the call fails without a result, in milliseconds of the clock. */
  readonly expires: number;
  readonly resolve: (result: Result) => void;
  readonly reject: (err: unknown) => void;
}

/** Takes batches from queues and runs them, always after `schedule` has returned. */
export interface Scheduler {
  schedule(queue: BatchSource): void;
}

/** A queue as its scheduler sees it. */
export interface BatchSource {
  /** Takes the calls of the next statement; undefined if none wait. */
  take(now: number): Batch | undefined;
  /** Fails the calls that have waited too long. */
  expire(now: number): void;
}

/** The calls of one statement. */
export interface Batch {
  /** Fails the calls whose time is over; their outcome is unknown. */
  expire(now: number): void;
  /**
   * Runs the calls and settles each of them; never throws. Resolves with undefined if the
   * connection can be used further.
   */
  run(connection: unknown): Promise<UnknownOutcome | undefined>;
  /** Fails every call that has no result yet; its outcome is unknown. */
  fail(cause: unknown): void;
}

/** The outcome of a statement is unknown, and its connection can't be used further. */
export interface UnknownOutcome {
  readonly cause: unknown;
}

/** How a store runs the calls of one kind. */
export interface BatchOperation<Connection, Item, Result> {
  /**
   * Runs the calls in one statement, whose first call expires at `expires`. An Error in place of a
   * result fails that call alone.
   */
  readonly statement: (
    connection: Connection,
    items: Item[],
    expires: number,
  ) => Promise<readonly (Result | Error | typeof NOT_DONE)[]>;
  /** Calls with a key in common never share a statement. */
  readonly exclusiveKeys?: (item: Item) => readonly (string | number)[];
  /** Only calls with the same key share a statement, and its result. */
  readonly sharedKey?: (item: Item) => string;
  /** Classifies an error of `statement`. */
  readonly outcomeAfter: (err: unknown) => FailedOutcome;
}

/** The waiting calls of one operation. */
export class Queue<Connection, Item, Result> implements BatchSource {
  // 6.6
  readonly #scheduler: Scheduler;
  readonly #operation: BatchOperation<Connection, Item, Result>;
  readonly #timeoutMs: number;
  readonly #now: () => number;
  #waiting: Call<Item, Result>[] = [];

  constructor(
    scheduler: Scheduler,
    operation: BatchOperation<Connection, Item, Result>,
    timeoutMs: number,
    now: () => number,
  ) {
    this.#scheduler = scheduler;
    this.#operation = operation;
    this.#timeoutMs = timeoutMs;
    this.#now = now;
  }

  /** @throws StoreUnavailable, or the Error that the statement returned for this call */
  call(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.length >= MAX_WAITING) {
        // 4.17
        reject(new StoreUnavailable('too many calls are waiting for the store'));
        return;
      }
      this.#waiting.push({ item, expires: this.#now() + this.#timeoutMs, resolve, reject });
      this.#scheduler.schedule(this);
    });
  }

  take(now: number): Batch | undefined {
    this.expire(now);
    const calls = this.#select();
    if (calls.length === 0) return undefined;
    return {
      expire: (at) => failExpired(calls, at),
      run: (connection) => this.#run(connection as Connection, calls),
      fail: (cause) => fail(calls, cause),
    };
  }

  expire(now: number): void {
    // 4.13
    const latest = now + (1 - QUEUE_TIME) * this.#timeoutMs;
    // Calls wait in the order of their arrival, so those that have waited too long come first.
    const alive = this.#waiting.findIndex(({ expires }) => expires > latest);
    const count = alive === -1 ? this.#waiting.length : alive;
    if (count === 0) return;
    fail(this.#waiting.splice(0, count), 'the store was busy or away for too long');
  }

  /** The calls that can share the next statement, in the order of their arrival. */
  #select(): Call<Item, Result>[] {
    const { exclusiveKeys, sharedKey } = this.#operation;
    if (exclusiveKeys) return this.#selectExclusive(exclusiveKeys);
    const [first] = this.#waiting;
    if (sharedKey && first) {
      const key = sharedKey(first.item);
      const { same = [], other = [] } = Object.groupBy(this.#waiting, ({ item }) =>
        sharedKey(item) === key ? 'same' : 'other',
      );
      this.#waiting = other;
      return same;
    }
    return this.#waiting.splice(0, MAX_BATCH_SIZE);
  }

  #selectExclusive(
    keysOf: NonNullable<BatchOperation<Connection, Item, Result>['exclusiveKeys']>,
  ): Call<Item, Result>[] {
    const selected: Call<Item, Result>[] = [];
    const left: Call<Item, Result>[] = [];
    const used = new Set<string | number>();
    for (const call of this.#waiting) {
      if (selected.length === MAX_BATCH_SIZE) {
        left.push(call);
        continue;
      }
      const keys = keysOf(call.item);
      (keys.some((key) => used.has(key)) ? left : selected).push(call);
      // A call that is left is not overtaken by others with its keys.
      for (const key of keys) used.add(key);
    }
    this.#waiting = left;
    return selected;
  }

  async #run(
    connection: Connection,
    batch: readonly Call<Item, Result>[],
  ): Promise<UnknownOutcome | undefined> {
    const groups = [batch];
    let cause: unknown;
    for (let reruns = 0; groups.length > 0 && reruns <= MAX_RERUNS; reruns++) {
      const calls = failExpired(groups.pop()!, this.#now(), cause);
      if (calls.length === 0) continue;
      try {
        const items = calls.map(({ item }) => item);
        const results = await this.#operation.statement(connection, items, calls[0]!.expires); // 5.5
        const notDone = settle(calls, results);
        if (notDone.length > 0) groups.push(notDone);
      } catch (err) {
        cause = err;
        const outcome = this.#operation.outcomeAfter(err);
        if (outcome === 'not started' && hasExpired(calls, this.#now())) {
          groups.push(calls);
        } else if (outcome === 'rolled back' && calls.length > 1) {
          const middle = Math.ceil(calls.length / 2);
          groups.push(calls.slice(middle), calls.slice(0, middle));
        } else if (outcome === 'rolled back') {
          fail(calls, err);
        } else {
          // This includes a server whose clock changed: it rejects calls before their deadline.
          fail(batch, err); // 4.13
          return { cause: err };
        }
      }
    }
    fail(groups.flat(), cause);
    return undefined;
  }
}

/** Gives each call its result; returns the calls that were not done. */
function settle<Item, Result>(
  calls: readonly Call<Item, Result>[],
  results: readonly (Result | Error | typeof NOT_DONE)[],
): readonly Call<Item, Result>[] {
  return calls.filter(({ resolve, reject }, i) => {
    const result = results[i];
    if (result === NOT_DONE) return true;
    if (result instanceof Error) reject(result);
    else resolve(result as Result);
    return false;
  });
}

/** Calls are in the order of their arrival, so the first expires first. */
function hasExpired<Item, Result>(calls: readonly Call<Item, Result>[], now: number): boolean {
  return calls[0]!.expires <= now;
}

/** Fails the calls whose time is over; returns the others. */
function failExpired<Item, Result>(
  calls: readonly Call<Item, Result>[],
  now: number,
  cause: unknown = 'no answer in time',
): readonly Call<Item, Result>[] {
  if (!hasExpired(calls, now)) return calls;
  fail(
    calls.filter(({ expires }) => expires <= now),
    cause,
  );
  return calls.filter(({ expires }) => expires > now);
}

/** Fails the calls that have no result yet. */
function fail<Item, Result>(calls: readonly Call<Item, Result>[], cause: unknown): void {
  const err = new StoreUnavailable('the store failed', { cause });
  for (const call of calls) call.reject(err);
}
