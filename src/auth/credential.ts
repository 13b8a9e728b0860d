// The credential user. Secrets are compared in constant time, regardless of their lengths, so that
// timing does not reveal how much of a guess was right (contract 3.12). Keyboards differ in how they compose a
// letter and its accent, so logins and passwords are compared in NFC (RFC 7617 §2.1, RFC 8265).
import { isAscii, isUtf8 } from 'node:buffer';
import { timingSafeEqual } from 'node:crypto';

const BLOCK_BYTES = 256; // Buffer sizes are multiples of this, which hides the length of a secret.
// A text has at most this many UTF-16 units for each byte of its NFC, which is at most 1.5 characters in NFD. Longer
// texts are wrong, and the time of normalize() is quadratic: 8,000 accents take 70 ms (node 26).
const MAX_GROWTH = 3;

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

  /** False if the secret has no form of this length. Its own length stays hidden. */
  canHaveLength(length: number): boolean {
    return length <= MAX_GROWTH * this.#expected.length;
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
    this.#basic = new Secret(toBase64(`${user}:${password}`.normalize()));
  }

  /** Always compares both, so that the time does not depend on the login (3.12). */
  matches(user: string, password: string): boolean {
    const isUser = this.#user.equals(inNfc(user, this.#user)); // 3.20
    const isPassword = this.#password.equals(inNfc(password, this.#password)); // 3.20
    return isUser && isPassword;
  }

  /** Compares Basic credentials encoded: a login has no colon, so only one text is right (RFC 7617 §2). */
  matchesBasic(credentials: string): boolean {
    return this.#basic.equals(base64InNfc(credentials, this.#basic)); // 3.10
  }
}

function toBase64(text: string): string {
  return Buffer.from(text).toString('base64');
}

/** Leaves a text that is too long for the secret as it is. */
function inNfc(text: string, secret: Secret): string {
  return secret.canHaveLength(text.length) ? text.normalize() : text;
}

/** Leaves anything but canonical base64 of UTF-8 as it is: it equals no credentials. */
function base64InNfc(credentials: string, secret: Secret): string {
  const bytes = Buffer.from(credentials, 'base64');
  if (isAscii(bytes) || !isUtf8(bytes) || bytes.toString('base64') !== credentials)
    return credentials;
  return toBase64(inNfc(bytes.toString(), secret)); // 3.20
}
