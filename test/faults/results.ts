// Counts injected faults and their results, for the table in docs/durability.md.
import { appendFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

const IS_FULL = process.env.FAULTS === 'full';

/** Number of injections by kind. FAULTS=full is for a release, the default for CI. */
export const TIMES = {
  serviceKills: IS_FULL ? 1000 : 200,
  postgresKills: IS_FULL ? 50 : 10,
  network: IS_FULL ? 10 : 3,
  failovers: IS_FULL ? 5 : 1,
  locks: IS_FULL ? 5 : 1,
  upgrades: IS_FULL ? 5 : 1,
} as const;

/** The result of one test. */
export interface Result {
  readonly fault: string;
  readonly store: string;
  /** Number of injected faults that hit something. */
  readonly injected: number;
  /** Number of acknowledged writes. */
  readonly acknowledged: number;
  readonly lost: number;
  readonly duplicated: number;
  /** Longest time from the end of a fault to the next success. */
  readonly healSeconds?: number;
}

/** Writes the figures to the test's output, and to the folder that FAULTS_RESULTS names. */
export function report(t: TestContext, result: Result): void {
  const { fault, store, injected, acknowledged, lost, duplicated, healSeconds } = result;
  const healed = healSeconds === undefined ? '' : `, recovered within ${healSeconds.toFixed(2)} s`;
  t.diagnostic(
    `${fault} (${store}): injected ${injected}, acknowledged ${acknowledged}, lost ${lost}, duplicated ${duplicated}${healed}`,
  );
  const folder = process.env.FAULTS_RESULTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  appendFileSync(join(folder, 'results.jsonl'), `${JSON.stringify(result)}\n`);
}

/** Seconds since a time of performance.now(). */
export function secondsSince(began: number): number {
  return (performance.now() - began) / 1000;
}
