// The form parser: accepted forms, each compared with npm qs, refused forms, limits, and memory of results.
// FAST_CHECK_SEED repeats a run; each run prints its seed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import fc from 'fast-check';
import qs from 'qs';
import { HttpError } from '../../src/http/errors.ts';
import { parseForm } from '../../src/http/form.ts';
import { collect } from '../support/garbage.ts';
import '../support/seed.ts';

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

const list = (count: number, item: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => item(i));
const repeat = (count: number, parameter: (i: number) => string) =>
  list(count, parameter).join('&');

/** Returns a word of letters, different for each number. */
const word = (n: number) => String(n).replace(/\d/g, (digit) => 'abcdefghij'[Number(digit)]!);

/** Asserts the same value and the same JSON text, which includes the order of keys. */
function assertSame(text: string): void {
  const expected = qs.parse(text, { depth: 32, arrayLimit: 1000 });
  const form = parseForm(text);
  assert.deepStrictEqual(form, expected, text);
  assert.equal(JSON.stringify(form), JSON.stringify(expected), text);
}

/** Returns the forms in a text: two spaces or a line break separate them. */
const formsOf = (texts: string) => texts.trim().split(/ {2,}|\n +/);

/** Accepted forms, by what they are about. */
const ACCEPTED = {
  'plain names': `
    a  a=  a=b=c  ?a=b&c  a=1,2  a.b=c;d  0=a  b=1&2=x&1=y  4294967294=x&999=y&4294967295=z
    7[a]=x&b=y&3[]=z
  `,
  keys: `
    a[b]  a[b][c]=d  a[b]=1&x=2&a[c]=3  a[>=]=25&a[==]=3  a[b.c]=1  a[b]=c]=d  a[01]=b  a[-0]=b
    a[%2B0]=b  a[%200]=b  a[1e1]=b  a[0x0]=b  a[٠]=b  a[length]=b
  `,
  lists: 'a[]=&a[]=b&a[]  a[b][]=c&a[b][]=d  a[][b]=c&a[][d]=e  a[][1]=y&a[][0]=x  a[][b][]=c',
  indices: 'a[1]=c&a[2]=d&a[0]=b  a[1][x]=3&a[0][x]=1&a[0][y]=2  a[0][1]=y&a[0][0]=x  a[%30]=b',
  repeats: 'a&a=  a=b&%61=c  a[b]=1&a[b]=2  a[1]=z&a[0]=x&a[0]=y  a[][0]=x&a[][0]=y',
  'empty names': '&&  =  &=&a=b&=x&',
  encoding: `
    a%5Bb%5d=c  a%255Bb%255D=c  a=[b]&c=%5Bd%5D&e=]&f=[  a+b=c+d&e[+]=f  he%3Dllo=th%26ere
    a=100%25  a=%24%C2%A2%E2%82%AC%F0%9F%98%80  ä[ö]=€😀  a%0A[%00]=%0A  %EF%BB%BFa=%EF%BB%BF
  `,
  'names of Object.prototype': `
    toString=x&a=b  constructor[prototype][bad]=x  a[prototype]=x  bad[constructor][prototype][bad]=x
    __proto__=x&__proto__[bad]=y  %5F_proto__[bad]=x  a[__proto__][bad]=x&a[b]=c  a[][__proto__]=x
    a[]=b&a[valueOf]=c  a=b&a[valueOf]=c  a[9][valueOf]=c&b=d
  `,
};

for (const [what, texts] of Object.entries(ACCEPTED)) {
  describe(`3.14 ${what}, with the result of qs`, () => {
    for (const text of formsOf(texts)) test(`3.14 ${text}`, () => assertSame(text));
  });
}

test('3.14 nothing, spaces and raw line breaks, with the result of qs', () => {
  for (const text of ['', ' a = b = c ', 'a\n[\n]=\n']) assertSame(text);
});

/** Refused forms by sentence. */
const REFUSED: Partial<Record<keyof typeof SENTENCES, string>> = {
  both: `
    a=1&a[b]=2  a[b]=1&a=  a&a[]=1  a[]=1&a  a[0]=1&a=2  a[b]=1&a[b][c]=2  a[]=1&a[][b]=2
    a=1&a=2&a[b]=3
  `,
  mix: `
    a[]=1&a[b]=2  a[b]=1&a[]=2  a[0]=1&a[b]=2  a[]=1&a[0]=2  a[0]=1&a[]=2  a[0]=1&a[01]=2
    a[b][]=1&a[b][c]=2  a[][0]=1&a[][b]=2
  `,
  gap: `
    a[1]=x  a[0]=x&a[2]=y  a[b][1]=x  a[0][1]=x  a[][1]=x  a[1000]=x  a[4294967295]=x
    a[9007199254740993]=x  a[999999999999]=x&a[0]=y  a[%31]=x
  `,
  bracket: `
    [  ]  []=a  [a]=b  [a][b]=c  [[=x  a]=x  a[b=c  a[b][c=d  a[b]c=d  a[b] [c]=d  a[[b]]=c
    a[[]b=c  a[b]]=c  a]b[c]=d  a][=b  a=[b]=c  a=b%5D=c  a%5Bb=c  toString]=x  __proto__[=x
  `,
  // Ends with invalid UTF-8: an impossible byte, a lone continuation byte, truncated sequences (one by a bracket), an
  // overlong one, a surrogate, a code point above U+10FFFF.
  encoding: `
    %  a%2  a=%g0  a=%0g  a=% 20  a=%2&b=c  a[%]=b  __proto__=%  a=%%5B  a=%FF  a=%80
    a=%E2%82  %E2[%82%AC]=a  a=%C0%80  a=%ED%A0%80  a=%F4%90%80%80
  `,
};

describe('3.14 refused forms', () => {
  for (const [name, texts] of Object.entries(REFUSED)) {
    const message = SENTENCES[name as keyof typeof SENTENCES];
    for (const text of formsOf(texts)) {
      test(`3.14 3.16 ${text.slice(0, 40)} returns 400: ${message}`, () => {
        assert.throws(() => parseForm(text), { name: 'HttpError', status: 400, message });
      });
    }
  }
});

/** True if the parser refuses the form with one of its sentences. */
function isRefused(text: string): boolean {
  try {
    parseForm(text);
    return false;
  } catch (err) {
    assert.ok(err instanceof HttpError, text);
    assert.equal(err.status, err.message === SENTENCES.parameters ? 413 : 400, text);
    assert.ok(Object.values(SENTENCES).includes(err.message), err.message);
    return true;
  }
}

type Tree = string | readonly Tree[] | { readonly [key: string]: Tree };

describe('3.14 random forms give the result of qs', () => {
  const key = fc.constantFrom(
    ...['a', 'b', 'c', 'x y', 'é', '😀', 'a.b', '_', '>=', 'a=b', '&', '%', '+'],
    ...['01', '-1', '1e1', '+1', '1.5', 'undefined', 'NaN', 'prototype', 'length', '__proto'],
  );
  const value = fc.constantFrom('', '0', '1', 'a b', 'a=b', 'x]=y', '[]', '[0]', '%', '&', '😀');
  const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 4, depthSize: 'medium' },
      { weight: 2, arbitrary: value },
      { weight: 1, arbitrary: fc.array(tie('tree'), { minLength: 1, maxLength: 4 }) },
      { weight: 1, arbitrary: fc.dictionary(key, tie('tree'), { minKeys: 1, maxKeys: 4 }) },
    ),
  }));
  const root = fc.oneof(key, fc.constantFrom('0', '7', '999', '4294967294', '4294967295'));
  /** Parameters in any order, lists with indices. Each bracket is a segment, and so is each name (3.15). */
  const parameters = fc
    .dictionary(root, tree, { maxKeys: 4 })
    .map((form) => qs.stringify(form, { encodeValuesOnly: false }).split('&'))
    .filter((all) => all.length <= 200 && all.join('%5B').split('%5B').length <= 500)
    .chain((all) => fc.shuffledSubarray(all, { minLength: all.length, maxLength: all.length }));

  test('3.14 every form that qs makes of a tree is accepted', () => {
    const property = fc.property(parameters, fc.boolean(), (all, isEncoded) => {
      const text = all.join('&');
      assertSame(isEncoded ? text : text.replace(/%5B/g, '[').replace(/%5D/g, ']'));
    });
    fc.assert(property, { numRuns: 5_000 });
  });

  const TOKENS = [
    ...'a b [ ] = & 0 1 2 [] [a] [b] [0] [1] [2] ]= &a &a[ &a[0] &a[1]= &a[]='.split(' '),
    ...'%5B %5D %5b %255B %26 %3D %2B %20 %30'.split(' '),
    ...['+', ' ', '%', '.', 'é', '%C3%A9', '01', '-1', '999', '[999]', '[1000]', '[4294967295]'],
    ...['__proto__', '[__proto__]', 'constructor', '[toString]', '[length]', '[=]', '&=', '&&'],
  ];
  const options = { maxLength: 12, size: 'max' } as const;
  const textOf = (tokens: readonly string[]) =>
    fc.array(fc.constantFrom(...tokens), options).map((parts) => parts.join(''));
  const edited = fc
    .tuple(parameters, fc.constantFrom('', ...TOKENS), fc.nat(), fc.nat(3))
    .map(([all, token, at, dropped]) => {
      const text = all.join('&');
      const start = at % (text.length + 1);
      return text.slice(0, start) + token + text.slice(start + dropped);
    });
  const forms = fc.oneof(textOf([...'ab[]=&01', '%5B']), textOf(TOKENS), edited);

  test('3.14 each accepted form of a few characters, of tokens, and of trees with one edit', () => {
    const property = fc.property(forms, (text) => isRefused(text) || assertSame(text));
    fc.assert(property, { numRuns: 40_000 });
  });
});

/** V8 allocated 12 kB for each "[999]" of this form of 15 kB: names with 19 of them each. */
const ATTACK = repeat(150, (i) => `${word(1000 + i)}${'[999]'.repeat(19)}=`);

describe('3.15 limits of a form', () => {
  const nested = (levels: number, group = '[b]') => `a${group.repeat(levels)}=c`;
  /** Returns `count` segments, in names of 32 levels and one shorter name. */
  const segments = (count: number, group = '[b]') => {
    const names = repeat(Math.floor(count / 33), (i) => `${word(i)}${group.repeat(32)}=`);
    return `${names}&rest${'[b]'.repeat((count % 33) - 1)}=`;
  };
  for (const [limit, forms] of Object.entries({
    parameters: [repeat(201, () => 'a=b'), '&'.repeat(200), '&'.repeat(99_999)],
    levels: [
      ...['[b]', '%5Bb%5D', '[]', '[0]'].map((group) => nested(33, group)),
      ...['['.repeat(100_000), nested(1000), `a${'['.repeat(50_000)}${']'.repeat(50_000)}`],
    ],
    segments: [segments(501), segments(501, '[toString]'), ATTACK],
    bracket: [']'.repeat(100_000), repeat(30, () => `a${`[${'b'.repeat(100)}`.repeat(32)}`)],
  })) {
    const status = limit === 'parameters' ? 413 : 400;
    const message = SENTENCES[limit as keyof typeof SENTENCES];
    for (const text of forms) {
      test(`3.15 ${text.length} characters return ${status}, in memory in proportion: ${text.slice(0, 40)}`, () => {
        assert.throws(() => parseForm(text), { name: 'HttpError', status, message });
        // V8 counts in pages of 256 KiB.
        const copies = Math.ceil(20_000 / text.length);
        assertLinear(Array(copies).fill(text), isRefused);
      });
    }
  }

  /** Forms up to the limits. Keys differ between copies, so that V8 shares little between results. */
  const LARGEST: ((copy: number) => string)[] = [
    ...['a=b', 'a[0]=1', ''].map((one) => () => repeat(200, () => one)),
    () => repeat(200, (i) => `a[${199 - i}]`),
    ...['[b]', '[]', '[0]'].map((group) => () => nested(32, group)),
    () => segments(500),
    (n) => repeat(200, (i) => `${i * 4_000_000 + n}=`), // integer names far apart
    (n) => repeat(200, (i) => `${word(200 * n + i)}[0]=`), // arrays of one
    (n) => repeat(15, (i) => word(i) + list(32, (j) => `[${word(500 * n + 32 * i + j)}]`).join('')),
    () => repeat(200, (i) => `é${i}=${'€'.repeat(20)}${'y'.repeat(75)}`), // long values
  ];
  for (const form of LARGEST) {
    const text = form(0);
    test(`3.15 up to the limits, with the result of qs, in memory in proportion: ${text.slice(0, 40)}`, () => {
      assertSame(text);
      const copies = Math.ceil(200_000 / text.length);
      assertLinear(list(copies, form), parseForm);
    });
  }
});

/** Allowances for any result: its root object with its first property, and parsing, including garbage. */
const RETAINED_BYTES = 256;
const RETAINED_BYTES_PER_BODY_BYTE = 64;
const ALLOCATED_BYTES = 4096;
const ALLOCATED_BYTES_PER_BODY_BYTE = 1024;

/** Asserts what parsing these forms allocates, and what the results keep, in bytes of the heap. */
function assertLinear(forms: readonly string[], parse: (text: string) => unknown): void {
  const bytes = Buffer.byteLength(forms.join(''));
  let retained = Number.POSITIVE_INFINITY;
  let allocated = Number.POSITIVE_INFINITY;
  // The least of several rounds, because V8 can allocate memory to optimize the parser.
  for (let round = 0; round < 3; round++) {
    collect();
    const before = getHeapStatistics();
    const result = forms.map(parse);
    const { total_allocated_bytes: total } = getHeapStatistics();
    collect();
    retained = Math.min(retained, getHeapStatistics().used_heap_size - before.used_heap_size);
    allocated = Math.min(allocated, (total || 0) - (before.total_allocated_bytes || 0)); // not in node 24
    assert.equal(result.length, forms.length); // Keeps it until here.
  }
  const count = forms.length;
  assert.ok(retained < count * RETAINED_BYTES + bytes * RETAINED_BYTES_PER_BODY_BYTE);
  assert.ok(allocated < count * ALLOCATED_BYTES + bytes * ALLOCATED_BYTES_PER_BODY_BYTE);
}

test('3.17 it ignores __proto__ with --disable-proto=delete too, as in the image', () => {
  const file = join(import.meta.dirname, '../../src/http/form.ts');
  const code = `import { parseForm } from '${file}'; console.log(parseForm('__proto__[bad]=x'))`;
  const args = ['--disable-proto=delete', '--input-type=module', '--eval', code];
  assert.equal(execFileSync(process.execPath, args, { encoding: 'utf8' }), '{}\n');
});
