// Batches the calls that arrive in one turn of the event loop into one statement and one commit. Most of
// the throughput of both stores comes from this. Each call gets the result that it would get if the calls
// ran one at a time, and only after its statement has committed. If the statement fails, its outcome
// decides whether calls run again (FailedOutcome).
//
// Clients take turns by network. The calls of a network wait in lines: one for each user that they change,
// one for each email that they give to a new one, or one for all. A line is served in the order of arrival.
// A write that has to wait for a running one holds up only its own line.
import { type Caller, CallerLeft, StoreUnavailable } from '../user.ts';
import type { StoreOptions } from './options.ts';

const MAX_BATCH_SIZE = 500; // calls in one statement
const QUEUE_TIME = 0.75; // share of its time that a call may queue; the rest is for execution (4.13)
export const TICK_MS = 50; // how often the scheduler of a queue checks the deadlines of all calls
const BUSY = 'the store was busy or unreachable for too long';

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
 * - `not done`: all of it was undone because of concurrent transactions, or it found a lock. The expired
 *   calls fail, and the others run again together.
 * - `unknown`: it may have committed, or may still commit. All calls fail, and none runs again.
 */
export type FailedOutcome = 'rolled back' | 'not done' | 'unknown';

/** The user that a write changes, and the email that it gives to a user. */
interface Keys {
  readonly id?: number | undefined;
  readonly email?: string | undefined;
}

/** The ids and emails of the writes that run. */
export type RunningKeys = Set<number | string | undefined>; // never has undefined

/** A batch has no id twice, and no key of another one that runs (5.11). */
interface Writes<Item> {
  readonly keysOf: (item: Item) => Keys;
  readonly running: RunningKeys; // shared by the queues whose writes exclude each other
}

export interface QueueOptions<Session, Item, Result>
  extends Pick<StoreOptions, 'timeoutMs' | 'now'> {
  readonly statement: Statement<Session, Item, Result>;
  readonly outcomeAfter: (err: unknown) => FailedOutcome;
  readonly schedule: (queue: BatchSource<Session>) => void; // at each call; runs batches in a later turn
  readonly pageOf?: (item: Item) => string; // a batch has the calls for one page
  readonly writes?: Writes<Item>; // undefined: the calls only read
}

interface Call<Item = unknown, Result = never> {
  readonly item: Item;
  readonly caller: Caller | undefined;
  readonly expires: number; // the deadline: a call without a result then fails
  readonly resolve: (result: Result) => void;
  readonly reject: (err: unknown) => void;
}

/** Calls that are served in order. */
interface Line<Item, Result> {
  readonly key: string;
  calls: Call<Item, Result>[];
}

/** What the scheduler of batches sees of a queue. */
export type BatchSource<Session> = Omit<Queue<Session, never, unknown>, 'call'>;

export type Batch<Session> = NonNullable<ReturnType<BatchSource<Session>['take']>>;

/** The waiting calls of one operation. No call has a timer: `expire` checks all of them (6.6). */
export class Queue<Session, Item, Result> {
  readonly options: QueueOptions<Session, Item, Result>;
  size = 0; // number of calls that wait
  readonly #lines = new Map<string, Line<Item, Result>>();
  readonly #networks = new Map<string, Line<Item, Result>[]>(); // each with its lines; the next ones first

  constructor(options: QueueOptions<Session, Item, Result>) {
    this.options = options;
  }

  /** @throws StoreUnavailable, CallerLeft, or the Error that the statement returned for this call */
  readonly call = (item: Item, caller?: Caller): Promise<Result> =>
    new Promise((resolve, reject) => {
      const expires = this.options.now() + this.options.timeoutMs;
      this.#add({ item, caller, expires, resolve, reject });
      this.options.schedule(this);
    });

  #add(call: Call<Item, Result>): void {
    const network = call.caller?.network ?? '';
    const key = this.#lineOf(call.item, network);
    const known = this.#lines.get(key);
    const line = known ?? { key, calls: [] };
    line.calls.push(call);
    this.size++;
    this.#lines.set(key, line);
    // The line of a page has calls of several networks, and each of them can be the first to be served.
    if (known === undefined || this.options.pageOf !== undefined) this.#enqueue(network, line);
  }

  #lineOf(item: Item, network: string): string {
    const { pageOf, writes } = this.options;
    if (writes === undefined) return pageOf?.(item) ?? network;
    const { id, email } = writes.keysOf(item);
    return `${network} ${id ?? email}`;
  }

  #enqueue(network: string, line: Line<Item, Result>): void {
    const lines = this.#networks.get(network);
    if (lines === undefined) this.#networks.set(network, [line]);
    else lines.push(line);
  }

  /** Takes the next batch from the queue. Undefined if none of the calls that it considers can run now. */
  take(now: number) {
    const keys: RunningKeys = new Set();
    const calls = this.#select(now, keys);
    if (calls.length === 0) return undefined;
    const release = () => {
      for (const key of keys) this.options.writes!.running.delete(key);
      keys.clear(); // Another batch can have them when this one is released again.
    };
    return {
      size: calls.length,
      isWrite: this.options.writes !== undefined,
      deadline: now + this.options.timeoutMs, // from then on, no call waits for the statement
      /** Runs and settles the calls. Resolves with an error if the session must be replaced. */
      run: (session: Session) => this.#run(session, calls).finally(release),
      /** Fails the calls that have expired. Their outcome is unknown. */
      expire: (at: number) => void failExpired(calls, at, 'no response in time'),
      /** Fails all calls that have no result yet. Their outcome is unknown. */
      fail(cause: unknown) {
        fail(calls, cause);
        release();
      },
    };
  }

  /** Fails the calls that have too little time left to run, with the cause, and those whose callers have left. */
  expire(now: number, cause?: unknown): void {
    for (const line of this.#lines.values()) {
      const calls = line.calls.filter((call) => !this.#failIfOver(call, now, cause));
      this.size -= line.calls.length - calls.length;
      line.calls = calls;
    }
    for (const [network, lines] of [...this.#networks]) {
      this.#networks.delete(network);
      for (const line of lines) this.#requeue(network, line);
    }
  }

  #failIfOver({ expires, caller, reject }: Call, now: number, cause: unknown = BUSY): boolean {
    const reservedMs = (1 - QUEUE_TIME) * this.options.timeoutMs; // 4.13
    if (expires <= now + reservedMs) {
      reject(new StoreUnavailable('the store failed', { cause }));
      return true;
    }
    if (!caller?.hasLeft) return false;
    reject(new CallerLeft()); // 4.17: it would keep its request in memory.
    return true;
  }

  // Considers at most a batch of calls that are not over, however many wait. Networks take turns, and so do the
  // lines of each (5.11).
  #select(now: number, keys: RunningKeys): Call<Item, Result>[] {
    const isPage = this.options.pageOf !== undefined;
    const batch: Call<Item, Result>[] = [];
    const blocked: [network: string, line: Line<Item, Result>][] = [];
    // The loop returns to a network that is added again.
    for (const [network, lines] of this.#networks) {
      const line = lines.shift()!;
      this.#networks.delete(network);
      if (lines.length > 0) this.#networks.set(network, lines);
      const taken = this.#takeFrom(line, isPage ? MAX_BATCH_SIZE : 1, now, keys);
      batch.push(...taken);
      if (taken.length === 0 && line.calls.length > 0) blocked.push([network, line]);
      else this.#requeue(network, line);
      if (batch.length + blocked.length >= MAX_BATCH_SIZE || (isPage && batch.length > 0)) break;
    }
    for (const [network, line] of blocked) this.#enqueue(network, line);
    return batch.sort((a, b) => a.expires - b.expires);
  }

  /** Takes up to `count` calls from a line. Takes fewer if calls are over, none if the first of the others must wait. */
  #takeFrom(line: Line<Item, Result>, count: number, now: number, keys: RunningKeys) {
    const taken: Call<Item, Result>[] = [];
    while (line.calls.length > 0 && taken.length < count) {
      const call = line.calls[0]!;
      const isOver = this.#failIfOver(call, now);
      if (!isOver && !this.#reserve(call.item, keys)) break;
      if (!isOver) taken.push(call);
      line.calls.shift();
      this.size--;
    }
    return taken;
  }

  #requeue(network: string, line: Line<Item, Result>): void {
    if (line.calls.length > 0) this.#enqueue(network, line);
    // After its last call, the line of a page can still be among those of another network.
    else if (this.#lines.get(line.key) === line) this.#lines.delete(line.key);
  }

  /** Reserves the id and email of a write for a batch, or returns false: another batch has one of them. */
  #reserve(item: Item, own: RunningKeys): boolean {
    if (this.options.writes === undefined) return true;
    const { keysOf, running } = this.options.writes;
    const { id, email } = keysOf(item);
    if (running.has(id)) return false;
    if (running.has(email) && !own.has(email)) return false;
    for (const key of [id, email]) {
      if (key === undefined) continue;
      running.add(key);
      own.add(key);
    }
    return true;
  }

  async #run(session: Session, batch: Call<Item, Result>[]): Promise<Error | undefined> {
    // Calls without a result, grouped by the statement that will run them. The last group is next.
    const groups = [batch];
    let cause: unknown = 'no response in time';
    while (groups.length > 0) {
      const calls = failExpired(groups.pop()!, this.options.now(), cause);
      if (calls.length === 0) continue;
      try {
        const items = calls.map(({ item }) => item);
        const results = await this.options.statement(session, items, calls[0]!.expires);
        const notDone = calls.filter(({ resolve, reject }, i) => {
          const result = results[i];
          if (result instanceof Error) reject(result);
          else if (result !== NOT_DONE) resolve(result as Result); // 5.5
          return result === NOT_DONE;
        });
        groups.push(notDone);
      } catch (err) {
        cause = err;
        const outcome = this.options.outcomeAfter(err);
        if (outcome === 'unknown') {
          fail(batch, cause);
          return err as Error;
        }
        const middle = Math.ceil(calls.length / 2);
        if (outcome === 'not done') groups.push(calls);
        else if (calls.length === 1) fail(calls, cause);
        else groups.push(calls.slice(middle), calls.slice(0, middle));
      }
    }
    return undefined;
  }
}

/** Fails the calls that expire by `now`; returns the others. */
function failExpired<T extends Call>(calls: readonly T[], now: number, cause: unknown): T[] {
  const expired = calls.filter(({ expires }) => expires <= now);
  fail(expired, cause);
  return calls.filter(({ expires }) => expires > now);
}

function fail(calls: readonly Call[], cause: unknown): void {
  for (const { reject } of calls) reject(new StoreUnavailable('the store failed', { cause }));
}
