// Prometheus' text format: families and histograms.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { family, Histogram } from '../../src/ops/exposition.ts';

describe('a family', () => {
  test('has its help, its type and one line per sample', () =>
    assert.equal(
      family('a_bytes', 'gauge', 'Some bytes.', [
        ['', { b: 'x', c: 'y' }, 1.5],
        ['', { b: 'z', c: 'y' }, 1e21],
      ]),
      '# HELP a_bytes Some bytes.\n# TYPE a_bytes gauge\na_bytes{b="x",c="y"} 1.5\na_bytes{b="z",c="y"} 1e+21\n',
    ));

  for (const { why, labels, text } of [
    { why: 'without labels there are no braces', labels: {}, text: 'a 1' },
    { why: 'an absent label is left out', labels: { b: undefined, c: 'd' }, text: 'a{c="d"} 1' },
    { why: 'and its braces with it', labels: { b: undefined }, text: 'a 1' },
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
    const histogram = new Histogram([0.5, 1], { x: 'y' });
    for (const value of values) histogram.record(value);
    return histogram.samples();
  };

  test('has its buckets, sum and count before anything is recorded', () =>
    assert.deepEqual(lines(), [
      ['_bucket', { x: 'y', le: '0.5' }, 0],
      ['_bucket', { x: 'y', le: '1' }, 0],
      ['_bucket', { x: 'y', le: '+Inf' }, 0],
      ['_sum', { x: 'y' }, 0],
      ['_count', { x: 'y' }, 0],
    ]));

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
