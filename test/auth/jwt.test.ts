// Tests tokens with the vector of RFC 7515 A.1, with npm jose and jsonwebtoken in both directions, and
// with all of vectors/tokens.ts. The tests set the clock.
import assert from 'node:assert/strict';
import crypto, { createHmac } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { describe, test } from 'node:test';
import { jwtVerify, SignJWT } from 'jose';
import jsonwebtoken from 'jsonwebtoken';
import { Tokens } from '../../src/auth/jwt.ts';
import {
  claimsAt,
  HEADER,
  paddedTokens,
  refusedTokens,
  SECRET,
  SUBJECT,
  signed,
  signedText,
  validTokens,
} from '../vectors/tokens.ts';

const NOW = 1_800_000_000;
const PREVIOUS = 'the signing secret that was used before';
const CLAIMS = claimsAt(NOW);

/** Returns a `Tokens` with a fixed clock. */
function at(nowSeconds: number, secrets: readonly string[] = [SECRET], subject = SUBJECT): Tokens {
  return new Tokens(subject, secrets, () => nowSeconds);
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
    { why: 'with another kid', header: { alg: 'HS256', kid: '../../etc/passwd' }, more: {} },
    { why: 'with aud and nbf', header: HEADER, more: { aud: 'x', nbf: NOW } },
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

describe('jsonwebtoken', () => {
  test('verifies our token', () => {
    const options = {
      algorithms: ['HS256' as const],
      clockTimestamp: NOW,
      complete: true as const,
    };
    const { header, payload } = jsonwebtoken.verify(at(NOW).issue(), SECRET, options);
    assert.deepEqual(payload, { ...SUBJECT, iat: NOW, exp: NOW + 3600 });
    assert.deepEqual(header, HEADER);
  });

  test('refuses our token at its exp, as we do', () => {
    const verify = () =>
      jsonwebtoken.verify(at(NOW).issue(), SECRET, { clockTimestamp: NOW + 3600 });
    assert.throws(verify, { name: 'TokenExpiredError' });
  });

  for (const { why, options } of [
    { why: 'with its defaults', options: {} },
    { why: 'with a kid', options: { keyid: 'k1' } },
    {
      why: 'with aud, iss, sub and jti',
      options: { audience: 'x', issuer: 'y', subject: 'z', jwtid: '1' },
    },
    {
      why: 'with its own header',
      options: { header: { alg: 'HS256', typ: 'x', cty: 'JWT' } },
    },
    { why: 'without iat', options: { noTimestamp: true } },
  ]) {
    test(`a token of jsonwebtoken ${why} is valid`, () => {
      const token = jsonwebtoken.sign(CLAIMS, SECRET, { algorithm: 'HS256', ...options });
      assert.equal(at(NOW).verify(token), true);
    });
  }

  for (const algorithm of ['none', 'HS384', 'HS512'] as const) {
    test(`a token of jsonwebtoken with ${algorithm} is refused`, () => {
      const token = jsonwebtoken.sign(CLAIMS, algorithm === 'none' ? '' : SECRET, { algorithm });
      assert.equal(at(NOW).verify(token), false);
    });
  }
});

describe('valid tokens', () => {
  for (const [why, token] of Object.entries(validTokens(NOW))) {
    test(`${why}: valid`, () => assert.equal(at(NOW).verify(token), true));
  }
});

for (const [fault, tokens] of Object.entries({
  ...refusedTokens(NOW),
  padding: paddedTokens(NOW),
})) {
  describe(`refused tokens: ${fault}`, () => {
    const good = signed(HEADER, CLAIMS);
    for (const [why, token] of Object.entries(tokens)) {
      test(`${why}: refused`, () => {
        const ours = at(NOW);
        assert.equal(ours.verify(token), false);
        // The refusal must not depend on the cache.
        assert.equal(ours.verify(token), false);
        assert.equal(ours.verify(good), true);
      });
    }
  });
}

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
