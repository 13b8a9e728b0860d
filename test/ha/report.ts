// Figures of the tests, as rows of the table in docs/high-availability.md.
import type { TestContext } from 'node:test';
import type { Seen } from './load.ts';

/** What came of one fault. */
interface Result extends Seen {
  readonly replication: string;
  readonly fault: string;
  readonly topology: string;
}

/** Prints a row; the last two figures are the longest times without a write and without /ready. */
export function report(t: TestContext, result: Result): void {
  const { acknowledged, lost, duplicated } = result;
  const counts = [acknowledged, lost.length, duplicated.length];
  const seconds = [result.gapSeconds, result.unreadySeconds];
  const cells = [
    ...[result.replication, result.fault, result.topology],
    ...counts.map((count) => count.toLocaleString('en')),
    ...seconds.map((each) => `${each.toFixed(1)} s`),
  ];
  t.diagnostic(`| ${cells.join(' | ')} |`);
}
