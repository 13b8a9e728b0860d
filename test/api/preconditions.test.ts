// The entity tags of users and conditional requests (RFC 9110 8.8.3, 13.1). The lists are in vectors/users.ts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { condition, entityTag } from '../../src/api/preconditions.ts';
import { matches, REPRESENTATION } from '../../src/user.ts';
import { storedUser } from '../support/users.ts';

import { TAG_LISTS } from '../vectors/users.ts';

const tagOf = (version: number) => entityTag(storedUser({ version })).slice(1, -1);

test('4.16 a tag is the number of the representation and the version', () => {
  assert.equal(tagOf(1), `${REPRESENTATION}-1`);
  assert.equal(tagOf(Number.MAX_SAFE_INTEGER), `${REPRESENTATION}-9007199254740991`);
});

test('without headers every user satisfies the condition', () =>
  assert.deepEqual(condition({}), { oneOf: 'any', noneOf: [] }));

for (const [comparison, forms] of Object.entries(TAG_LISTS)) {
  describe(`lists of tags with ${comparison} matches`, () => {
    for (const [why, form] of Object.entries(forms)) {
      const list = form(tagOf(3));
      test(`${why}: ${list || '(empty)'}`, () => {
        const { oneOf } = condition({ 'if-match': list });
        const { noneOf } = condition({ 'if-none-match': list });
        assert.equal(matches(oneOf, 3), ['strong', 'version'].includes(comparison));
        assert.equal(matches(noneOf, 3), ['strong', 'weak'].includes(comparison));
      });
    }
  });
}

test('both headers together give both lists', () => {
  const noneMatch = `"${tagOf(2)}", W/"${tagOf(5)}", "6"`;
  const headers = { 'if-match': '"1", W/"3", "4", "x"', 'if-none-match': noneMatch };
  assert.deepEqual(condition(headers), { oneOf: [1, 4], noneOf: [2, 5] });
});

test('the same header again gives the same result', () => {
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(condition({ 'if-match': '"1", "2"' }).oneOf, [1, 2]);
    assert.deepEqual(condition({ 'if-match': '"1" x' }).oneOf, []);
  }
});
