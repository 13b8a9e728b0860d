// A set of keys in constant memory, each kept for a limited time: a Bloom filter in two generations. It has
// no false negatives. With half a million keys in a generation, 1 lookup in 50,000 is a false positive.
import { hash, randomBytes } from 'node:crypto';

const BITS_PER_KEY = 6;
const BYTES_PER_BIT = 3; // of a digest, to select one bit
const GENERATION_BYTES = 256 ** BYTES_PER_BIT / 8; // 2 MiB

/** Keeps each key for `keepMs` to `2 * keepMs` milliseconds. Takes no memory while it is empty. */
export class ExpiringFilter {
  readonly #keepMs: number;
  readonly #salt = randomBytes(16).toString('base64'); // Attackers can't choose keys with another key's bits.
  // At most two, the younger first.
  #generations: readonly { readonly endMs: number; readonly bits: Uint8Array }[] = [];

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  add(key: string, nowMs: number): void {
    this.#expire(nowMs);
    let [young] = this.#generations;
    if (young === undefined || young.endMs <= nowMs + this.#keepMs) {
      young = { endMs: nowMs + 2 * this.#keepMs, bits: new Uint8Array(GENERATION_BYTES) };
      this.#generations = [young, ...this.#generations];
    }
    for (const bit of this.#bitsOf(key)) young.bits[bit >>> 3]! |= 1 << (bit & 7);
  }

  /** Milliseconds until the key expires; 0 if it was not added, except for a false positive. */
  remainingMs(key: string, nowMs: number): number {
    this.#expire(nowMs);
    if (this.#generations.length === 0) return 0; // Saves the hash.
    const keyBits = this.#bitsOf(key);
    const found = this.#generations.find(({ bits }) =>
      keyBits.every((bit) => (bits[bit >>> 3]! & (1 << (bit & 7))) !== 0),
    );
    return found === undefined ? 0 : found.endMs - nowMs;
  }

  #expire(nowMs: number): void {
    this.#generations = this.#generations.filter(({ endMs }) => endMs > nowMs);
  }

  #bitsOf(key: string): readonly number[] {
    const digest = hash('sha256', this.#salt + key, 'buffer');
    const place = (_: unknown, i: number) => digest.readUIntBE(i * BYTES_PER_BIT, BYTES_PER_BIT);
    return Array.from({ length: BITS_PER_KEY }, place);
  }
}
