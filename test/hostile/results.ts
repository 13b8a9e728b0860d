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

function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}
