// The credential user. Secrets are compared in constant time, regardless of their lengths, so that
// timing does not reveal how much of a guess was right (contract 3.12).
import { timingSafeEqual } from 'node:crypto';

const BLOCK_BYTES = 256; // Buffer sizes are multiples of this, which hides the length of a secret.

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
    this.#user = new Secret(user);
    this.#password = new Secret(password);
    this.#basic = new Secret(Buffer.from(`${user}:${password}`).toString('base64'));
  }

  /** Always compares both, so that the time does not depend on the login (3.12). */
  matches(user: string, password: string): boolean {
    const isUser = this.#user.equals(user);
    const isPassword = this.#password.equals(password);
    return isUser && isPassword;
  }

  /** Compares Basic credentials undecoded: a login has no colon, so only one text is right (RFC 7617 §2). */
  matchesBasic(credentials: string): boolean {
    return this.#basic.equals(credentials); // 3.10
  }
}
