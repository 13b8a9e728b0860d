// Issues and verifies JSON Web Tokens with HS256 (RFC 7519, RFC 7515, RFC 7518 §3.2). The algorithm is
// fixed and never taken from the token (RFC 8725 §3.1). Base64url must be canonical, so that a token has
// one spelling. The signature is verified before any claim is read.
import { isUtf8 } from 'node:buffer';
import { hash, timingSafeEqual } from 'node:crypto';

type Subject = { readonly id: string; readonly name: string };

const LIFETIME_SECONDS = 3600; // 3.4
const HEADER = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url');

/** Longer tokens are not cached, so that memory stays bounded. Ours have about 200 characters. */
const MAX_CACHED_CHARACTERS = 512;

/** A full cache is emptied. `issue` makes at most 3,600 tokens while one of them is valid. */
const MAX_CACHED_TOKENS = 32_768;

export class Tokens {
  readonly #subject: Subject;
  readonly #keys: readonly HmacKey[];
  readonly #nowSeconds: () => number;
  /** The `exp` of verified tokens. */
  readonly #cache = new Map<string, number>();
  #issued: { readonly iat: number; readonly token: string } | undefined;

  /**
   * The first secret signs; all of them verify. Each has at least 32 bytes (RFC 7518 §3.2).
   * `nowSeconds` returns seconds since 1970 UTC, with fractions.
   */
  constructor(subject: Subject, secrets: readonly string[], nowSeconds: () => number) {
    this.#subject = subject;
    this.#keys = secrets.map(hmacKey);
    this.#nowSeconds = nowSeconds;
  }

  /** Returns a compact JWS. All tokens of a second are the same, so each is signed once. */
  issue(): string {
    const iat = Math.floor(this.#nowSeconds()); // 3.4
    if (this.#issued?.iat === iat) return this.#issued.token;
    const { id, name } = this.#subject;
    const claims = JSON.stringify({ id, name, iat, exp: iat + LIFETIME_SECONDS });
    const input = `${HEADER}.${Buffer.from(claims).toString('base64url')}`;
    const token = `${input}.${sign(input, this.#keys[0]!)}`;
    this.#issued = { iat, token };
    return token;
  }

  /** True if one of the keys signed the token, it names the subject and it has not expired. */
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
    if (!isSupportedHeader(header)) return undefined;
    if (!this.#isSigned(`${header}.${payload}`, signature)) return undefined;
    const { id, name, exp, nbf } = decodeObject(payload) ?? {};
    // RFC 7519 §4.1.4 and §4.1.5, without leeway. JSON.parse turns 1e999 into Infinity.
    if (typeof exp !== 'number' || !Number.isFinite(exp) || exp <= nowSeconds) return undefined; // 3.7
    if (nbf !== undefined && (typeof nbf !== 'number' || !(nbf <= nowSeconds))) return undefined; // 3.7
    return id === this.#subject.id && name === this.#subject.name ? exp : undefined; // 3.7
  }

  #isSigned(input: string, signature: string): boolean {
    // Comparing text rather than bytes rejects a signature in non-canonical base64url (3.7).
    const given = Buffer.from(signature);
    return this.#keys.some((key) => {
      const expected = Buffer.from(sign(input, key));
      return given.length === expected.length && timingSafeEqual(given, expected); // 3.12
    });
  }
}

/** An HMAC key (RFC 2104), combined with both paddings, as Latin-1 text. */
interface HmacKey {
  readonly inner: string;
  readonly outer: string;
}

/** Block size of SHA-256. */
const BLOCK_BYTES = 64;

function hmacKey(secret: string): HmacKey {
  const bytes = Buffer.from(secret);
  const block = Buffer.alloc(BLOCK_BYTES);
  (bytes.length > BLOCK_BYTES ? hash('sha256', bytes, 'buffer') : bytes).copy(block);
  const pad = (byte: number) => Buffer.from(block.map((key) => key ^ byte)).toString('latin1');
  return { inner: pad(0x36), outer: pad(0x5c) };
}

/**
 * HMAC-SHA256 in base64url, as two one-shot hashes: a quarter less CPU than an Hmac object. Header
 * fields are Latin-1.
 */
function sign(input: string, { inner, outer }: HmacKey): string {
  const digest = hash('sha256', Buffer.from(inner + input, 'latin1'), 'latin1');
  return hash('sha256', Buffer.from(outer + digest, 'latin1'), 'base64url');
}

/** True if a JOSE header has `alg` HS256 and no `crit` (RFC 7515 §4.1.11). */
function isSupportedHeader(header: string): boolean {
  if (header === HEADER) return true;
  const parsed = decodeObject(header);
  return parsed?.alg === 'HS256' && !Object.hasOwn(parsed, 'crit'); // 3.7
}

/** Decodes a JSON object in canonical base64url without padding (RFC 7515 §2). */
function decodeObject(text: string): Record<string, unknown> | undefined {
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.toString('base64url') !== text || !isUtf8(bytes)) return undefined; // 3.7
  try {
    const value: unknown = JSON.parse(bytes.toString());
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined; // 3.7
  } catch {
    return undefined;
  }
}
