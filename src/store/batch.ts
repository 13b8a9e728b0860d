// Calls that arrive in one turn of the event loop share one statement: that is where the speed of
// the stores comes from, and one commit carries every write of the turn. The meaning stays that of
// one call at a time:
//
// - A call is answered only after its statement has been committed.
// - When a statement fails, it was rolled back whole, and its calls run one by one, so that one bad
//   call costs no other. When its outcome is unknown, all its calls fail and none runs again.
// - When a statement was not begun in time, as a lock was not had or it came too late, the calls
//   whose time is over fail, and the others go on, still together.
// - A call that waits too long is dropped from the queue and never run. One that is run has time
//   left: else, after an outage, batch after batch would end with the first of its calls.
import { StoreUnavailable } from '../user.ts';

/** Calls in one statement at most. */
const MAX_SIZE = 500;

/** Calls that wait at most; more fail at once. */
const MAX_WAITING = 20_000;

/** The part of its time that a call may wait (contract 4.13); the rest is its statement's. */
const WAITING = 0.75;

/** One waiting call. */
interface Call<Item, Result> {
  readonly item: Item;
  /** When it fails if it has no answer, in the milliseconds of the clock. */
  readonly expires: number;
  readonly resolve: (result: Result) => void;
  readonly reject: (err: unknown) => void;
}

/** Takes batches from queues and runs them when it can: later, never within `schedule`. */
export interface Scheduler {
  schedule(queue: BatchSource): void;
}

/** What a scheduler knows of a queue. */
export interface BatchSource {
  /** Takes the calls of the next statement; undefined when none wait. */
  take(now: number): Batch | undefined;
  /** Fails the calls that have waited too long. */
  expire(now: number): void;
}

/** The calls of one statement. */
export interface Batch {
  /** Fails the calls whose time is over: nobody knows whether they were done. */
  expire(now: number): void;
  /**
   * Runs the statement; answers every call unless `fail` has come first; never throws. Resolves
   * with undefined when the connection is still good.
   */
  run(connection: unknown): Promise<Lost | undefined>;
  /** Fails every call that has no answer yet: nobody knows whether it was done. */
  fail(cause: unknown): void;
}

/** The error was of the kind after which nobody knows what was done. */
export interface Lost {
  readonly cause: unknown;
}

/** How the calls of one kind are run. */
export interface Kind<Connection, Item, Result> {
  /**
   * Runs the calls in one statement; an Error in place of a result fails that call alone. `expires`
   * is when the first of them fails.
   */
  readonly statement: (
    connection: Connection,
    items: Item[],
    expires: number,
  ) => Promise<(Result | Error)[]>;
  /** Calls of the same key never share a statement. */
  readonly exclusiveKey?: (item: Item) => string | number;
  /** Only calls of the same key share a statement, and their result. */
  readonly sharedKey?: (item: Item) => string;
  /** Whether nothing was done, as the first call expired before the statement began. */
  readonly isTooLate: (err: unknown) => boolean;
  /** Whether after this error nobody knows what was done. */
  readonly isLost: (err: unknown) => boolean;
}

/** The waiting calls of one kind. */
export class Queue<Connection, Item, Result> implements BatchSource {
  // 6.6
  readonly #scheduler: Scheduler;
  readonly #kind: Kind<Connection, Item, Result>;
  readonly #timeoutMs: number;
  readonly #now: () => number;
  #waiting: Call<Item, Result>[] = [];

  constructor(
    scheduler: Scheduler,
    kind: Kind<Connection, Item, Result>,
    timeoutMs: number,
    now: () => number,
  ) {
    this.#scheduler = scheduler;
    this.#kind = kind;
    this.#timeoutMs = timeoutMs;
    this.#now = now;
  }

  /** @throws StoreUnavailable, or the Error that the statement gave for this call */
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
      expire: (at) => fail(expired(calls, at), 'no answer in time'),
      run: (connection) => this.#run(connection as Connection, calls),
      fail: (cause) => fail(calls, cause),
    };
  }

  expire(now: number): void {
    // 4.13
    const latest = now + (1 - WAITING) * this.#timeoutMs;
    // The queue is in the order of arrival, so what has waited too long stands in front.
    const alive = this.#waiting.findIndex(({ expires }) => expires > latest);
    const count = alive === -1 ? this.#waiting.length : alive;
    if (count === 0) return;
    fail(this.#waiting.splice(0, count), 'the store was busy or away for too long');
  }

  /** The calls that may share the next statement, in the order of their arrival. */
  #select(): Call<Item, Result>[] {
    const { exclusiveKey, sharedKey } = this.#kind;
    const all = this.#waiting;
    if (!exclusiveKey && !sharedKey) {
      this.#waiting = all.slice(MAX_SIZE);
      return all.slice(0, MAX_SIZE);
    }
    const keys = new Set<string | number>();
    const left: Call<Item, Result>[] = [];
    const calls = all.filter((call) => {
      const key = (exclusiveKey ?? sharedKey)!(call.item);
      const isIn =
        keys.size < MAX_SIZE && (exclusiveKey ? !keys.has(key) : keys.size === 0 || keys.has(key));
      if (isIn) keys.add(key);
      else left.push(call);
      return isIn;
    });
    this.#waiting = left;
    return calls;
  }

  async #run(connection: Connection, calls: Call<Item, Result>[]): Promise<Lost | undefined> {
    try {
      const items = calls.map(({ item }) => item);
      const results = await this.#kind.statement(connection, items, calls[0]!.expires); // 5.5
      calls.forEach((call, i) => {
        const result = results[i];
        if (result instanceof Error) call.reject(result);
        else call.resolve(result as Result);
      });
      return undefined;
    } catch (err) {
      const late = expired(calls, this.#now());
      // Where none has expired, the other side's clock is not what it was: the connection is lost.
      if (this.#kind.isTooLate(err) && late.length > 0) {
        fail(late, err);
        const others = calls.slice(late.length);
        return others.length === 0 ? undefined : this.#run(connection, others);
      }
      if (this.#kind.isLost(err)) {
        // 4.13
        fail(calls, err);
        return { cause: err };
      }
      if (calls.length === 1) {
        fail(calls, err);
        return undefined;
      }
    }
    for (const call of calls) {
      const lost = await this.#run(connection, [call]);
      if (lost === undefined) continue;
      fail(calls, lost.cause);
      return lost;
    }
    return undefined;
  }
}

/** Those whose time is over. Calls are in the order of arrival, so they are the first. */
function expired<Item, Result>(
  calls: readonly Call<Item, Result>[],
  now: number,
): readonly Call<Item, Result>[] {
  return calls.filter(({ expires }) => expires <= now);
}

/** Rejecting a call that has its answer changes nothing. */
function fail<Item, Result>(calls: readonly Call<Item, Result>[], cause: unknown): void {
  const err = new StoreUnavailable('the store failed', { cause });
  for (const call of calls) call.reject(err);
}
