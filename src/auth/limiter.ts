// Limits failed credential checks (contract 3.13). Counts them by IPv4 address and IPv6 /64, and with
// a higher limit by IPv6 /48, because one client can own a whole /48. Keys displaced from a full table move
// to a filter of constant size, so a flood of addresses lifts no lock, and locks almost no other address.
import { counterKeys } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { ExpiringFilter } from './filter.ts';

const WINDOW_MS = 60_000; // A failure counts, and a lock lasts, for this long (3.13).
const SITE_LIMIT_FACTOR = 64; // The limit of a /48, as a multiple of an address's limit (3.13).
const MAX_KEYS = 10_000; // A full table loses the older half of its keys (3.13).
const SLICE_MS = 10_000; // Failures of a slice share an entry, so memory does not grow with the limit (3.13).

/** A success neither counts nor resets: an attacker gains nothing by mixing in valid credentials. */
export class FailureLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  readonly #networks: FailureTable;
  readonly #sites: FailureTable;
  #latestFailureMs = Number.NEGATIVE_INFINITY;

  /** A `limit` of 0 disables it. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
    const displaced = new ExpiringFilter(WINDOW_MS);
    // A displaced address is locked even below the limit. Otherwise, an attacker who rotates through
    // 10,001 addresses could guess without a limit.
    this.#networks = new FailureTable(limit, displaced, 1); // 3.13
    // A displaced /48 below its limit is dropped: a lock would refuse addresses that never failed.
    // Displacing it takes 5,000 other /48s, which allow 320,000 times the limit anyway.
    const siteLimit = limit * SITE_LIMIT_FACTOR;
    this.#sites = new FailureTable(siteLimit, displaced, siteLimit); // 3.13
  }

  /** Runs the check and counts its failure. @throws HttpError 429, without a check, during a lock */
  attempt(client: string, check: () => boolean): boolean {
    if (this.#limit === 0) return check();
    const nowMs = this.#now();
    const lockedMs = this.#lockedMs(client, nowMs);
    if (lockedMs > 0) {
      throw new HttpError(429, undefined, ['Retry-After', String(Math.ceil(lockedMs / 1000))]); // 3.13
    }
    if (check()) return true;
    const { network, site } = counterKeys(client);
    this.#networks.add(network, nowMs); // 3.13
    if (site !== undefined) this.#sites.add(site, nowMs); // 3.13
    this.#latestFailureMs = nowMs;
    return false;
  }

  #lockedMs(client: string, nowMs: number): number {
    // No lock is longer than this. Saves parsing the address while nobody fails.
    if (nowMs >= this.#latestFailureMs + 2 * WINDOW_MS) return 0;
    const { network, site } = counterKeys(client);
    const siteMs = site === undefined ? 0 : this.#sites.lockedMs(site, nowMs);
    return Math.max(siteMs, this.#networks.lockedMs(network, nowMs));
  }
}

/** By slice, oldest first. From `endMs` on, the slice's latest failure no longer counts. */
type Failures = { endMs: number; count: number }[];

/**
 * Counts failures by key. A key that reaches the limit within a window is locked for the next window,
 * so no window holds more failures than the limit.
 */
class FailureTable {
  readonly #limit: number;
  readonly #displaced: ExpiringFilter; // All of its keys are locked.
  readonly #displacedLimit: number; // A displaced key with at least so many failures is locked.
  readonly #failures = new Map<string, Failures>(); // The key that failed last comes last.

  constructor(limit: number, displaced: ExpiringFilter, displacedLimit: number) {
    this.#limit = limit;
    this.#displaced = displaced;
    this.#displacedLimit = displacedLimit;
  }

  /** Milliseconds until the key's lock ends; not positive if it is not locked. */
  lockedMs(key: string, nowMs: number): number {
    const failures = this.#failures.get(key) ?? [];
    const ownMs = countOf(failures) < this.#limit ? 0 : failures.at(-1)!.endMs - nowMs;
    return Math.max(ownMs, this.#displaced.remainingMs(key, nowMs));
  }

  add(key: string, nowMs: number): void {
    const failures = this.#failures.get(key) ?? [];
    while (failures.length > 0 && failures[0]!.endMs <= nowMs) failures.shift();
    const endMs = nowMs + WINDOW_MS;
    const last = failures.at(-1);
    if (last !== undefined && Math.floor(last.endMs / SLICE_MS) === Math.floor(endMs / SLICE_MS)) {
      last.endMs = endMs;
      last.count++;
    } else {
      failures.push({ endMs, count: 1 });
    }
    this.#failures.delete(key);
    this.#failures.set(key, failures);
    if (this.#failures.size >= MAX_KEYS) this.#displaceHalf(nowMs);
  }

  /** Displacing one key for each new one would cost 11 µs per failure. */
  #displaceHalf(nowMs: number): void {
    for (const [key, failures] of this.#failures) {
      if (this.#failures.size <= MAX_KEYS / 2) return;
      this.#failures.delete(key);
      const isCounted = failures.at(-1)!.endMs > nowMs;
      if (isCounted && countOf(failures) >= this.#displacedLimit) this.#displaced.add(key, nowMs);
    }
  }
}

function countOf(failures: Failures): number {
  return failures.reduce((sum, { count }) => sum + count, 0);
}
