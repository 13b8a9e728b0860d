// Compares two checkouts: the CPU cost of a request before and after a change, with the defaults of
// `npm start`.
import { shipped } from './contestants.ts';
import { measureAfresh, type Plan } from './measure.ts';
import { SCENARIOS } from './scenarios.ts';
import { median, quantile, table } from './table.ts';

const COMPARED = ['greeting', 'notes', 'token', 'user-by-id', 'list-100', 'create', 'patch'];

/** Prints one row per scenario and store: CPU per request of both checkouts, and the ratio. */
export async function compare(
  before: string,
  after: string,
  isWanted: (id: string) => boolean,
  plan: Plan,
): Promise<void> {
  const rows: string[][] = [];
  const logs: number[] = [];
  for (const id of COMPARED.filter(isWanted)) {
    const scenario = SCENARIOS[id]!; // COMPARED names only scenarios.
    for (const store of scenario.rows ? (['postgres', 'sqlite'] as const) : (['none'] as const)) {
      const of = (checkout: string) => ({
        ...shipped(checkout),
        ...(store === 'sqlite' && { store }),
      });
      const contestants = { before: of(before), after: of(after) };
      const costs = await measureAfresh(scenario, contestants, plan);
      const ratios = costs.before!.map((cost, i) => costs.after![i]! / cost);
      logs.push(Math.log(median(ratios)));
      const [low, high] = [0.25, 0.75].map((part) => quantile(ratios, part).toFixed(3));
      rows.push([
        store === 'sqlite' ? `${scenario.title}, SQLite` : scenario.title,
        median(costs.before!).toFixed(1),
        median(costs.after!).toFixed(1),
        `${median(ratios).toFixed(3)} (${low}–${high})`,
      ]);
      console.log(rows.at(-1)!.join('  '));
    }
  }
  console.log(`\n${table(['CPU µs/request', 'before', 'after', 'after / before'], rows)}`);
  const mean = Math.exp(logs.reduce((sum, each) => sum + each, 0) / logs.length);
  console.log(`\nGeometric mean of the ratios: ${mean.toFixed(3)}`);
}
