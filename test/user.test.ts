// Valid values of a user (contract 4.6, 4.11, 4.12).
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FIELDS, isValid, parseChange, parseNewUser } from '../src/user.ts';

const NAME = `name must be ${FIELDS.name.description}`;
const EMAIL = `email must be ${FIELDS.email.description}`;
const user = { name: 'Ada', email: 'ada@example.org' };

function invalid(message: string) {
  return { name: 'InvalidUser', message };
}

// White_Space in PropList.txt of Unicode 16. Written out, because the code uses the engine's list.
const WHITE_SPACE = [
  0x9, 0xa, 0xb, 0xc, 0xd, 0x20, 0x85, 0xa0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005,
  0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000,
];
const CONTROLS = Array.from({ length: 0xa0 }, (_, i) => i).filter((i) => i < 0x20 || i >= 0x7f);
const hex = (code: number) => `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;

describe('names', () => {
  for (const { why, name } of [
    { why: 'one character', name: 'A' },
    { why: '100 characters', name: 'x'.repeat(100) },
    { why: '100 characters of two UTF-16 units', name: '😀'.repeat(100) },
    { why: '99 characters and one of two units', name: `${'x'.repeat(99)}😀` },
    { why: 'a space', name: ' ' },
    { why: 'an at sign', name: 'a@b' },
    { why: 'U+0001', name: '\u0001' },
    { why: 'a line feed', name: 'a\nb' },
    { why: 'a lone combining mark', name: '\u0301' },
    { why: 'a right-to-left override', name: '\u202e' },
    { why: 'a non-character', name: '\uffff' },
    { why: 'U+10FFFF', name: '\u{10ffff}' },
    { why: 'a family, one shape of seven code points', name: '👨‍👩‍👧‍👦' },
    { why: 'quotes, backslashes and SQL', name: `'"\\; drop table users --` },
  ]) {
    test(`${why}: accepted unchanged`, () =>
      assert.deepEqual(parseNewUser({ ...user, name }), { ...user, name }));
  }

  for (const { why, name } of [
    { why: 'absent', name: undefined },
    { why: 'null', name: null },
    { why: 'a number', name: 1 },
    { why: 'true', name: true },
    { why: 'a list', name: ['Ada'] },
    { why: 'an object', name: { toString: 'Ada' } },
    { why: 'empty', name: '' },
    { why: '101 characters', name: 'x'.repeat(101) },
    { why: '101 characters of two units', name: '😀'.repeat(101) },
    { why: '100 characters and one of two units', name: `${'x'.repeat(100)}😀` },
    { why: '1 MiB', name: 'x'.repeat(2 ** 20) },
    { why: 'U+0000', name: '\0' },
    { why: 'U+0000 at the end', name: 'Ada\0' },
    { why: 'a lone high surrogate', name: '\ud83d' },
    { why: 'a lone low surrogate', name: '\ude00' },
    { why: 'a high surrogate at the end', name: 'Ada\udbff' },
    { why: 'surrogates in the wrong order', name: '\ude00\ud83d' },
    { why: 'a pair and a half', name: '😀\ud83d' },
  ]) {
    test(`${why}: refused`, () =>
      assert.throws(() => parseNewUser({ ...user, name }), invalid(`${NAME}.`)));
  }
});

describe('emails', () => {
  for (const { why, email } of [
    { why: 'three characters', email: 'a@b' },
    { why: '100 characters', email: `${'x'.repeat(98)}@b` },
    { why: '100 characters, most of two UTF-16 units', email: `${'😀'.repeat(98)}@b` },
    { why: 'capitals', email: 'Ada@Example.ORG' },
    { why: 'a plus', email: 'ada+tag@example.org' },
    { why: 'beyond ASCII', email: 'ådä@exämple.日本' },
    { why: 'quotes and backslashes', email: `"a\\b"'@c` },
    { why: 'no dot', email: 'root@localhost' },
    { why: 'dots at the ends', email: '.a.@.b.' },
    { why: 'a zero width space, which is not White_Space', email: 'a\u200b@b' },
    { why: 'a zero width no-break space, which is not either', email: 'a@\ufeffb' },
    { why: 'a Mongolian vowel separator, which is not either', email: 'a\u180e@b' },
    { why: 'U+00A1, which follows the last control and space', email: '\u00a1@b' },
    { why: 'a fullwidth at sign, which is not @', email: 'a@b＠c' },
  ]) {
    test(`${why}: accepted unchanged`, () => {
      assert.deepEqual(parseNewUser({ ...user, email }), { ...user, email });
      assert.equal(isValid('email', email), true);
    });
  }

  for (const { why, email } of [
    { why: 'absent', email: undefined },
    { why: 'null', email: null },
    { why: 'a number', email: 1 },
    { why: 'a list', email: ['a@b'] },
    { why: 'empty', email: '' },
    { why: 'two characters', email: '@b' },
    { why: 'one character of two units and an at sign', email: '😀@' },
    { why: '101 characters', email: `${'x'.repeat(99)}@b` },
    { why: '101 characters, most of two units', email: `${'😀'.repeat(99)}@b` },
    { why: 'no at sign', email: 'ada.example.org' },
    { why: 'two at signs', email: 'a@b@c' },
    { why: 'two at signs together', email: 'a@@b' },
    { why: 'nothing before the at sign', email: '@example.org' },
    { why: 'nothing after the at sign', email: 'ada@' },
    { why: 'only an at sign', email: '@' },
    { why: 'a lone high surrogate', email: 'a\ud83d@b' },
    { why: 'a lone low surrogate', email: 'a@b\ude00' },
    { why: 'surrogates around the at sign', email: 'a\ud83d@\ude00b' },
    ...[...new Set([...WHITE_SPACE, ...CONTROLS])].flatMap((code) => [
      { why: `${hex(code)} in the middle`, email: `a${String.fromCodePoint(code)}a@b` },
      { why: `${hex(code)} at the end`, email: `a@b${String.fromCodePoint(code)}` },
    ]),
  ]) {
    test(`${why}: refused`, () => {
      assert.throws(() => parseNewUser({ ...user, email }), invalid(`${EMAIL}.`));
      assert.equal(isValid('email', email), false);
    });
  }

  test('an email can have any code point except White_Space, controls, surrogates and @', () => {
    const refused: number[] = [];
    for (let code = 0; code <= 0x10ffff; code++) {
      if (!isValid('email', `a${String.fromCodePoint(code)}@b`)) refused.push(code);
    }
    const surrogates = Array.from({ length: 0x800 }, (_, i) => 0xd800 + i);
    const expected = new Set([...WHITE_SPACE, ...CONTROLS, 0x40, ...surrogates]);
    assert.deepEqual(
      refused,
      [...expected].sort((a, b) => a - b),
    );
  });
});

describe('a new user', () => {
  test('one message names both invalid fields', () =>
    assert.throws(() => parseNewUser({}), invalid(`${NAME}; ${EMAIL}.`)));

  test('other members are dropped, id and version included', () => {
    const body = { id: 7, version: 3, ...user, role: 'root' };
    assert.deepEqual(parseNewUser(body), user);
  });

  test('a member with the name __proto__ is dropped', () => {
    const body = JSON.parse('{"__proto__":{"name":"x"},"name":"Ada","email":"ada@example.org"}');
    assert.deepEqual(parseNewUser(body), user);
  });

  test('fields on a prototype from JSON are ignored', () => {
    const body = JSON.parse('{"__proto__":{"name":"Ada","email":"a@b"}}');
    assert.throws(() => parseNewUser(body), invalid(`${NAME}; ${EMAIL}.`));
  });

  test('the body is not changed', () => {
    const body = Object.freeze({ ...user, id: 1 });
    parseNewUser(body);
    assert.deepEqual(body, { ...user, id: 1 });
  });

  for (const { why, body } of [
    { why: 'nothing', body: undefined },
    { why: 'null', body: null },
    { why: 'a list', body: [user] },
    { why: 'a text', body: 'Ada' },
    { why: 'a number', body: 1 },
    { why: 'false', body: false },
  ]) {
    test(`${why} as a body: refused, on a change too`, () => {
      const refused = invalid('The body must be a JSON object.');
      assert.throws(() => parseNewUser(body), refused);
      assert.throws(() => parseChange(body), refused);
    });
  }
});

describe('a change', () => {
  for (const { why, body, change } of [
    { why: 'both fields', body: user, change: user },
    { why: 'only the name', body: { name: 'B' }, change: { name: 'B' } },
    { why: 'only the email', body: { email: 'b@c' }, change: { email: 'b@c' } },
    { why: 'nothing', body: {}, change: {} },
    { why: 'only other members', body: { id: 1, version: 2 }, change: {} },
    {
      why: 'a member called __proto__',
      body: JSON.parse('{"__proto__":{"name":"x"}}'),
      change: {},
    },
  ]) {
    test(`${why}: only the present fields`, () => {
      const parsed = parseChange(body);
      assert.deepEqual(parsed, change);
      assert.deepEqual(Object.keys(parsed), Object.keys(change));
    });
  }

  for (const { why, body, message } of [
    { why: 'RFC 7396: null would remove the name', body: { name: null }, message: `${NAME}.` },
    { why: 'RFC 7396: null would remove the email', body: { email: null }, message: `${EMAIL}.` },
    {
      why: 'an invalid name with a valid email',
      body: { name: '', email: 'a@b' },
      message: `${NAME}.`,
    },
    { why: 'both invalid', body: { name: 1, email: 2 }, message: `${NAME}; ${EMAIL}.` },
  ]) {
    test(`${why}: refused`, () => assert.throws(() => parseChange(body), invalid(message)));
  }
});
