// Figures of the tests, as rows of the table in docs/high-availability.md.
import type { TestContext } from 'node:test';

/** What one fault did. */
export interface Result {
  readonly fault: string;
  readonly acknowledged: number;
  readonly lost: number;
  readonly duplicated: number;
  readonly gapSeconds: number;
  readonly unreadySeconds: number;
}

/** Writes a row: fault, writes acknowledged, lost, done twice, longest gap, longest not ready. */
export function report(t: TestContext, result: Result): void {
  const { fault, acknowledged, lost, duplicated, gapSeconds, unreadySeconds } = result;
  const counts = [acknowledged, lost, duplicated].map((count) => count.toLocaleString('en'));
  const seconds = [gapSeconds, unreadySeconds].map((each) => `${each.toFixed(1)} s`);
  t.diagnostic(`| ${[fault, ...counts, ...seconds].join(' | ')} |`);
}
