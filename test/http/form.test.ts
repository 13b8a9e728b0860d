// The form parser against npm qs, which it follows for well-formed input within the limits: qs's
// own kinds of input as a table, random inputs, and the limits, where we refuse and qs reshapes.
// FAST_CHECK_SEED repeats a run; the seed of each run is printed.
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import fc from 'fast-check';
import qs from 'qs';
import { parseForm } from '../../src/http/form.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);

const list = (count: number) => Array.from({ length: count }, (_, i) => String(i));
const object = (values: readonly string[]) => ({ ...values });

/** The same value, and the same text as JSON, which shows the order of keys too. */
function assertSame(text: string): void {
  const expected = qs.parse(text, { depth: 32 });
  const form = parseForm(text);
  assert.deepStrictEqual(form, expected, text);
  assert.equal(JSON.stringify(form), JSON.stringify(expected), text);
}

describe('forms that qs 6.17 and the contract agree on', () => {
  for (const { why, text, form } of [
    { why: 'nothing', text: '', form: {} },
    { why: 'one parameter', text: 'a=b', form: { a: 'b' } },
    { why: 'two parameters', text: 'a=b&c=d', form: { a: 'b', c: 'd' } },
    { why: 'a name alone', text: 'a', form: { a: '' } },
    { why: 'a name alone beside another', text: 'a=b&c', form: { a: 'b', c: '' } },
    { why: 'an empty value', text: 'a=', form: { a: '' } },
    { why: 'an equals sign in the value', text: 'a=b=c', form: { a: 'b=c' } },
    { why: 'spaces kept', text: ' a = b = c ', form: { ' a ': ' b = c ' } },
    { why: 'a question mark is text', text: '?a=b', form: { '?a': 'b' } },
    { why: 'commas are text', text: 'a=1,2', form: { a: '1,2' } },
    { why: 'dots are text', text: 'a.b=c', form: { 'a.b': 'c' } },
    { why: 'a semicolon is text', text: 'a=b;c=d', form: { a: 'b;c=d' } },
    { why: 'JSON is text', text: 'pets=["tobi"]', form: { pets: '["tobi"]' } },
    { why: 'an integer name at the top', text: '0=a', form: { 0: 'a' } },
    { why: 'integer names come first', text: 'b=1&2=x&1=y', form: { 1: 'y', 2: 'x', b: '1' } },

    { why: 'one level', text: 'a[b]=c', form: { a: { b: 'c' } } },
    { why: 'three levels', text: 'a[b][c]=d', form: { a: { b: { c: 'd' } } } },
    {
      why: 'seven levels',
      text: 'a[b][c][d][e][f][g][h]=i',
      form: { a: { b: { c: { d: { e: { f: { g: { h: 'i' } } } } } } } },
    },
    { why: 'two members', text: 'a[b]=1&a[c]=2', form: { a: { b: '1', c: '2' } } },
    { why: 'comparison operators as names', text: 'a[>=]=25', form: { a: { '>=': '25' } } },
    { why: 'equals signs in brackets', text: 'a[==]=23', form: { a: { '==': '23' } } },
    { why: 'an operator with an equals sign', text: 'a[<=>]==23', form: { a: { '<=>': '=23' } } },
    { why: 'a dot in brackets', text: 'outer[a.b]=1', form: { outer: { 'a.b': '1' } } },

    { why: 'an array of one', text: 'a[]=b', form: { a: ['b'] } },
    { why: 'an array of two', text: 'a[]=b&a[]=c', form: { a: ['b', 'c'] } },
    { why: 'the name twice', text: 'a=b&a=c', form: { a: ['b', 'c'] } },
    { why: 'the name, then an element', text: 'a=b&a[]=c', form: { a: ['b', 'c'] } },
    { why: 'an element, then the name', text: 'a[]=b&a=c', form: { a: ['b', 'c'] } },
    { why: 'an index, then the name', text: 'a[1]=b&a=c', form: { a: ['b', 'c'] } },
    { why: 'the name, then an index', text: 'a=b&a[1]=c', form: { a: ['b', 'c'] } },
    { why: 'empty elements', text: 'a[]=&a[]=b&a[]=', form: { a: ['', 'b', ''] } },
    { why: 'indices in order', text: 'a[0]=b&a[1]=c', form: { a: ['b', 'c'] } },
    { why: 'indices out of order', text: 'a[1]=c&a[0]=b&a[2]=d', form: { a: ['b', 'c', 'd'] } },
    { why: 'a sparse array is closed', text: 'a[1]=b&a[15]=c', form: { a: ['b', 'c'] } },
    { why: 'sparse arrays in arrays', text: 'a[1][2]=x&a[5][0]=y', form: { a: [['x'], ['y']] } },
    { why: 'an array in an object', text: 'a[b][]=c&a[b][]=d', form: { a: { b: ['c', 'd'] } } },
    { why: 'objects in an array', text: 'a[][b]=c', form: { a: [{ b: 'c' }] } },
    {
      why: 'objects by index',
      text: 'a[0][x]=1&a[0][y]=2&a[1][x]=3',
      form: { a: [{ x: '1', y: '2' }, { x: '3' }] },
    },
    { why: 'an array of one in an array is the same array', text: 'a[][]=b', form: { a: ['b'] } },
    { why: '01 is no index', text: 'a[01]=b', form: { a: { '01': 'b' } } },
    { why: '-1 is no index', text: 'a[-1]=b', form: { a: { '-1': 'b' } } },
    { why: '1e1 is no index', text: 'a[1e1]=b', form: { a: { '1e1': 'b' } } },
    { why: 'index 19 is the last of an array', text: 'a[19]=b', form: { a: ['b'] } },
    { why: 'index 20 makes an object', text: 'a[20]=b', form: { a: { 20: 'b' } } },
    {
      why: '20 elements are an array',
      text: list(20)
        .map((i) => `a[]=${i}`)
        .join('&'),
      form: { a: list(20) },
    },
    {
      why: '21 elements are an object',
      text: list(21)
        .map((i) => `a[]=${i}`)
        .join('&'),
      form: { a: object(list(21)) },
    },
    {
      why: 'the name 21 times is an object',
      text: list(21)
        .map((i) => `a=${i}`)
        .join('&'),
      form: { a: object(list(21)) },
    },
    {
      why: '21 indices are an object',
      text: list(21)
        .map((i) => `a[${i}]=${i}`)
        .join('&'),
      form: { a: object(list(21)) },
    },
    {
      why: 'elements after index 20 follow it',
      text: 'a[20]=x&a=y',
      form: { a: { 20: 'x', 21: 'y' } },
    },

    {
      why: 'a sparse array outgrows its limit',
      text: `a[19]=x&${list(20)
        .map((i) => `[a]${i}=y`)
        .join('&')}`,
      form: { a: { 19: 'x', ...Object.fromEntries(list(20).map((i) => [Number(i) + 20, 'y'])) } },
    },
    {
      why: 'NaN is no index',
      text: 'a[NaN]=x&a[20][0]=y&[a]0=z',
      form: { a: { 20: ['y'], 21: 'z', NaN: 'x' } },
    },
    {
      why: '4294967294 is the last name that comes first',
      text: 'b=1&4294967295=y&4294967294=x',
      form: { 4294967294: 'x', b: '1', 4294967295: 'y' },
    },

    { why: 'an element and a member', text: 'a[]=b&a[c]=d', form: { a: { 0: 'b', c: 'd' } } },
    { why: 'an index and a member', text: 'a[0]=b&a[c]=d', form: { a: { 0: 'b', c: 'd' } } },
    { why: 'a member and an index', text: 'a[c]=d&a[0]=b', form: { a: { c: 'd', 0: 'b' } } },
    { why: 'a string and an object', text: 'a=1&a[b]=2', form: { a: ['1', { b: '2' }] } },
    { why: 'an object and a string', text: 'a[b]=1&a=2', form: { a: [{ b: '1' }, '2'] } },
    {
      why: 'an object and the name of a prototype member as a string',
      text: 'a[b]=c&a=toString',
      form: { a: [{ b: 'c' }, 'toString'] },
    },
    { why: 'an object and an empty string', text: 'a[b]=1&a=', form: { a: { b: '1' } } },

    { why: 'only separators', text: '&&', form: {} },
    { why: 'an empty name', text: '=x', form: {} },
    { why: 'an empty name and value', text: '=', form: {} },
    { why: 'empty names around', text: '&=&a=b&=x&', form: { a: 'b' } },
    { why: 'empty brackets alone', text: '[]=a&[]=b', form: { 0: 'a', 1: 'b' } },
    { why: 'empty brackets without a value', text: '[]=&a=b', form: { 0: '', a: 'b' } },
    { why: 'an index alone', text: '[0]=a&[1]=b', form: { 0: 'a', 1: 'b' } },
    { why: 'a bracketed name alone', text: '[a]=b', form: { a: 'b' } },
    { why: 'a bracketed path', text: '[a][b]=c', form: { a: { b: 'c' } } },

    { why: 'an opening bracket alone', text: '[=x', form: { '[': 'x' } },
    { why: 'two opening brackets', text: '[[=x', form: { '[[': 'x' } },
    { why: 'a closing bracket alone', text: ']=x', form: { ']': 'x' } },
    { why: 'a closing bracket in a name', text: 'a]=x', form: { 'a]': 'x' } },
    { why: 'an unterminated bracket', text: 'a[b=c', form: { a: { '[b': 'c' } } },
    {
      why: 'an unterminated bracket after a group',
      text: 'a[b][c=d',
      form: { a: { b: { '[c': 'd' } } },
    },
    { why: 'an unbalanced pair', text: 'a[[]b=c', form: { a: { '[[]b': 'c' } } },
    { why: 'brackets in brackets', text: 'a[b[]]=c', form: { a: { 'b[]': 'c' } } },
    { why: 'brackets three deep', text: 'a[b[c[]]]=d', form: { a: { 'b[c[]]': 'd' } } },
    {
      why: 'an array, then brackets in brackets',
      text: 'l[][x[]]=y',
      form: { l: [{ 'x[]': 'y' }] },
    },
    { why: 'text after brackets is dropped', text: 'a[b]c=d', form: { a: { b: 'd' } } },
    { why: 'text between brackets is dropped', text: 'a[b]c[d]=e', form: { a: { b: { d: 'e' } } } },
    { why: 'encoded brackets', text: 'a%5Bb%5D=c', form: { a: { b: 'c' } } },
    { why: 'encoded brackets in lower case', text: 'a%5bb%5d=c', form: { a: { b: 'c' } } },
    { why: 'brackets encoded twice are text', text: 'a%255Bb%255D=c', form: { 'a%5Bb%5D': 'c' } },
    { why: 'brackets in a value', text: 'a=[b]&c=%5Bd%5D', form: { a: '[b]', c: '[d]' } },

    { why: 'plus is a space', text: 'a+b=c+d', form: { 'a b': 'c d' } },
    { why: 'an encoded plus is a plus', text: 'a=c%2B%2b', form: { a: 'c++' } },
    { why: 'encoded separators are text', text: 'he%3Dllo=th%26ere', form: { 'he=llo': 'th&ere' } },
    { why: 'an encoded percent', text: 'a=100%25', form: { a: '100%' } },
    { why: 'UTF-8 of each length', text: 'a=%24%C2%A2%E2%82%AC%F0%9F%98%80', form: { a: '$¢€😀' } },
    { why: 'UTF-8 as it is', text: 'ä=€😀', form: { ä: '€😀' } },
    { why: 'U+0000', text: 'a=%00', form: { a: '\0' } },
    { why: 'a byte order mark', text: '%EF%BB%BFa=%EF%BB%BF', form: { '\ufeffa': '\ufeff' } },

    { why: 'toString', text: 'toString=x&a=b', form: { a: 'b' } },
    { why: 'hasOwnProperty', text: 'hasOwnProperty=x', form: {} },
    { why: 'constructor', text: 'constructor[prototype][bad]=x', form: {} },
    { why: 'a nested constructor', text: 'bad[constructor][prototype][bad]=x', form: {} },
    { why: '__proto__', text: '__proto__=x&__proto__[bad]=y', form: {} },
    { why: 'a nested __proto__', text: 'a[__proto__][bad]=x&a[b]=c', form: { a: { b: 'c' } } },
    { why: 'an encoded __proto__', text: '%5F_proto__[bad]=x', form: {} },
    { why: 'a bracketed __proto__', text: '[__proto__][bad]=x', form: {} },
    { why: 'a __proto__ in an array', text: 'a[][__proto__]=x', form: {} },
    { why: 'an array, then a prototype name', text: 'a[]=b&a[valueOf]=c', form: { a: ['b'] } },
    {
      why: 'prototype is an ordinary name',
      text: 'a[prototype]=x',
      form: { a: { prototype: 'x' } },
    },
  ]) {
    test(`${why}: ${text.slice(0, 60) || '(empty)'}`, () => {
      assertSame(text);
      assert.deepStrictEqual(parseForm(text), form);
    });
  }
});

describe('random forms are read as qs reads them', () => {
  const index = fc.integer({ min: 0, max: 30 }).map(String);
  const word = fc.constantFrom('a', 'b', 'c', 'x y', 'é', '😀', 'a.b', '_');
  const odd = fc.constantFrom(
    '01',
    '-1',
    '1e1',
    '+1',
    '1.5',
    '999',
    '21',
    '4294967294',
    '4294967295',
    'undefined',
    'NaN',
    '__proto__',
    'constructor',
    'toString',
    'hasOwnProperty',
    'prototype',
    'length',
    '',
  );
  const segment = fc.oneof(
    { weight: 5, arbitrary: word },
    { weight: 5, arbitrary: index },
    { weight: 2, arbitrary: odd },
    { weight: 4, arbitrary: fc.constant('') },
  );
  const group = fc.oneof(
    { weight: 14, arbitrary: segment.map((text) => `[${text}]`) },
    { weight: 1, arbitrary: segment.map((text) => `[${text}`) },
    { weight: 1, arbitrary: segment.map((text) => `${text}]`) },
    { weight: 1, arbitrary: segment.map((text) => `[[${text}]]`) },
    { weight: 1, arbitrary: segment.map((text) => `[x[${text}]y]`) },
    { weight: 1, arbitrary: segment.map((text) => `[${text}]j`) },
    { weight: 1, arbitrary: segment.map((text) => `[${text}=z]`) },
  );
  const value = fc.oneof(
    { weight: 6, arbitrary: fc.integer({ min: 0, max: 99 }).map(String) },
    { weight: 2, arbitrary: fc.constant('') },
    {
      weight: 2,
      arbitrary: fc.constantFrom('a b', 'a=b', 'x]=y', '[]', '[0]', '%', 'é', '😀', 'toString'),
    },
  );
  /** Escapes what must be, and some of what need not be. */
  const written = (text: string, style: number) =>
    [...text]
      .map((character, i) => {
        const isPlain = /[a-z0-9_.[\]=-]/i.test(character);
        if (!isPlain) return character === ' ' && style % 2 ? '+' : encodeURIComponent(character);
        if ((style >> (i % 8)) % 3 !== 2 || character === '=') return character;
        const hex = character.charCodeAt(0).toString(16).padStart(2, '0');
        return `%${style % 5 === 0 ? hex.toUpperCase() : hex}`;
      })
      .join('');
  const style = fc.integer({ min: 0, max: 255 });
  const join = ([name, text, nameStyle, valueStyle, hasEquals]: readonly [
    string,
    string,
    number,
    number,
    boolean,
  ]) => written(name, nameStyle) + (hasEquals ? `=${written(text, valueStyle)}` : '');
  const parameterOf = (name: fc.Arbitrary<string>) =>
    fc
      .tuple(
        name,
        value,
        style,
        style,
        fc.integer({ min: 0, max: 15 }).map((n) => n > 0),
      )
      .map(join);

  const anyName = fc
    .tuple(segment, fc.array(group, { maxLength: 4 }))
    .map(([parent, groups]) => parent + groups.join(''));
  const anyForm = fc
    .array(parameterOf(anyName), { maxLength: 10, size: 'max' })
    .map((parts) => parts.join('&'));

  // Different names of one path: text behind a bracket is dropped, so these do not combine.
  const alias = fc.integer({ min: 0, max: 40 }).map((n) => `[a]${n}`);
  const oneName = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('a', '[a]', 'a[]', 'a[]x', 'a[][]') },
    { weight: 4, arbitrary: alias },
    { weight: 3, arbitrary: fc.tuple(alias, index).map(([name, i]) => `${name}[${i}]`) },
    { weight: 2, arbitrary: alias.map((name) => `${name}[]`) },
    { weight: 4, arbitrary: index.map((i) => `a[${i}]`) },
    { weight: 1, arbitrary: index.map((i) => `a[${i}][]`) },
    { weight: 1, arbitrary: fc.tuple(index, index).map(([i, j]) => `a[${i}][${j}]`) },
    { weight: 1, arbitrary: fc.tuple(index, word).map(([i, key]) => `a[${i}][${key}]`) },
    { weight: 1, arbitrary: word.map((key) => `a[][${key}]`) },
    { weight: 1, arbitrary: word.map((key) => `a[${key}]`) },
    { weight: 1, arbitrary: odd.map((key) => `a[${key}]`) },
  );
  const long = (min: number, max: number) => ({
    minLength: min,
    maxLength: max,
    size: 'max' as const,
  });
  const oneNameForm = fc
    .oneof(
      { weight: 3, arbitrary: fc.array(parameterOf(oneName), long(1, 12)) },
      { weight: 1, arbitrary: fc.array(parameterOf(oneName), long(20, 70)) },
    )
    .map((parts) => parts.join('&'));

  const anyText = fc
    .array(
      fc.constantFrom(
        ...['a', 'b', '0', '1', '19', '20', '21', '[', ']', '[]', '[a]', '=', '&', '&a', '+'],
        ...[
          '%5B',
          '%5d',
          '%255B',
          '%26',
          '%3D',
          '%2B',
          '%20',
          '%C3%A9',
          '__proto__',
          'é',
          ']=',
          '.',
        ],
      ),
      long(0, 40),
    )
    .map((parts) => parts.join(''))
    // Beyond an index of 999 we refuse.
    .filter((text) => !/[0-9]{4}/.test(text));

  for (const { why, forms, runs } of [
    { why: 'names of every shape', forms: anyForm, runs: 20_000 },
    { why: 'strings, lists and objects under one name', forms: oneNameForm, runs: 20_000 },
    { why: 'text of the characters that mean something', forms: anyText, runs: 12_000 },
  ]) {
    test(`${why}, ${runs} forms`, (t: TestContext) => {
      t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
      const property = fc.property(forms, (text) => {
        fc.pre(!hasBigIndex(text));
        assertSame(text);
      });
      fc.assert(property, { seed: SEED, numRuns: runs });
    });
  }
});

/** Whether a segment is an array index above 999, which we refuse and qs takes for a name. */
function hasBigIndex(text: string): boolean {
  return /\[[1-9][0-9]{3,}\]/.test(decodeURIComponent(text));
}

describe('limits of a form', () => {
  for (const { why, text, status, message } of [
    {
      why: '1,001 parameters',
      text: Array(1001).fill('a=b').join('&'),
      status: 413,
      message: 'The form has more than 1000 parameters.',
    },
    {
      why: '1,001 parameters of which most are empty',
      text: '&'.repeat(1000),
      status: 413,
      message: 'The form has more than 1000 parameters.',
    },
    {
      why: 'depth 33',
      text: `a${'[b]'.repeat(33)}=c`,
      status: 400,
      message: 'The form is nested deeper than 32 levels.',
    },
    {
      why: 'depth 33 without a name in front',
      text: `${'[b]'.repeat(33)}=c`,
      status: 400,
      message: 'The form is nested deeper than 32 levels.',
    },
    {
      why: 'depth 33 in encoded brackets',
      text: `a${'%5Bb%5D'.repeat(33)}=c`,
      status: 400,
      message: 'The form is nested deeper than 32 levels.',
    },
    {
      why: 'depth 33 of arrays',
      text: `a${'[]'.repeat(33)}=c`,
      status: 400,
      message: 'The form is nested deeper than 32 levels.',
    },
    ...[
      '1000',
      '1001',
      '99999',
      '4294967295',
      '9007199254740991',
      '9007199254740992',
      '9'.repeat(40),
    ].map((index) => ({
      why: `array index ${index}`,
      text: `a[${index}]=b`,
      status: 400,
      message: 'The form has an array index above 999.',
    })),
    {
      why: 'array index 1000 further in',
      text: 'a[b][1000][c]=d',
      status: 400,
      message: 'The form has an array index above 999.',
    },
    ...[
      '%',
      'a%',
      '%2',
      'a=%',
      'a=%g0',
      'a=%0g',
      'a=% 20',
      'a=%u263A',
      'a=%2&b=c',
      '__proto__=%',
    ].map((text) => ({
      why: 'malformed percent-encoding',
      text,
      status: 400,
      message: 'The form has malformed percent-encoding.',
    })),
    ...[
      { why: 'a byte that UTF-8 never has', text: 'a=%FF' },
      { why: 'Latin-1', text: 'a=%E9' },
      { why: 'a continuation byte alone', text: 'a=%80' },
      { why: 'a sequence cut short', text: 'a=%E2%82' },
      { why: 'a sequence cut short in a name', text: '%F0%9F%98=a' },
      { why: 'an overlong sequence', text: 'a=%C0%80' },
      { why: 'a surrogate in UTF-8', text: 'a=%ED%A0%80' },
      { why: 'a code point above U+10FFFF', text: 'a=%F4%90%80%80' },
    ].map((row) => ({ ...row, status: 400, message: 'The form has malformed percent-encoding.' })),
  ]) {
    test(`${why} answers ${status}: ${text.slice(0, 40)}`, () => {
      assert.throws(() => parseForm(text), { name: 'HttpError', status, message });
    });
  }

  for (const { why, text } of [
    { why: '1,000 parameters', text: Array(1000).fill('a=b').join('&') },
    {
      why: '1,000 parameters of different names',
      text: list(1000)
        .map((i) => `k${i}=v`)
        .join('&'),
    },
    {
      why: '1,000 indices',
      text: list(1000)
        .map((i) => `a[${i}]=${i}`)
        .join('&'),
    },
    {
      why: '1,000 indices backwards',
      text: list(1000)
        .reverse()
        .map((i) => `a[${i}]=${i}`)
        .join('&'),
    },
    {
      why: '1,000 elements',
      text: list(1000)
        .map((i) => `a[]=${i}`)
        .join('&'),
    },
    {
      why: '1,000 parameters that merge',
      text: list(1000)
        .map((i) => `[a]${i}=${i}`)
        .join('&'),
    },
    { why: '999 separators', text: '&'.repeat(999) },
    { why: 'depth 32', text: `a${'[b]'.repeat(32)}=c` },
    { why: 'depth 32 without a name in front', text: `${'[b]'.repeat(32)}=c` },
    { why: 'depth 32 of arrays', text: `a${'[]'.repeat(32)}=c` },
    { why: 'array index 999', text: 'a[999]=b' },
    { why: 'array index 999 further in', text: 'a[b][999][c]=d' },
    { why: 'the name 1000 at the top, which is no index', text: '1000=a' },
    { why: 'the name 01000, which is no index', text: 'a[01000]=b' },
  ]) {
    test(`${why}: taken as qs takes it`, () => assertSame(text));
  }

  for (const { why, text } of [
    { why: 'opening brackets', text: '['.repeat(100_000) },
    { why: 'closing brackets', text: ']'.repeat(100_000) },
    { why: 'pairs in pairs', text: `a${'['.repeat(50_000)}${']'.repeat(50_000)}` },
    { why: 'one long value', text: `a=${'x'.repeat(100_000)}` },
    { why: 'equals signs', text: '='.repeat(100_000) },
    {
      why: '1,000 parameters of depth 32',
      text: Array(1000)
        .fill(`a${'[]'.repeat(32)}=b`)
        .join('&'),
    },
    {
      why: '1,000 names of 100 opening brackets',
      text: list(1000)
        .map((i) => `${i}${'['.repeat(98)}`)
        .join('&'),
    },
    {
      why: '1,000 indices of 999',
      text: list(1000)
        .map((i) => `[a]${i}[999]=${i}`)
        .join('&'),
    },
  ]) {
    test(`100 KB of ${why} takes less than a second`, () => {
      const start = performance.now();
      parseForm(text);
      assert.ok(performance.now() - start < 1000);
    });
  }
});

test('no form reaches a prototype', () => {
  const names = ['__proto__', 'constructor', 'prototype', 'toString', 'a', '', '0'];
  const segments = [
    ...names,
    ...names.map((name) => `[${name}]`),
    ...names.map((name) => `[${name}`),
  ];
  const forms = segments.flatMap((x) =>
    segments.flatMap((y) =>
      segments.map((z) => `${x}[${y}][${z}]=bad&${x}[${y}]=bad&a[${z}][bad]=x`),
    ),
  );
  for (const text of forms) {
    assertPlain(parseForm(text), text);
  }
  assert.deepEqual(Reflect.ownKeys({}), []);
  assert.equal('bad' in {}, false);
});

function assertPlain(value: unknown, text: string): void {
  if (typeof value !== 'object' || value === null) return;
  const prototype = Array.isArray(value) ? Array.prototype : Object.prototype;
  assert.equal(Object.getPrototypeOf(value), prototype, text);
  assert.ok(!Object.hasOwn(value, '__proto__') && !Object.hasOwn(value, 'constructor'), text);
  for (const inner of Object.values(value)) assertPlain(inner, text);
}
