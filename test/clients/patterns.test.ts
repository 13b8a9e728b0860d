// The patterns of openapi.json mean the same in every language of its clients.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ABSENT, ENV } from './toolbox.ts';

const PATTERNS = join(import.meta.dirname, 'patterns');
const DOCUMENT = readFileSync(join(import.meta.dirname, '../../openapi.json'), 'utf8');

const patterns = [
  ...new Set(Array.from(DOCUMENT.matchAll(/"pattern": (".*")/g), ([, json]) => JSON.parse(json!))),
] as readonly string[];

// White space, controls and their neighbours. No text ends with a line feed, because `$` also
// matches before it in Python, Java and PCRE, and has no portable replacement.
const CODES = [
  ...[0x00, 0x01, 0x08, 0x09, 0x0a, 0x0d, 0x0e, 0x1f, 0x20, 0x21, 0x3f, 0x40, 0x41, 0x7e, 0x7f],
  ...[0x80, 0x85, 0x9f, 0xa0, 0xa1, 0xe0, 0x167f, 0x1680, 0x1681, 0x180e, 0x1fff, 0x2000, 0x2005],
  ...[0x200a, 0x200b, 0x2027, 0x2028, 0x2029, 0x202a, 0x202e, 0x202f, 0x2030, 0x205e, 0x205f],
  ...[0x2060, 0x2fff, 0x3000, 0x3001, 0xd7ff, 0xe000, 0xfeff, 0xfffd, 0x1f600, 0x10ffff],
];
const TEXTS = [
  ...CODES.flatMap((code) => {
    const character = String.fromCodePoint(code);
    return [`a${character}@b`, `a@${character}b`];
  }),
  ...['', 'a', '@', 'a@', '@b', 'a@b', 'a@b@c', 'Ada Lovelace', '"1"', '"', '"a b"', '1'],
  ...[
    '/users/1',
    '/users/0',
    '/users/',
    'a.b.c',
    'a.b',
    'a_-9.b.c',
    'é.b.c',
    '3.1.0',
    '3.1.',
    '3x1.0',
  ],
  ...['</users?limit=1&after=2>; rel="next"', '</users?limit=1>; rel="next"'],
];

const PAIRS = patterns.flatMap((pattern) => TEXTS.map((text) => ({ pattern, text })));

/** Matches in this engine. JSON Schema requires the `u` flag, but some validators omit it. */
const verdicts = (flags: string) =>
  PAIRS.map(({ pattern, text }) => new RegExp(pattern, flags).test(text));

const run = (program: string, args: readonly string[], input: string, env = {}) =>
  spawnSync(program, args, { input, encoding: 'utf8', env: { ...ENV, ...env } });

test('8.1 the patterns of openapi.json mean the same in JavaScript with and without the u flag', () => {
  assert.deepEqual(verdicts(''), verdicts('u'));
  assert.ok(patterns.length >= 6);
  assert.deepEqual([...new Set(verdicts('u'))].sort(), [false, true]);
});

/** Programs that read lines of a pattern and a text in base64, and print 1 for a match, else 0. */
const ENGINES = [
  { engine: 'Python', skip: ABSENT.python, command: ['python3', 'match.py'] },
  { engine: 'Go', skip: ABSENT.go, command: ['go', 'run', 'match.go'] },
  { engine: 'Java', skip: ABSENT.java, command: ['java', '-Dfile.encoding=UTF-8', 'match.java'] },
] as const;

for (const { engine, skip, command } of ENGINES) {
  test(`8.1 the patterns of openapi.json mean the same in ${engine}`, { skip }, () => {
    const base64 = (text: string) => Buffer.from(text).toString('base64');
    const lines = PAIRS.map(({ pattern, text }) => `${base64(pattern)}\t${base64(text)}\n`);
    const [program, ...args] = command;
    const path = join(PATTERNS, args.pop()!);
    const { status, stdout, stderr } = run(program, [...args, path], lines.join(''));
    assert.equal(status, 0, stderr);
    const given = stdout.trim().split('\n');
    const wanted = verdicts('u');
    assert.deepEqual(
      PAIRS.filter((_, i) => (given[i] === '1') !== wanted[i]),
      [],
    );
    assert.equal(given.length, PAIRS.length);
  });
}

// Records end with U+0000. Within a record, ^ and $ match at line feeds.
const grep = (pattern: string, texts: readonly string[]) =>
  run('grep', ['-azP', '-e', pattern], texts.map((text) => `${text}\0`).join(''), {
    LC_ALL: 'C.UTF-8',
  });

test('8.1 the patterns of openapi.json mean the same in PCRE (grep)', {
  skip: grep('^a$', ['a']).status !== 0 && 'grep has no -P',
}, () => {
  const texts = TEXTS.filter((text) => !/[\0\n]/.test(text));
  for (const pattern of patterns) {
    const { stdout } = grep(pattern, texts);
    const matching = texts.filter((text) => new RegExp(pattern, 'u').test(text));
    assert.deepEqual(stdout.split('\0').slice(0, -1), matching, pattern);
  }
});
