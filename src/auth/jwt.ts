// JSON Web Tokens with HS256 (RFC 7519, RFC 7515, RFC 7518 §3.2), issued and verified. One
// algorithm, fixed here and never taken from the token (RFC 8725 §3.1). Base64url must be
// canonical, or one token could be written in several ways. The signature is checked before claims.
import { isUtf8 } from 'node:buffer';
import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';

/** A token is valid for this long. */
export const LIFETIME_SECONDS = 3600; // 3.4

/** Whom a token names. */
export interface Subject {
  readonly id: string;
  readonly name: string;
}

const HEADER = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url');

/** Longer tokens are verified each time, so that memory stays bounded. Ours have about 200. */
const MAX_REMEMBERED_CHARACTERS = 1024;

/** Verified tokens that are remembered, twice this many at most. */
const MAX_TOKENS_PER_GENERATION = 8192;

/** Issues and verifies the tokens of one subject. */
export class Tokens {
  readonly #subject: Subject;
  readonly #keys: readonly KeyObject[];
  readonly #nowSeconds: () => number;
  // Two generations of tokens with a good signature, and when each ends: what is asked for again
  // moves to the younger, and when that is full the older is dropped whole. It saves the HMAC and
  // the parsing of a token that comes again.
  #young = new Map<string, number>();
  #old = new Map<string, number>();
  #issued: { readonly iat: number; readonly token: string } | undefined;

  /**
   * The first secret signs, all of them verify; each has at least 32 bytes (RFC 7518 §3.2).
   * `nowSeconds` is seconds since 1970 UTC, with fractions.
   */
  constructor(subject: Subject, secrets: readonly string[], nowSeconds: () => number) {
    this.#subject = subject;
    this.#keys = secrets.map((secret) => createSecretKey(secret, 'utf8'));
    this.#nowSeconds = nowSeconds;
  }

  /**
   * A compact JWS with the claims `id`, `name`, `iat` and `exp`, whole seconds since 1970 UTC. All
   * tokens of a second are the same, so each is made once.
   */
  issue(): string {
    // 3.4
    const iat = Math.floor(this.#nowSeconds());
    if (this.#issued?.iat !== iat) this.#issued = { iat, token: this.#make(iat) };
    return this.#issued.token;
  }

  #make(iat: number): string {
    const { id, name } = this.#subject;
    const claims = JSON.stringify({ id, name, iat, exp: iat + LIFETIME_SECONDS });
    const input = `${HEADER}.${Buffer.from(claims).toString('base64url')}`;
    return `${input}.${sign(input, this.#keys[0]!)}`;
  }

  /** Whether the token is signed with one of the keys, names the subject and is within its time. */
  verify(token: string): boolean {
    const now = this.#nowSeconds();
    const young = this.#young.get(token);
    if (young !== undefined) return young > now;
    const end = this.#old.get(token) ?? this.#read(token, now);
    if (end === undefined || end <= now) return false; // 3.7
    this.#remember(token, end);
    return true;
  }

  /** @returns `exp` of a token that is good at `now`. */
  #read(token: string, now: number): number | undefined {
    const headerEnd = token.indexOf('.');
    const payloadEnd = token.indexOf('.', headerEnd + 1);
    if (headerEnd === -1 || payloadEnd === -1 || token.includes('.', payloadEnd + 1))
      // 3.7
      return undefined;
    if (!isHeader(token.slice(0, headerEnd))) return undefined;
    if (!this.#isSigned(token.slice(0, payloadEnd), token.slice(payloadEnd + 1))) return undefined;
    const claims = decodeObject(token.slice(headerEnd + 1, payloadEnd));
    if (claims === undefined) return undefined;
    const { id, name, exp, nbf } = claims;
    // RFC 7519 §4.1.4 and §4.1.5, without leeway. JSON.parse makes 1e999 of JSON infinite.
    if (typeof exp !== 'number' || !Number.isFinite(exp) || exp <= now) return undefined; // 3.7
    if (nbf !== undefined && (typeof nbf !== 'number' || !(nbf <= now))) return undefined; // 3.7
    return id === this.#subject.id && name === this.#subject.name ? exp : undefined; // 3.7
  }

  #isSigned(input: string, signature: string): boolean {
    // 3.7
    // Comparing texts, not bytes, refuses a signature in non-canonical base64url.
    const given = Buffer.from(signature);
    return this.#keys.some((key) => {
      // 3.12
      const expected = Buffer.from(sign(input, key));
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
  }

  #remember(token: string, end: number): void {
    if (token.length > MAX_REMEMBERED_CHARACTERS) return;
    if (this.#young.size >= MAX_TOKENS_PER_GENERATION) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(token, end);
  }
}

/** The signature in base64url. */
function sign(input: string, key: KeyObject): string {
  return createHmac('sha256', key).update(input).digest('base64url');
}

/** A JOSE header that says HS256 and has no `crit` (RFC 7515 §4.1.11); all else is ignored. */
function isHeader(header: string): boolean {
  // 3.7
  if (header === HEADER) return true;
  const parsed = decodeObject(header);
  return parsed?.alg === 'HS256' && !Object.hasOwn(parsed, 'crit'); // 3.7
}

/** The JSON object in canonical base64url and UTF-8, or undefined. */
function decodeObject(text: string): Record<string, unknown> | undefined {
  // 3.7
  const bytes = decode(text);
  if (bytes === undefined || !isUtf8(bytes)) return undefined;
  try {
    const value: unknown = JSON.parse(bytes.toString());
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Canonical base64url without padding (RFC 7515 §2), or undefined. */
function decode(text: string): Buffer | undefined {
  // 3.7
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : undefined;
}
