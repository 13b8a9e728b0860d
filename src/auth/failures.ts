// The failure limit (contract 3.13): how often one client address may present wrong credentials.
// A success neither counts nor resets, so a right guess in between does not help a guesser.
import { counterKey } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';

const WINDOW_MS = 60_000;

/** Addresses remembered in each of the two tables: what an attacker with many can make us keep. */
const MAX_ADDRESSES = 10_000; // 3.13

/** Stands for all addresses that came when every place was taken by a locked one. */
const EVERYONE_ELSE = 'everyone else'; // 3.13

/**
 * Counts failed credential checks by key. A key that reaches the limit within a minute is locked
 * for the minute that follows, so no minute at all holds more failures than the limit.
 */
export class Failures {
  readonly #limit: number;
  readonly #now: () => number;
  // Times of the failures within the last minute, oldest first; the keys by their latest failure.
  readonly #counting = new Map<string, number[]>();
  // When the lock ends; the keys in the order of that time.
  readonly #locked = new Map<string, number>();

  /** `limit` 0 switches it off. `now` gives milliseconds of a clock that never goes back. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
  }

  /**
   * Runs a credential check for a client and counts it when it fails.
   * @throws HttpError 429 with Retry-After while the client is locked; nothing is checked then.
   */
  attempt(client: string, check: () => boolean): boolean {
    const seconds = this.#retryAfterSeconds(client);
    if (seconds > 0) throw new HttpError(429, undefined, ['Retry-After', String(seconds)]); // 3.13
    const isRight = check();
    if (!isRight) this.#record(counterKey(client)); // 3.13
    return isRight;
  }

  /** Whole seconds until the client may try again, 0 when it may now. */
  #retryAfterSeconds(client: string): number {
    if (this.#locked.size === 0) return 0;
    this.#unlock();
    const key = counterKey(client);
    const lockOfTheRest = this.#isFull ? this.#locked.get(EVERYONE_ELSE) : undefined;
    const end = this.#locked.get(key) ?? lockOfTheRest;
    return end === undefined ? 0 : Math.ceil((end - this.#now()) / 1000);
  }

  #record(key: string): void {
    if (this.#limit === 0) return;
    const counter = this.#isFull ? EVERYONE_ELSE : key;
    const now = this.#now();
    const before = this.#counting.get(counter) ?? [];
    const times = [...before.filter((time) => time > now - WINDOW_MS), now];
    this.#counting.delete(counter);
    if (times.length >= this.#limit) {
      this.#locked.set(counter, now + WINDOW_MS); // 3.13
      return;
    }
    this.#counting.set(counter, times);
    // Only what is not locked is ever forgotten: the key that has been quiet for longest.
    if (this.#counting.size > MAX_ADDRESSES) {
      // 3.13
      this.#counting.delete(this.#counting.keys().next().value!);
    }
  }

  get #isFull(): boolean {
    return this.#locked.size >= MAX_ADDRESSES;
  }

  #unlock(): void {
    const now = this.#now();
    for (const [key, end] of this.#locked) {
      if (end > now) return;
      this.#locked.delete(key);
    }
  }
}
