// Fair scheduler for expensive work: does a little in each turn of the event loop, so that cheap
// requests get their responses in between (contract 6.18). Clients take turns by address: one that
// causes a lot of work delays mostly itself. Node accepts one connection per turn, so turns stay
// short while connections arrive: otherwise a new client would wait behind all earlier ones.

/** Time for such work in one turn. A task is never divided. */
const TURN_MS = 2;

/** Longest time that arriving connections can delay it. */
const MAX_WAIT_MS = 10;

type Task = () => void;

/** Runs one task of each client in turn, in the order of their arrival. */
export class Turns {
  /** Waiting tasks by client; the next client comes first. */
  readonly #waiting = new Map<string, Task[]>();
  readonly #now: () => number;
  #hasAccepted = false;
  #hasEnded = false;
  #ranAtMs = 0;

  /** `now` is a monotonic clock in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Runs the task in a later turn; it must not throw. `client` is an address, or empty for our own. */
  add(client: string, task: Task): void {
    const tasks = this.#waiting.get(client);
    if (tasks !== undefined) {
      tasks.push(task);
      return;
    }
    if (this.#waiting.size === 0) setImmediate(this.#run);
    this.#waiting.set(client, [task]);
  }

  /** Whether tasks wait. */
  get isBusy(): boolean {
    return this.#waiting.size > 0;
  }

  /** Ends the current turn. A task that resumes a socket calls it: the read comes next, at any cost. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Notes that a connection was accepted in this turn. */
  accepted(): void {
    this.#hasAccepted = true;
  }

  readonly #run = (): void => {
    const start = this.#now();
    const mayWait = this.#hasAccepted && start - this.#ranAtMs < MAX_WAIT_MS;
    this.#hasAccepted = false;
    if (!mayWait) {
      this.#hasEnded = false;
      do this.#runNext();
      while (this.#waiting.size > 0 && !this.#hasEnded && this.#now() - start < TURN_MS);
      this.#ranAtMs = this.#now();
    }
    if (this.#waiting.size > 0) setImmediate(this.#run);
  };

  #runNext(): void {
    const [[client, tasks]] = this.#waiting as unknown as [[string, Task[]]];
    const task = tasks.shift()!;
    task();
    // Move the client behind the others.
    this.#waiting.delete(client);
    if (tasks.length > 0) this.#waiting.set(client, tasks);
  }
}
