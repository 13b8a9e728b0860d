// Entity tags and conditional requests (RFC 9110 8.8.3, 13.1).
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { condition, entityTag } from '../../src/http/conditional.ts';
import { matches } from '../../src/user.ts';

const user = (version: number) => ({ id: 1, name: 'Ada', email: 'a@b', version });

test('a tag is the version in quotes', () => {
  assert.equal(entityTag(user(1)), '"1"');
  assert.equal(entityTag(user(Number.MAX_SAFE_INTEGER)), '"9007199254740991"');
});

test('without headers every user satisfies the condition', () =>
  assert.deepEqual(condition({}), { oneOf: 'any', noneOf: [] }));

describe('the versions that a list of tags names', () => {
  for (const { why, header, strong, weak } of [
    { why: 'one tag', header: '"1"', strong: [1], weak: [1] },
    { why: 'two tags', header: '"1", "2"', strong: [1, 2], weak: [1, 2] },
    { why: 'no space', header: '"1","2"', strong: [1, 2], weak: [1, 2] },
    { why: 'tabs and spaces', header: '\t"1" \t, \t"2" ', strong: [1, 2], weak: [1, 2] },
    {
      why: 'RFC 9110 5.6.1: empty elements',
      header: ', ,"1",, ,"2",',
      strong: [1, 2],
      weak: [1, 2],
    },
    { why: 'a tag of another service', header: '"abc", "2"', strong: [2], weak: [2] },
    { why: 'a comma in a tag', header: '"a,b", "2"', strong: [2], weak: [2] },
    { why: 'a comma and quotes that look like a tag', header: '"a,"', strong: [], weak: [] },
    { why: 'a backslash, which escapes nothing', header: '"\\", "2"', strong: [2], weak: [2] },
    { why: 'characters beyond ASCII', header: '"é", "2"', strong: [2], weak: [2] },
    { why: 'RFC 9110 8.8.3.2: a weak tag', header: 'W/"1"', strong: [], weak: [1] },
    { why: 'a weak tag and a strong one', header: 'W/"1", "2"', strong: [2], weak: [1, 2] },
    { why: 'an asterisk', header: '*', strong: 'any', weak: 'any' },
    { why: 'an asterisk with space around', header: ' * ', strong: 'any', weak: 'any' },
    { why: 'an asterisk in quotes', header: '"*"', strong: [], weak: [] },
    { why: 'an asterisk in a list', header: '*, "1"', strong: [], weak: [] },
    { why: 'an asterisk after a tag', header: '"1", *', strong: [1], weak: [1] },
    { why: 'nothing', header: '', strong: [], weak: [] },
    { why: 'commas', header: ',,', strong: [], weak: [] },
    { why: 'an empty tag', header: '""', strong: [], weak: [] },
    { why: 'no quotes', header: '1', strong: [], weak: [] },
    { why: 'no closing quote', header: '"1', strong: [], weak: [] },
    { why: 'no opening quote', header: '1"', strong: [], weak: [] },
    { why: 'single quotes', header: "'1'", strong: [], weak: [] },
    { why: 'a small w', header: 'w/"1"', strong: [], weak: [] },
    { why: 'a space after W/', header: 'W/ "1"', strong: [], weak: [] },
    { why: 'two tags without a comma', header: '"1" "2"', strong: [], weak: [] },
    { why: 'text after a tag', header: '"1"x', strong: [], weak: [] },
    { why: 'a semicolon after a tag', header: '"1";x', strong: [], weak: [] },
    { why: 'a leading zero', header: '"01"', strong: [], weak: [] },
    { why: 'version 0', header: '"0"', strong: [], weak: [] },
    { why: 'a negative version', header: '"-1"', strong: [], weak: [] },
    { why: 'a fraction', header: '"1.0"', strong: [], weak: [] },
    { why: 'a space in the tag', header: '" 1"', strong: [], weak: [] },
    { why: 'digits of another script', header: '"١"', strong: [], weak: [] },
    { why: 'a version that no user can have', header: `"${'9'.repeat(40)}"`, strong: [], weak: [] },
    { why: 'a malformed tag before a valid one', header: 'x, "1"', strong: [], weak: [] },
  ] as const) {
    test(`${why}: ${header || '(empty)'}`, () => {
      assert.deepEqual(condition({ 'if-match': header }), { oneOf: strong, noneOf: [] });
      assert.deepEqual(condition({ 'if-none-match': header }), { oneOf: 'any', noneOf: weak });
    });
  }

  test('both headers together give both lists', () => {
    const headers = { 'if-match': '"1"', 'if-none-match': '"2"' };
    assert.deepEqual(condition(headers), { oneOf: [1], noneOf: [2] });
  });

  test('the same header again gives the same result', () => {
    for (let i = 0; i < 3; i++) {
      assert.deepEqual(condition({ 'if-match': '"1", "2"' }).oneOf, [1, 2]);
      assert.deepEqual(condition({ 'if-match': '"1" x' }).oneOf, []);
    }
  });
});

describe('If-Match of a GET', () => {
  for (const { why, header, isSame } of [
    { why: 'absent', header: undefined, isSame: true },
    { why: 'the tag', header: '"3"', isSame: true },
    { why: 'the tag, weak', header: 'W/"3"', isSame: false },
    { why: 'another tag', header: '"2"', isSame: false },
    { why: 'an asterisk', header: '*', isSame: true },
  ]) {
    test(`${why}: ${isSame ? '200' : '412'}`, () => {
      const headers = header === undefined ? {} : { 'if-match': header };
      assert.equal(matches(condition(headers).oneOf, 3), isSame);
    });
  }
});

describe('If-None-Match of a GET', () => {
  for (const { why, header, isSame } of [
    { why: 'absent', header: undefined, isSame: false },
    { why: 'the tag', header: '"3"', isSame: true },
    { why: 'the tag among others', header: '"1", "x", "3"', isSame: true },
    { why: 'the tag, weak', header: 'W/"3"', isSame: true },
    { why: 'another tag', header: '"2"', isSame: false },
    { why: 'an asterisk', header: '*', isSame: true },
    { why: 'a malformed tag', header: '3', isSame: false },
    { why: 'nothing', header: '', isSame: false },
  ]) {
    test(`${why}: ${isSame ? '304' : '200'}`, () => {
      const headers = header === undefined ? {} : { 'if-none-match': header };
      assert.equal(matches(condition(headers).noneOf, 3), isSame);
    });
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
