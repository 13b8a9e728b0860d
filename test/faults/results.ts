// Counts injected faults and their results, for the table in docs/results/durability.md.
import type { TestContext } from 'node:test';

const IS_FULL = process.env.FAULTS === 'full';

/** Number of injections by kind. FAULTS=full is for a release, the default for CI. */
export const TIMES = {
  serviceKills: IS_FULL ? 1000 : 200,
  postgresKills: IS_FULL ? 50 : 10,
  others: IS_FULL ? 10 : 3,
} as const;

/**
 * Prints a row of the table: faults, acknowledged writes, and the longest time from the end of a fault to the next
 * success. The zeros are lost and duplicated writes, which fail a test.
 */
export function report(t: TestContext, injected: number, acknowledged: number, healMs?: number) {
  const healed = healMs === undefined ? '' : `${(healMs / 1000).toFixed(2)} s`;
  const counts = [injected, acknowledged, 0, 0].map((count) => count.toLocaleString('en'));
  t.diagnostic(`| ${[t.name, ...counts, healed].join(' | ')} |`);
}
