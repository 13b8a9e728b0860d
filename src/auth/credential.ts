// The credential user. Digests of secrets are compared in constant time, so that timing reveals neither how much of a
// guess was right nor the length of a secret (contract 3.12). Keyboards differ in how they compose a letter and its
// accent, so logins and passwords are compared in NFC (RFC 7617 §2.1, RFC 8265).
import { hash, timingSafeEqual } from 'node:crypto';

// In UTF-16 units. Longer texts stay as they are: the time of normalize() is quadratic, 0.4 ms for these (node 26).
const MAX_NORMALIZED = 512;

export class Credential {
  readonly name: string; // the display name
  readonly #user: Buffer;
  readonly #password: Buffer;
  readonly #pair: Buffer;

  constructor({ user, password, name }: { user: string; password: string; name: string }) {
    this.name = name;
    this.#user = digestOf(user);
    this.#password = digestOf(password);
    this.#pair = digestOf(`${user}:${password}`);
  }

  /** Always compares both, so that the time does not depend on the login (3.12). */
  matches(user: string, password: string): boolean {
    const isUser = timingSafeEqual(digestOf(user), this.#user);
    const isPassword = timingSafeEqual(digestOf(password), this.#password);
    return isUser && isPassword;
  }

  /** Compares Basic credentials as one text: a login has no colon, so only one pair is right (RFC 7617 §2). */
  matchesBasic(credentials: string): boolean {
    const pair = Buffer.from(credentials, 'base64').toString();
    const isCanonical = Buffer.from(pair).toString('base64') === credentials; // of UTF-8 (3.10)
    return timingSafeEqual(digestOf(pair), this.#pair) && isCanonical;
  }
}

function digestOf(text: string): Buffer {
  return hash('sha256', text.length > MAX_NORMALIZED ? text : text.normalize(), 'buffer'); // 3.20
}
