// Issues and verifies JSON Web Tokens with HS256 (RFC 7519, RFC 7515, RFC 7518 §3.2). The algorithm is
// fixed and never taken from the token (RFC 8725 §3.1). Base64url must be canonical, so that a token has
// one spelling. The signature is verified before any claim is read.
import { isUtf8 } from 'node:buffer';
import { createHmac, timingSafeEqual } from 'node:crypto';

type Subject = { readonly id: string; readonly name: string };

const LIFETIME_SECONDS = 3600; // 3.4
const HEADER = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url');
const MAX_CACHED_CHARACTERS = 512; // Longer ones could fill the memory. Ours have about 200.
const MAX_CACHED_TOKENS = 32_768; // A full cache is emptied. A key signs one token per second.

export class Tokens {
  readonly #subject: Subject;
  readonly #secrets: readonly string[];
  readonly #nowSeconds: () => number;
  readonly #cache = new Map<string, number>(); // verified tokens and their `exp`
  #issued: { readonly iat: number; readonly token: string } | undefined;

  /** The first secret signs; all of them verify. `nowSeconds` returns the Unix time, with fractions. */
  constructor(subject: Subject, secrets: readonly string[], nowSeconds: () => number) {
    this.#subject = subject;
    this.#secrets = secrets;
    this.#nowSeconds = nowSeconds;
  }

  /** Returns a compact JWS. All tokens of a second are the same, so each is signed once. */
  issue(): string {
    const iat = Math.floor(this.#nowSeconds()); // 3.4
    if (this.#issued?.iat === iat) return this.#issued.token;
    const { id, name } = this.#subject;
    const claims = JSON.stringify({ id, name, iat, exp: iat + LIFETIME_SECONDS });
    const input = `${HEADER}.${Buffer.from(claims).toString('base64url')}`;
    const token = `${input}.${sign(input, this.#secrets[0]!)}`;
    this.#issued = { iat, token };
    return token;
  }

  /** True if one of the secrets signed the token, it names the subject, and `nbf` and `exp` allow it now (3.7). */
  verify(token: string): boolean {
    const nowSeconds = this.#nowSeconds();
    const cached = this.#cache.get(token);
    if (cached !== undefined) return cached > nowSeconds; // 3.7
    const exp = this.#read(token, nowSeconds);
    if (exp === undefined) return false;
    if (token.length <= MAX_CACHED_CHARACTERS) {
      if (this.#cache.size >= MAX_CACHED_TOKENS) this.#cache.clear();
      this.#cache.set(token, exp);
    }
    return true;
  }

  /** @returns `exp` of a token that is valid at this time */
  #read(token: string, nowSeconds: number): number | undefined {
    const [header = '', payload = '', signature, excess] = token.split('.', 4);
    if (signature === undefined || excess !== undefined) return undefined; // 3.7
    const fields = decode(header);
    // RFC 7515 §4.1.11: `crit` names extensions that must be understood.
    if (fields?.alg !== 'HS256' || Object.hasOwn(fields, 'crit')) return undefined; // 3.7
    // Comparing text rather than bytes rejects a signature in non-canonical base64url (3.7).
    const given = Buffer.from(signature);
    const input = `${header}.${payload}`;
    const isSigned = this.#secrets.some((secret) => {
      const expected = Buffer.from(sign(input, secret));
      return given.length === expected.length && timingSafeEqual(given, expected); // 3.12
    });
    if (!isSigned) return undefined;
    const { id, name, exp, nbf } = decode(payload) ?? {}; // 3.7
    // RFC 7519 §4.1.4 and §4.1.5, without leeway. JSON.parse turns 1e999 into Infinity.
    if (typeof exp !== 'number' || !Number.isFinite(exp) || exp <= nowSeconds) return undefined; // 3.7
    if (nbf !== undefined && (typeof nbf !== 'number' || !(nbf <= nowSeconds))) return undefined; // 3.7
    return id === this.#subject.id && name === this.#subject.name ? exp : undefined; // 3.7
  }
}

function sign(input: string, secret: string): string {
  return createHmac('sha256', secret).update(input).digest('base64url');
}

/** Decodes JSON in canonical base64url without padding (RFC 7515 §2). What is not an object has no members. */
function decode(text: string): Readonly<Record<string, unknown>> | null {
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.toString('base64url') !== text || !isUtf8(bytes)) return null; // 3.7
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return null;
  }
}
