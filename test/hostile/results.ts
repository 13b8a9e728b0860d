// What the attacks did, as a table with the worst of each attack's cases.
import { cpus, release } from 'node:os';
import { publish } from '../../scripts/results.ts';
import { ROUND_TRIPS } from './honest.ts';

const { HOSTILE } = process.env; // publishes the results if it is set
/** HOSTILE=full runs each attack longer, at both limits, on both transports and, if it needs users, both stores. */
export const IS_FULL = HOSTILE === 'full';

export interface Result {
  readonly attack: string;
  readonly limitMiB: number;
  readonly hasEnded: boolean; // by itself, or killed
  readonly shares: readonly number[]; // of successful requests outside the attacker's network, by round trip
  readonly insideShare: number; // inside it
  readonly liveShare: number; // of /live on the admin port
  readonly p99Ms: number;
  readonly peakBytes: number;
  readonly bareShare: number | undefined; // of bare node:http, outside; 0 if it ended
}

const results: Result[] = [];

export function report(result: Result): void {
  results.push(result);
}

const COLUMNS = ['attack', 'cases', 'ended', ...ROUND_TRIPS.map((ms) => `${ms} ms`)];
const REST = [
  'p99',
  'attacker’s network',
  '`/live`',
  'bare `node:http`',
  'peak MiB at 128',
  'at 256',
];

/** Writes the table, and with HOSTILE also docs/results/survival.md. */
export function publishResults(): void {
  const rows = Object.entries(Object.groupBy(results, ({ attack }) => attack)).map(
    ([attack, found = []]) => {
      const least = (of: (result: Result) => number | undefined) => {
        const values = found.map(of).filter((value) => value !== undefined);
        return values.length === 0 ? '' : `${Math.floor(100 * Math.min(...values))} %`;
      };
      const peak = (limit: number) => {
        const peaks = found
          .filter(({ limitMiB }) => limitMiB === limit)
          .map((one) => one.peakBytes);
        return peaks.length === 0 ? '' : Math.round(Math.max(...peaks) / 2 ** 20);
      };
      return [
        ...[attack, found.length, found.filter(({ hasEnded }) => hasEnded).length],
        ...ROUND_TRIPS.map((_, i) => least(({ shares }) => shares[i])),
        `${Math.max(...found.map(({ p99Ms }) => Math.round(p99Ms)))} ms`,
        least((one) => one.insideShare),
        least((one) => one.liveShare),
        least((one) => one.bareShare),
        ...[128, 256].map(peak),
      ];
    },
  );
  const lines = [[...COLUMNS, ...REST], ['---', ...Array(11).fill('--:')], ...rows];
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
