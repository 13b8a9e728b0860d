// Limits failed credential checks (contract 3.13). Counts them by IPv4 address and IPv6 /64, and with
// a higher limit by IPv6 /48, because one client can own a whole /48. Keys displaced from the full
// tables move to a filter of constant size, so that a flood of addresses neither lifts a lock nor locks
// out others.
import { type CounterKeys, counterKeys } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { ExpiringFilter } from './filter.ts';

/** How long a failure counts and a lock holds. */
const WINDOW_MS = 60_000; // 3.13

/** Limit of a /48, as a multiple of an address's limit. */
const NETWORK_LIMIT_FACTOR = 64; // 3.13

/** Length of a slice. The failures of a key in one slice are one count, whatever the limit. */
const SLICE_MS = 10_000; // 3.13

/** Keys in each of a table's two generations. */
const MAX_KEYS_PER_GENERATION = 5_000; // 3.13

/** A success neither counts nor resets: an attacker gains nothing by mixing in valid credentials. */
export class FailureLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  /** Keys that lost their counter. All of them are locked. */
  readonly #displaced = new ExpiringFilter(WINDOW_MS);
  readonly #addresses: CounterTable;
  readonly #networks: CounterTable;

  /** A `limit` of 0 disables it. `now` returns milliseconds of a monotonic clock. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
    // A displaced address is locked even below the limit. Otherwise, an attacker who rotates through
    // 10,001 addresses could guess without a limit.
    this.#addresses = new CounterTable(limit, (key, _isLocked, at) => {
      this.#displaced.add(key, at); // 3.13
    });
    // A displaced /48 below its limit is dropped: a lock would refuse addresses that never failed.
    // Displacing it takes 5,000 other /48s, which allow 320,000 times the limit anyway.
    this.#networks = new CounterTable(limit * NETWORK_LIMIT_FACTOR, (key, isLocked, at) => {
      if (isLocked) this.#displaced.add(key, at); // 3.13
    });
  }

  /**
   * Runs a credential check for a client and counts it if it fails.
   * @throws HttpError 429 with Retry-After, without a check, while the client is locked
   */
  attempt(client: string, check: () => boolean): boolean {
    if (this.#limit === 0) return check();
    const remainingMs = this.#lockRemainingMs(client);
    if (remainingMs > 0) {
      const seconds = Math.ceil(remainingMs / 1000);
      throw new HttpError(429, undefined, ['Retry-After', String(seconds)]); // 3.13
    }
    const isRight = check();
    if (!isRight) this.#record(counterKeys(client)); // 3.13
    return isRight;
  }

  #lockRemainingMs(client: string): number {
    const now = this.#now();
    const tables = [this.#addresses, this.#networks, this.#displaced];
    // Saves parsing the address while nobody has failed.
    if (tables.every((table) => table.isEmpty(now))) return 0;
    const { address, network } = counterKeys(client);
    const ofAddress = Math.max(
      this.#addresses.remainingMs(address, now),
      this.#displaced.remainingMs(address, now),
    );
    if (network === undefined) return ofAddress;
    return Math.max(
      ofAddress,
      this.#networks.remainingMs(network, now),
      this.#displaced.remainingMs(network, now),
    );
  }

  #record({ address, network }: CounterKeys): void {
    const now = this.#now();
    this.#addresses.add(address, now);
    if (network !== undefined) this.#networks.add(network, now);
  }
}

type OnDisplaced = (key: string, isLocked: boolean, now: number) => void;

/**
 * Counts failures by key. A key that reaches the limit within a window is locked for the next window,
 * so no window holds more failures than the limit.
 *
 * A key that fails moves to the younger of two generations. When that is full, the older one is
 * displaced. One map that evicts its first key for each new one would cost 11 µs per failure.
 */
class CounterTable {
  readonly #limit: number;
  readonly #onDisplaced: OnDisplaced;
  #young = new Map<string, Counter>();
  #old = new Map<string, Counter>();
  /** Time from which no failure of any key counts. */
  #expiresMs = Number.NEGATIVE_INFINITY;

  constructor(limit: number, onDisplaced: OnDisplaced) {
    this.#limit = limit;
    this.#onDisplaced = onDisplaced;
  }

  isEmpty(now: number): boolean {
    return now >= this.#expiresMs;
  }

  /** Milliseconds until the key's lock ends; not positive if it is not locked. */
  remainingMs(key: string, now: number): number {
    const counter = this.#young.get(key) ?? this.#old.get(key);
    return counter !== undefined && counter.count >= this.#limit ? counter.expiresMs - now : 0;
  }

  add(key: string, now: number): void {
    if (this.isEmpty(now)) {
      this.#young = new Map();
      this.#old = new Map();
    }
    const counter = this.#young.get(key) ?? this.#old.get(key) ?? new Counter();
    counter.add(now);
    this.#expiresMs = counter.expiresMs;
    this.#old.delete(key);
    this.#young.set(key, counter);
    if (this.#young.size >= MAX_KEYS_PER_GENERATION) this.#displace(now);
  }

  #displace(now: number): void {
    for (const [key, { count, expiresMs }] of this.#old) {
      if (expiresMs > now) this.#onDisplaced(key, count >= this.#limit, now);
    }
    this.#old = this.#young;
    this.#young = new Map();
  }
}

/** The failures of one key within the window. */
class Counter {
  count = 0;
  /** Time from which the latest failure no longer counts. A lock ends then too. */
  expiresMs = 0;
  // By slice, oldest first: the time from which its latest failure no longer counts, and its count.
  readonly #ends: number[] = [];
  readonly #counts: number[] = [];

  add(now: number): void {
    while (this.#ends.length > 0 && this.#ends[0]! <= now) {
      this.#ends.shift();
      this.count -= this.#counts.shift()!;
    }
    const last = this.#ends.length - 1;
    this.expiresMs = now + WINDOW_MS;
    if (last >= 0 && sliceOf(this.#ends[last]!) === sliceOf(this.expiresMs)) {
      this.#ends[last] = this.expiresMs;
      this.#counts[last]! += 1;
    } else {
      this.#ends.push(this.expiresMs);
      this.#counts.push(1);
    }
    this.count++;
  }
}

function sliceOf(timeMs: number): number {
  return Math.floor(timeMs / SLICE_MS);
}
