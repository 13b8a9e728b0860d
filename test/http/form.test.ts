// The form parser: accepted forms, each compared with npm qs, refused forms, limits, and memory of
// results. FAST_CHECK_SEED repeats a run; each run prints its seed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import fc from 'fast-check';
import qs from 'qs';
import { HttpError } from '../../src/http/errors.ts';
import { parseForm } from '../../src/http/form.ts';
import { start } from '../support/program.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);

const SENTENCES = {
  bracket: 'The form has a misplaced or unclosed bracket in a name.',
  both: 'The form has a name with both a value and children.',
  mix: 'The form mixes keys, indices and [] under one name.',
  gap: 'The form has a gap in the indices under one name.',
  levels: 'The form has more than 32 levels.',
  segments: 'The form has more than 500 name segments.',
  encoding: 'The form has malformed percent-encoding.',
  parameters: 'The form has more than 200 parameters.',
};

const repeat = (count: number, parameter: (i: number) => string | number) =>
  Array.from({ length: count }, (_, i) => parameter(i)).join('&');

/** Returns a word of letters, different for each number. */
function word(n: number): string {
  return n.toString().replace(/\d/g, (digit) => 'abcdefghij'[Number(digit)]!);
}

/** Asserts the same value and the same JSON text, which includes the order of keys. */
function assertSame(text: string): void {
  const expected = qs.parse(text, { depth: 32, arrayLimit: 1000 });
  const form = parseForm(text);
  assert.deepStrictEqual(form, expected, text);
  assert.equal(JSON.stringify(form), JSON.stringify(expected), text);
}

describe('3.14 accepted forms', () => {
  for (const [why, text, form] of [
    ['nothing', '', {}],
    ['one parameter', 'a=b', { a: 'b' }],
    ['two parameters', 'a=b&c=d', { a: 'b', c: 'd' }],
    ['only a name', 'a', { a: '' }],
    ['only a name next to another', 'a=b&c', { a: 'b', c: '' }],
    ['an empty value', 'a=', { a: '' }],
    ['an equals sign in the value', 'a=b=c', { a: 'b=c' }],
    ['spaces kept', ' a = b = c ', { ' a ': ' b = c ' }],
    ['a question mark is text', '?a=b', { '?a': 'b' }],
    ['commas are text', 'a=1,2', { a: '1,2' }],
    ['dots are text', 'a.b=c', { 'a.b': 'c' }],
    ['a semicolon is text', 'a=b;c=d', { a: 'b;c=d' }],
    ['JSON is text', 'pets=["tobi"]', { pets: '["tobi"]' }],
    ['an integer name at the top', '0=a', { 0: 'a' }],
    ['integer names come first', 'b=1&2=x&1=y', { 1: 'y', 2: 'x', b: '1' }],
    [
      'large integer names at the top',
      '4294967294=x&999=y&4294967295=z',
      { 999: 'y', 4294967294: 'x', 4294967295: 'z' },
    ],
    ['integer names with children', '7[a]=x&b=y&3[]=z', { 3: ['z'], 7: { a: 'x' }, b: 'y' }],

    ['one level', 'a[b]=c', { a: { b: 'c' } }],
    ['three levels', 'a[b][c]=d', { a: { b: { c: 'd' } } }],
    ['two members', 'a[b]=1&a[c]=2', { a: { b: '1', c: '2' } }],
    ['members apart', 'a[b]=1&x=2&a[c]=3', { a: { b: '1', c: '3' }, x: '2' }],
    ['only a name with brackets', 'a[b]', { a: { b: '' } }],
    ['equals signs in brackets', 'a[>=]=25&a[==]=3', { a: { '>=': '25', '==': '3' } }],
    ['a dot in brackets', 'a[b.c]=1', { a: { 'b.c': '1' } }],
    ['"]=" in the value of a bracketed name', 'a[b]=c]=d', { a: { b: 'c]=d' } }],

    ['a list of one', 'a[]=b', { a: ['b'] }],
    ['a list of two', 'a[]=b&a[]=c', { a: ['b', 'c'] }],
    ['a list with empty elements', 'a[]=&a[]=b&a[]', { a: ['', 'b', ''] }],
    ['a list in an object', 'a[b][]=c&a[b][]=d', { a: { b: ['c', 'd'] } }],
    ['an object in a list', 'a[][b]=c&a[][d]=e', { a: [{ b: 'c', d: 'e' }] }],
    ['a list in a list is one list', 'a[][]=b&a[][]=c', { a: ['b', 'c'] }],
    ['indices in a list are one list', 'a[][1]=y&a[][0]=x', { a: ['x', 'y'] }],
    ['a list in an object in a list', 'a[][b][]=c', { a: [{ b: ['c'] }] }],

    ['index 0', 'a[0]=b', { a: ['b'] }],
    ['indices in order', 'a[0]=b&a[1]=c', { a: ['b', 'c'] }],
    ['indices out of order', 'a[1]=c&a[2]=d&a[0]=b', { a: ['b', 'c', 'd'] }],
    ['objects by index', 'a[1][x]=3&a[0][x]=1&a[0][y]=2', { a: [{ x: '1', y: '2' }, { x: '3' }] }],
    ['indices in indices', 'a[0][1]=y&a[0][0]=x', { a: [['x', 'y']] }],
    ['empty values by index', 'a[1]=&a[0]=', { a: ['', ''] }],
    ['an escaped index', 'a[%30]=b', { a: ['b'] }],
    ...['01', '00', '-1', '-0', '+0', ' 0', '0 ', '1e1', '1.0', '0x0', '٠', 'NaN', 'length'].map(
      (key) =>
        [`${key} is a key`, `a[${encodeURIComponent(key)}]=b`, { a: { [key]: 'b' } }] as const,
    ),

    ['a name twice', 'a=b&a=c', { a: ['b', 'c'] }],
    ['a name twice, empty', 'a&a=', { a: ['', ''] }],
    ['a name twice in two spellings', 'a=b&%61=c', { a: ['b', 'c'] }],
    ['a member twice', 'a[b]=1&a[b]=2', { a: { b: ['1', '2'] } }],
    ['an index twice', 'a[0]=x&a[0]=y', { a: [['x', 'y']] }],
    ['an index twice next to another', 'a[1]=z&a[0]=x&a[0]=y', { a: [['x', 'y'], 'z'] }],
    ['an index twice in a list', 'a[][0]=x&a[][0]=y', { a: [['x', 'y']] }],

    ['only separators', '&&', {}],
    ['an empty name', '=x', {}],
    ['an empty name and value', '=', {}],
    ['empty names around', '&=&a=b&=x&', { a: 'b' }],

    ['encoded brackets', 'a%5Bb%5d=c', { a: { b: 'c' } }],
    ['brackets encoded twice are text', 'a%255Bb%255D=c', { 'a%5Bb%5D': 'c' }],
    ['brackets in a value', 'a=[b]&c=%5Bd%5D&e=]&f=[', { a: '[b]', c: '[d]', e: ']', f: '[' }],
    ['plus is a space', 'a+b=c+d&e[+]=f', { 'a b': 'c d', e: { ' ': 'f' } }],
    ['an encoded plus is a plus', 'a=c%2B%2b', { a: 'c++' }],
    ['encoded separators are text', 'he%3Dllo=th%26ere', { 'he=llo': 'th&ere' }],
    ['an encoded percent', 'a=100%25', { a: '100%' }],
    ['UTF-8 of each length', 'a=%24%C2%A2%E2%82%AC%F0%9F%98%80', { a: '$¢€😀' }],
    ['raw UTF-8', 'ä[ö]=€😀', { ä: { ö: '€😀' } }],
    ['U+0000', 'a=%00', { a: '\0' }],
    ['a line break', 'a%0A[%0A]=%0A', { 'a\n': { '\n': '\n' } }],
    ['a raw line break', 'a\n[\n]=\n', { 'a\n': { '\n': '\n' } }],
    ['a byte order mark', '%EF%BB%BFa=%EF%BB%BF', { '\ufeffa': '\ufeff' }],

    ['toString', 'toString=x&a=b', { a: 'b' }],
    ['hasOwnProperty', 'hasOwnProperty=x', {}],
    ['constructor', 'constructor[prototype][bad]=x', {}],
    ['a nested constructor', 'bad[constructor][prototype][bad]=x', {}],
    ['__proto__', '__proto__=x&__proto__[bad]=y', {}],
    ['a nested __proto__', 'a[__proto__][bad]=x&a[b]=c', { a: { b: 'c' } }],
    ['an encoded __proto__', '%5F_proto__[bad]=x', {}],
    ['a __proto__ in a list', 'a[][__proto__]=x', {}],
    ['a prototype name under a list', 'a[]=b&a[valueOf]=c', { a: ['b'] }],
    ['a prototype name under a value', 'a=b&a[valueOf]=c', { a: 'b' }],
    ['a prototype name after an index gap', 'a[9][valueOf]=c&b=d', { b: 'd' }],
    ['prototype is an ordinary name', 'a[prototype]=x', { a: { prototype: 'x' } }],
  ] as const) {
    test(`3.14 ${why}: ${text.slice(0, 60) || '(empty)'}`, () => {
      assertSame(text);
      assert.deepStrictEqual(parseForm(text), form);
    });
  }
});

/** Refused forms by sentence; two spaces or a line break separate forms. */
const REFUSED: Partial<Record<keyof typeof SENTENCES, string>> = {
  both: `
    a=1&a[b]=2  a[b]=1&a=2  a[b]=1&a=  a&a[]=1  a[]=1&a  a=1&a[0]=2  a[0]=1&a=2
    a[b]=1&a[b][c]=2  a[b][]=1&a[b]=2  a[]=1&a[][b]=2  a[][]=1&a[]=2  a[0]=1&a[0][b]=2
    a=1&a=2&a[b]=3
  `,
  mix: `
    a[]=1&a[b]=2  a[b]=1&a[]=2  a[0]=1&a[b]=2  a[b]=1&a[0]=2  a[]=1&a[0]=2  a[0]=1&a[]=2
    a[0]=1&a[01]=2  a[0]=1&a[-1]=2  a[b][]=1&a[b][c]=2  a[][0]=1&a[][b]=2
    a[]=1&a[0]=2&a[b]=3
  `,
  gap: `
    a[1]=x  a[0]=x&a[2]=y  a[1]=x&a[2]=y  a[b][1]=x  a[0][1]=x  a[][1]=x  a[999]=x
    a[1000]=x  a[4294967294]=x  a[4294967295]=x  a[9007199254740991]=x
    a[9007199254740993]=x  a[9999999999999999999999999999999999999999]=x
    a[999999999999]=x&a[0]=y  a[%31]=x
  `,
  bracket: `
    [  ]  []  []=a  [a]=b  [0]=a  [a][b]=c  [=x  ]=x  [[=x  a]=x  a[=x  a[b=c  a[b  a[b][c=d
    a[b]c=d  a[b]c[d]=e  a[b] [c]=d  a[[b]]=c  a[b[]]=c  a[[]b=c  a[b]]=c  a]b[c]=d  a[]]=b
    a][=b  a=[b]=c  a=b]=c  a=b%5D=c  =]=a  a%5B=x  a%5Bb=c  %5Ba%5D=b  toString]=x
    __proto__[=x
  `,
  // Ends with invalid UTF-8: an impossible byte, Latin-1, a lone continuation byte, truncated
  // sequences (one by a bracket), an overlong one, a surrogate, a code point above U+10FFFF.
  encoding: `
    %  a%  %2  a=%  a=%g0  a=%0g  a=% 20  a=%u263A  a=%2&b=c  a[%]=b  a[%f]=b  __proto__=%
    =%  a=%%5B  a=%2%5B  a=%FF  a=%E9  a=%80  a=%E2%82  %F0%9F%98=a  %E2[%82%AC]=a  a=%C0%80
    a=%ED%A0%80  a=%F4%90%80%80
  `,
};

describe('3.14 refused forms', () => {
  for (const [name, texts] of Object.entries(REFUSED)) {
    const message = SENTENCES[name as keyof typeof SENTENCES];
    for (const text of texts.trim().split(/ {2,}|\n +/)) {
      test(`3.14 ${text.slice(0, 40)} returns 400: ${message}`, () => {
        assert.throws(() => parseForm(text), { name: 'HttpError', status: 400, message });
      });
    }
  }
});

describe('3.14 random forms give the result of qs', () => {
  const key = fc.constantFrom(
    ...['a', 'b', 'c', 'x y', 'é', '😀', 'a.b', '_', '>=', 'a=b', '&', '%', '+'],
    ...['01', '-1', '1e1', '+1', '1.5', 'undefined', 'NaN', 'prototype', 'length', '__proto'],
  );
  const root = fc.oneof(key, fc.constantFrom('0', '7', '19', '999', '4294967294', '4294967295'));
  const value = fc.constantFrom(
    '',
    '0',
    '1',
    '17',
    'a b',
    'a=b',
    'x]=y',
    '[]',
    '[0]',
    '%',
    '&',
    'é',
    '😀',
  );

  /** A tree of the grammar: the names below its root, with their values. */
  type Leaves = readonly (readonly [name: string, value: string])[];
  const below = (prefix: string, leaves: Leaves): Leaves =>
    leaves.map(([name, text]) => [`[${prefix}]${name}`, text] as const);
  const { tree } = fc.letrec<{ tree: Leaves }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 4, depthSize: 'medium', withCrossShrink: true },
      { weight: 4, arbitrary: value.map((text): Leaves => [['', text]]) },
      {
        weight: 1,
        arbitrary: fc
          .array(value, { minLength: 2, maxLength: 3 })
          .map((texts): Leaves => texts.map((text) => ['', text] as const)),
      },
      {
        weight: 3,
        arbitrary: fc
          .uniqueArray(fc.tuple(key, tie('tree')), {
            minLength: 1,
            maxLength: 4,
            selector: ([k]) => k,
          })
          .map((members) => members.flatMap(([k, leaves]) => below(encodeURIComponent(k), leaves))),
      },
      {
        weight: 3,
        arbitrary: fc
          .array(tie('tree'), { minLength: 1, maxLength: 4 })
          .map((items) => items.flatMap((leaves, i) => below(String(i), leaves))),
      },
      { weight: 2, arbitrary: tie('tree').map((leaves) => below('', leaves)) },
    ),
  }));
  const validForm = fc
    .uniqueArray(fc.tuple(root, tree), { maxLength: 4, selector: ([name]) => name })
    .map((members) =>
      members.flatMap(([name, leaves]) =>
        leaves.map(
          ([rest, text]) => `${encodeURIComponent(name)}${rest}=${encodeURIComponent(text)}`,
        ),
      ),
    )
    // Each bracket is a segment, and so is each name (3.15).
    .filter((all) => all.length <= 200 && all.join('[').split('[').length <= 500)
    .chain((parameters) =>
      fc.shuffledSubarray(parameters, {
        minLength: parameters.length,
        maxLength: parameters.length,
      }),
    );
  /** Spells some brackets, digits and letters as escapes. */
  const spelled = (text: string, style: number) =>
    text.replace(/%..|[[\]\w]/g, (character, at: number) =>
      character.length > 1 || (style >> (at % 16)) % 2 === 0
        ? character
        : `%${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
    );

  test('3.14 every one of 20,000 forms of the grammar is accepted', (t: TestContext) => {
    t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
    const style = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 2 ** 16 - 1 }));
    const property = fc.property(validForm, style, (parameters, bits) => {
      assertSame(spelled(parameters.join('&'), bits));
    });
    fc.assert(property, { seed: SEED, numRuns: 20_000 });
  });

  const ALPHABET = ['a', 'b', '[', ']', '=', '&', '0', '1', '%5B'];
  const TOKENS = [
    ...'a b [ ] = & 0 1 2 [] [a] [b] [0] [1] [2] ]= &a &a[ &a[0] &a[1]= &a[]='.split(' '),
    ...'%5B %5D %5b %255B %26 %3D %2B %20 %30'.split(' '),
    ...['+', ' ', '%', '.', 'é', '%C3%A9', '01', '-1', '999', '[999]', '[1000]', '[4294967295]'],
    ...['__proto__', '[__proto__]', 'constructor', '[toString]', '[length]', '[=]', '&=', '&&'],
  ];
  const textOf = (tokens: readonly string[], maxLength: number) =>
    fc.array(fc.constantFrom(...tokens), { maxLength, size: 'max' }).map((parts) => parts.join(''));
  const parameter = fc
    .array(fc.constantFrom('[a]', '[b]', '[0]', '[1]', '[]', '[01]', '[toString]'), {
      maxLength: 3,
    })
    .chain((groups) =>
      fc.constantFrom('', '=', '=1', '=2').map((end) => `a${groups.join('')}${end}`),
    );
  const collision = fc
    .array(parameter, { minLength: 1, maxLength: 4 })
    .map((parts) => parts.join('&'));
  const edited = fc
    .tuple(validForm, fc.constantFrom('', ...TOKENS), fc.nat(), fc.nat(3))
    .map(([parameters, token, at, dropped]) => {
      const text = parameters.join('&');
      const start = at % (text.length + 1);
      return text.slice(0, start) + token + text.slice(start + dropped);
    });

  for (const { why, forms, runs, share } of [
    { why: 'text of a b [ ] = & 0 1 %5B', forms: textOf(ALPHABET, 12), runs: 60_000, share: 0.05 },
    { why: 'text of tokens', forms: textOf(TOKENS, 12), runs: 40_000, share: 0.01 },
    { why: 'names that collide', forms: collision, runs: 40_000, share: 0.2 },
    { why: 'forms of the grammar with one edit', forms: edited, runs: 20_000, share: 0.2 },
  ]) {
    test(`3.14 each accepted form of ${runs}: ${why}`, (t: TestContext) => {
      let accepted = 0;
      const property = fc.property(forms, (text) => {
        if (isRefused(text)) return;
        accepted++;
        assertSame(text);
      });
      fc.assert(property, { seed: SEED, numRuns: runs });
      t.diagnostic(`FAST_CHECK_SEED=${SEED}, ${accepted} accepted`);
      assert.ok(accepted > share * runs, `${accepted} accepted`);
    });
  }
});

/** True if the parser refuses the form with one of its sentences. */
function isRefused(text: string): boolean {
  try {
    parseForm(text);
    return false;
  } catch (err) {
    assert.ok(err instanceof HttpError, text);
    assert.equal(err.status, 400, text);
    assert.ok(Object.values(SENTENCES).includes(err.message), err.message);
    return true;
  }
}

describe('3.15 limits of a form', () => {
  const nested = (levels: number, group = '[b]') => `a${group.repeat(levels)}=c`;
  /** Returns `count` segments, in names of 32 levels and one shorter name. */
  const segments = (count: number) => {
    const names = repeat(Math.floor(count / 33), (i) => `${word(i)}${'[b]'.repeat(32)}=`);
    return `${names}&rest${'[b]'.repeat((count % 33) - 1)}=`;
  };
  for (const { why, text, limit } of [
    { why: '201 parameters', text: repeat(201, () => 'a=b'), limit: 'parameters' },
    { why: '201 empty parameters', text: '&'.repeat(200), limit: 'parameters' },
    { why: '100,000 parameters', text: '&'.repeat(99_999), limit: 'parameters' },
    { why: '33 levels', text: nested(33), limit: 'levels' },
    { why: '33 levels in encoded brackets', text: nested(33, '%5Bb%5D'), limit: 'levels' },
    { why: '33 levels of lists', text: nested(33, '[]'), limit: 'levels' },
    { why: '33 levels of indices', text: nested(33, '[0]'), limit: 'levels' },
    { why: '100,000 opening brackets', text: '['.repeat(100_000), limit: 'levels' },
    { why: '501 segments', text: segments(501), limit: 'segments' },
    { why: '501 ignored', text: segments(501).replaceAll('[b]', '[toString]'), limit: 'segments' },
  ] as const) {
    const status = limit === 'parameters' ? 413 : 400;
    test(`3.15 ${why} returns ${status}: ${text.slice(0, 40)}`, () => {
      const message = SENTENCES[limit];
      assert.throws(() => parseForm(text), { name: 'HttpError', status, message });
    });
  }

  for (const { why, text } of [
    { why: '200 parameters', text: repeat(200, () => 'a=b') },
    { why: '200 names', text: repeat(200, (i) => `k${i}=v`) },
    { why: '200 integer names', text: repeat(200, (i) => `${i * 7}=v`) },
    { why: '200 indices', text: repeat(200, (i) => `a[${i}]=${i}`) },
    { why: '200 indices backwards', text: repeat(200, (i) => `a[${199 - i}]=${i}`) },
    { why: '200 elements', text: repeat(200, (i) => `a[]=${i}`) },
    { why: '200 values of an index', text: repeat(200, (i) => `a[0]=${i}`) },
    { why: '199 separators', text: '&'.repeat(199) },
    { why: '32 levels', text: nested(32) },
    { why: '32 levels of lists', text: nested(32, '[]') },
    { why: '32 levels of indices', text: nested(32, '[0]') },
    { why: '500 segments', text: segments(500) },
    { why: '1000 as a name', text: '1000=a' },
    { why: '01000 as a key', text: 'a[01000]=b' },
  ]) {
    test(`3.15 ${why}: accepted, as by qs`, () => assertSame(text));
  }
});

// Keys differ between copies if possible, so that V8 shares little between results.
const COSTLY: Record<string, (copy: number) => string> = {
  'an integer name': () => '999=',
  'integer names': (n) => repeat(100, (i) => 900 + n + i),
  'integer names far apart': (n) => repeat(200, (i) => `${i * 4_000_000 + n}=`),
  'one name': (n) => `${word(n)}=`,
  names: (n) => repeat(200, (i) => `${word(200 * n + i)}=`),
  'a repeated name': () => repeat(200, () => 'a='),
  'lists of one': (n) => repeat(200, (i) => `${word(200 * n + i)}[]=`),
  'arrays of one': (n) => repeat(200, (i) => `${word(200 * n + i)}[0]=`),
  'an array of 200': () => repeat(200, (i) => `a[${199 - i}]=`),
  'objects of one': (n) => repeat(200, (i) => `${word(i)}[${word(200 * n + i)}]=`),
  'objects of 13': (n) => repeat(200, (i) => `${word(i % 15)}[${word(200 * n + i)}]=`),
  'objects in objects': (n) =>
    repeat(120, (i) => `${word(i)}[${word(200 * n + i)}][${word(200 * n + i)}][b]=`),
  '32 levels of one key': () => repeat(15, (i) => `${word(i)}${'[b]'.repeat(32)}=`),
  '32 levels of different keys': (n) =>
    repeat(
      15,
      (i) =>
        `${word(i)}${[...Array(32).keys()].map((j) => `[${word(500 * n + 32 * i + j)}]`).join('')}=`,
    ),
  '32 levels of arrays': () => repeat(15, (i) => `${word(i)}${'[0]'.repeat(32)}=`),
  '32 levels of lists': () => repeat(15, (i) => `${word(i)}${'[]'.repeat(32)}=`),
  'one long value': () => `a=${'x'.repeat(99_000)}`,
  'long values': () => repeat(200, (i) => `${word(i)}=${'y'.repeat(70)}`),
  'long values that are not Latin-1': () =>
    repeat(200, (i) => `é${i}=${'€'.repeat(20)}${'y'.repeat(75)}`),
};

/** V8 allocated 12 kB for each "[999]" of this form: names with 19 of them each. */
const ATTACK = repeat(150, (i) => `${word(1000 + i)}${'[999]'.repeat(19)}=`);

/** Allowance for any result: its root object with its first property. */
const RETAINED_BYTES = 256;
const RETAINED_BYTES_PER_BODY_BYTE = 64;
/** Allowance for parsing, including garbage. */
const ALLOCATED_BYTES = 4096;
const ALLOCATED_BYTES_PER_BODY_BYTE = 1024;

describe('3.15 memory is linear in the size of the body', () => {
  for (const [why, form] of Object.entries(COSTLY)) {
    test(`3.15 ${why}: ${form(0).slice(0, 40)}`, (t: TestContext) => {
      const copies = Math.ceil(200_000 / form(0).length);
      const forms = Array.from({ length: copies }, (_, n) => form(n));
      const { retained, allocated, refusals } = measure(forms);
      const bytes = Buffer.byteLength(forms.join(''));
      const each = (total: number) => (total / bytes).toFixed(1);
      t.diagnostic(`per body byte: ${each(retained)} retained, ${each(allocated)} allocated`);
      assert.deepEqual(refusals, []);
      assert.ok(retained < copies * RETAINED_BYTES + bytes * RETAINED_BYTES_PER_BODY_BYTE);
      assert.ok(allocated < copies * ALLOCATED_BYTES + bytes * ALLOCATED_BYTES_PER_BODY_BYTE);
    });
  }

  for (const { why, form, message } of [
    { why: '15 kB of [999]', form: ATTACK, message: SENTENCES.segments },
    {
      why: '2 kB of [999]',
      form: ATTACK.slice(0, 2_000).replace(/&[^&]*$/, ''),
      message: SENTENCES.gap,
    },
    {
      why: 'brackets in brackets',
      form: `a${'['.repeat(50_000)}${']'.repeat(50_000)}`,
      message: SENTENCES.levels,
    },
    { why: 'closing brackets', form: ']'.repeat(100_000), message: SENTENCES.bracket },
    {
      why: 'long unclosed brackets',
      form: repeat(30, () => `a${`[${'b'.repeat(100)}`.repeat(32)}`),
      message: SENTENCES.bracket,
    },
    { why: '1,000 levels', form: `a${'[b]'.repeat(1000)}`, message: SENTENCES.levels },
  ]) {
    test(`3.15 refusing ${why} retains nothing`, () => {
      const { retained, allocated, refusals } = measure([form]);
      assert.deepEqual(refusals, [message]);
      assert.ok(retained < RETAINED_BYTES_PER_BODY_BYTE * 1000, String(retained));
      assert.ok(allocated < ALLOCATED_BYTES + form.length * ALLOCATED_BYTES_PER_BODY_BYTE);
    });
  }
});

/** Parses the forms in a separate process; returns the cost. */
function measure(forms: readonly string[]) {
  const file = join(import.meta.dirname, '../support/retained.ts');
  const { stdout, stderr } = spawnSync(process.execPath, ['--expose-gc', file], {
    input: JSON.stringify(forms),
    encoding: 'utf8',
  });
  assert.notEqual(stdout, '', stderr);
  return JSON.parse(stdout) as { retained: number; allocated: number; refusals: string[] };
}

const noProc = !existsSync('/proc/self/clear_refs') && 'needs /proc';

test('3.15 a service that gets the form of 15 kB does not grow', { skip: noProc }, async () => {
  await using program = await start({ AUTH_FAILURES_PER_MINUTE: '0' });
  const send = async (body: string) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    const response = await fetch(`${program.url}/token`, { method: 'POST', headers, body });
    return `${response.status} ${await response.text()}`;
  };
  const { pid } = program.process;
  const memory = (name: string) => {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1024;
  };
  await send('a=b');
  writeFileSync(`/proc/${pid}/clear_refs`, '5'); // Resets VmHWM, the peak.
  const before = memory('VmRSS');
  const responses = new Set<string>();
  for (let i = 0; i < 20; i++) responses.add(await send(ATTACK));
  const grown = memory('VmHWM') - before;
  // An earlier parser took 280 MB for one such form.
  assert.ok(grown < 48 * 2 ** 20, `${grown} bytes`);
  assert.deepEqual([...responses], [`400 ${SENTENCES.segments}`]);
});

describe('3.17 names of Object.prototype', () => {
  const names = ['__proto__', 'constructor', 'prototype', 'toString', 'a', '', '0'];
  const segments = names.flatMap((name) => [name, `${name}[a]`, `${name}[]`]);
  const forms = segments
    .flatMap((x) =>
      names.flatMap((y) => names.map((z) => `${x}[${y}][${z}]=bad&${x}[c]=bad&b[${z}][bad]=x`)),
    )
    .concat(names.map((name) => `${name}=bad&x[${name}]=bad`))
    .filter((text) => !isRefused(text));

  test('3.17 no form reaches a prototype', () => {
    assert.ok(forms.length > 200, String(forms.length));
    for (const text of forms) assertPlain(parseForm(text), text);
    assert.deepEqual(Reflect.ownKeys({}), []);
    assert.equal('bad' in {}, false);
  });

  test('3.17 node --disable-proto=delete ignores the same names', () => {
    const program = `
      import { json } from 'node:stream/consumers';
      import { parseForm } from './src/http/form.ts';
      const forms = await json(process.stdin);
      process.stdout.write(JSON.stringify(forms.map(parseForm)));
    `;
    const args = ['--disable-proto=delete', '--input-type=module', '-e', program];
    const { stdout, stderr } = spawnSync(process.execPath, args, {
      cwd: join(import.meta.dirname, '../..'),
      input: JSON.stringify(forms),
      encoding: 'utf8',
    });
    assert.equal(stdout, JSON.stringify(forms.map(parseForm)), stderr);
  });
});

function assertPlain(value: unknown, text: string): void {
  if (typeof value !== 'object' || value === null) return;
  const prototype = Array.isArray(value) ? Array.prototype : Object.prototype;
  assert.equal(Object.getPrototypeOf(value), prototype, text);
  assert.ok(!Object.hasOwn(value, '__proto__') && !Object.hasOwn(value, 'constructor'), text);
  for (const inner of Object.values(value)) assertPlain(inner, text);
}
