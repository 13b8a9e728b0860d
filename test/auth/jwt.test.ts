// Tests tokens with the vector of RFC 7515 A.1, with npm jose in both directions, and
// with attacks. The tests set the clock.
import assert from 'node:assert/strict';
import crypto, { createHmac, generateKeyPairSync, sign as signWith } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { describe, test } from 'node:test';
import { jwtVerify, SignJWT } from 'jose';
import { Tokens } from '../../src/auth/jwt.ts';

const NOW = 1_800_000_000;
const SECRET = 'a signing secret of 32 bytes or more';
const PREVIOUS = 'the signing secret that was used before';
const SUBJECT = { id: 'admin', name: 'Administrator' };
const HEADER = { alg: 'HS256', typ: 'JWT' };
const CLAIMS = { ...SUBJECT, iat: NOW, exp: NOW + 60 };

/** Returns a `Tokens` with a fixed clock. */
function at(nowSeconds: number, secrets: readonly string[] = [SECRET], subject = SUBJECT): Tokens {
  return new Tokens(subject, secrets, () => nowSeconds);
}

/** Joins the parts and adds a valid HMAC. Uses strings and bytes unchanged. */
function signed(header: unknown, payload: unknown, secret: string | Buffer = SECRET): string {
  return signedText(`${encode(header)}.${encode(payload)}`, secret);
}

function signedText(input: string, secret: string | Buffer = SECRET, hash = 'sha256'): string {
  return `${input}.${createHmac(hash, secret).update(input).digest('base64url')}`;
}

function encode(part: unknown): string {
  const isRaw = typeof part === 'string' || Buffer.isBuffer(part);
  return Buffer.from(isRaw ? part : JSON.stringify(part)).toString('base64url');
}

function claimsOf(token: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split('.')[1]!, 'base64url').toString());
}

test('3.4 the signature is HMAC-SHA256 for keys of every length', () => {
  for (const length of [32, 63, 64, 65, 200]) {
    for (const character of ['k', 'ü', '\u{1f511}']) {
      const secret = character.repeat(length);
      const [header, payload, signature] = at(NOW, [secret]).issue().split('.');
      const input = `${header}.${payload}`;
      assert.equal(`${input}.${signature}`, signedText(input, secret));
      assert.ok(at(NOW, [secret]).verify(signed(HEADER, CLAIMS, secret)));
      assert.ok(!at(NOW, [`${secret}k`]).verify(signed(HEADER, CLAIMS, secret)));
    }
  }
});

describe('issued tokens', () => {
  test('a token is a compact JWS with exactly the contract’s header and claims', () => {
    const [header, payload, signature, ...rest] = at(NOW + 0.75)
      .issue()
      .split('.');
    assert.deepEqual(rest, []);
    assert.equal(Buffer.from(header!, 'base64url').toString(), '{"alg":"HS256","typ":"JWT"}');
    assert.equal(
      Buffer.from(payload!, 'base64url').toString(),
      `{"id":"admin","name":"Administrator","iat":${NOW},"exp":${NOW + 3600}}`,
    );
    assert.equal(
      signature,
      createHmac('sha256', SECRET).update(`${header}.${payload}`).digest('base64url'),
    );
  });

  test('no part of a token has padding, plus or slash', () => {
    const subject = { id: '>>>???', name: 'ÿþ~~~😀' };
    assert.match(at(NOW, [SECRET], subject).issue(), /^[\w-]+\.[\w-]+\.[\w-]+$/);
  });

  test('each second has its own token', () => {
    let now = NOW;
    const tokens = new Tokens(SUBJECT, [SECRET], () => now);
    const first = tokens.issue();
    now = NOW + 0.999;
    assert.equal(tokens.issue(), first);
    now = NOW + 1;
    assert.equal(claimsOf(tokens.issue()).iat, NOW + 1);
    // If the clock is set back, the token has the earlier time.
    now = NOW;
    assert.equal(tokens.issue(), first);
  });

  test('a token keeps a subject with quotes and characters beyond ASCII', () => {
    const subject = { id: '"\\\u0001', name: 'Ådä 😀 "x"' };
    const tokens = at(NOW, [SECRET], subject);
    assert.deepEqual(claimsOf(tokens.issue()), { ...subject, iat: NOW, exp: NOW + 3600 });
    assert.equal(tokens.verify(tokens.issue()), true);
  });
});

describe('RFC 7515 A.1', () => {
  // The vector's key is 64 bytes that are not UTF-8, and its payload has no subject.
  // createSecretKey accepts bytes as well as text, so the casts pass both to the code unchanged.
  const key = Buffer.from(
    'AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow',
    'base64url',
  ) as unknown as string;
  const nobody = { id: undefined, name: undefined } as unknown as typeof SUBJECT;
  const header = 'eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9';
  const payload =
    'eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ';
  const signature = 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk';
  const token = `${header}.${payload}.${signature}`;

  test('RFC 7515 A.1: the token is valid in the second before its exp', () =>
    assert.equal(at(1_300_819_379, [key], nobody).verify(token), true));
  test('RFC 7515 A.1: the token is refused at its exp', () =>
    assert.equal(at(1_300_819_380, [key], nobody).verify(token), false));
  test('RFC 7515 A.1: the token is refused with another key', () =>
    assert.equal(at(1_300_819_379, [SECRET], nobody).verify(token), false));
  test('RFC 7515 A.1: the token is refused if a subject is required, because it has none', () =>
    assert.equal(at(1_300_819_379, [key]).verify(token), false));
  test('RFC 7515 A.1: the token is refused with another spelling of its header', () => {
    const other = Buffer.from('{"typ":"JWT","alg":"HS256"}').toString('base64url');
    assert.equal(
      at(1_300_819_379, [key], nobody).verify(`${other}.${payload}.${signature}`),
      false,
    );
  });
});

describe('jose', () => {
  const key = new TextEncoder().encode(SECRET);

  test('verifies our token', async () => {
    const { payload, protectedHeader } = await jwtVerify(at(NOW).issue(), key, {
      algorithms: ['HS256'],
      currentDate: new Date(NOW * 1000),
    });
    assert.deepEqual(payload, { ...SUBJECT, iat: NOW, exp: NOW + 3600 });
    assert.deepEqual(protectedHeader, HEADER);
  });

  test('refuses our token at its exp, as we do', async () => {
    const verified = jwtVerify(at(NOW).issue(), key, {
      currentDate: new Date((NOW + 3600) * 1000),
    });
    await assert.rejects(verified, { code: 'ERR_JWT_EXPIRED' });
  });

  for (const { why, header, more } of [
    { why: 'with only alg', header: { alg: 'HS256' }, more: {} },
    { why: 'with another typ', header: { alg: 'HS256', typ: 'at+jwt' }, more: {} },
    {
      why: 'with kid, jku, x5u and x5c',
      header: {
        alg: 'HS256',
        kid: '../../etc/passwd',
        jku: 'http://x',
        x5u: 'http://x',
        x5c: ['x'],
      },
      more: {},
    },
    {
      why: 'with its own jwk',
      header: { alg: 'HS256', jwk: { kty: 'oct', k: 'AAAA' } as object },
      more: {},
    },
    {
      why: 'with aud, iss, sub and jti',
      header: HEADER,
      more: { aud: 'x', iss: 'y', sub: 'z', jti: '1' },
    },
    { why: 'with iat in the future', header: HEADER, more: { iat: NOW + 1000 } },
    { why: 'with nbf now', header: HEADER, more: { nbf: NOW } },
    { why: 'with its own claims', header: HEADER, more: { admin: true, __proto__: { x: 1 } } },
  ]) {
    test(`a token of jose ${why} is valid`, async () => {
      const token = await new SignJWT({ ...CLAIMS, ...more })
        .setProtectedHeader(header as { alg: string })
        .sign(key);
      assert.equal(at(NOW).verify(token), true);
    });
  }

  test('a token of jose with another key is refused', async () => {
    const token = await new SignJWT(CLAIMS)
      .setProtectedHeader(HEADER)
      .sign(new TextEncoder().encode(PREVIOUS));
    assert.equal(at(NOW).verify(token), false);
  });
});

test('the token on which the attacks below are based is valid', () => {
  assert.equal(at(NOW).verify(signed(HEADER, CLAIMS)), true);
});

describe('refused tokens', () => {
  const good = signed(HEADER, CLAIMS);
  const [header = '', payload = '', signature = ''] = good.split('.');
  const bytes = Buffer.from(signature, 'base64url');
  const flipped = (bit: number) => {
    const copy = Buffer.from(bytes);
    copy[bit >> 3]! ^= 1 << (bit & 7);
    return `${header}.${payload}.${copy.toString('base64url')}`;
  };
  const nones = [
    'none',
    'None',
    'NONE',
    'nOnE',
    'NoNe',
    'none ',
    ' none',
    'no\u0000ne',
    'nоne',
    '',
  ];
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const rsa = (alg: string, hash: string) => {
    const input = `${encode({ alg, typ: 'JWT' })}.${payload}`;
    return `${input}.${signWith(hash, Buffer.from(input), privateKey).toString('base64url')}`;
  };

  const attacks: { why: string; token: string }[] = [
    ...nones.flatMap((alg) => [
      {
        why: `alg ${JSON.stringify(alg)} without a signature`,
        token: `${encode({ alg })}.${payload}.`,
      },
      { why: `alg ${JSON.stringify(alg)} with a valid HMAC`, token: signed({ alg }, CLAIMS) },
      {
        why: `alg ${JSON.stringify(alg)} with our signature`,
        token: `${encode({ alg })}.${payload}.${signature}`,
      },
    ]),
    ...[
      'HS384',
      'HS512',
      'hs256',
      'Hs256',
      'HS256 ',
      'HMAC',
      'RS256',
      'PS256',
      'ES256',
      'EdDSA',
      'dir',
    ].map((alg) => ({
      why: `alg ${JSON.stringify(alg)} with a valid HMAC`,
      token: signed({ alg }, CLAIMS),
    })),
    {
      why: 'HS384',
      token: signedText(`${encode({ alg: 'HS384' })}.${payload}`, SECRET, 'sha384'),
    },
    {
      why: 'HS512',
      token: signedText(`${encode({ alg: 'HS512' })}.${payload}`, SECRET, 'sha512'),
    },
    {
      why: 'SHA-512 under the name HS256',
      token: signedText(`${header}.${payload}`, SECRET, 'sha512'),
    },
    { why: 'RS256', token: rsa('RS256', 'sha256') },
    { why: 'RSA under the name HS256', token: rsa('HS256', 'sha256') },
    ...[
      { why: 'a header without alg', header: { typ: 'JWT' } },
      { why: 'alg null', header: { alg: null } },
      { why: 'alg in a list', header: { alg: ['HS256'] } },
      { why: 'alg as an object', header: { alg: { HS256: true } } },
      { why: 'alg under another name', header: { Alg: 'HS256' } },
      { why: 'a later alg none', header: '{"alg":"HS256","alg":"none"}' },
      { why: 'crit', header: { ...HEADER, crit: ['exp'], exp: NOW + 60 } },
      { why: 'an empty crit', header: { ...HEADER, crit: [] } },
      { why: 'crit null', header: { ...HEADER, crit: null } },
      { why: 'crit b64', header: { ...HEADER, crit: ['b64'], b64: true } },
      { why: 'a header that is not JSON', header: 'HS256' },
      { why: 'a header that is an array', header: [HEADER] },
      { why: 'a header that is a string', header: '"HS256"' },
      { why: 'a header that is null', header: 'null' },
      { why: 'a header that is a number', header: '1' },
      { why: 'a header with text after it', header: '{"alg":"HS256"}x' },
      { why: 'a header with a byte order mark', header: '\ufeff{"alg":"HS256"}' },
      { why: 'a header with a trailing comma', header: '{"alg":"HS256",}' },
      { why: 'a header in Latin-1', header: Buffer.from('{"alg":"HS256","x":"\xe9"}', 'latin1') },
      { why: 'an empty header', header: '' },
    ].map(({ why, header: other }) => ({ why, token: signed(other, CLAIMS) })),

    ...[
      { why: 'no exp', more: '' },
      { why: 'exp null', more: ',"exp":null' },
      { why: 'exp as a string', more: `,"exp":"${NOW + 60}"` },
      { why: 'exp true', more: ',"exp":true' },
      { why: 'exp in a list', more: `,"exp":[${NOW + 60}]` },
      { why: 'exp 1e999', more: ',"exp":1e999' },
      { why: 'exp -1e999', more: ',"exp":-1e999' },
      { why: 'exp now', more: `,"exp":${NOW}` },
      { why: 'exp a second ago', more: `,"exp":${NOW - 1}` },
      { why: 'exp half a second ago', more: `,"exp":${NOW - 0.5}` },
      { why: 'exp 0', more: ',"exp":0' },
      { why: 'exp negative', more: ',"exp":-1' },
      { why: 'a later exp that has passed', more: `,"exp":${NOW + 60},"exp":1` },
      { why: 'nbf in a second', more: `,"exp":${NOW + 60},"nbf":${NOW + 1}` },
      { why: 'nbf in half a second', more: `,"exp":${NOW + 60},"nbf":${NOW + 0.5}` },
      { why: 'nbf as a string', more: `,"exp":${NOW + 60},"nbf":"0"` },
      { why: 'nbf null', more: `,"exp":${NOW + 60},"nbf":null` },
      { why: 'nbf 1e999', more: `,"exp":${NOW + 60},"nbf":1e999` },
      { why: 'nbf false', more: `,"exp":${NOW + 60},"nbf":false` },
    ].map(({ why, more }) => ({
      why,
      token: signed(HEADER, `{"id":"admin","name":"Administrator"${more}}`),
    })),

    ...[
      { why: 'another id', payload: { ...CLAIMS, id: 'root' } },
      { why: 'another name', payload: { ...CLAIMS, name: 'Root' } },
      { why: 'an id in another case', payload: { ...CLAIMS, id: 'Admin' } },
      { why: 'an id with a trailing space', payload: { ...CLAIMS, id: 'admin ' } },
      { why: 'no id', payload: { name: CLAIMS.name, exp: CLAIMS.exp } },
      { why: 'no name', payload: { id: CLAIMS.id, exp: CLAIMS.exp } },
      { why: 'id null', payload: { ...CLAIMS, id: null } },
      { why: 'id in a list', payload: { ...CLAIMS, id: ['admin'] } },
      { why: 'an empty object', payload: {} },
      { why: 'an empty payload', payload: '' },
      { why: 'a payload that is an array', payload: [CLAIMS] },
      { why: 'a payload that is a string', payload: JSON.stringify(JSON.stringify(CLAIMS)) },
      { why: 'a payload that is null', payload: 'null' },
      { why: 'a payload that is a number', payload: '1' },
      { why: 'a payload that is true', payload: 'true' },
      { why: 'a payload that is not JSON', payload: 'id=admin' },
      { why: 'a payload with text after it', payload: `${JSON.stringify(CLAIMS)};` },
      { why: 'a payload with a byte order mark', payload: `\ufeff${JSON.stringify(CLAIMS)}` },
      {
        why: 'a payload in Latin-1',
        payload: Buffer.from(JSON.stringify({ ...CLAIMS, x: '\xe9' }), 'latin1'),
      },
      {
        why: 'claims on a prototype',
        payload: `{"__proto__":${JSON.stringify(CLAIMS)}}`,
      },
    ].map(({ why, payload: other }) => ({ why, token: signed(HEADER, other) })),

    { why: 'another key', token: signed(HEADER, CLAIMS, PREVIOUS) },
    { why: 'an empty key', token: signed(HEADER, CLAIMS, '') },
    {
      why: 'the key with a zero byte after the hash block',
      token: signed(HEADER, CLAIMS, SECRET.padEnd(65, '\0')),
    },
    {
      why: 'a payload of another token',
      token: `${header}.${encode({ ...CLAIMS, exp: NOW + 61 })}.${signature}`,
    },
    {
      why: 'a header of another token',
      token: `${encode({ alg: 'HS256' })}.${payload}.${signature}`,
    },
    { why: 'an empty signature', token: `${header}.${payload}.` },
    { why: 'a signature of zeros', token: `${header}.${payload}.${'A'.repeat(43)}` },
    {
      why: 'a signature one byte short',
      token: `${header}.${payload}.${bytes.subarray(0, 31).toString('base64url')}`,
    },
    { why: 'a signature one byte long', token: `${good}AA` },
    {
      why: 'a signature of 16 bytes',
      token: `${header}.${payload}.${bytes.subarray(0, 16).toString('base64url')}`,
    },
    {
      why: 'the signature twice',
      token: `${header}.${payload}.${Buffer.concat([bytes, bytes]).toString('base64url')}`,
    },
    { why: 'a signature one character short', token: good.slice(0, -1) },
    { why: 'a signature in hexadecimal', token: `${header}.${payload}.${bytes.toString('hex')}` },
    { why: 'the first bit of the signature changed', token: flipped(0) },
    { why: 'a bit in the middle of the signature changed', token: flipped(130) },
    { why: 'the last bit of the signature changed', token: flipped(255) },

    { why: 'padding after the signature', token: `${good}=` },
    { why: 'base64 with plus and slash', token: nonUrl() },
    { why: 'a leading space', token: ` ${good}` },
    { why: 'a trailing space', token: `${good} ` },
    { why: 'a trailing line feed', token: `${good}\n` },
    { why: 'a line feed in the signature', token: `${good.slice(0, -4)}\n${good.slice(-4)}` },
    { why: 'a trailing zero byte', token: `${good}\0` },
    {
      why: 'a character beyond ASCII in the signature',
      token: `${good.slice(0, -4)}é${good.slice(-4)}`,
    },
    { why: 'unused bits set at the end of the signature', token: withUnusedBits(good) },
    {
      why: 'unused bits set in a signed header',
      token: signedText(`${withUnusedBits(encode('{"alg":"HS256"} '))}.${payload}`),
    },
    {
      why: 'unused bits set in a signed payload',
      token: signedText(`${header}.${withUnusedBits(payloadWithUnusedBits())}`),
    },
    {
      why: 'padding in a signed header',
      token: signedText(`${encode('{"alg":"HS256"} ')}==.${payload}`),
    },
    {
      why: 'padding in a signed payload',
      token: signedText(`${header}.${payloadWithUnusedBits()}==`),
    },
    {
      why: 'a line feed in a signed payload',
      token: signedText(`${header}.${payload.slice(0, 4)}\n${payload.slice(4)}`),
    },
    {
      why: 'an impossible length of a signed payload',
      token: signedText(`${header}.${payloadWithUnusedBits().slice(0, -1)}`),
    },

    { why: 'nothing', token: '' },
    { why: 'one segment', token: header },
    { why: 'two segments', token: `${header}.${payload}` },
    { why: 'two segments, signed', token: signedText(header) },
    { why: 'two dots', token: '..' },
    { why: 'four segments', token: `${good}.` },
    { why: 'four segments, the last a signature', token: `${good}.${signature}` },
    {
      why: 'four segments, signed over three',
      token: signedText(`${header}.${payload}.${signature}`),
    },
    {
      why: 'five segments, as JWE has',
      token: `${header}.${payload}.${signature}.${payload}.${signature}`,
    },
    { why: 'an empty header segment', token: signedText(`.${payload}`) },
    { why: 'an empty payload segment', token: signedText(`${header}.`) },
    { why: 'a leading dot', token: `.${good}` },
    { why: 'JWS in JSON form', token: JSON.stringify({ protected: header, payload, signature }) },
    { why: 'only the payload', token: JSON.stringify(CLAIMS) },
    { why: '100 KB of dots', token: '.'.repeat(100_000) },
    { why: '100 KB of nested JSON', token: signed(HEADER, '['.repeat(100_000)) },
  ];
  for (const { why, token } of attacks) {
    test(`a token with ${why} is refused`, () => {
      const tokens = at(NOW);
      assert.equal(tokens.verify(token), false);
      // The refusal must not depend on the cache.
      assert.equal(tokens.verify(token), false);
      assert.equal(tokens.verify(good), true);
    });
  }

  /** Returns a valid token in which "+" and "/" replace the "-" and "_" of the signature. */
  function nonUrl(): string {
    for (let i = 0; ; i++) {
      const token = signed(HEADER, { ...CLAIMS, i });
      const [, , last = ''] = token.split('.');
      if (/[-_]/.test(last))
        return token.replace(last, last.replaceAll('-', '+').replaceAll('_', '/'));
    }
  }

  /** Returns claims in base64url that end in two characters for one byte, with four unused bits. */
  function payloadWithUnusedBits(): string {
    const text = JSON.stringify(CLAIMS);
    return encode(text.padEnd(text.length + ((4 - (text.length % 3)) % 3)));
  }

  /** Sets unused bits. For a lenient decoder, the bytes are the same. */
  function withUnusedBits(text: string): string {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    return text.slice(0, -1) + alphabet[alphabet.indexOf(text.at(-1)!) + 1];
  }
});

describe('odd but valid tokens', () => {
  for (const { why, token } of [
    { why: 'a float exp', token: signed(HEADER, { ...CLAIMS, exp: NOW + 0.5 }) },
    {
      why: 'an exp in scientific notation',
      token: signed(HEADER, '{"id":"admin","name":"Administrator","exp":18e99}'),
    },
    { why: 'the largest finite exp', token: signed(HEADER, { ...CLAIMS, exp: Number.MAX_VALUE }) },
    { why: 'nbf negative', token: signed(HEADER, { ...CLAIMS, nbf: -1 }) },
    { why: 'iat that is not a number', token: signed(HEADER, { ...CLAIMS, iat: 'yesterday' }) },
    { why: 'white space in the header', token: signed(' { "alg" : "HS256" } ', CLAIMS) },
    { why: 'alg with an escape', token: signed('{"alg":"\\u0048S256"}', CLAIMS) },
    { why: 'a typ of another kind', token: signed({ alg: 'HS256', typ: 7 }, CLAIMS) },
    { why: 'b64 without crit, which is ignored', token: signed({ ...HEADER, b64: false }, CLAIMS) },
  ]) {
    test(`a token with ${why} is valid`, () => assert.equal(at(NOW).verify(token), true));
  }
});

describe('keys', () => {
  test('a token of the previous secret is valid', () => {
    const old = at(NOW, [PREVIOUS]).issue();
    assert.equal(at(NOW, [SECRET, PREVIOUS]).verify(old), true);
    assert.equal(at(NOW, [SECRET]).verify(old), false);
  });

  test('the previous secret does not sign', () => {
    const token = at(NOW, [SECRET, PREVIOUS]).issue();
    assert.equal(at(NOW, [SECRET]).verify(token), true);
    assert.equal(at(NOW, [PREVIOUS]).verify(token), false);
  });

  test('a secret is its UTF-8 bytes', () => {
    const secret = 'пароль 😀 пароль 😀';
    const token = signed(HEADER, CLAIMS, Buffer.from(secret, 'utf8'));
    assert.equal(at(NOW, [secret]).verify(token), true);
  });

  test('a secret that looks like base64 or hexadecimal is used as text', () => {
    const secret = '00112233445566778899aabbccddeeff';
    assert.equal(
      at(NOW, [secret]).verify(signed(HEADER, CLAIMS, Buffer.from(secret, 'hex'))),
      false,
    );
    assert.equal(at(NOW, [secret]).verify(signed(HEADER, CLAIMS, secret)), true);
  });
});

describe('cached tokens', () => {
  test('a token that was valid is refused from its exp on', () => {
    let now = NOW;
    const tokens = new Tokens(SUBJECT, [SECRET], () => now);
    const token = tokens.issue();
    for (const { seconds, isGood } of [
      { seconds: NOW, isGood: true },
      { seconds: NOW + 3599.999, isGood: true },
      { seconds: NOW + 3600, isGood: false },
      { seconds: NOW + 3600.001, isGood: false },
      { seconds: NOW + 1e9, isGood: false },
    ]) {
      now = seconds;
      assert.equal(tokens.verify(token), isGood, String(seconds));
    }
  });

  test('a token that was refused before its nbf is valid after it', () => {
    let now = NOW;
    const tokens = new Tokens(SUBJECT, [SECRET], () => now);
    const token = signed(HEADER, { ...CLAIMS, nbf: NOW + 10 });
    assert.equal(tokens.verify(token), false);
    now = NOW + 10;
    assert.equal(tokens.verify(token), true);
  });

  test('a changed copy of a cached token is refused', () => {
    const tokens = at(NOW);
    const token = tokens.issue();
    assert.equal(tokens.verify(token), true);
    for (let i = 0; i < token.length; i++) {
      const other = token[i] === 'A' ? 'B' : 'A';
      assert.equal(tokens.verify(token.slice(0, i) + other + token.slice(i + 1)), false, String(i));
    }
  });

  test('each of 40,000 tokens, more than the cache holds, keeps its own exp', () => {
    let now = NOW;
    const tokens = new Tokens(SUBJECT, [SECRET], () => now);
    const all = Array.from({ length: 40_000 }, (_, i) =>
      signed(HEADER, { ...CLAIMS, i, exp: NOW + 1 + (i % 2) }),
    );
    const verified = () => all.map((token) => tokens.verify(token));
    assert.ok(verified().every((isGood) => isGood));
    now = NOW + 1;
    assert.deepEqual(
      verified(),
      all.map((_, i) => i % 2 === 1),
    );
    now = NOW + 2;
    assert.ok(verified().every((isGood) => !isGood));
  });

  test('the cache belongs to one service', () => {
    const token = at(NOW).issue();
    const [ours, others] = [at(NOW), at(NOW, [PREVIOUS])];
    assert.equal(ours.verify(token), true);
    assert.equal(others.verify(token), false);
  });
});

test('3.12 signatures are compared in a time that does not depend on how much is right', (t) => {
  const { timingSafeEqual } = crypto;
  let compared = 0;
  t.mock.method(crypto, 'timingSafeEqual', (given: Buffer, expected: Buffer) => {
    compared++;
    return timingSafeEqual(given, expected);
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  const tokens = at(NOW, [SECRET, PREVIOUS]);
  assert.equal(tokens.verify(signed(HEADER, CLAIMS, 'x'.repeat(32))), false);
  assert.equal(compared, 2);
});
