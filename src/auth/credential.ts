// The credential user. Secrets are compared in constant time, regardless of their lengths, so that
// timing does not reveal how much of a guess was right (contract 3.12). Keyboards differ in how they compose a
// letter and its accent, so logins and passwords are compared in NFC (RFC 7617 §2.1, RFC 8265).
import { isAscii, isUtf8 } from 'node:buffer';
import { timingSafeEqual } from 'node:crypto';

const BLOCK_BYTES = 256; // Buffer sizes are multiples of this, which hides the length of a secret.
// How much longer than its NFC in UTF-8 a text can be in UTF-16, and in UTF-8: each byte is at most 1.5 characters
// in NFD. Longer texts are wrong, and the time of normalize() is quadratic: 8,000 accents take 70 ms (node 26).
const MAX_UTF16_GROWTH = 3;
const MAX_UTF8_GROWTH = 6;

// Comparing digests would be shorter code, but takes 1.2 µs more for a login, or 3 %.
export class Secret {
  readonly #expected: Buffer;
  readonly #given: Buffer;
  readonly #length: number;

  constructor(value: string) {
    this.#length = Buffer.byteLength(value);
    this.#expected = Buffer.alloc(Math.ceil((this.#length + 1) / BLOCK_BYTES) * BLOCK_BYTES);
    this.#expected.write(value);
    this.#given = Buffer.alloc(this.#expected.length);
  }

  /** True if a text of this length can't be the secret in another form. Its own length stays hidden. */
  isExceededBy(length: number, growth: number): boolean {
    return length > growth * this.#expected.length;
  }

  equals(given: string): boolean {
    this.#given.fill(0);
    this.#given.write(given);
    const isSame = timingSafeEqual(this.#given, this.#expected); // 3.12
    return isSame && Buffer.byteLength(given) === this.#length;
  }
}

export class Credential {
  readonly name: string; // the display name
  readonly #user: Secret;
  readonly #password: Secret;
  readonly #basic: Secret;

  constructor({ user, password, name }: { user: string; password: string; name: string }) {
    this.name = name;
    this.#user = new Secret(user.normalize());
    this.#password = new Secret(password.normalize());
    this.#basic = new Secret(encode(`${user}:${password}`));
  }

  /** Always compares both, so that the time does not depend on the login (3.12). */
  matches(user: string, password: string): boolean {
    const isUser = this.#user.equals(inNfc(user, this.#user)); // 3.20
    const isPassword = this.#password.equals(inNfc(password, this.#password)); // 3.20
    return isUser && isPassword;
  }

  /** Compares Basic credentials encoded: a login has no colon, so only one text is right (RFC 7617 §2). */
  matchesBasic(credentials: string): boolean {
    if (this.#basic.equals(credentials)) return true; // 3.10
    const isTooLong = this.#basic.isExceededBy(credentials.length, MAX_UTF8_GROWTH);
    return !isTooLong && this.#basic.equals(base64InNfc(credentials));
  }
}

function encode(text: string): string {
  return Buffer.from(text.normalize()).toString('base64');
}

/** Leaves a text as it is that is too long for the secret. */
function inNfc(text: string, secret: Secret): string {
  return secret.isExceededBy(text.length, MAX_UTF16_GROWTH) ? text : text.normalize();
}

/** Leaves anything but canonical base64 of UTF-8 as it is: it equals no credentials. */
function base64InNfc(credentials: string): string {
  const bytes = Buffer.from(credentials, 'base64');
  if (isAscii(bytes) || !isUtf8(bytes) || bytes.toString('base64') !== credentials)
    return credentials;
  return encode(bytes.toString()); // 3.20
}
