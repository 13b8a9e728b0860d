// The entity tags of users and conditional requests (RFC 9110 8.8.3, 13.1). The lists are in vectors/users.ts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { condition, entityTag } from '../../src/api/preconditions.ts';
import { matches } from '../../src/user.ts';
import { TAG_LISTS } from '../vectors/users.ts';

const user = (version: number) => ({ id: 1, name: 'Ada', email: 'a@b', version });

test('a tag is the version in quotes', () => {
  assert.equal(entityTag(user(1)), '"1"');
  assert.equal(entityTag(user(Number.MAX_SAFE_INTEGER)), '"9007199254740991"');
});

test('without headers every user satisfies the condition', () =>
  assert.deepEqual(condition({}), { oneOf: 'any', noneOf: [] }));

for (const [comparison, forms] of Object.entries(TAG_LISTS)) {
  describe(`lists of tags with ${comparison} matches`, () => {
    for (const [why, form] of Object.entries(forms)) {
      test(`${why}: ${form('3') || '(empty)'}`, () => {
        const { oneOf } = condition({ 'if-match': form('3') });
        const { noneOf } = condition({ 'if-none-match': form('3') });
        assert.equal(matches(oneOf, 3), comparison === 'strong');
        assert.equal(matches(noneOf, 3), comparison !== 'neither');
      });
    }
  });
}

test('both headers together give both lists', () => {
  const headers = { 'if-match': '"1", W/"3", "4", "x"', 'if-none-match': '"2", W/"5"' };
  assert.deepEqual(condition(headers), { oneOf: [1, 4], noneOf: [2, 5] });
});

test('the same header again gives the same result', () => {
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(condition({ 'if-match': '"1", "2"' }).oneOf, [1, 2]);
    assert.deepEqual(condition({ 'if-match': '"1" x' }).oneOf, []);
  }
});

test('a header of 16 KiB is read in less than a second of CPU', () => {
  const start = process.cpuUsage();
  for (const text of [',', ' ', '"', '"1",', 'W/', '"1" ', ', "x" ']) {
    condition({ 'if-match': text.repeat(16_384 / text.length) });
  }
  const { user, system } = process.cpuUsage(start);
  assert.ok(user + system < 1e6, `${user + system} microseconds`);
});
