// Limits failed credential checks (contract 3.13). Counts them by IPv4 address and IPv6 /64, and with
// a higher limit by IPv6 /48, because one client can own a whole /48. Keys displaced from the full
// tables move to a filter of constant size, so a flood of addresses lifts no lock, and locks out almost
// no address that never failed.
import { counterKeys } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { ExpiringFilter } from './filter.ts';

/** Time for which a failure counts, and length of a lock. */
const WINDOW_MS = 60_000; // 3.13

/** Limit of a /48, as a multiple of an address's limit. */
const SITE_LIMIT_FACTOR = 64; // 3.13

/** Failures of a key within a slice share an entry, so memory does not grow with the limit. */
const SLICE_MS = 10_000; // 3.13

/** Keys in each of a table's two generations. */
const MAX_KEYS_PER_GENERATION = 5_000; // 3.13

/** A success neither counts nor resets: an attacker gains nothing by mixing in valid credentials. */
export class FailureLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  readonly #networks: CounterTable;
  readonly #sites: CounterTable;

  /** A `limit` of 0 disables it. `now` returns milliseconds of a monotonic clock. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
    const displaced = new ExpiringFilter(WINDOW_MS);
    // A displaced address is locked even below the limit. Otherwise, an attacker who rotates through
    // 10,001 addresses could guess without a limit.
    this.#networks = new CounterTable(limit, displaced, 1); // 3.13
    // A displaced /48 below its limit is dropped: a lock would refuse addresses that never failed.
    // Displacing it takes 5,000 other /48s, which allow 320,000 times the limit anyway.
    const siteLimit = limit * SITE_LIMIT_FACTOR;
    this.#sites = new CounterTable(siteLimit, displaced, siteLimit); // 3.13
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
    if (check()) return true;
    const { network, site } = counterKeys(client);
    const nowMs = this.#now();
    this.#networks.add(network, nowMs); // 3.13
    if (site !== undefined) this.#sites.add(site, nowMs); // 3.13
    return false;
  }

  #lockRemainingMs(client: string): number {
    const nowMs = this.#now();
    // Saves parsing the address while nobody has failed.
    if (this.#networks.isEmpty(nowMs) && this.#sites.isEmpty(nowMs)) return 0;
    const { network, site } = counterKeys(client);
    const ofNetwork = this.#networks.remainingMs(network, nowMs);
    if (site === undefined) return ofNetwork;
    return Math.max(ofNetwork, this.#sites.remainingMs(site, nowMs));
  }
}

/**
 * Counts failures by key. A key that reaches the limit within a window is locked for the next window,
 * so no window holds more failures than the limit.
 *
 * A key that fails moves to the younger of two generations. When that is full, the older one is
 * displaced. One map that evicts its first key for each new one would cost 11 µs per failure.
 */
class CounterTable {
  readonly #limit: number;
  /** Keys that lost their counter. All of them are locked. */
  readonly #displaced: ExpiringFilter;
  readonly #displacedLimit: number;
  #young = new Map<string, Counter>();
  #old = new Map<string, Counter>();
  /** Time from which no failure in the maps counts. */
  #expiresMs = Number.NEGATIVE_INFINITY;

  /** Displaced keys with at least `displacedLimit` failures go to `displaced`. */
  constructor(limit: number, displaced: ExpiringFilter, displacedLimit: number) {
    this.#limit = limit;
    this.#displaced = displaced;
    this.#displacedLimit = displacedLimit;
  }

  /** True if no failure counts and no key is locked. */
  isEmpty(nowMs: number): boolean {
    return nowMs >= this.#expiresMs && this.#displaced.isEmpty(nowMs);
  }

  /** Milliseconds until the key's lock ends; not positive if it is not locked. */
  remainingMs(key: string, nowMs: number): number {
    const counter = this.#young.get(key) ?? this.#old.get(key);
    const isLocked = counter !== undefined && counter.count >= this.#limit;
    const displacedMs = this.#displaced.remainingMs(key, nowMs);
    return isLocked ? Math.max(counter.expiresMs - nowMs, displacedMs) : displacedMs;
  }

  add(key: string, nowMs: number): void {
    if (nowMs >= this.#expiresMs) {
      this.#young = new Map();
      this.#old = new Map();
    }
    const counter = this.#young.get(key) ?? this.#old.get(key) ?? new Counter();
    counter.add(nowMs);
    this.#expiresMs = counter.expiresMs;
    this.#old.delete(key);
    this.#young.set(key, counter);
    if (this.#young.size >= MAX_KEYS_PER_GENERATION) this.#displace(nowMs);
  }

  #displace(nowMs: number): void {
    for (const [key, { count, expiresMs }] of this.#old) {
      if (expiresMs > nowMs && count >= this.#displacedLimit) this.#displaced.add(key, nowMs);
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
  /** Oldest first. `endMs` is the time from which the slice's latest failure no longer counts. */
  readonly #slices: { endMs: number; count: number }[] = [];

  add(nowMs: number): void {
    while (this.#slices.length > 0 && this.#slices[0]!.endMs <= nowMs) {
      this.count -= this.#slices.shift()!.count;
    }
    this.expiresMs = nowMs + WINDOW_MS;
    const slice = Math.floor(this.expiresMs / SLICE_MS);
    const last = this.#slices.at(-1);
    if (last !== undefined && Math.floor(last.endMs / SLICE_MS) === slice) {
      last.endMs = this.expiresMs;
      last.count++;
    } else {
      this.#slices.push({ endMs: this.expiresMs, count: 1 });
    }
    this.count++;
  }
}
