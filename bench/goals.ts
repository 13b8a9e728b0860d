// The goals for the service's speed, compared with the measurements of a run.
import type { MillionResult } from './million.ts';
import type { Measured } from './publish.ts';
import { median, ratios, table } from './report.ts';

/** A goal for requests per second: contestant, minimum ratio, and the other contestant. */
type Goal = readonly [name: string, least: number, of: string];

const FIXED: readonly Goal[] = [['ours', 0.92, 'raw']];
const LISTS: readonly Goal[] = ['ours', 'ours-sqlite'].flatMap((name): Goal[] => [
  [name, 6.5, 'raw-pg'],
  [name, 2.3, 'axum'],
]);
const WRITES: readonly Goal[] = [
  ['ours', 2.5, 'raw-pg'],
  ['ours', 2, 'axum'],
];
const LOGS: readonly Goal[] = ['ours', 'source', 'image'].map((name) => [
  `${name}-log`,
  0.88,
  name,
]);

/** Goals by scenario. */
const RATES: Readonly<Record<string, readonly Goal[]>> = {
  greeting: FIXED,
  protected: FIXED,
  notes: FIXED,
  'notes-20k': [
    ['ours', 0.6, 'raw'],
    ['ours', 1, 'go'],
  ],
  token: [
    ['ours', 0.7, 'raw'],
    ['ours', 1, 'go'],
  ],
  'user-by-id': [
    ['ours', 2.8, 'raw-pg'],
    ['ours', 1.7, 'axum'],
  ],
  'list-100': LISTS,
  create: WRITES,
  put: WRITES,
  patch: WRITES,
  delete: WRITES,
  shipped: LOGS,
  'shipped-user': [...LOGS, ['ours-sqlite-log', 0.88, 'ours-sqlite']],
};
/** Scenarios whose goal is a request with at most axum's CPU time. */
const CPU_OF_AXUM: readonly string[] = ['create', 'put', 'patch', 'delete'];
const MAX_FIRST_BYTE_MS = 20;
const MAX_PEAK_MB = 110;

/** Returns a table with one row per goal. */
export function goalTable(
  measured: readonly Measured[],
  million: readonly MillionResult[] = [],
): string {
  const rows = measured.flatMap((one) => [...rateRows(one), ...cpuRows(one)]);
  const head = ['', 'contestant', 'of', 'goal', 'measured', ''];
  return table(head, [...rows, ...million.flatMap(millionRows)]);
}

function rateRows(row: Measured): string[][] {
  return (RATES[row.id] ?? []).map(([name, least, of]) => {
    const ratio = median(ratios(find(row, name), find(row, of)));
    return [row.title, name, of, `≥ ${least}`, ratio.toFixed(2), verdict(ratio >= least)];
  });
}

function cpuRows(row: Measured): string[][] {
  if (!CPU_OF_AXUM.includes(row.id)) return [];
  const cpuOf = (name: string) => median(find(row, name).samples.map(({ cpuUs }) => cpuUs));
  const ratio = cpuOf('ours') / cpuOf('axum');
  return [[`CPU of ${row.title}`, 'ours', 'axum', '≤ 1', ratio.toFixed(2), verdict(ratio <= 1)]];
}

function millionRows({ name, samples }: MillionResult): string[][] {
  if (!name.startsWith('ours')) return [];
  const firstByteMs = median(samples.map((sample) => sample.firstByteMs));
  const peakMb = median(samples.map((sample) => sample.peakMb));
  return [
    row('first byte, ms', firstByteMs, MAX_FIRST_BYTE_MS),
    row('peak memory, MB', peakMb, MAX_PEAK_MB),
  ];

  function row(title: string, value: number, most: number): string[] {
    const cells = [`one million users: ${title}`, name, '', `≤ ${most}`, value.toFixed(0)];
    return [...cells, verdict(value <= most)];
  }
}

function verdict(isMet: boolean): string {
  return isMet ? 'met' : 'missed';
}

function find({ id, results }: Measured, name: string) {
  const found = results.find((result) => result.name === name);
  if (found === undefined) throw new Error(`${id} was not measured for ${name}`);
  return found;
}
