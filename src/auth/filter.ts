// A set of keys in constant memory, each kept for a limited time: a Bloom filter in two generations.
// It never misses a key that was added. Once half a million keys were added to a generation, it takes
// 1 in 50,000 other keys for one of them.
import { hash, randomBytes } from 'node:crypto';

/** Bits that are set for a key. */
const BITS_PER_KEY = 6;

/** Hexadecimal digits that name a bit, so a generation has 16^6 bits, which take 2 MiB. */
const DIGITS_PER_BIT = 6;

interface Generation {
  readonly startMs: number;
  /** Random, so nobody can choose addresses that make another one look added. */
  readonly salt: string;
  readonly bits: Uint8Array;
}

/** Keeps each key for `keepMs` to `2 * keepMs` milliseconds. Takes no memory while it is empty. */
export class ExpiringFilter {
  readonly #keepMs: number;
  // At most two, the younger one first.
  #generations: readonly Generation[] = [];

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  isEmpty(now: number): boolean {
    this.#expire(now);
    return this.#generations.length === 0;
  }

  add(key: string, now: number): void {
    this.#expire(now);
    let [young] = this.#generations;
    if (young === undefined || now >= young.startMs + this.#keepMs) {
      const salt = randomBytes(16).toString('base64');
      young = { startMs: now, salt, bits: new Uint8Array(16 ** DIGITS_PER_BIT / 8) };
      this.#generations = [young, ...this.#generations];
    }
    const digest = digestOf(key, young);
    for (let i = 0; i < BITS_PER_KEY; i++) {
      const bit = bitAt(i, digest);
      young.bits[bit >>> 3]! |= 1 << (bit & 7);
    }
  }

  /** Milliseconds until the key is forgotten; 0 if it was not added. */
  remainingMs(key: string, now: number): number {
    this.#expire(now);
    const found = this.#generations.find((generation) => isIn(generation, key));
    return found === undefined ? 0 : this.#endOf(found) - now;
  }

  #expire(now: number): void {
    const last = this.#generations.at(-1);
    if (last === undefined || this.#endOf(last) > now) return;
    this.#generations = this.#generations.filter((generation) => this.#endOf(generation) > now);
  }

  #endOf({ startMs }: Generation): number {
    return startMs + 2 * this.#keepMs;
  }
}

function isIn(generation: Generation, key: string): boolean {
  const digest = digestOf(key, generation);
  for (let i = 0; i < BITS_PER_KEY; i++) {
    const bit = bitAt(i, digest);
    if ((generation.bits[bit >>> 3]! & (1 << (bit & 7))) === 0) return false;
  }
  return true;
}

function digestOf(key: string, { salt }: Generation): string {
  return hash('sha256', salt + key, 'hex');
}

function bitAt(i: number, digest: string): number {
  return Number.parseInt(digest.slice(DIGITS_PER_BIT * i, DIGITS_PER_BIT * (i + 1)), 16);
}
