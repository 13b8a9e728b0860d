// Fair scheduler for expensive work: runs a little of it in each turn of the event loop, so that cheap
// requests are processed in between (6.18). Clients take turns by address, so one that causes a lot of work
// delays mostly itself. Node accepts only one connection per turn of the event loop, so the work waits while
// connections arrive. Otherwise the n-th new connection would wait for n times TURN_MS.

import { setImmediate } from './clock.ts';

export const TURN_MS = 2; // for this work in one turn; a task that has begun runs to its end

// While connections arrive, work waits for `min`, then until ACCEPTS have been accepted, `max` at most.
const WAIT_MS = { min: 10, max: 100 } as const;
const ACCEPTS = 32;

// A client that has caused more work than HEAVY_MS within HEAVY_PERIOD_MS waits for the others. One task in
// HEAVY_EVERY is such a client's even while others wait.
const HEAVY_MS = 10;
const HEAVY_PERIOD_MS = 1_000;
const HEAVY_EVERY = 8;

type Task = () => void;
type Tasks = Map<string, Set<Task>>;

/** Runs one task of each client in turn, in the order of their arrival. */
export class Turns {
  readonly #waiting: Tasks = new Map(); // by network, the one whose turn is next first
  readonly #heavy: Tasks = new Map(); // the same for clients that cause a lot of work
  readonly #work = new Map<string, number>(); // milliseconds of each client in this period
  #periodStartMs = 0;
  #tasksRun = 0;
  readonly now: () => number; // a monotonic clock in milliseconds
  #isScheduled = false;
  #hasAccepted = false;
  #accepts = 0; // since the wait began
  #spentMs = 0; // of the current turn, as counted by `spend`
  #waitingSinceMs: number | undefined; // start of the wait for new connections

  constructor(now: () => number) {
    this.now = now;
  }

  /** Runs the task once, in a later turn; it must not throw. `network` is empty for the store. */
  add(network: string, task: Task): void {
    const waiting = (this.#work.get(network) ?? 0) < HEAVY_MS ? this.#waiting : this.#heavy;
    const tasks = waiting.get(network) ?? new Set();
    waiting.set(network, tasks.add(task));
    this.#schedule();
  }

  delete(network: string, task: Task): void {
    for (const waiting of [this.#waiting, this.#heavy]) {
      const tasks = waiting.get(network);
      if (tasks?.delete(task) && tasks.size === 0) waiting.delete(network);
    }
  }

  /** Counts work that a client has caused, however it was scheduled. */
  charge(network: string, ms: number): void {
    this.#work.set(network, (this.#work.get(network) ?? 0) + ms);
  }

  /** Charges this turn for work that runs after the task, such as a read after `socket.resume()`. */
  spend(ms: number): void {
    this.#spentMs += ms;
  }

  recordAccept(): void {
    this.#hasAccepted = true;
    this.#accepts++;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#run);
  }

  readonly #run = (): void => {
    this.#isScheduled = false;
    const start = this.now();
    if (start - this.#periodStartMs >= HEAVY_PERIOD_MS) {
      this.#periodStartMs = start;
      this.#work.clear();
    }
    const hasAccepted = this.#hasAccepted;
    this.#hasAccepted = false;
    this.#spentMs = 0;
    if (hasAccepted) this.#waitingSinceMs ??= start;
    const waitedMs = start - (this.#waitingSinceMs ?? start);
    const { min, max } = WAIT_MS;
    if (!hasAccepted || waitedMs >= (this.#accepts < ACCEPTS ? max : min)) {
      this.#waitingSinceMs = undefined;
      this.#accepts = 0;
      // The work gets the time that it has waited, so that new connections take about half.
      const limitMs = Math.max(TURN_MS, Math.min(waitedMs, min));
      while (this.#hasWaiting) {
        this.#runNext();
        if (this.now() - start + this.#spentMs >= limitMs) break;
      }
    }
    if (this.#hasWaiting) this.#schedule();
  };

  get #hasWaiting(): boolean {
    return this.#waiting.size > 0 || this.#heavy.size > 0;
  }

  #runNext(): void {
    const isHeavyNext = this.#waiting.size === 0 || ++this.#tasksRun % HEAVY_EVERY === 0;
    const waiting = isHeavyNext && this.#heavy.size > 0 ? this.#heavy : this.#waiting;
    const [network, tasks] = waiting.entries().next().value!;
    const task = tasks.values().next().value!;
    tasks.delete(task);
    // Puts the network behind the others.
    waiting.delete(network);
    if (tasks.size > 0) waiting.set(network, tasks);
    task();
  }
}
