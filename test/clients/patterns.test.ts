// The patterns of openapi.json mean the same in every language of its clients.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
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
  ...[
    '',
    'a',
    '@',
    'a@',
    '@b',
    'a@b',
    'a@b@c',
    'Ada Lovelace',
    '"1"',
    '"',
    '"a b"',
    '1',
    '/users/1',
  ],
  ...['/users/0', '/users/', 'a.b.c', 'a.b', 'a_-9.b.c', 'é.b.c', '3.1.0', '3.1.', '3x1.0'],
  ...['</users?limit=1&after=2>; rel="next"', '</users?limit=1>; rel="next"'],
];

const PAIRS = patterns.flatMap((pattern) => TEXTS.map((text) => ({ pattern, text })));

/** Matches in this engine. JSON Schema requires the `u` flag, but some validators omit it. */
const verdicts = (flags: string) =>
  PAIRS.map(({ pattern, text }) => new RegExp(pattern, flags).test(text));

/** Runs a program of `patterns/` on all pairs. */
function compare(program: string, args: readonly string[]): void {
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  const input = PAIRS.map(({ pattern, text }) => `${base64(pattern)}\t${base64(text)}\n`).join('');
  const { status, stdout, stderr } = spawnSync(program, args, {
    input,
    encoding: 'utf8',
    env: ENV,
  });
  assert.equal(status, 0, stderr);
  const given = stdout.trim().split('\n');
  const different = PAIRS.filter((_, i) => (given[i] === '1') !== verdicts('u')[i]);
  assert.deepEqual(different, []);
  assert.equal(given.length, PAIRS.length);
}

describe('the patterns of openapi.json', () => {
  test('8.1 they mean the same in JavaScript with and without the u flag', () => {
    assert.deepEqual(verdicts(''), verdicts('u'));
    assert.ok(patterns.length >= 6);
    assert.deepEqual([...new Set(verdicts('u'))].sort(), [false, true]);
  });

  test('8.1 they mean the same in Python', { skip: ABSENT.python }, () =>
    compare('python3', [join(PATTERNS, 'match.py')]),
  );

  test('8.1 they mean the same in Go', { skip: ABSENT.go }, () =>
    compare('go', ['run', join(PATTERNS, 'match.go')]),
  );

  test('8.1 they mean the same in Java', { skip: ABSENT.java }, () =>
    compare('java', ['-Dfile.encoding=UTF-8', join(PATTERNS, 'match.java')]),
  );

  test('8.1 they mean the same in PCRE (grep)', {
    skip: !isPcreThere() && 'grep has no -P',
  }, () => {
    for (const pattern of patterns) {
      // Records end with U+0000. Within a record, ^ and $ match at line feeds.
      const texts = TEXTS.filter((text) => !/[\0\n]/.test(text));
      const { status, stdout, stderr } = grep(pattern, texts);
      assert.ok(status === 0 || status === 1, stderr);
      const matching = texts.filter((text) => new RegExp(pattern, 'u').test(text));
      assert.deepEqual(stdout.split('\0').slice(0, -1), matching, pattern);
    }
  });
});

function grep(pattern: string, texts: readonly string[]) {
  const input = texts.map((text) => `${text}\0`).join('');
  const env = { ...ENV, LC_ALL: 'C.UTF-8' };
  return spawnSync('grep', ['-azP', '-e', pattern], { input, encoding: 'utf8', env });
}

function isPcreThere(): boolean {
  return grep('^a$', ['a']).status === 0;
}
