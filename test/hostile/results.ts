// Results of the attacks.
import { appendFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';

/** HOSTILE=full runs every attack on each transport, store and limit. */
export const IS_FULL = process.env.HOSTILE === 'full';

/** The effect of one attack on the service. */
export interface Result {
  readonly attack: string;
  /** The form of the service. */
  readonly form: string;
  readonly transport: string;
  readonly store: string;
  readonly limitBytes: number;
  readonly isAlive: boolean;
  /** Connections that the attacker opened, and how many it tried to hold at once. */
  readonly opened?: number | undefined;
  readonly goal?: number | undefined;
  /** Memory without page cache: idle, at its peak, and after the attack. */
  readonly restBytes: number;
  readonly peakBytes: number;
  readonly afterBytes: number;
  readonly requests: number;
  /** Share of the honest requests that got 200. */
  readonly successRate: number;
  readonly p99Ms: number;
}

const SMALL_BYTES = 128 * 2 ** 20;
const LARGE_BYTES = 256 * 2 ** 20;

const results: Result[] = [];

/** Records a result for the table, and writes it to the folder HOSTILE_RESULTS. */
export function report(result: Result): void {
  results.push(result);
  const folder = process.env.HOSTILE_RESULTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  appendFileSync(join(folder, 'results.jsonl'), `${JSON.stringify(result)}\n`);
}

/** The results of this process. */
export function reported(): readonly Result[] {
  return results;
}

/** A Markdown table, one row for each result. */
export function table(of: readonly Result[]): string {
  const rows = of.map((result) => {
    const { attack, form, transport, store, isAlive, limitBytes } = result;
    const columns = [
      attack,
      [form, transport, store].join(', '),
      mebibytes(limitBytes),
      isAlive ? 'yes' : '**no**',
      result.opened === undefined ? '' : `${result.opened} for ${result.goal}`,
      mebibytes(result.restBytes),
      mebibytes(result.peakBytes),
      mebibytes(result.afterBytes),
      `${(100 * result.successRate).toFixed(1)} %`,
      `${result.p99Ms.toFixed(0)} ms`,
    ];
    return `| ${columns.join(' | ')} |\n`;
  });
  return `| attack | | limit, MiB | alive | connections | at rest | peak | after | honest 200s | p99 |
|---|---|--:|---|--:|--:|--:|--:|--:|--:|
${rows.join('')}`;
}

/** A Markdown table, one row for each attack: the worst of its cases. */
export function summary(of: readonly Result[]): string {
  const rows = Object.entries(Object.groupBy(of, ({ attack }) => attack)).map(([attack, cases]) => {
    const most = (pick: (result: Result) => number, limit?: number) => {
      const found = cases!.filter(({ limitBytes }) => (limit ?? limitBytes) === limitBytes);
      return found.length === 0 ? undefined : Math.max(...found.map(pick));
    };
    const memory = (limit: number) => {
      const [peak, after] = [
        most((one) => one.peakBytes, limit),
        most((one) => one.afterBytes, limit),
      ];
      return peak === undefined ? '' : `${mebibytes(peak)}, ${mebibytes(after!)}`;
    };
    const columns = [
      attack,
      cases!.length,
      cases!.filter(({ isAlive }) => !isAlive).length,
      `${Math.floor(1000 * Math.min(...cases!.map(({ successRate }) => successRate))) / 10} %`,
      `${most((one) => one.p99Ms)!.toFixed(0)} ms`,
      memory(SMALL_BYTES),
      memory(LARGE_BYTES),
    ];
    return `| ${columns.join(' | ')} |\n`;
  });
  return `| attack | cases | ended | honest 200s, at least | p99, at most | MiB of 128: peak, after | MiB of 256: peak, after |
|---|--:|--:|--:|--:|--:|--:|
${rows.join('')}`;
}

function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}
