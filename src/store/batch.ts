// Batches the calls that arrive in one turn of the event loop into one statement and one commit. Most of
// the throughput of both stores comes from this. Each call gets the result that it would get if the calls
// ran one at a time, and only after its statement has committed. If the statement fails, its outcome
// decides whether calls run again (FailedOutcome).
import { type Caller, CallerLeft, type Page, StoreUnavailable } from '../user.ts';
import type { StoreOptions } from './index.ts';

const MAX_BATCH_SIZE = 500; // calls in one statement
const MAX_WAITING = 20_000; // calls; further calls fail at once (4.17)
const QUEUE_TIME = 0.75; // share of its time that a call may queue; the rest is for execution (4.13)
const MAX_RERUNS = 64; // of one batch; 62 are enough to isolate any 4 failing calls of 500

/** Result of a call that was not done although its statement committed. The call runs again. */
export const NOT_DONE = Symbol('not done');

/** An Error fails its call alone. */
export type CallResult<Result> = Result | Error | typeof NOT_DONE;

/** Runs calls in one statement. `expires` is the earliest deadline, that of the first. */
export type Statement<Session, Item, Result> = (
  session: Session,
  items: Item[],
  expires: number,
) => Promise<readonly CallResult<Result>[]>;

/**
 * Outcome of a statement that failed, and what follows:
 * - `rolled back`: a call made it fail, and all of it was undone. The calls run again in two halves, and
 *   so on, until each failing call is alone.
 * - `conflict`: the server undid all of it because of concurrent transactions. All calls run again.
 * - `not started`: it changed nothing, because its deadline was over or a lock was held. The expired
 *   calls fail, and the others run again together.
 * - `unknown`: it may have committed, or may still commit. All calls fail, and none runs again.
 */
export type FailedOutcome = 'rolled back' | 'conflict' | 'not started' | 'unknown';

/** Starts a batch with its first call. The result decides for each waiting call, in order, if it joins. */
type NewBatch<Item> = (first: Item) => (item: Item) => boolean;

export interface QueueOptions<Session, Item, Result>
  extends Pick<StoreOptions, 'timeoutMs' | 'now'> {
  readonly statement: Statement<Session, Item, Result>;
  readonly outcomeAfter: (err: unknown) => FailedOutcome;
  readonly schedule: (queue: BatchSource<Session>) => void; // at each call; runs batches in a later turn
  readonly newBatch?: NewBatch<Item>; // default: all calls share a statement
  readonly takesTurns?: boolean; // true: batches begin with a call of each network in turn
  readonly isWrite?: boolean;
}

/** Joins the calls for the page of the first. */
export const samePage: NewBatch<Page> = (first) => (page) =>
  page.after === first.after && page.limit === first.limit;

/** Joins calls as long as no two have a key in common. */
export function distinctKeys<Item>(keysOf: (item: Item) => readonly unknown[]): NewBatch<Item> {
  return () => {
    const used = new Set<unknown>();
    return (item) => {
      const keys = keysOf(item);
      const isFree = !keys.some((key) => used.has(key));
      // A call that doesn't join reserves its keys too: later calls must not overtake it.
      for (const key of keys) used.add(key);
      return isFree;
    };
  };
}

interface Call<Item = unknown, Result = never> {
  readonly item: Item;
  readonly caller: Caller | undefined;
  readonly network: string; // of the caller, if networks take turns in this queue; otherwise empty
  readonly arrivedIn: number; // number of the latest batch at that time
  readonly expires: number; // the deadline: a call without a result then fails
  readonly resolve: (result: Result) => void;
  readonly reject: (err: unknown) => void;
}

/** What the scheduler of batches sees of a queue. */
export type BatchSource<Session> = Omit<Queue<Session, never, unknown>, 'call'>;

/** The calls of one statement. */
export type Batch<Session> = NonNullable<ReturnType<BatchSource<Session>['take']>>;

/** The waiting calls of one operation. No call has a timer: `expire` checks all of them (6.6). */
export class Queue<Session, Item, Result> {
  readonly options: QueueOptions<Session, Item, Result>;
  #waiting: Call<Item, Result>[] = [];
  #batches = 0;
  readonly #servedIn = new Map<string, number>(); // latest batch that began with a network's call

  constructor(options: QueueOptions<Session, Item, Result>) {
    this.options = options;
  }

  /** @throws StoreUnavailable, CallerLeft, or the Error that the statement returned for this call */
  readonly call = (item: Item, caller?: Caller): Promise<Result> =>
    new Promise((resolve, reject) => {
      const isFull = this.#waiting.length >= MAX_WAITING; // 4.17
      if (isFull) throw new StoreUnavailable('too many calls are waiting for the store');
      const expires = this.options.now() + this.options.timeoutMs;
      const network = this.options.takesTurns ? (caller?.network ?? '') : '';
      const arrivedIn = this.#batches;
      this.#waiting.push({ item, caller, network, arrivedIn, expires, resolve, reject });
      this.options.schedule(this);
    });

  /** Takes the calls of the next batch from the queue; undefined if none wait. */
  take(now: number) {
    this.expire(now);
    if (this.#waiting.length === 0) {
      this.#servedIn.clear();
      return undefined;
    }
    const calls = this.#select();
    return {
      size: calls.length,
      isWrite: this.options.isWrite === true,
      deadline: now + this.options.timeoutMs, // from then on, no call waits for the statement
      /** Runs and settles the calls. Resolves with an error if the session must be replaced. */
      run: (session: Session) => this.#run(session, calls),
      // Both fail calls that have no result yet: the expired ones, or all. The outcome is unknown.
      expire: (at: number) => void failExpired(calls, at, 'no response in time'),
      fail: (cause: unknown) => fail(calls, cause),
    };
  }

  /** Fails the calls that have too little time left to run, and those whose callers have left. */
  expire(now: number): void {
    const reservedMs = (1 - QUEUE_TIME) * this.options.timeoutMs; // 4.13
    const cause = 'the store was busy or unreachable for too long';
    const inTime = failExpired(this.#waiting, now + reservedMs, cause);
    this.#waiting = inTime.filter(({ caller, reject }) => {
      if (caller?.hasLeft) reject(new CallerLeft()); // 4.17: it would keep its request in memory.
      return !caller?.hasLeft;
    });
  }

  #select(): Call<Item, Result>[] {
    const { newBatch, takesTurns } = this.options;
    if (newBatch === undefined) return this.#waiting.splice(0, MAX_BATCH_SIZE);
    const first = takesTurns ? this.#nextInTurn() : this.#waiting[0]!;
    const joins = newBatch(first.item);
    const selected: Call<Item, Result>[] = [];
    const rest: Call<Item, Result>[] = [];
    for (const call of this.#waiting) {
      const isNext = (selected.length < MAX_BATCH_SIZE && joins(call.item)) || call === first;
      (isNext ? selected : rest).push(call);
    }
    this.#waiting = rest;
    return selected;
  }

  // Returns the first call of the client that has waited longest for a batch of its own (6.18). A client
  // that is new doesn't overtake those that wait: one with many addresses would always come first.
  #nextInTurn(): Call<Item, Result> {
    if (this.#servedIn.size > MAX_WAITING) this.#servedIn.clear();
    const servedIn = (call: Call) => this.#servedIn.get(call.network) ?? call.arrivedIn;
    const first = this.#waiting.reduce((a, b) => (servedIn(b) < servedIn(a) ? b : a));
    this.#servedIn.set(first.network, ++this.#batches);
    return first;
  }

  async #run(session: Session, batch: Call<Item, Result>[]): Promise<Error | undefined> {
    // Calls without a result, grouped by the statement that will run them. The last group is next.
    const groups = [batch];
    let cause: unknown;
    for (let reruns = 0; groups.length > 0 && reruns <= MAX_RERUNS; reruns++) {
      const calls = failExpired(groups.pop()!, this.options.now(), cause ?? 'no response in time');
      if (calls.length === 0) continue;
      const { expires } = calls[0]!;
      try {
        const items = calls.map(({ item }) => item);
        const results = await this.options.statement(session, items, expires);
        const notDone = calls.filter(({ resolve, reject }, i) => {
          const result = results[i];
          if (result instanceof Error) reject(result);
          else if (result !== NOT_DONE) resolve(result as Result); // 5.5
          return result === NOT_DONE;
        });
        if (notDone.length > 0) groups.push(notDone);
      } catch (err) {
        const outcome = this.options.outcomeAfter(err);
        const isLate = outcome === 'not started';
        const late = 'the statement did not start in time';
        cause = isLate ? new StoreUnavailable(late, { cause: err }) : err;
        // A server that rejects calls as late before their deadline has a clock that jumped. A new session
        // measures it again.
        if (outcome === 'unknown' || (isLate && expires > this.options.now())) {
          fail(batch, cause); // 4.13
          return cause as Error;
        }
        const middle = Math.ceil(calls.length / 2);
        // 5.6, 4.13: after a conflict or a late start, the calls that have time left run again together.
        if (outcome !== 'rolled back') groups.push(calls);
        else if (calls.length === 1) fail(calls, cause);
        else groups.push(calls.slice(middle), calls.slice(0, middle));
      }
    }
    if (groups.length > 0) {
      fail(groups.flat(), new StoreUnavailable(`gave up after ${MAX_RERUNS} reruns`, { cause }));
    }
    return undefined;
  }
}

/** Fails the calls that expire by `now`; returns the others. The calls are in order of their deadlines. */
function failExpired<T extends Call>(calls: T[], now: number, cause: unknown): T[] {
  if (calls.length === 0 || calls[0]!.expires > now) return calls;
  const expired = calls.filter(({ expires }) => expires <= now);
  fail(expired, cause);
  return calls.slice(expired.length);
}

function fail(calls: readonly Call[], cause: unknown): void {
  const err = new StoreUnavailable('the store failed', { cause });
  for (const call of calls) call.reject(err);
}
