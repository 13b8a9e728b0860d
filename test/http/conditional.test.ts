// Lists of entity tags (RFC 9110 §8.8.3, §13.1). Those of users are in the model of section 4 too.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseTags } from '../../src/http/conditional.ts';
import { TAG_LISTS } from '../vectors/users.ts';

const TAG = '7-3';

for (const [kind, lists] of Object.entries(TAG_LISTS)) {
  describe(`4.8 8.3 lists that name a tag: ${kind}`, () => {
    for (const [why, listOf] of Object.entries(lists)) {
      test(`4.8 8.3 ${why}`, () => {
        for (const comparison of ['strong', 'weak'] as const) {
          const tags = parseTags(listOf(TAG), comparison);
          const isNamed = kind === 'strong' || (kind === 'weak' && comparison === 'weak');
          assert.equal(tags === 'any' || tags.includes(TAG), isNamed);
        }
      });
    }
  });
}

describe('4.8 all tags of a list, without those behind a malformed one', () => {
  for (const [header, strong, weak] of [
    ['', [], []],
    ['"a", W/"b",, "",\t"c"', ['a', '', 'c'], ['a', 'b', '', 'c']],
    ['"!#~\x80\xff" , W/"W/"', ['!#~\x80\xff'], ['!#~\x80\xff', 'W/']],
    ['"a", "b" x, "c"', ['a'], ['a']],
    ['"a", "b\x7f", "c"', ['a'], ['a']],
    ['"a", "b c", "d"', ['a'], ['a']],
    ['x "a"', [], []],
    ['"a"\t ', ['a'], ['a']],
    ['*', 'any', 'any'],
    ['* ', 'any', 'any'],
    ['**', [], []],
  ] as const) {
    test(`4.8 ${header}`, () => {
      assert.deepEqual(parseTags(header, 'strong'), strong);
      assert.deepEqual(parseTags(header, 'weak'), weak);
    });
  }
});
