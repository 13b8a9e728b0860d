// Bearer tokens (contract 3.7, RFC 7515, RFC 7519, RFC 8725): which are valid, and which are refused, by
// class. Read by test/auth/jwt.test.ts.
import { createHmac } from 'node:crypto';
import type { Vectors } from './users.ts';

export const SECRET = 'a signing secret of 32 bytes or more';
export const SUBJECT = { id: 'admin', name: 'Administrator' };
export const HEADER = { alg: 'HS256', typ: 'JWT' };

export const claimsAt = (now: number) => ({ ...SUBJECT, iat: now, exp: now + 3600 });

/** Joins the parts and adds a valid HMAC. Uses strings and bytes unchanged. */
export function signed(header: unknown, payload: unknown, secret = SECRET): string {
  return signedText(`${encode(header)}.${encode(payload)}`, secret);
}

function signedText(input: string, secret = SECRET): string {
  return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`;
}

export function encode(part: unknown): string {
  const isRaw = typeof part === 'string' || Buffer.isBuffer(part);
  return Buffer.from(isRaw ? part : JSON.stringify(part)).toString('base64url');
}

export function validTokens(now: number): Vectors<string> {
  const claims = claimsAt(now);
  const withHeader = (more: object) => signed({ alg: 'HS256', ...more }, claims);
  const withClaims = (more: object) => signed(HEADER, { ...claims, ...more });
  return {
    'only what counts': signed({ alg: 'HS256' }, { ...SUBJECT, exp: now + 1 }),
    'other header parameters': withHeader({ typ: 7, kid: '../x', jku: 'http://x', b64: false }),
    'a header of other order, spacing and spelling': signed(
      ' {"typ":"",\n"alg" : "\\u0048S256"}',
      claims,
    ),
    'other claims, and iat in the future': withClaims({ aud: 'x', sub: 'z', iat: now + 9999 }),
    'nbf now': withClaims({ nbf: now }),
    'nbf negative': withClaims({ nbf: -1 }),
    'exp in half a second': withClaims({ exp: now + 0.5 }),
    'more than the cache keeps': withClaims({ x: 'x'.repeat(1000) }),
  };
}

export function refusedTokens(now: number): Vectors<Vectors<string>> {
  const claims = claimsAt(now);
  const json = JSON.stringify(claims);
  const good = signed(HEADER, claims);
  const [header = '', payload = '', signature = ''] = good.split('.');
  const bytes = Buffer.from(signature, 'base64url');
  const withHeader = (other: unknown) => signed(other, claims);
  const withPayload = (other: unknown) => signed(HEADER, other);
  const withClaims = (more: object) => signed(HEADER, { ...claims, ...more });
  const withSignature = (other: Buffer) => `${header}.${payload}.${other.toString('base64url')}`;
  const each = <T>(items: readonly T[], why: string, token: (item: T) => string) =>
    Object.fromEntries(items.map((item) => [`${why} ${JSON.stringify(item)}`, token(item)]));
  // One byte more than a multiple of three: the last character has unused bits.
  const padded = json.padEnd(json.length + ((4 - (json.length % 3)) % 3));
  return {
    // RFC 8725 2.1 and 3.1: the service chooses the algorithm, never the token.
    'another algorithm': {
      ...each(ALGORITHMS, 'a valid HMAC and', (alg) => withHeader({ alg, typ: 'JWT' })),
      'alg none and no signature': `${encode({ alg: 'none' })}.${payload}.`,
      'a later alg none': withHeader('{"alg":"HS256","alg":"none"}'),
      'alg under __proto__': withHeader('{"__proto__":{"alg":"HS256"}}'),
    },
    // RFC 7515 4.1.11: a critical parameter that we don't understand is refused.
    'a critical header': each([['exp'], [], null], 'crit', (crit) =>
      withHeader({ ...HEADER, crit, exp: now + 60 }),
    ),
    'a header that is not a JSON object': {
      ...each(['', 'null', '[]', '{"alg":"HS256"}x', '\ufeff{"alg":"HS256"}'], 'text', withHeader),
      'Latin-1': withHeader(Buffer.from('{"alg":"HS256","x":"\xe9"}', 'latin1')),
    },
    'a payload that is not a JSON object': {
      ...each(['', '[]', 'null', json.slice(0, -1), `\ufeff${json}`], 'text', withPayload),
      'Latin-1': withPayload(Buffer.from(JSON.stringify({ ...claims, x: '\xe9' }), 'latin1')),
      '100 KB of nested JSON': withPayload('['.repeat(100_000)),
    },
    // RFC 7519 4.1.4, without leeway.
    exp: {
      ...each([undefined, now, now - 0.5, -1], 'at', (exp) => withClaims({ exp })),
      ...each([null, true, String(now + 60), [now + 60]], 'that is', (exp) => withClaims({ exp })),
      'beyond every number': withPayload(`${json.slice(0, -1)},"exp":1e999}`),
    },
    // RFC 7519 4.1.5.
    nbf: each([now + 0.5, '0', null, false, [0]], 'that is', (nbf) => withClaims({ nbf })),
    'another subject': {
      ...each(['', 'Admin', SUBJECT.name, undefined, 1, [SUBJECT.id]], 'id', (id) =>
        withClaims({ id }),
      ),
      ...each(['', 'administrator', SUBJECT.id, undefined, 1, [SUBJECT.name]], 'name', (name) =>
        withClaims({ name }),
      ),
      'the claims under __proto__': withPayload(`{"__proto__":${json}}`),
    },
    // RFC 7515 5.2: only exactly this signature is valid.
    'another signature': {
      'of another key': signed(HEADER, claims, `${SECRET}!`),
      'of another payload': `${header}.${encode({ ...claims, exp: now + 3601 })}.${signature}`,
      'of another header': `${encode({ alg: 'HS256' })}.${payload}.${signature}`,
      ...each([0, 32, 8000], 'of zeros, in bytes', (n) => withSignature(Buffer.alloc(n))),
      'a byte short': withSignature(bytes.subarray(0, 31)),
      'a byte long': `${good}AA`,
      ...each([0, 31], 'with another byte', (at) =>
        withSignature(Buffer.from(bytes.map((byte, i) => (i === at ? byte ^ 1 : byte)))),
      ),
    },
    // RFC 7515 3.1: three parts.
    'another number of parts': {
      ...each(['', '..', header, '.'.repeat(100_000)], 'text', (text) => text),
      'an empty fourth': `${good}.`,
      'four, signed over three': signedText(good),
      'an empty one before it': `.${good}`,
      'an empty header': signedText(`.${payload}`),
      'JWS in JSON form': JSON.stringify({ protected: header, payload, signature }),
    },
    // RFC 7515 2, RFC 4648 3.5: base64url has one spelling.
    'another spelling': {
      'unused bits in the signature': withUnusedBits(good),
      'unused bits in the header, rightly signed': signedText(
        `${withUnusedBits(encode('{"alg":"HS256"} '))}.${payload}`,
      ),
      'unused bits in the payload, rightly signed': signedText(
        `${header}.${withUnusedBits(encode(padded))}`,
      ),
      ...each(['~', '+', 'é', '\n'], 'in the signature', (text) =>
        [good.slice(0, -4), good.slice(-4)].join(text),
      ),
      ...each(['~', '\n', '='], 'in the payload, rightly signed', (text) =>
        signedText(`${header}.${payload.slice(0, 4)}${text}${payload.slice(4)}`),
      ),
      ...each([' ', '\0', '='], 'after it', (text) => `${good}${text}`),
      'padding after the header': signedText(`${header}=.${payload}`),
    },
  };
}

const ALGORITHMS = ['none', 'hs256', 'HS256 ', 'HS512', 'RS256', '', ['HS256'], null, undefined];

/** Sets unused bits of the last character. For a lenient decoder, the bytes are the same. */
function withUnusedBits(text: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return text.slice(0, -1) + alphabet[alphabet.indexOf(text.at(-1)!) + 1];
}
