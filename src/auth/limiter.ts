// Limits failed credential checks (contract 3.13). Counts them by IPv4 address and IPv6 /64, and with a
// higher limit by IPv6 /48, because one client can own a whole /48.
import { networksOf } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { copyOf } from '../http/message.ts';

const SITE_NETWORKS = 64; // A /48 counts as so many networks. It has 65,536.
const WINDOW_MS = 60_000; // A window begins with a failure. Reaching the limit starts it anew, as a lock.
// A full table forgets the address that has not failed for longest, even a lock: it takes 10,000 addresses to get
// there, and each of them has the whole limit anyway.
const MAX_WINDOWS = 10_000;

export class FailureLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  readonly #windows = new Map<string | undefined, { failures: number; endMs: number }>(); // by their last failure

  /** A `limit` of 0 disables it. */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
  }

  /**
   * Runs the check and counts its failure. A success neither counts nor resets: an attacker gains nothing by
   * mixing in valid credentials.
   * @throws HttpError 429, without a check, during a lock
   */
  attempt(client: string, check: () => boolean): boolean {
    if (this.#limit === 0) return check();
    const nowMs = this.#now();
    const { network, site } = networksOf(client);
    const siteLimit = SITE_NETWORKS * this.#limit;
    const endMs = Math.max(this.#lockEndMs(network, this.#limit), this.#lockEndMs(site, siteLimit));
    if (endMs > nowMs) {
      const seconds = Math.ceil((endMs - nowMs) / 1000);
      throw new HttpError(429, undefined, ['Retry-After', String(seconds)]); // 3.13
    }
    if (check()) return true;
    this.#count(network, this.#limit, nowMs);
    this.#count(site, siteLimit, nowMs);
    return false;
  }

  #lockEndMs(key: string | undefined, limit: number): number {
    const window = this.#windows.get(key);
    return window !== undefined && window.failures >= limit ? window.endMs : 0;
  }

  #count(key: string | undefined, limit: number, nowMs: number): void {
    if (key === undefined) return;
    const known = this.#windows.get(key);
    const isRunning = known !== undefined && known.endMs > nowMs;
    const failures = isRunning ? known.failures + 1 : 1;
    const endMs = isRunning && failures < limit ? known.endMs : nowMs + WINDOW_MS;
    // At the end also if it is known: otherwise 10,000 of its /64s would push out a /48 that still fails.
    this.#windows.delete(key);
    this.#windows.set(copyOf(key), { failures, endMs }); // An IPv4 address can be a part of a header (node 24).
    if (this.#windows.size <= MAX_WINDOWS) return;
    const [oldest] = this.#windows.keys();
    this.#windows.delete(oldest);
  }
}
