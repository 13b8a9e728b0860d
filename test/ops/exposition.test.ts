// Prometheus' text format: families and histograms.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { family, Histograms } from '../../src/ops/metrics.ts';

describe('a family', () => {
  test('has its help, its type and one line per sample', () =>
    assert.equal(
      family('a_bytes', 'gauge', 'Some bytes.', [
        ['', { b: 'x', c: 'y' }, 1.5],
        ['', { b: 'z', c: 'y' }, 1e21],
      ]),
      '# HELP a_bytes Some bytes.\n# TYPE a_bytes gauge\na_bytes{b="x",c="y"} 1.5\na_bytes{b="z",c="y"} 1e+21\n',
    ));

  test('can be one value without labels, or absent', () => {
    assert.match(family('a', 'gauge', 'A.', 0), /\na 0\n$/);
    assert.equal(family('a', 'gauge', 'A.', undefined), '');
  });

  for (const { why, labels, text } of [
    { why: 'without labels there are no braces', labels: {}, text: 'a 1' },
    { why: 'an empty label is left out', labels: { b: '', c: 'd' }, text: 'a{c="d"} 1' },
    { why: 'and its braces with it', labels: { b: '' }, text: 'a 1' },
    { why: 'a quote is escaped', labels: { b: '"x"' }, text: 'a{b="\\"x\\""} 1' },
    { why: 'a backslash is escaped', labels: { b: 'x\\n' }, text: 'a{b="x\\\\n"} 1' },
    { why: 'a line feed is escaped', labels: { b: 'x\ny\n' }, text: 'a{b="x\\ny\\n"} 1' },
    { why: 'nothing else is escaped', labels: { b: "é}{,= '" }, text: `a{b="é}{,= '"} 1` },
  ]) {
    test(why, () => {
      const lines = family('a', 'counter', 'A.', [['', labels, 1]]).split('\n');
      assert.deepEqual(lines.slice(2), [text, '']);
    });
  }
});

describe('a histogram', () => {
  const lines = (...values: number[]) => {
    const histograms = new Histograms([0.5, 1], ['x']);
    for (const value of values) histograms.record(value, 'y');
    return histograms.samples();
  };

  test('has no lines before anything is recorded', () => assert.deepEqual(lines(), []));

  test('has its buckets, sum and count with its labels', () =>
    assert.deepEqual(lines(1), [
      ['_bucket', { x: 'y', le: '0.5' }, 0],
      ['_bucket', { x: 'y', le: '1' }, 1],
      ['_bucket', { x: 'y', le: '+Inf' }, 1],
      ['_sum', { x: 'y' }, 1],
      ['_count', { x: 'y' }, 1],
    ]));

  test('has a series for each combination of labels', () => {
    const histograms = new Histograms([], ['x', 'y']);
    for (const [x, y] of [
      ['a', ''],
      ['', 'a'],
      ['a', ''],
    ] as const) {
      histograms.record(1, x, y);
    }
    assert.deepEqual(
      histograms.samples().filter(([suffix]) => suffix === '_count'),
      [
        ['_count', { x: 'a', y: '' }, 2],
        ['_count', { x: '', y: 'a' }, 1],
      ],
    );
  });

  for (const { why, values, counts } of [
    { why: 'zero is in the first bucket', values: [0], counts: [1, 1, 1, 0, 1] },
    { why: 'a bound is in its own bucket', values: [0.5], counts: [1, 1, 1, 0.5, 1] },
    { why: 'a larger value is in the next', values: [0.75], counts: [0, 1, 1, 0.75, 1] },
    { why: 'the last bound is in its bucket', values: [1], counts: [0, 1, 1, 1, 1] },
    { why: 'a value above it counts only in +Inf', values: [1.25], counts: [0, 0, 1, 1.25, 1] },
    {
      why: 'a bucket includes all smaller ones',
      values: [2, 0.25, 1, 0.5],
      counts: [2, 3, 4, 3.75, 4],
    },
  ]) {
    test(why, () =>
      assert.deepEqual(
        lines(...values).map(([, , value]) => value),
        counts,
      ),
    );
  }
});
