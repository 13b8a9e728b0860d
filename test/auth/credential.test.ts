// The login and password of the credential user, and their comparison.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Credential } from '../../src/auth/credential.ts';
import { comparisons } from './comparisons.ts';

const base64 = (pair: string, encoding: BufferEncoding = 'utf8') =>
  Buffer.from(pair, encoding).toString('base64');

/** `pair` is `login:password`; the password may contain a colon. */
function split(pair: string) {
  const [user = '', password = ''] = pair.split(/:(.*)/s);
  return { user, password };
}

const credentialOf = (pair: string) => new Credential({ ...split(pair), name: 'Ada' });

const PAIRS = [
  ...['ådmin:pass:wörd', 'a\u030admin:pass:wo\u0308rd', 'admin:pass:wörd', 'ådmin:pass:word'],
  ...[':', 'pass:wörd:ådmin', 'Ada:pass:wörd', 'ådmin:pass', 'ådmin', 'ådmin:pass:wörd\0', 'a:'],
  ...['zoe\u0308:wo\u0302\u0323rd', 'zo\u00eb:wo\u0323\u0302rd', 'a:300 K', 'a:300 \u212a'],
  ...['a:p\u00e4ss4', 'a:p\u00e4ss\u2074', 'a:P\u00e4ss4', 'a:p\u00e4ss4\u00a0', 'a:bb'],
  // At the ends of a block, behind one, and in several.
  ...[253, 254, 255, 10_000].map((length) => `a:${'e'.repeat(length)}`),
  `a:${'e'.repeat(254)}f`,
  ...['NFC', 'NFD'].map((form) => `abc:${'\u1f82'.repeat(127).normalize(form)}`), // 512 characters in NFD
  ...['NFC', 'NFD'].map((form) => `abc:${'\u1f82'.repeat(128).normalize(form)}`), // 516
];

/** Pairs with the same spelling are the same. A longer one has only its own. */
const spelling = (pair: string) => (pair.length > 512 ? pair : pair.normalize());

describe('3.20 every spelling of a pair is right, and no other pair', () => {
  for (const set of PAIRS.filter((pair) => pair.includes(':'))) {
    test(set.slice(0, 20), () => {
      const own = credentialOf(set);
      for (const pair of PAIRS) {
        const isRight = spelling(pair) === spelling(set);
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
    ['test:123£', 'dGVzdDoxMjPCow==', true], // RFC 7617 2.1
    ['ådmin:pass:wörd', '', false],
    ['ådmin:pass:wörd', base64('ådmin:pass:wörd', 'latin1'), false],
    ['ådmin:pass:wörd', `${right}=`, false],
    ['ådmin:pass:wörd', `${right.slice(0, 4)}\n${right.slice(4)}`, false],
    ['a:\ufffd', base64('a:\xff', 'latin1'), false],
    ['a:bb', 'YTpiYh==', false], // unused bits
    ['a:\u00e9', 'YTplzIE=', true], // e and its accent
    ['a:\u00e9', 'YTplzIF=', false],
    ['a:\u00e9', 'YTplzIE', false],
    ['a:\u00ff\u00ff', 'YTrDv8O_', false], // base64url
  ] as const) {
    test(`${JSON.stringify(credentials)} is ${isRight ? 'right' : 'wrong'} for ${pair}`, () =>
      assert.equal(credentialOf(pair).matchesBasic(credentials), isRight));
  }
});

test('3.12 login and password are always compared, as one text', (t) => {
  const compared = comparisons(t);
  const own = credentialOf(`ådmin:${'x'.repeat(247)}`);
  for (const given of ['', 'x', 'ådmin', 'x'.repeat(256), 'x'.repeat(10_000)]) {
    own.matches(given, given);
    assert.deepEqual(compared(), [[256, 256]], `for ${given.length} characters`);
  }
});
