// Limits failed credential checks (contract 3.13): counts them by IPv4 address and IPv6 /64, and, with
// a higher limit, by IPv6 /48, because one client can own a whole /48. Keys that find no room in the
// tables move to a filter of constant size, so no flood of addresses lifts a lock or locks others out.
import { type CounterKeys, counterKeys } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { ExpiringFilter } from './filter.ts';

/** Failures count, and locks hold, for this long. */
const WINDOW_MS = 60_000; // 3.13

/** The limit of a /48, as a multiple of the limit of an address. */
const NETWORK_LIMIT_FACTOR = 64; // 3.13

/** Failures of one key in one slice are kept as a number, so a high limit needs no more memory. */
const SLICE_MS = 10_000; // 3.13

/** Keys in each of a table's two generations. */
const MAX_KEYS_PER_GENERATION = 5_000; // 3.13

/**
 * Bounds how many wrong credentials a client can present. A success neither counts nor resets, so a
 * guesser gains nothing by mixing in right credentials.
 */
export class FailureLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  // Keys that found no room in the tables. All of them are locked.
  readonly #displaced = new ExpiringFilter(WINDOW_MS);
  readonly #addresses: CounterTable;
  readonly #networks: CounterTable;

  /** A `limit` of 0 switches it off. `now` returns milliseconds of a monotonic clock. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
    // An address that loses its place is locked even below the limit: if it were forgotten, 10,001
    // addresses in rotation could guess without a limit.
    this.#addresses = new CounterTable(limit, (key, _isLocked, at) => {
      this.#displaced.add(key, at); // 3.13
    });
    // A /48 below its limit is forgotten: a lock would refuse addresses that never failed. Whoever has
    // the 5,000 others that displace it may fail 320,000 times the limit with those.
    this.#networks = new CounterTable(limit * NETWORK_LIMIT_FACTOR, (key, isLocked, at) => {
      if (isLocked) this.#displaced.add(key, at); // 3.13
    });
  }

  /**
   * Runs a credential check for a client and counts it if it fails.
   * @throws HttpError 429 with Retry-After while the client is locked; nothing is checked then
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
    if (tables.every((table) => table.isEmpty(now))) return 0;
    const { address, network } = counterKeys(client);
    const ofAddress = Math.max(
      this.#addresses.lockRemainingMs(address, now),
      this.#displaced.remainingMs(address, now),
    );
    if (network === undefined) return ofAddress;
    return Math.max(
      ofAddress,
      this.#networks.lockRemainingMs(network, now),
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
 * Counts failures by key. A key that reaches the limit within the window is locked for the window that
 * follows, so no window holds more failures than the limit.
 *
 * Two generations: a key that fails moves to the younger one. When that is full, the older one is
 * displaced. (One map that drops its first key for each new one costs 11 µs a failure.)
 */
class CounterTable {
  readonly #limit: number;
  readonly #onDisplaced: OnDisplaced;
  #young = new Map<string, Counter>();
  #old = new Map<string, Counter>();
  #expiresMs = Number.NEGATIVE_INFINITY;

  constructor(limit: number, onDisplaced: OnDisplaced) {
    this.#limit = limit;
    this.#onDisplaced = onDisplaced;
  }

  /** Whether no key has failed within the window. */
  isEmpty(now: number): boolean {
    return now >= this.#expiresMs;
  }

  lockRemainingMs(key: string, now: number): number {
    const counter = this.#find(key);
    return counter !== undefined && counter.count >= this.#limit ? counter.expiresMs - now : 0;
  }

  add(key: string, now: number): void {
    if (this.isEmpty(now)) this.#clear();
    const found = this.#find(key);
    // A lock that has ended leaves nothing behind.
    const counter = found !== undefined && found.expiresMs > now ? found : new Counter();
    counter.add(now);
    this.#expiresMs = counter.expiresMs;
    this.#old.delete(key);
    this.#young.set(key, counter);
    if (this.#young.size >= MAX_KEYS_PER_GENERATION) this.#age(now);
  }

  #find(key: string): Counter | undefined {
    return this.#young.get(key) ?? this.#old.get(key);
  }

  #age(now: number): void {
    for (const [key, { count, expiresMs }] of this.#old) {
      if (expiresMs > now) this.#onDisplaced(key, count >= this.#limit, now);
    }
    this.#old = this.#young;
    this.#young = new Map();
  }

  #clear(): void {
    this.#young = new Map();
    this.#old = new Map();
  }
}

/** The failures of one key within the window. */
class Counter {
  /** How many there were at the time of the latest one. */
  count = 0;
  /** When the latest one no longer counts; a lock ends then too. */
  expiresMs = 0;
  // By slice, oldest first: the time of its latest failure, and how many it has.
  readonly #timesMs: number[] = [];
  readonly #counts: number[] = [];

  add(now: number): void {
    while (this.#timesMs.length > 0 && this.#timesMs[0]! <= now - WINDOW_MS) {
      this.#timesMs.shift();
      this.count -= this.#counts.shift()!;
    }
    const last = this.#timesMs.length - 1;
    if (last >= 0 && sliceOf(this.#timesMs[last]!) === sliceOf(now)) {
      this.#timesMs[last] = now;
      this.#counts[last]! += 1;
    } else {
      this.#timesMs.push(now);
      this.#counts.push(1);
    }
    this.count++;
    this.expiresMs = now + WINDOW_MS;
  }
}

function sliceOf(timeMs: number): number {
  return Math.floor(timeMs / SLICE_MS);
}
