// Simulated time: timers run in the order of their times, at once. Between two of them all promises settle.
import process from 'node:process';

interface Timer {
  readonly ms: number;
  readonly action: () => void;
}

/** Resolves once all promises have settled, without a turn of the event loop. Call it from a microtask. */
const allSettled = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

export class Time {
  ms = 0;
  #timers: Timer[] = [];
  #random: number;

  constructor(seed: number) {
    this.#random = seed >>> 0 || 1;
  }

  get pending(): number {
    return this.#timers.length;
  }

  /** From 0 to 1, from the seed (xorshift). */
  readonly random = (): number => {
    let x = this.#random;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#random = x >>> 0;
    return this.#random / 2 ** 32;
  };

  /** Runs the action after some time. Returns a function that cancels it. */
  readonly after = (ms: number, action: () => void): (() => void) => {
    const timer = { ms: this.ms + ms, action };
    const index = this.#timers.findLastIndex((other) => other.ms <= timer.ms);
    this.#timers.splice(index + 1, 0, timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  };

  readonly sleep = (ms: number): Promise<void> =>
    new Promise((resolve) => void this.after(ms, resolve));

  async pass(ms: number): Promise<void> {
    const end = this.ms + ms;
    await allSettled();
    for (let next = this.#timers[0]; next && next.ms <= end; next = this.#timers[0]) {
      this.#timers.shift();
      this.ms = next.ms;
      next.action();
      await allSettled();
    }
    this.ms = end;
  }
}
