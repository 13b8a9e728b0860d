// The user's credentials, and the comparison of secrets.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { describe, test } from 'node:test';
import { Credential, Secret } from '../../src/auth/credential.ts';

describe('a secret equals', () => {
  for (const { why, value } of [
    { why: 'a word', value: 'correct horse' },
    { why: 'nothing', value: '' },
    { why: 'a zero byte', value: '\0' },
    { why: 'text of every UTF-8 length', value: '$¢€😀' },
    { why: '255 bytes', value: 'x'.repeat(255) },
    { why: '256 bytes', value: 'x'.repeat(256) },
    { why: '257 bytes', value: 'x'.repeat(257) },
    { why: '10,000 bytes', value: 'x'.repeat(10_000) },
  ]) {
    test(`${why}: equals itself and no similar value`, () => {
      const secret = new Secret(value);
      assert.equal(secret.equals(value), true);
      for (const other of [
        `${value}x`,
        `${value}\0`,
        `\0${value}`,
        `${value}${' '.repeat(5000)}`,
      ]) {
        assert.equal(secret.equals(other), false);
      }
      // An earlier comparison must not change the result.
      assert.equal(secret.equals(value), true);
    });
  }

  for (const { why, value, given } of [
    { why: 'a shorter text', value: 'correct horse', given: 'correct hors' },
    { why: 'nothing', value: 'correct horse', given: '' },
    { why: 'the last character changed', value: 'correct horse', given: 'correct horsf' },
    { why: 'the first character changed', value: 'correct horse', given: 'borrect horse' },
    { why: 'another case', value: 'correct horse', given: 'Correct horse' },
    { why: 'another normal form', value: '\u00e9', given: 'e\u0301' },
    { why: 'Latin-1 of the same byte', value: '\u00e9', given: 'Ã©' },
    { why: 'only the first block', value: 'x'.repeat(257), given: 'x'.repeat(256) },
    { why: 'a block of zero bytes', value: '', given: '\0'.repeat(256) },
    { why: 'a text with zero bytes up to the block', value: 'a', given: `a${'\0'.repeat(255)}` },
  ]) {
    test(`not ${why}`, () => assert.equal(new Secret(value).equals(given), false));
  }

  test('itself, after a comparison with a longer text', () => {
    const secret = new Secret('a');
    assert.equal(secret.equals('ab'.repeat(5000)), false);
    assert.equal(secret.equals('a'), true);
  });

  test('the value is never shown: not in JSON, text or keys', () => {
    const secret = new Secret('correct horse');
    const shown = [JSON.stringify(secret), String(secret), Reflect.ownKeys(secret).join()];
    assert.ok(
      shown.every((text) => !text.includes('horse')),
      shown.join(),
    );
  });
});

describe('3.20 every form of the same text is right', () => {
  const [composed, decomposed] = [
    { user: 'zo\u00eb', password: 'p\u00e4ss w\u1ed9rd' },
    { user: 'zoe\u0308', password: 'pa\u0308ss wo\u0302\u0323rd' },
  ];
  for (const set of [composed, decomposed]) {
    for (const given of [
      composed,
      decomposed,
      { user: composed.user, password: decomposed.password },
      { user: decomposed.user, password: 'pa\u0308ss wo\u0323\u0302rd' },
    ]) {
      const pair = `${given.user}:${given.password}`;
      test(`${JSON.stringify(pair)}, set as ${set === composed ? 'NFC' : 'NFD'}`, () => {
        const own = new Credential({ ...set, name: '' });
        assert.equal(own.matches(given.user, given.password), true);
        assert.equal(own.matchesBasic(Buffer.from(pair).toString('base64')), true);
        assert.equal(own.matchesBasic(Buffer.from(`${pair}\u0308`).toString('base64')), false);
      });
    }
  }

  for (const { why, set, given } of [
    { why: 'the Kelvin sign is a K', set: '300 \u212a, cold', given: '300 K, cold' },
    { why: 'the ohm sign is an omega', set: '\u03a9 and \u03c9', given: '\u2126 and \u03c9' },
    {
      why: 'Hangul in parts',
      set: '\uac01 \uac01 \uac01',
      given: '\u1100\u1161\u11a8 \uac01 \uac01',
    },
  ]) {
    test(why, () => {
      const own = new Credential({ user: 'a', password: set, name: '' });
      assert.equal(own.matches('a', given), true);
      assert.equal(own.matchesBasic(Buffer.from(`a:${given}`).toString('base64')), true);
    });
  }

  for (const { why, given } of [
    { why: 'a compatible character', given: 'p\u00e4ss\u2074' },
    { why: 'a full-width letter', given: '\uff50\u00e4ss4' },
    { why: 'another case', given: 'P\u00e4ss4' },
    { why: 'a no-break space at the end', given: 'p\u00e4ss4\u00a0' },
  ]) {
    test(`not ${why}`, () => {
      const own = new Credential({ user: 'a', password: 'p\u00e4ss4', name: '' });
      assert.equal(own.matches('a', given), false);
      assert.equal(own.matchesBasic(Buffer.from(`a:${given}`).toString('base64')), false);
    });
  }

  test('base64 with unused bits set, in NFD, is not', () => {
    const own = new Credential({ user: 'a', password: '\u00e9', name: '' });
    assert.equal(own.matchesBasic('YTplzIE='), true);
    assert.equal(Buffer.from('YTplzIF=', 'base64').toString(), 'a:e\u0301');
    assert.equal(own.matchesBasic('YTplzIF='), false);
    assert.equal(own.matchesBasic('YTplzIE'), false);
  });
});

const credential = new Credential({ user: 'ådmin', password: 'pass:wörd', name: 'Ada' });

describe('user and password', () => {
  for (const { why, user, password, isRight } of [
    { why: 'the right pair', user: 'ådmin', password: 'pass:wörd', isRight: true },
    { why: 'another user', user: 'admin', password: 'pass:wörd', isRight: false },
    { why: 'another password', user: 'ådmin', password: 'pass:word', isRight: false },
    { why: 'neither', user: 'x', password: 'y', isRight: false },
    { why: 'empty texts', user: '', password: '', isRight: false },
    { why: 'the pair exchanged', user: 'pass:wörd', password: 'ådmin', isRight: false },
    { why: 'the display name', user: 'Ada', password: 'pass:wörd', isRight: false },
    { why: 'the boundary moved', user: 'ådmin:pass', password: 'wörd', isRight: false },
  ]) {
    test(`${why}: ${isRight ? 'accepted' : 'refused'}`, () =>
      assert.equal(credential.matches(user, password), isRight));
  }
});

describe('Basic credentials', () => {
  const right = Buffer.from('ådmin:pass:wörd').toString('base64');

  test('the right pair in canonical base64 is accepted', () =>
    assert.equal(credential.matchesBasic(right), true));

  test('RFC 7617 2: the pair Aladdin and open sesame is accepted', () => {
    const aladdin = new Credential({ user: 'Aladdin', password: 'open sesame', name: '' });
    assert.equal(aladdin.matchesBasic('QWxhZGRpbjpvcGVuIHNlc2FtZQ=='), true);
  });

  test('RFC 7617 2.1: the pair test and 123£ in UTF-8 is accepted', () => {
    const tester = new Credential({ user: 'test', password: '123£', name: '' });
    assert.equal(tester.matchesBasic('dGVzdDoxMjPCow=='), true);
  });

  test('a user name can be empty', () => {
    const nobody = new Credential({ user: '', password: 'password', name: '' });
    assert.equal(nobody.matchesBasic(Buffer.from(':password').toString('base64')), true);
  });

  for (const { why, credentials } of [
    { why: 'nothing', credentials: '' },
    { why: 'the pair as text', credentials: 'ådmin:pass:wörd' },
    { why: 'no colon', credentials: Buffer.from('ådmin').toString('base64') },
    { why: 'another password', credentials: Buffer.from('ådmin:x').toString('base64') },
    {
      why: 'the password up to its colon',
      credentials: Buffer.from('ådmin:pass').toString('base64'),
    },
    { why: 'Latin-1', credentials: Buffer.from('ådmin:pass:wörd', 'latin1').toString('base64') },
    { why: 'more padding', credentials: `${right}=` },
    { why: 'a trailing space', credentials: `${right} ` },
    { why: 'a line feed inside', credentials: `${right.slice(0, 4)}\n${right.slice(4)}` },
    { why: 'base64url in place of base64', credentials: `${right.slice(0, -1)}_` },
    {
      why: 'a zero byte after the pair',
      credentials: Buffer.from('ådmin:pass:wörd\0').toString('base64'),
    },
    { why: 'base64 twice', credentials: Buffer.from(right).toString('base64') },
  ]) {
    test(`${why}: refused`, () => assert.equal(credential.matchesBasic(credentials), false));
  }
});

test('3.12 both secrets are always compared, in a time that does not depend on them', (t) => {
  const { timingSafeEqual } = crypto;
  const lengths: number[] = [];
  t.mock.method(crypto, 'timingSafeEqual', (given: Buffer, expected: Buffer) => {
    lengths.push(given.length, expected.length);
    return timingSafeEqual(given, expected);
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  for (const given of ['', 'x', 'ådmin', 'pass:wörd', 'x'.repeat(256), 'x'.repeat(10_000)]) {
    lengths.length = 0;
    credential.matches(given, given);
    credential.matchesBasic(given);
    assert.deepEqual(lengths, Array(8).fill(256), `for ${given.length} characters`);
  }
});

test('the right pair with unused bits set or without its padding is refused', () => {
  const one = new Credential({ user: 'a', password: 'bb', name: '' });
  assert.equal(one.matchesBasic('YTpiYg=='), true);
  assert.equal(Buffer.from('YTpiYh==', 'base64').toString(), 'a:bb');
  assert.equal(one.matchesBasic('YTpiYh=='), false);
  assert.equal(one.matchesBasic('YTpiYg'), false);
});
