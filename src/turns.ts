// Expensive work, a little in each turn of the event loop, so that requests which cost little are
// answered in between (contract 6.18). Node accepts one connection per turn: while connections
// arrive, turns are kept short, or a client that connects would wait behind all who came before.

/** Time for such work in one turn. One piece of work is never divided. */
const TURN_MS = 2;

/** How long arriving connections can put it off. */
const MAX_WAIT_MS = 10;

/** Runs tasks in the order of their arrival. */
export class Turns {
  readonly #tasks: (() => void)[] = [];
  readonly #now: () => number;
  #isScheduled = false;
  #hasAccepted = false;
  #ranAtMs = 0;

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

  /** A connection was accepted in this turn. */
  accepted(): void {
    this.#hasAccepted = true;
  }

  readonly #run = (): void => {
    const start = this.#now();
    const mayWait = this.#hasAccepted && start - this.#ranAtMs < MAX_WAIT_MS;
    this.#hasAccepted = false;
    if (!mayWait) {
      do this.#tasks.shift()!();
      while (this.#tasks.length > 0 && this.#now() - start < TURN_MS);
      this.#ranAtMs = this.#now();
    }
    this.#isScheduled = this.#tasks.length > 0;
    if (this.#isScheduled) setImmediate(this.#run);
  };
}
