// Work that one client can make expensive, a little in each turn of the event loop, so that requests
// which cost little are answered in between (6.18).

/** Time for such work in one turn. One piece of work is never divided. */
const TURN_MS = 2;

/** Runs tasks in the order of their arrival. */
export class Turns {
  readonly #tasks: (() => void)[] = [];
  readonly #now: () => number;
  #isScheduled = false;

  /** `now` is a monotonic clock in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Runs the task in a later turn. It must not throw. */
  add(task: () => void): void {
    this.#tasks.push(task);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#run);
  }

  readonly #run = (): void => {
    const end = this.#now() + TURN_MS;
    do this.#tasks.shift()!();
    while (this.#tasks.length > 0 && this.#now() < end);
    this.#isScheduled = this.#tasks.length > 0;
    if (this.#isScheduled) setImmediate(this.#run);
  };
}
