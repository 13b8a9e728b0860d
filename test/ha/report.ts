// Prints results as rows of the table in docs/results/high-availability.md.
import type { TestContext } from 'node:test';
import type { Seen } from './load.ts';
import type { Topology } from './page.ts';

/** Result of one fault in one topology. */
export interface Result extends Seen {
  readonly topology: Topology;
}

/**
 * Prints a row for each topology: injected faults; acknowledged, lost and duplicated writes;
 * longest time without an acknowledged write; longest time without a ready replica.
 */
export function report(t: TestContext, fault: string, results: readonly Result[]): void {
  for (const [topology, runs] of Map.groupBy(results, (result) => result.topology)) {
    const sum = (count: (run: Result) => number) =>
      runs.reduce((total, run) => total + count(run), 0).toLocaleString('en');
    const longest = (seconds: (run: Result) => number) =>
      `${Math.max(...runs.map(seconds)).toFixed(1)} s`;
    const cells = [
      ...[fault, topology, runs.length],
      ...[sum((run) => run.acknowledged), sum((run) => run.lost.length)],
      ...[sum((run) => run.duplicated.length), longest((run) => run.gapSeconds)],
      longest((run) => run.unreadySeconds),
    ];
    t.diagnostic(`| ${cells.join(' | ')} |`);
  }
}
