// What the attacks did, as a table with the worst of each attack's cases.
import { cpus, release } from 'node:os';
import { publish } from '../../scripts/results.ts';
import { type Crowd, ROUND_TRIPS } from './honest.ts';

const { HOSTILE } = process.env; // publishes the results if it is set
/** HOSTILE=full runs each attack longer, at both limits, on both transports and, if it needs users, both stores. */
export const IS_FULL = HOSTILE === 'full';

export interface Result {
  readonly attack: string;
  readonly limitMiB: number;
  readonly crowd: Crowd;
  readonly end: string | undefined; // by itself, or killed
  readonly peakBytes: number;
  readonly bareShare: number | undefined; // of bare node:http, outside; 0 if it ended
}

/** The least of the shares, in percent. */
const least = (of: (result: Result) => number | undefined) => (cases: readonly Result[]) => {
  const shares = cases.map(of).filter((share) => share !== undefined);
  return shares.length === 0 ? '' : `${Math.floor(100 * Math.min(...shares))} %`;
};
const peak = (limit: number) => (cases: readonly Result[]) => {
  const peaks = cases.filter(({ limitMiB }) => limitMiB === limit).map((one) => one.peakBytes);
  return peaks.length === 0 ? '' : `${Math.round(Math.max(...peaks) / 2 ** 20)}`;
};
const COLUMNS: readonly (readonly [name: string, of: (cases: readonly Result[]) => string])[] = [
  ['attack', ([first]) => first!.attack],
  ['cases', (cases) => `${cases.length}`],
  ['ended', (cases) => `${cases.filter(({ end }) => end !== undefined).length}`],
  ...ROUND_TRIPS.map((ms) => [`${ms} ms`, least(({ crowd }) => crowd.share(false, ms))] as const),
  ['p99', (cases) => `${Math.round(Math.max(...cases.map(({ crowd }) => crowd.p99Ms)))} ms`],
  ['attacker’s network', least(({ crowd }) => crowd.share(true))],
  ['`/live`', least(({ crowd: { live } }) => 1 - live.failed / live.sent)],
  ['bare `node:http`', least(({ bareShare }) => bareShare)],
  ['peak MiB at 128', peak(128)],
  ['at 256', peak(256)],
];

/** Writes the table, and with HOSTILE also docs/results/survival.md. */
export function publishResults(results: readonly Result[]): void {
  const groups = Map.groupBy(results, ({ attack }) => attack);
  const rows = [...groups.values()].map((cases) => COLUMNS.map(([, of]) => of(cases)));
  const lines = [COLUMNS.map(([name]) => name), ['---', ...Array(11).fill('--:')], ...rows];
  const text = lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  process.stdout.write(`\n${text}\n`);
  if (HOSTILE === undefined) return;
  publish({
    name: 'survival',
    command: `HOSTILE=${HOSTILE} npm run test:hostile`,
    conditions:
      `the worst of each attack's cases, as shares of honest requests at three round trips and p99 above them; ` +
      `${cpus().length} cores of ${cpus()[0]!.model.trim()}, Linux ${release()}, node ${process.version}`,
    text,
  });
}
