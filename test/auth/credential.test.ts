// The user's credentials, and the comparison of secrets.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { describe, test } from 'node:test';
import { Credential, Secret } from '../../src/auth/credential.ts';

const base64 = (pair: string, encoding: BufferEncoding = 'utf8') =>
  Buffer.from(pair, encoding).toString('base64');

/** `pair` is `login:password`; the password may contain a colon. */
function split(pair: string) {
  const [user = '', password = ''] = pair.split(/:(.*)/s);
  return { user, password };
}

const credentialOf = (pair: string) => new Credential({ ...split(pair), name: 'Ada' });

describe('a secret equals itself and no other text', () => {
  const blocks = [1, 255, 256, 257, 10_000].map((length) => 'x'.repeat(length));
  for (const value of ['correct horse', '', '\0', '$¢€😀', '\u00e9', ...blocks]) {
    test(`${value.length} characters: ${JSON.stringify(value).slice(0, 20)}`, () => {
      const secret = new Secret(value);
      for (const other of [
        ...[value, `${value}x`, `${value}\0`, `\0${value}`, `x${value.slice(1)}`],
        ...[value.slice(0, -1), `${value.slice(0, -1)}y`, value.slice(0, 256), ''],
        ...[value.padEnd(256, '\0'), value.padEnd(512, '\0'), `${value}${' '.repeat(5000)}`],
        ...[value.toUpperCase(), value.normalize('NFD'), Buffer.from(value).toString('latin1')],
      ]) {
        assert.equal(secret.equals(other), other === value, JSON.stringify(other).slice(0, 50));
        // No comparison changes the result of the next one.
        assert.equal(secret.equals(value), true);
      }
    });
  }

  test('it shows its value neither in JSON nor as text', () => {
    const secret = new Secret('correct horse');
    const shown = [JSON.stringify(secret), String(secret), Reflect.ownKeys(secret).join()];
    assert.doesNotMatch(shown.join(), /horse/);
  });
});

// The longest in relation to their NFC, and in two blocks.
const LONG = ['\u01d5', '\u1f82', 'K', 'e'].flatMap((one) =>
  [60, 200].flatMap((count) => {
    const text = one.repeat(count);
    return [`a:${text}`, `a:${text.normalize('NFD')}`, `a:${text.replaceAll('K', '\u212a')}`];
  }),
);
const PAIRS = [
  ...['ådmin:pass:wörd', 'a\u030admin:pass:wo\u0308rd', 'admin:pass:wörd', 'ådmin:pass:word'],
  ...['x:y', ':', 'pass:wörd:ådmin', 'Ada:pass:wörd', 'ådmin:pass', 'ådmin', 'ådmin:pass:wörd\0'],
  ...['zo\u00eb:w\u1ed9rd', 'zoe\u0308:wo\u0302\u0323rd', 'zo\u00eb:wo\u0323\u0302rd'],
  ...['a:300 K', 'a:300 \u212a', 'a:\u03a9', 'a:\u2126', 'a:\uac01', 'a:\u1100\u1161\u11a8'],
  ...['a:p\u00e4ss4', 'a:p\u00e4ss\u2074', 'a:\uff50\u00e4ss4', 'a:P\u00e4ss4'],
  ...['a:p\u00e4ss4\u00a0', 'a:bb', ':password', ...LONG, ...LONG.map((pair) => `${pair}\u0308`)],
];

describe('3.20 every spelling of a pair is right, and no other pair', () => {
  for (const set of PAIRS.filter((pair) => pair.includes(':'))) {
    test(set.slice(0, 20), () => {
      const own = credentialOf(set);
      for (const pair of PAIRS) {
        const isRight = pair.normalize() === set.normalize();
        const { user, password } = split(pair);
        assert.equal(own.matches(user, password), isRight, pair);
        assert.equal(own.matchesBasic(base64(pair)), isRight, pair);
      }
    });
  }

  test('the boundary between login and password is part of the pair', () =>
    assert.equal(credentialOf('ådmin:pass:wörd').matches('ådmin:pass', 'wörd'), false));
});

describe('Basic credentials are canonical base64', () => {
  const right = base64('ådmin:pass:wörd');
  for (const [pair, credentials, isRight] of [
    ['Aladdin:open sesame', 'QWxhZGRpbjpvcGVuIHNlc2FtZQ==', true], // RFC 7617 2
    ['test:123£', 'dGVzdDoxMjPCow==', true], // RFC 7617 2.1
    ['ådmin:pass:wörd', '', false],
    ['ådmin:pass:wörd', 'ådmin:pass:wörd', false],
    ['ådmin:pass:wörd', base64('ådmin:pass:wörd', 'latin1'), false],
    ['ådmin:pass:wörd', `${right}=`, false],
    ['ådmin:pass:wörd', `${right} `, false],
    ['ådmin:pass:wörd', `${right.slice(0, 4)}\n${right.slice(4)}`, false],
    ['ådmin:pass:wörd', base64(right), false],
    ['a:\ufffd', base64('a:\xff', 'latin1'), false],
    ['a:bb', 'YTpiYh==', false], // unused bits
    ['a:bb', 'YTpiYg', false],
    ['a:\u00e9', 'YTplzIE=', true], // e and its accent
    ['a:\u00e9', 'YTplzIF=', false],
    ['a:\u00e9', 'YTplzIE', false],
    ['a:\u00ff\u00ff', 'YTrDv8O/', true],
    ['a:\u00ff\u00ff', 'YTrDv8O_', false], // base64url
  ] as const) {
    test(`${JSON.stringify(credentials)} is ${isRight ? 'right' : 'wrong'} for ${pair}`, () =>
      assert.equal(credentialOf(pair).matchesBasic(credentials), isRight));
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
  const own = credentialOf(`ådmin:${'x'.repeat(247)}`);
  for (const given of ['', 'x', 'ådmin', 'x'.repeat(256), 'x'.repeat(10_000)]) {
    lengths.length = 0;
    own.matches(given, given);
    assert.deepEqual(lengths, Array(4).fill(256), `for ${given.length} characters`);
  }
});
