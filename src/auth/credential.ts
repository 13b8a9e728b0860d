// The credential user. A pair is compared in constant time, so that timing reveals neither how much of a guess was right
// nor the length of a pair of up to 255 bytes (contract 3.12). Keyboards differ in how they compose a letter and its
// accent, so pairs are compared in NFC (RFC 7617 §2.1, RFC 8265).
import { isUtf8 } from 'node:buffer';
import { timingSafeEqual } from 'node:crypto';

const BLOCK_BYTES = 256; // Buffer sizes are multiples of this. Digests would hide every length, and cost 2 µs more.
// In UTF-16 units. Longer texts stay as they are: the time of normalize() is quadratic, 0.4 ms for these (node 26).
const MAX_NORMALIZED = 512;

export class Credential {
  readonly name: string; // the display name
  readonly #expected: Buffer; // `login:password`
  readonly #given: Buffer;
  readonly #length: number;

  constructor({ user, password, name }: { user: string; password: string; name: string }) {
    this.name = name;
    const pair = inNfc(`${user}:${password}`);
    this.#length = Buffer.byteLength(pair);
    this.#expected = Buffer.alloc(Math.ceil((this.#length + 1) / BLOCK_BYTES) * BLOCK_BYTES);
    this.#expected.write(pair);
    this.#given = Buffer.alloc(this.#expected.length);
  }

  /** The login has no colon, so only one pair has this text (RFC 7617 §2). */
  matches(user: string, password: string): boolean {
    return this.#equals(`${user}:${password}`) && !user.includes(':');
  }

  matchesBasic(credentials: string): boolean {
    const bytes = Buffer.from(credentials, 'base64');
    const isCanonical = bytes.toString('base64') === credentials; // 3.10
    return this.#equals(bytes.toString()) && isCanonical && isUtf8(bytes);
  }

  #equals(text: string): boolean {
    const pair = inNfc(text);
    this.#given.fill(0);
    this.#given.write(pair);
    const isSame = timingSafeEqual(this.#given, this.#expected); // 3.12
    return isSame && Buffer.byteLength(pair) === this.#length;
  }
}

function inNfc(text: string): string {
  return text.length > MAX_NORMALIZED ? text : text.normalize(); // 3.20
}
