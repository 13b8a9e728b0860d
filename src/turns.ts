// Expensive work, a little in each turn of the event loop, so that cheap requests are answered in
// between (contract 6.18). Clients take turns: one that causes a lot of work delays mostly itself.
// Node accepts one connection per turn: while connections arrive, turns are kept short, or a client
// that connects would wait behind all who came before.

/** Time for such work in one turn. One piece of work is never divided. */
const TURN_MS = 2;

/** How long arriving connections can put it off. */
const MAX_WAIT_MS = 10;

type Task = () => void;

/** Runs the tasks of each client in the order of their arrival, one client after another. */
export class Turns {
  /** Waiting tasks by client, the next client first. */
  readonly #waiting = new Map<string, Task[]>();
  readonly #now: () => number;
  #hasAccepted = false;
  #hasEnded = false;
  #ranAtMs = 0;

  /** `now` is a monotonic clock in milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Runs the task in a later turn. It must not throw. `client` is an address, or empty for our own. */
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

  /** Called by a task that lets a socket be read: what that costs is known only in the next turn. */
  end(): void {
    this.#hasEnded = true;
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
    // Behind the others.
    this.#waiting.delete(client);
    if (tasks.length > 0) this.#waiting.set(client, tasks);
  }
}
