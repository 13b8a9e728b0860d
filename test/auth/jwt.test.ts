// Tokens: those of npm jose in both directions, and all of vectors/tokens.ts. The tests set the clock.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { jwtVerify, SignJWT } from 'jose';
import { Tokens } from '../../src/auth/jwt.ts';
import * as vectors from '../vectors/tokens.ts';
import { comparisons } from './comparisons.ts';

const { HEADER, SECRET, SUBJECT, signed } = vectors;
const NOW = 1_800_000_000;
const PREVIOUS = 'the signing secret that was used before';
const CLAIMS = vectors.claimsAt(NOW);

function clocked() {
  const clock = { seconds: NOW };
  return { clock, tokens: new Tokens(SUBJECT, [SECRET], () => clock.seconds) };
}

function at(seconds: number, secrets: readonly string[] = [SECRET], subject = SUBJECT): Tokens {
  return new Tokens(subject, secrets, () => seconds);
}

describe('3.4 issued tokens', () => {
  for (const secret of [
    ...['k', 'ü', '\u{1f511}'].flatMap((one) => [32, 63, 64, 65, 200].map((n) => one.repeat(n))),
    '00112233445566778899aabbccddeeff', // not read as hexadecimal or base64
  ]) {
    test(`for jose they are valid with ${secret.length} characters of ${secret.slice(0, 2)}, until their exp`, async () => {
      const subject = { id: '>>>???"\\\u0001', name: 'ÿþ~~~ Ådä 😀' };
      const token = at(NOW, [secret, PREVIOUS], subject).issue();
      const key = new TextEncoder().encode(secret);
      const { payload, protectedHeader } = await jwtVerify(token, key, {
        currentDate: new Date((NOW + 3599) * 1000),
      });
      assert.deepEqual(payload, { ...subject, iat: NOW, exp: NOW + 3600 });
      assert.deepEqual(protectedHeader, HEADER);
      const currentDate = new Date((NOW + 3600) * 1000);
      await assert.rejects(jwtVerify(token, key, { currentDate }), { code: 'ERR_JWT_EXPIRED' });
      assert.ok(at(NOW, [secret], subject).verify(token));
      assert.ok(!at(NOW, [`${secret}k`], subject).verify(token));
    });
  }

  test('those of one second are the same', () => {
    const { clock, tokens } = clocked();
    const first = tokens.issue();
    clock.seconds = NOW + 0.999;
    assert.equal(tokens.issue(), first);
    clock.seconds = NOW + 1;
    assert.equal(tokens.issue(), at(NOW + 1).issue());
    // The clock can be set back.
    clock.seconds = NOW;
    assert.equal(tokens.issue(), first);
  });
});

test('3.7 a token of jose is valid with our key only', async () => {
  for (const secret of [SECRET, PREVIOUS]) {
    const jwt = new SignJWT({ ...CLAIMS, aud: 'x', nbf: NOW }).setProtectedHeader({ alg: 'HS256' });
    const token = await jwt.sign(new TextEncoder().encode(secret));
    assert.equal(at(NOW).verify(token), secret === SECRET);
  }
});

describe('3.7 valid tokens', () => {
  for (const [why, token] of Object.entries(vectors.validTokens(NOW))) {
    test(why, () => {
      const tokens = at(NOW);
      assert.deepEqual([tokens.verify(token), tokens.verify(token)], [true, true]);
    });
  }
});

for (const [fault, all] of Object.entries(vectors.refusedTokens(NOW))) {
  describe(`3.7 refused tokens: ${fault}`, () => {
    const good = signed(HEADER, CLAIMS);
    for (const [why, token] of Object.entries(all)) {
      test(why.slice(0, 80), () => {
        const tokens = at(NOW);
        // A refused token stays refused, and a valid one valid.
        const verified = [token, token, good, token].map((one) => tokens.verify(one));
        assert.deepEqual(verified, [false, false, true, false]);
      });
    }
  });
}

describe('the cache', () => {
  test('a token that was valid is refused from its exp on', () => {
    const { clock, tokens } = clocked();
    const token = tokens.issue();
    clock.seconds = NOW + 3599.999;
    assert.ok(tokens.verify(token)); // From now on it is in the cache.
    clock.seconds = NOW + 3600;
    assert.ok(!tokens.verify(token));
  });

  test('a token that was refused before its nbf is valid after it', () => {
    const { clock, tokens } = clocked();
    const token = signed(HEADER, { ...CLAIMS, nbf: NOW + 10 });
    assert.equal(tokens.verify(token), false);
    clock.seconds = NOW + 10;
    assert.equal(tokens.verify(token), true);
  });

  test('it keeps at most 32,768 tokens of at most 512 characters', (t) => {
    const tokens = at(NOW);
    const compared = comparisons(t);
    /** How many of these tokens were not in the cache. */
    const checked = (...all: readonly string[]) => {
      compared();
      for (const token of all) assert.ok(tokens.verify(token));
      return compared().length;
    };
    const sized = (bytes: number) => signed(HEADER, JSON.stringify(CLAIMS).padEnd(bytes));
    assert.deepEqual([sized(323).length, sized(324).length], [512, 513]);
    assert.equal(checked(sized(323), sized(323)), 1);
    assert.equal(checked(sized(324), sized(324)), 2);
    for (let i = 1; i < 32_768; i++) tokens.verify(signed(HEADER, { ...CLAIMS, i }));
    assert.equal(checked(sized(323)), 0);
    assert.equal(checked(signed(HEADER, CLAIMS), sized(323)), 2);
  });
});

test('3.12 signatures are compared in a time that does not depend on how much is right', (t) => {
  const compared = comparisons(t);
  const token = signed(HEADER, CLAIMS, 'x'.repeat(32));
  assert.equal(at(NOW, [SECRET, PREVIOUS]).verify(token), false);
  assert.equal(compared().length, 2);
});
