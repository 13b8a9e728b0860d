// The one credential user, and the comparison of secrets: constant time in the secret, whatever
// the lengths, so that no answer's delay tells how much of a guess was right (contract 3.12).
import { timingSafeEqual } from 'node:crypto';

/** Secrets are compared in buffers of a multiple of this size, which hides their length. */
const BLOCK_BYTES = 256;

/** A text that is compared and never shown. */
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

  /** Whether the texts are the same, as UTF-8. */
  equals(given: string): boolean {
    // 3.12
    this.#given.fill(0);
    this.#given.write(given);
    const isSame = timingSafeEqual(this.#given, this.#expected);
    return isSame && Buffer.byteLength(given) === this.#length;
  }
}

/** Whom the service lets in. */
export class Credential {
  /** Matched against `id` (token endpoint) and the Basic user name. */
  readonly user: string;
  /** Display name, the token's claim `name`. */
  readonly name: string;
  readonly #user: Secret;
  readonly #password: Secret;
  readonly #basic: Secret;

  constructor({ user, password, name }: { user: string; password: string; name: string }) {
    this.user = user;
    this.name = name;
    this.#user = new Secret(user);
    this.#password = new Secret(password);
    this.#basic = new Secret(Buffer.from(`${user}:${password}`).toString('base64'));
  }

  /** Whether both are right. Both are always compared. */
  matches(user: string, password: string): boolean {
    const isUser = this.#user.equals(user);
    const isPassword = this.#password.equals(password);
    return isUser && isPassword;
  }

  /**
   * Whether Basic credentials (RFC 7617 §2) are right. As `user` holds no colon and canonical
   * base64 has one form only, exactly one text is: whatever is not base64, not UTF-8, without a
   * colon or another pair differs from it.
   */
  matchesBasic(credentials: string): boolean {
    // 3.10
    return this.#basic.equals(credentials);
  }
}
