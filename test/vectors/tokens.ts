// Bearer tokens (contract 3.7, RFC 7515, RFC 7519, RFC 8725): which are valid, and which are refused, by
// class. test/auth/jwt.test.ts tries all of them, test/contract/access.test.ts the first of each class.
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import type { Vectors } from './users.ts';

export const SECRET = 'a signing secret of 32 bytes or more';
export const SUBJECT = { id: 'admin', name: 'Administrator' };
export const HEADER = { alg: 'HS256', typ: 'JWT' };

/** Claims that are valid for an hour. */
export const claimsAt = (now: number) => ({ ...SUBJECT, iat: now, exp: now + 3600 });

/** Joins the parts and adds a valid HMAC. Uses strings and bytes unchanged. */
export function signed(
  header: unknown,
  payload: unknown,
  secret: string | Buffer = SECRET,
): string {
  return signedText(`${encode(header)}.${encode(payload)}`, secret);
}

export function signedText(
  input: string,
  secret: string | Buffer = SECRET,
  hash = 'sha256',
): string {
  return `${input}.${createHmac(hash, secret).update(input).digest('base64url')}`;
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
    'all claims': signed(HEADER, claims),
    'only the claims that count': withClaims({ iat: undefined }),
    'no typ': withHeader({}),
    'typ of another kind': withHeader({ typ: 'at+jwt' }),
    'typ that is not a string': withHeader({ typ: 7 }),
    kid: withHeader({ kid: '../../etc/passwd' }),
    'jku and x5u': withHeader({ jku: 'http://x', x5u: 'http://x' }),
    jwk: withHeader({ jwk: { kty: 'oct', k: 'AAAA' } }),
    x5c: withHeader({ x5c: ['AAAA'] }),
    'b64 without crit, which is ignored': withHeader({ b64: false }),
    'a header of other order and spacing': signed(' { "typ":"JWT",\n"alg" : "HS256" } ', claims),
    'alg with an escape': signed('{"alg":"\\u0048S256"}', claims),
    'iat in the future': withClaims({ iat: now + 9999 }),
    'iat that is not a number': withClaims({ iat: 'yesterday' }),
    'aud, iss, sub and jti': withClaims({ aud: 'x', iss: 'y', sub: 'z', jti: '1' }),
    'claims of its own': withClaims({ admin: true }),
    'nbf in the past': withClaims({ nbf: now - 1 }),
    'nbf now': withClaims({ nbf: now }),
    'nbf 0': withClaims({ nbf: 0 }),
    'nbf negative': withClaims({ nbf: -1 }),
    'nbf a fraction in the past': withClaims({ nbf: now - 0.5 }),
    'exp a fraction in the future': withClaims({ exp: now + 60.5 }),
    'exp in scientific notation': signed(
      HEADER,
      '{"id":"admin","name":"Administrator","exp":18e99}',
    ),
    'the largest finite exp': withClaims({ exp: Number.MAX_VALUE }),
  };
}

export function refusedTokens(now: number): Vectors<Vectors<string>> {
  const claims = claimsAt(now);
  const json = JSON.stringify(claims);
  const good = signed(HEADER, claims);
  const [header = '', payload = '', signature = ''] = good.split('.');
  const bytes = Buffer.from(signature, 'base64url');
  const withAlg = (alg: unknown) => signed({ alg, typ: 'JWT' }, claims);
  const withHeader = (other: unknown) => signed(other, claims);
  const withPayload = (other: unknown) => signed(HEADER, other);
  const withClaims = (more: object) => signed(HEADER, { ...claims, ...more });
  const withText = (more: string) => signed(HEADER, `${json.slice(0, -1)},${more}}`);
  const withSignature = (other: Buffer) => `${header}.${payload}.${other.toString('base64url')}`;
  const flipped = (bit: number) =>
    withSignature(
      Buffer.from(bytes.map((byte, i) => (i === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte))),
    );
  const each = <T>(items: readonly T[], why: string, token: (item: T) => string) =>
    Object.fromEntries(items.map((item) => [`${why} ${JSON.stringify(item)}`, token(item)]));
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const rsa = (alg: string) => {
    const input = `${encode({ alg, typ: 'JWT' })}.${payload}`;
    return `${input}.${sign('sha256', Buffer.from(input), privateKey).toString('base64url')}`;
  };
  // One byte more than a multiple of three: the last character has unused bits.
  const padded = json.padEnd(json.length + ((4 - (json.length % 3)) % 3));
  return {
    // RFC 8725 2.1 and 3.1: the service chooses the algorithm, never the token.
    'the algorithm none': {
      ...each(NONES, 'no signature and alg', (alg) => `${encode({ alg })}.${payload}.`),
      ...each(NONES, 'a valid HMAC and alg', withAlg),
      ...each(
        NONES,
        'our signature and alg',
        (alg) => `${encode({ alg })}.${payload}.${signature}`,
      ),
      'the signature AA and alg none': `${encode({ alg: 'none' })}.${payload}.AA`,
      'a later alg none': withHeader('{"alg":"HS256","alg":"none"}'),
    },
    'another algorithm': {
      HS512: signedText(`${encode({ alg: 'HS512' })}.${payload}`, SECRET, 'sha512'),
      HS384: signedText(`${encode({ alg: 'HS384' })}.${payload}`, SECRET, 'sha384'),
      'SHA-512 under the name HS256': signedText(`${header}.${payload}`, SECRET, 'sha512'),
      RS256: rsa('RS256'),
      'RSA under the name HS256': rsa('HS256'),
      ...each(OTHER_ALGORITHMS, 'a valid HMAC and alg', withAlg),
      'no alg': withHeader({ typ: 'JWT' }),
      'alg under another name': withHeader({ Alg: 'HS256' }),
      'alg under __proto__': withHeader('{"__proto__":{"alg":"HS256"}}'),
    },
    // RFC 7515 4.1.11: a critical parameter that we don't understand is refused.
    'a critical header': {
      'crit of exp': withHeader({ ...HEADER, crit: ['exp'], exp: now + 60 }),
      'crit of nothing': withHeader({ ...HEADER, crit: [] }),
      'crit of b64': withHeader({ ...HEADER, crit: ['b64'], b64: true }),
      'crit null': withHeader({ ...HEADER, crit: null }),
      'crit that is no array': withHeader({ ...HEADER, crit: 'exp' }),
    },
    'a header that is not a JSON object': {
      text: withHeader('alg: HS256'),
      nothing: withHeader(''),
      'an array': withHeader([HEADER]),
      'a string': withHeader('"HS256"'),
      null: withHeader('null'),
      'a number': withHeader('1'),
      'cut JSON': withHeader('{"alg":"HS256"'),
      'text after it': withHeader('{"alg":"HS256"}x'),
      'a byte order mark': withHeader('\ufeff{"alg":"HS256"}'),
      'a trailing comma': withHeader('{"alg":"HS256",}'),
      'Latin-1': withHeader(Buffer.from('{"alg":"HS256","x":"\xe9"}', 'latin1')),
    },
    'a payload that is not a JSON object': {
      text: withPayload('id=admin'),
      nothing: withPayload(''),
      'an array': withPayload([claims]),
      'an empty array': withPayload('[]'),
      'a string': withPayload(JSON.stringify(json)),
      null: withPayload('null'),
      'a number': withPayload('1'),
      true: withPayload('true'),
      'cut JSON': withPayload(json.slice(0, -1)),
      'text after it': withPayload(`${json};`),
      'two values': withPayload(`${json}{}`),
      'a byte order mark': withPayload(`\ufeff${json}`),
      'Latin-1': withPayload(Buffer.from(JSON.stringify({ ...claims, x: '\xe9' }), 'latin1')),
      'an overlong form of UTF-8': withPayload(
        Buffer.from(`${json.slice(0, -1)},"x":"\xc0\xaf"}`, 'latin1'),
      ),
      'UTF-16': withPayload(Buffer.from(json, 'utf16le')),
      '100 KB of nested JSON': withPayload('['.repeat(100_000)),
    },
    // RFC 7519 4.1.4, without leeway.
    exp: {
      'a second ago': withClaims({ exp: now - 1 }),
      absent: withClaims({ exp: undefined }),
      now: withClaims({ exp: now }),
      'half a second ago': withClaims({ exp: now - 0.5 }),
      'an hour ago': withClaims({ exp: now - 3600 }),
      zero: withClaims({ exp: 0 }),
      negative: withClaims({ exp: -now - 60 }),
      null: withClaims({ exp: null }),
      true: withClaims({ exp: true }),
      'a string': withClaims({ exp: String(now + 60) }),
      'a list': withClaims({ exp: [now + 60] }),
      'beyond every number': withText('"exp":1e999'),
      'beyond every number, negative': withText('"exp":-1e999'),
      'a later one that has passed': withText('"exp":1'),
    },
    // RFC 7519 4.1.5.
    nbf: {
      'in an hour': withClaims({ nbf: now + 3600 }),
      'in a second': withClaims({ nbf: now + 1 }),
      'in half a second': withClaims({ nbf: now + 0.5 }),
      'a string': withClaims({ nbf: '0' }),
      null: withClaims({ nbf: null }),
      false: withClaims({ nbf: false }),
      true: withClaims({ nbf: true }),
      'beyond every number': withText('"nbf":1e999'),
    },
    'another subject': {
      'another id': withClaims({ id: 'root' }),
      'another name': withClaims({ name: 'Root' }),
      'an id in another case': withClaims({ id: 'Admin' }),
      'a name in another case': withClaims({ name: 'administrator' }),
      'an id with a space after it': withClaims({ id: 'admin ' }),
      'both exchanged': withClaims({ id: SUBJECT.name, name: SUBJECT.id }),
      'no id': withClaims({ id: undefined }),
      'no name': withClaims({ name: undefined }),
      ...each(['', null, 1, {}, [SUBJECT.id]], 'id', (id) => withClaims({ id })),
      ...each(['', null, 1, {}, [SUBJECT.name]], 'name', (name) => withClaims({ name })),
      'no claims': withPayload({}),
      'the claims under __proto__': withPayload(`{"__proto__":${json}}`),
    },
    // RFC 7515 5.2: only exactly this signature is valid.
    'another signature': {
      'of another key': signed(HEADER, claims, `${SECRET}!`),
      'of an empty key': signed(HEADER, claims, ''),
      'of the key with a zero byte after the hash block': signed(
        HEADER,
        claims,
        SECRET.padEnd(65, '\0'),
      ),
      'of another payload': `${header}.${encode({ ...claims, exp: now + 3601 })}.${signature}`,
      'of another header': `${encode({ alg: 'HS256' })}.${payload}.${signature}`,
      'of only the header': `${header}.${payload}.${signedText(header).split('.')[1]}`,
      'of only the payload': `${header}.${payload}.${signedText(payload).split('.')[1]}`,
      ...each([0, 1, 16, 31, 33, 64, 8000], 'of ones, in bytes', (n) =>
        withSignature(Buffer.alloc(n, 1)),
      ),
      'of zeros': withSignature(Buffer.alloc(32)),
      'a byte short': withSignature(bytes.subarray(0, 31)),
      'a byte long': `${good}AA`,
      'half of it': withSignature(bytes.subarray(0, 16)),
      twice: withSignature(Buffer.concat([bytes, bytes])),
      'a character short': good.slice(0, -1),
      'its first character': `${header}.${payload}.${signature[0]}`,
      'in hexadecimal': `${header}.${payload}.${bytes.toString('hex')}`,
      ...each([0, 7, 130, 255], 'with another bit', flipped),
    },
    // RFC 7515 3.1: three parts.
    'another number of parts': {
      two: `${header}.${payload}`,
      nothing: '',
      'a dot': '.',
      'two dots': '..',
      one: header,
      'two, signed': signedText(header),
      four: `${good}.${signature}`,
      'an empty fourth': `${good}.`,
      'four, signed over three': signedText(good),
      'five, like a JWE': `${good}.${payload}.${signature}`,
      'an empty one before it': `.${good}`,
      'an empty header': signedText(`.${payload}`),
      'an empty payload': signedText(`${header}.`),
      'JWS in JSON form': JSON.stringify({ protected: header, payload, signature }),
      'only the claims': json,
      '100 KB of dots': '.'.repeat(100_000),
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
      'padding after the signature': `${good}=`,
      'plus and slash in the signature': withPlusAndSlash(claims),
      'plus and slash in the payload, rightly signed': signedText(
        `${header}.${Buffer.from(JSON.stringify({ ...claims, x: '??????>>>' }))
          .toString('base64')
          .replace(/=+$/, '')}`,
      ),
      'an impossible length of the payload, rightly signed': signedText(
        `${header}.${encode(padded).slice(0, -1)}`,
      ),
      ...each(
        ['~', '+', 'é', '\n', '\0', ' '],
        'in the signature',
        (text) => `${good.slice(0, -4)}${text}${good.slice(-4)}`,
      ),
      ...each(['~', '+', '\n', '=', ' '], 'in the payload, rightly signed', (text) =>
        signedText(`${header}.${payload.slice(0, 4)}${text}${payload.slice(4)}`),
      ),
      ...each(['~', '+', '='], 'after the header, rightly signed', (text) =>
        signedText(`${header}${text}.${payload}`),
      ),
      ...each([' ', '\n', '\0', '~'], 'after it', (text) => `${good}${text}`),
      'a space before it': ` ${good}`,
    },
  };
}

/** Tokens that are no token68 (RFC 9110 11.2), because `=` is not at their end. Refused without `error`. */
export function paddedTokens(now: number): Vectors<string> {
  const [header, payload] = signed(HEADER, claimsAt(now)).split('.');
  return {
    'padding after the header': signedText(`${encode('{"alg":"HS256"} ')}==.${payload}`),
    'padding after the payload': signedText(`${header}.${payload}=`),
  };
}

const NONES = ['none', 'None', 'NONE', 'nOnE', 'NoNe', 'none ', ' none', 'no\u0000ne', 'nоne', ''];
const OTHER_ALGORITHMS = [
  ...[
    'hs256',
    'Hs256',
    'HS256 ',
    'HS1',
    'HMAC',
    'HS384',
    'HS512',
    'RS256',
    'PS256',
    'ES256',
    'EdDSA',
  ],
  ...['dir', ['HS256'], { HS256: true }, null, 256, true],
];

/** Returns a valid token in which "+" and "/" replace the "-" and "_" of the signature. */
function withPlusAndSlash(claims: object): string {
  for (let i = 0; ; i++) {
    const token = signed(HEADER, { ...claims, i });
    const [, , last = ''] = token.split('.');
    if (/-.*_|_.*-/.test(last))
      return token.replace(last, last.replaceAll('-', '+').replaceAll('_', '/'));
  }
}

/** Sets unused bits of the last character. For a lenient decoder, the bytes are the same. */
function withUnusedBits(text: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return text.slice(0, -1) + alphabet[alphabet.indexOf(text.at(-1)!) + 1];
}
