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
const MAX_WAITING = 20_000; // 4.17

/** Part of its time that a call may spend in the queue. */
const QUEUE_TIME = 0.75; // 4.13

/**
 * Maximum number of statements that one batch runs again. Halving isolates 4 failing calls of 500
 * within 62 statements.
 */
const MAX_RERUNS = 64;

/** In place of a result: the statement committed without doing this call, which runs again. */
export const NOT_DONE = Symbol('not done');

/** What an error says about its statement: it did not start in time, or was rolled back, or neither. */
export type FailedOutcome = 'not started' | 'rolled back' | 'deadlock' | 'unknown';

/** How a store runs the calls of one operation. */
export interface BatchOperation<Session, Item, Result> {
  /**
   * Runs the calls in one statement, whose first call expires at `expires`. An Error in place of a
   * result fails that call alone.
   */
  readonly statement: (
    session: Session,
    items: Item[],
    expires: number,
  ) => Promise<readonly (Result | Error | typeof NOT_DONE)[]>;
  /** Called for each new batch. Tells for each waiting call, in turn, if it joins. Default: all. */
  readonly newBatch?: (() => (item: Item) => boolean) | undefined;
  /** Classifies an error of `statement`. */
  readonly outcomeAfter: (err: unknown) => FailedOutcome;
}

/** Batches of calls with the same key. */
export function sameKey<Item>(keyOf: (item: Item) => string): () => (item: Item) => boolean {
  return () => {
    let first: string | undefined;
    return (item) => {
      const key = keyOf(item);
      first ??= key;
      return key === first;
    };
  };
}

/** Batches of calls without any key in common. */
export function distinctKeys<Item>(
  keysOf: (item: Item) => readonly (string | number)[],
): () => (item: Item) => boolean {
  return () => {
    const used = new Set<string | number>();
    return (item) => {
      const keys = keysOf(item);
      const isFree = !keys.some((key) => used.has(key));
      // Also the keys of a call that doesn't join: later calls must not overtake it.
      for (const key of keys) used.add(key);
      return isFree;
    };
  };
}

interface Call<Item, Result> {
  readonly item: Item;
  /** When the call fails without a result, in milliseconds of the clock. */
  readonly expires: number;
  readonly resolve: (result: Result) => void;
  readonly reject: (err: unknown) => void;
}

/** The calls of one statement. */
export interface Batch<Session> {
  /** Runs and settles the calls. Resolves with an error if the session can't be used further. */
  run(session: Session): Promise<Error | undefined>;
  /** Fails the calls whose time is over; their outcome is unknown. */
  expire(now: number): void;
  /** Fails every call that has no result yet; its outcome is unknown. */
  fail(cause: unknown): void;
}

/** The part of a queue that runs its batches. */
export type BatchSource<Session> = Pick<Queue<Session, never, unknown>, 'take' | 'expire'>;

/** The waiting calls of one operation. */
export class Queue<Session, Item, Result> {
  // 6.6
  readonly #operation: BatchOperation<Session, Item, Result>;
  readonly #timeoutMs: number;
  readonly #now: () => number;
  readonly #schedule: (queue: BatchSource<Session>) => void;
  #waiting: Call<Item, Result>[] = [];

  /** @param schedule called for each new call; takes and runs the batches after it has returned */
  constructor(
    operation: BatchOperation<Session, Item, Result>,
    timeoutMs: number,
    now: () => number,
    schedule: (queue: BatchSource<Session>) => void,
  ) {
    this.#operation = operation;
    this.#timeoutMs = timeoutMs;
    this.#now = now;
    this.#schedule = schedule;
  }

  /** @throws StoreUnavailable, or the Error that the statement returned for this call */
  call(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.length >= MAX_WAITING) {
        reject(new StoreUnavailable('too many calls are waiting for the store')); // 4.17
        return;
      }
      this.#waiting.push({ item, expires: this.#now() + this.#timeoutMs, resolve, reject });
      this.#schedule(this);
    });
  }

  /** Takes the calls of the next statement; undefined if none wait. */
  take(now: number): Batch<Session> | undefined {
    this.expire(now);
    const calls = this.#select();
    if (calls.length === 0) return undefined;
    return {
      run: (session) => this.#run(session, calls),
      expire: (at) => void failExpired(calls, at, 'no response in time'),
      fail: (cause) => fail(calls, cause),
    };
  }

  /** Fails the calls that have waited too long. */
  expire(now: number): void {
    const reservedMs = (1 - QUEUE_TIME) * this.#timeoutMs; // 4.13
    const cause = 'the store was busy or unreachable for too long';
    this.#waiting = failExpired(this.#waiting, now + reservedMs, cause);
  }

  #select(): Call<Item, Result>[] {
    const joins = this.#operation.newBatch?.();
    if (joins === undefined) return this.#waiting.splice(0, MAX_BATCH_SIZE);
    const selected: Call<Item, Result>[] = [];
    const left: Call<Item, Result>[] = [];
    for (const call of this.#waiting) {
      (selected.length < MAX_BATCH_SIZE && joins(call.item) ? selected : left).push(call);
    }
    this.#waiting = left;
    return selected;
  }

  async #run(session: Session, batch: Call<Item, Result>[]): Promise<Error | undefined> {
    const groups = [batch];
    let cause: unknown = 'no response in time';
    for (let reruns = 0; groups.length > 0 && reruns <= MAX_RERUNS; reruns++) {
      const calls = failExpired(groups.pop()!, this.#now(), cause);
      if (calls.length === 0) continue;
      try {
        const items = calls.map(({ item }) => item);
        const results = await this.#operation.statement(session, items, calls[0]!.expires); // 5.5
        const notDone = settle(calls, results);
        if (notDone.length > 0) groups.push(notDone);
      } catch (err) {
        const outcome = this.#operation.outcomeAfter(err);
        cause =
          outcome === 'not started'
            ? new StoreUnavailable('the statement did not start in time', { cause: err })
            : err;
        if (outcome === 'deadlock') {
          groups.push(calls); // 5.6
        } else if (outcome === 'not started' && calls[0]!.expires <= this.#now()) {
          groups.push(calls);
        } else if (outcome === 'rolled back' && calls.length > 1) {
          const middle = Math.ceil(calls.length / 2);
          groups.push(calls.slice(middle), calls.slice(0, middle));
        } else if (outcome === 'rolled back') {
          fail(calls, cause);
        } else {
          // Includes a server whose clock jumped, so that it rejects calls before their deadline.
          fail(batch, cause); // 4.13
          return cause as Error;
        }
      }
    }
    if (groups.length > 0) fail(groups.flat(), cause);
    return undefined;
  }
}

/** Gives each call its result; returns the calls that were not done. */
function settle<Item, Result>(
  calls: Call<Item, Result>[],
  results: readonly (Result | Error | typeof NOT_DONE)[],
): Call<Item, Result>[] {
  return calls.filter(({ resolve, reject }, i) => {
    const result = results[i];
    if (result === NOT_DONE) return true;
    if (result instanceof Error) reject(result);
    else resolve(result as Result);
    return false;
  });
}

/** Fails the calls that expire by `now`; returns the others. Calls are in the order of arrival. */
function failExpired<Item, Result>(
  calls: Call<Item, Result>[],
  now: number,
  cause: unknown,
): Call<Item, Result>[] {
  if (calls.length === 0 || calls[0]!.expires > now) return calls;
  const { expired = [], alive = [] } = Object.groupBy(calls, ({ expires }) =>
    expires <= now ? 'expired' : 'alive',
  );
  fail(expired, cause);
  return alive;
}

/** Fails the calls that have no result yet. */
function fail<Item, Result>(calls: Call<Item, Result>[], cause: unknown): void {
  const err = new StoreUnavailable('the store failed', { cause });
  for (const call of calls) call.reject(err);
}
