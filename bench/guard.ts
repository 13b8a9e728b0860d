// The guard compares the cost of a request, relative to bare node:http (and one statement), with the
// ratios in guard.json. It finds a slower request path before the table shows it.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONTESTANTS } from './contestants.ts';
import { measureAfresh, type Plan } from './measure.ts';
import { SCENARIOS } from './scenarios.ts';
import { quantile, table } from './table.ts';

const FILE = join(import.meta.dirname, 'guard.json');
/** Maximum relative excess over a scenario's ratio. */
const TOLERANCE = 0.1;
const GUARDED = ['greeting', 'token', 'user-by-id', 'create'];
/**
 * The part of the rounds below the compared one. Other machines on the same host only ever add to the
 * cost, so a low quantile varies less than the median.
 */
const QUANTILE = 0.25;

/**
 * Measures, and prints each ratio next to the saved one.
 * @param isWritten saves the measured ratios instead of comparing
 * @returns the number of scenarios that cost more than allowed
 */
export async function guard(isWritten: boolean, plan: Plan): Promise<number> {
  const kept: Record<string, number> = JSON.parse(readFileSync(FILE, 'utf8'));
  const found: Record<string, number> = {};
  const rows: string[][] = [];
  for (const id of GUARDED) {
    const scenario = SCENARIOS[id]!; // GUARDED names only scenarios.
    const contestants = { bare: CONTESTANTS[scenario.baseline], ours: CONTESTANTS.ours };
    const costs = await measureAfresh(scenario, contestants, plan);
    const [bare, ours] = [quantile(costs.bare!, QUANTILE), quantile(costs.ours!, QUANTILE)];
    found[id] = Number((ours / bare).toFixed(3));
    const limit = (kept[id] ?? Number.NaN) * (1 + TOLERANCE);
    const verdict = found[id] <= limit ? 'ok' : 'too much';
    const figures = [bare.toFixed(1), ours.toFixed(1), found[id].toFixed(3), limit.toFixed(3)];
    rows.push([scenario.title, ...figures, isWritten ? 'written' : verdict]);
  }
  console.log(table(['CPU µs/request', 'bare', 'ours', 'ours / bare', 'at most', ''], rows));
  if (isWritten) writeFileSync(FILE, `${JSON.stringify(found, null, 2)}\n`);
  return rows.filter((row) => row.at(-1) === 'too much').length;
}
