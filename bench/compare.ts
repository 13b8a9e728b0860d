// Compares two checkouts: the CPU cost of a request before and after a change, with the defaults of
// `npm start`.
import { shipped } from './contestants.ts';
import { measure, type Setup } from './measure.ts';
import { median, quantile, table } from './report.ts';
import { SCENARIOS } from './scenarios.ts';

/** Scenario and store of each row. */
const ROWS: readonly (readonly [id: string, store: 'none' | 'postgres' | 'sqlite'])[] = [
  ['greeting', 'none'],
  ['protected', 'none'],
  ['notes', 'none'],
  ['token', 'none'],
  ['user-by-id', 'postgres'],
  ['list-100', 'postgres'],
  ['create', 'postgres'],
  ['patch', 'postgres'],
  ['user-by-id', 'sqlite'],
  ['list-100', 'sqlite'],
  ['create', 'sqlite'],
  ['patch', 'sqlite'],
];

/** Fresh processes per row, because two processes of one program differ by 1 to 2 % permanently. */
const STARTS = 4;

/** Ids of the scenarios that `compare` runs. */
export const COMPARED: readonly string[] = [...new Set(ROWS.map(([id]) => id))];

/** Approximate CPU time of the rows with this setup, in seconds. */
export function compareSeconds(isWanted: (id: string) => boolean, setup: Setup): number {
  const rows = ROWS.filter(([id]) => isWanted(id)).length;
  return rows * STARTS * 2 * ((setup.rounds + 1) * (setup.seconds + 0.2) + 0.5);
}

/**
 * Prints one row per scenario: CPU per request of the checkout `before`, of `after`, and the ratio.
 * @returns the number of failed rows
 */
export async function compare(
  before: string,
  after: string,
  isWanted: (id: string) => boolean,
  setup: Setup,
): Promise<number> {
  const rows: string[][] = [];
  const logs: number[] = [];
  let failures = 0;
  for (const [id, store] of ROWS.filter(([name]) => isWanted(name))) {
    const scenario = SCENARIOS[id]!; // ROWS names only scenarios.
    const title = store === 'sqlite' ? `${scenario.title}, SQLite` : scenario.title;
    const of = (checkout: string) => ({
      ...shipped(checkout),
      ...(store === 'sqlite' && { store }),
    });
    const pairs: [before: number, after: number][] = [];
    for (let i = 0; i < STARTS; i++) {
      const contestants = { before: of(before), after: of(after) };
      const [a, b] = await measure(`${id}_${store}_${i}`, scenario, contestants, setup);
      const failure = a?.failure ?? b?.failure;
      if (failure !== undefined) {
        console.log(`${title}: ${failure}`);
        failures++;
        break;
      }
      a?.samples.forEach((sample, j) => {
        pairs.push([sample.cpuUs, b?.samples[j]?.cpuUs ?? Number.NaN]);
      });
    }
    if (pairs.length === 0) continue;
    const ratios = pairs.map(([a, b]) => b / a);
    const [low, high] = [quantile(ratios, 0.25), quantile(ratios, 0.75)];
    logs.push(Math.log(median(ratios)));
    rows.push([
      title,
      median(pairs.map(([a]) => a)).toFixed(1),
      median(pairs.map(([, b]) => b)).toFixed(1),
      `${median(ratios).toFixed(3)} (${low.toFixed(3)}–${high.toFixed(3)})`,
    ]);
    console.log(`${title}: ${rows.at(-1)?.at(-1)}`);
  }
  console.log(`\n${table(['CPU µs/request', 'before', 'after', 'after / before'], rows)}`);
  const mean = Math.exp(logs.reduce((sum, each) => sum + each, 0) / logs.length);
  console.log(`\nGeometric mean of the ratios: ${mean.toFixed(3)}`);
  return failures;
}
