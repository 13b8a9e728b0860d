// The guard compares the cost of a request, relative to bare node:http (and one statement), with
// the ratios in guard.json. It finds a slower request path before the tables show it.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONTESTANTS } from './contestants.ts';
import { measure, type Setup } from './measure.ts';
import { quantile, table } from './report.ts';
import { SCENARIOS } from './scenarios.ts';

const FILE = join(import.meta.dirname, 'guard.json');
/** Maximum relative excess over a scenario's ratio. */
const TOLERANCE = 0.1;
const GUARDED = ['greeting', 'token', 'user-by-id', 'create'];
/**
 * The part of the rounds below the compared one. Other machines on the same host only ever add to the
 * cost, so a low quantile varies less than the median.
 */
const QUANTILE = 0.25;
/** Each round starts new processes, because two processes of one program differ permanently. */
const STARTS = 4;

type Ratios = Record<string, number>;

/**
 * Measures, and prints each ratio next to the saved one.
 * @param isWritten saves the measured ratios instead of comparing
 * @returns the number of scenarios that failed or cost more than allowed
 */
export async function guard(isWritten: boolean, setup: Setup): Promise<number> {
  const kept: Ratios = isWritten ? {} : JSON.parse(readFileSync(FILE, 'utf8'));
  const found: Ratios = {};
  const rows: string[][] = [];
  let failures = 0;
  for (const id of GUARDED) {
    const { title, baseline } = SCENARIOS[id]!; // GUARDED names only scenarios.
    const [base, ours] = await costs(id, baseline, setup);
    const ratio = Number((ours / base).toFixed(3));
    found[id] = ratio;
    const limit = (kept[id] ?? Number.NaN) * (1 + TOLERANCE);
    const isTooMuch = !isWritten && !(ratio <= limit);
    if (isTooMuch) failures++;
    rows.push([
      title,
      ...[base, ours].map((us) => us.toFixed(1)),
      ratio.toFixed(3),
      isWritten ? '' : limit.toFixed(3),
      isTooMuch ? 'too much' : 'ok',
    ]);
  }
  const head = ['CPU µs/request', 'bare', 'ours', 'ours / bare', 'at most', ''];
  console.log(`\n${table(head, rows)}`);
  if (isWritten) writeFileSync(FILE, `${JSON.stringify(found, null, 2)}\n`);
  return failures;
}

/** Measures the baseline and our service; returns the CPU time per request of each. */
async function costs(
  id: string,
  baseline: string,
  setup: Setup,
): Promise<readonly [baseUs: number, oursUs: number]> {
  const contestants = { bare: CONTESTANTS[baseline]!, ours: CONTESTANTS.ours! };
  const all: [number[], number[]] = [[], []];
  for (let i = 0; i < STARTS; i++) {
    const results = await measure(`guard_${id}_${i}`, SCENARIOS[id]!, contestants, setup);
    results.forEach(({ name, samples, failure }, j) => {
      if (failure !== undefined) throw new Error(`${id}, ${name}: ${failure}`);
      all[j]?.push(...samples.map(({ cpuUs }) => cpuUs));
    });
  }
  return [quantile(all[0], QUANTILE), quantile(all[1], QUANTILE)];
}
