// Computes medians and the ratios within a round, and formats tables in Markdown.
import { CONTESTANTS } from './contestants.ts';
import type { Result, Sample } from './measure.ts';
import type { MillionResult, MillionSample } from './million.ts';
import type { StartResult, StartSample } from './startup.ts';

/** Contestants without routing and validation. */
const BARE: readonly string[] = ['raw', 'raw-pg'];

/** Returns the middle value, or the mean of the two in the middle; NaN without values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  if (sorted.length % 2 === 1) return sorted[Math.floor(middle)]!; // Within the array's bounds.
  return ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2;
}

/** Returns the value below which that part of the values lies, by the nearest rank. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? Number.NaN;
}

/** Divides each round's rate by the baseline's rate in the same round. */
export function ratios(result: Result, baseline: Result | undefined): number[] {
  const pairs = result.samples.map((sample, i) => [sample.rate, baseline?.samples[i]?.rate]);
  return pairs.flatMap(([rate, base]) => (rate && base ? [rate / base] : []));
}

/** Returns one row per contestant: medians over the rounds. */
export function scenarioTable(results: readonly Result[], baseline: string): string {
  const base = results.find(({ name }) => name === baseline);
  const rows = results.map((result) => {
    if (result.failure !== undefined) return [result.name, `failed: ${result.failure}`];
    const middle = (field: keyof Sample) => median(result.samples.map((sample) => sample[field]));
    const ratio = ratios(result, base);
    return [
      result.name,
      middle('rate').toFixed(0),
      `${median(ratio).toFixed(2)} (${Math.min(...ratio).toFixed(2)}–${Math.max(...ratio).toFixed(2)})`,
      middle('p50Ms').toFixed(2),
      middle('p99Ms').toFixed(2),
      middle('cpuUs').toFixed(1),
      `${(middle('busy') * 100).toFixed(0)} %`,
      middle('rssMb').toFixed(0),
    ];
  });
  return table(
    ['', 'requests/s', `of ${baseline}`, 'p50 ms', 'p99 ms', 'CPU µs/request', 'busy', 'RSS MB'],
    rows,
  );
}

/** Returns one row per contestant for the list of a million users. */
export function millionTable(results: readonly MillionResult[]): string {
  const rows = results.map(({ name, samples, failure }) => {
    if (failure !== undefined) return [name, `failed: ${failure}`];
    const middle = (field: keyof MillionSample) =>
      median(samples.map((sample) => sample[field])).toFixed(0);
    return [
      name,
      middle('firstByteMs'),
      middle('totalMs'),
      middle('firstByteBusyMs'),
      middle('totalBusyMs'),
      middle('otherP50Ms'),
      middle('otherP99Ms'),
      middle('peakMb'),
    ];
  });
  return table(
    [
      '',
      'first byte ms',
      'whole list ms',
      'first byte ms, busy',
      'whole list ms, busy',
      "others' p50 ms",
      "others' p99 ms",
      'peak MB',
    ],
    rows,
  );
}

/** Returns one row per contestant: start time and idle memory, with ratios to the first row. */
export function startTable(results: readonly StartResult[]): string {
  const middle = (samples: readonly StartSample[] = [], field: keyof StartSample) =>
    median(samples.map((sample) => sample[field]));
  const first = results[0]?.samples;
  const rows = results.map(({ name, samples, failure }) => {
    if (failure !== undefined) return [name, `failed: ${failure}`];
    const [ms, mb] = [middle(samples, 'startMs'), middle(samples, 'idleMb')];
    return [
      name,
      ms.toFixed(0),
      (ms / middle(first, 'startMs')).toFixed(2),
      mb.toFixed(0),
      (mb / middle(first, 'idleMb')).toFixed(2),
    ];
  });
  return table(['', 'first 200 ms', 'of bare', 'idle MB', 'of bare'], rows);
}

/** Returns the README's table: one row per scenario, with median ratios to its bare baseline. */
export function summary(
  all: readonly { title: string; baseline: string; results: readonly Result[] }[],
): string {
  const shown = all.filter(({ baseline }) => BARE.includes(baseline));
  const seen = new Set(shown.flatMap(({ results }) => results.map(({ name }) => name)));
  const names = Object.keys(CONTESTANTS).filter((name) => seen.has(name) && !BARE.includes(name));
  const rows = shown.map(({ title, baseline, results }) => {
    const base = results.find(({ name }) => name === baseline);
    const cells = names.map((name) => {
      const result = results.find((one) => one.name === name);
      return !result || result.failure !== undefined ? '' : median(ratios(result, base)).toFixed(2);
    });
    return [title, baseline, ...cells];
  });
  return table(['requests/s', 'of', ...names], rows);
}

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map((_, i) => (i === 0 ? '---' : '---:')), ...rows];
  const line = (cells: readonly string[]) => `| ${cells.join(' | ').replaceAll('\n', ' ')} |`;
  return lines.map(line).join('\n');
}
