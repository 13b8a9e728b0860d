// Lets clients connect while others keep the event loop busy: node accepts connections once in each turn of it, however
// long the requests of that turn take.
import { now, setImmediate } from '../clock.ts';

// For requests and slices of responses, in a turn that follows an accepted connection; the one that has begun runs to
// its end. In a shorter time fewer requests end, so more of them wait, and are charged, at once.
const TURN_MS = 10;

export class Turns {
  readonly #waiting: (() => void)[] = [];
  #endMs = Number.POSITIVE_INFINITY; // of the tasks of this turn; infinite while no client connects
  #hasAccepted = false; // in this turn

  /** A connection was accepted, so others may wait for it. */
  onAccept(): void {
    this.#hasAccepted = true;
    if (Number.isFinite(this.#endMs)) return;
    this.#endMs = now() + TURN_MS;
    setImmediate(this.#next);
  }

  /** Runs the task, in a later turn if this one has taken its time. */
  run(task: () => void): void {
    const isOver = Number.isFinite(this.#endMs) && now() >= this.#endMs;
    if (isOver || this.#waiting.length > 0) this.#waiting.push(task);
    else task();
  }

  readonly #next = (): void => {
    const hasAccepted = this.#hasAccepted;
    this.#hasAccepted = false;
    this.#endMs = now() + TURN_MS;
    while (this.#waiting.length > 0 && now() < this.#endMs) this.#waiting.shift()!();
    if (hasAccepted || this.#waiting.length > 0) setImmediate(this.#next);
    else this.#endMs = Number.POSITIVE_INFINITY;
  };
}
