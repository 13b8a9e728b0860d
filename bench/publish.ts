// Writes the tables of README.md and docs/performance.md from a complete run. Generates everything
// between `<!-- bench -->` and `<!-- /bench -->`, and between `<!-- profile -->` and
// `<!-- /profile -->`.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONTESTANTS } from './contestants.ts';
import { goalTable } from './goals.ts';
import type { Result, Sample } from './measure.ts';
import type { MillionResult } from './million.ts';
import { median, millionTable, ratios, startTable, table } from './report.ts';
import { SCENARIOS } from './scenarios.ts';
import type { StartResult } from './startup.ts';

const ROOT = join(import.meta.dirname, '..');

/** A saved run. */
export interface Report {
  readonly machine: Readonly<Record<string, string | number>>;
  options: Readonly<Record<string, unknown>>;
  readonly measured: Measured[];
  million: readonly MillionResult[] | undefined;
  start: readonly StartResult[] | undefined;
}

/** One scenario of a run. */
export interface Measured {
  readonly id: string;
  readonly title: string;
  readonly baseline: string;
  readonly results: readonly Result[];
}

/** Rows of the README's table. */
const README_ROWS: readonly string[] = [
  ...['greeting', 'notes', 'token', 'user-by-id', 'list-100', 'create', 'create-2ms'],
  ...['patch', 'delete'],
];

/** The columns of the tables. */
const COLUMNS: readonly (readonly [name: string, head: string])[] = [
  ['express', 'express'],
  ['fastify', 'fastify'],
  ['hono', 'hono'],
  ['elysia', 'elysia (bun)'],
  ['go', 'Go, pgx'],
  ['axum', 'axum, tokio-postgres'],
  ['pocketbase', 'PocketBase'],
  ['ours', 'notes-users, Postgres'],
  ['ours-sqlite', 'notes-users, SQLite'],
];
const BARE: readonly (readonly [name: string, head: string])[] = [
  ['raw', 'raw'],
  ['raw-pg', 'raw-pg'],
  ['raw-sqlite', 'raw-sqlite'],
];

const AS_SHIPPED: Readonly<Record<string, string>> = {
  ours: 'the built file, log off',
  'ours-log': 'the built file, log on',
  'ours-sqlite': 'the built file with SQLite, log off',
  'ours-sqlite-log': 'the built file with SQLite, log on',
  'ours-pool-1': 'the same with `DATABASE_POOL_SIZE=1`',
  'ours-pool-2': 'the same with `DATABASE_POOL_SIZE=2`',
  'ours-pool-8': 'the same with `DATABASE_POOL_SIZE=8`',
  source: '`npm start`, log off',
  'source-log': '`npm start`, log on',
  image: 'image with SQLite, log off',
  'image-log': 'image with SQLite, log on',
};

/**
 * Writes both files.
 * @throws an Error that names the missing parts of the run
 */
export function publish(report: Report): void {
  const missing = Object.keys(SCENARIOS).filter((id) => !report.measured.some((m) => m.id === id));
  if (!report.million) missing.push('million');
  if (!report.start) missing.push('start');
  const all = [
    ...report.measured,
    { results: report.million ?? [] },
    { results: report.start ?? [] },
  ];
  const failed = all.flatMap(({ results }) => results.filter(({ failure }) => failure));
  if (missing.length + failed.length > 0) {
    throw new Error(
      `not published; missing: ${missing.join(', ')}; failed: ${failed.map(({ name }) => name).join(', ')}`,
    );
  }
  const [short, long] = [readme(report), performance(report)];
  replace('README.md', 'bench', short);
  replace('docs/performance.md', 'bench', long);
}

function readme({ measured, million, start }: Report): string {
  const shown = measured.filter(({ id }) => README_ROWS.includes(id));
  const logs = measured.filter(({ id }) => id === 'shipped');
  const [logStart, logImage] = ['source', 'image'].map((name) =>
    logs.map((row) => ratioOf(row, `${name}-log`, name)).join(),
  );
  const ours = million?.find(({ name }) => name === 'ours')?.samples ?? [];
  const begun = start?.find(({ name }) => name === 'image')?.samples ?? [];
  return [
    ratioTable(shown, COLUMNS, true),
    '',
    `With the log on, \`npm start\` handles ${logStart} times and the image ${logImage} times as many \`GET /\` ` +
      'requests per second as with the log off. `GET /users` of ' +
      `one million users on Postgres sends its first byte after ${middle(ours, 'firstByteMs')} ms; memory peaks at ` +
      `${middle(ours, 'peakMb')} MB (${ours.length} rounds). The image's command returns its first 200 after ${middle(begun, 'startMs')} ms ` +
      `and has ${middle(begun, 'idleMb')} MB of resident memory when idle.`,
  ].join('\n');
}

function performance({ machine, options, measured, million, start }: Report): string {
  const compared = measured.filter(({ baseline }) => baseline !== 'ours');
  const shipped = measured.filter(({ baseline }) => baseline === 'ours');
  const taking = [...COLUMNS, BARE[2]!];
  return [
    `Medians of ${options.rounds} interleaved rounds of ${options.seconds} s at commit ${machine.commit}. ${machine.cores} cores of ${machine.cpu}, ` +
      `Linux ${machine.kernel}, node ${machine.node}, Postgres ${options.postgres}, load by ${options.generator}. ` +
      stolenFrom(measured),
    '',
    '### Requests per second, relative to the baseline of the row',
    '',
    ratioTable(compared, taking),
    '',
    '### CPU time of the server, microseconds per request',
    '',
    cpuTable(compared, [...BARE, ...COLUMNS]),
    '',
    '### As shipped: the built file, `npm start`, the image, and sizes of the pool',
    '',
    ...shipped.flatMap((one) => [shippedTable(one), '']),
    '### `GET /users`, one million rows',
    '',
    `Medians of ${roundsOf(million, 'ours')} rounds of the service, and of ${roundsOf(million, 'raw-pg')} of each peer, each in a fresh process.`,
    '',
    millionTable(million ?? []),
    '',
    '### Start, and idle memory',
    '',
    startTable(start ?? []),
    '',
    '### Goals',
    '',
    goalTable(measured, million),
  ].join('\n');
}

function roundsOf(million: Report['million'], name: string): number {
  return million?.find((one) => one.name === name)?.samples.length ?? 0;
}

function stolenFrom(measured: readonly Measured[]): string {
  const samples = measured.flatMap(({ results }) => results.flatMap((result) => result.samples));
  const shares = samples.map(({ stolen }) => 100 * stolen).sort((a, b) => a - b);
  const [half, most] = [0.5, 0.9].map((part) => shares[Math.floor(part * shares.length)] ?? 0);
  return `The hypervisor took ${half!.toFixed(1)} % of the CPU time in the median run, and at most ${most!.toFixed(1)} % in nine of ten.`;
}

function ratioTable(rows: readonly Measured[], columns: typeof COLUMNS, isWithCpu = false): string {
  const taking = columns.filter(([name]) => rows.some((row) => find(row, name)));
  return table(
    [isWithCpu ? 'requests/s (CPU per request)' : 'requests/s', 'of', ...taking.map(([, h]) => h)],
    rows.map((row) => [
      row.title,
      row.baseline,
      ...taking.map(([name]) => {
        const ratio = ratioOf(row, name);
        const cpu = cpuOf(find(row, name)?.samples ?? []);
        return isWithCpu && ratio ? `${ratio} (${cpu} µs)` : ratio;
      }),
    ]),
  );
}

function cpuTable(rows: readonly Measured[], columns: typeof COLUMNS): string {
  const taking = columns.filter(([name]) => rows.some((row) => find(row, name)));
  return table(
    ['CPU µs/request', ...taking.map(([, head]) => head)],
    rows.map((row) => [
      row.title,
      ...taking.map(([name]) => cpuOf(find(row, name)?.samples ?? [])),
    ]),
  );
}

function shippedTable(row: Measured): string {
  const names = Object.keys(CONTESTANTS).filter((name) => find(row, name));
  return table(
    [row.title, 'requests/s', 'of the built file, log off', 'CPU µs/request'],
    names.map((name) => {
      const samples = find(row, name)?.samples ?? [];
      return [
        AS_SHIPPED[name] ?? name,
        middle(samples, 'rate'),
        ratioOf(row, name),
        cpuOf(samples),
      ];
    }),
  );
}

function find({ results }: Measured, name: string): Result | undefined {
  return results.find((result) => result.name === name);
}

function ratioOf(row: Measured, name: string, baseline = row.baseline): string {
  const result = find(row, name);
  return result ? median(ratios(result, find(row, baseline))).toFixed(2) : '';
}

function cpuOf(samples: readonly Sample[]): string {
  return samples.length === 0 ? '' : median(samples.map(({ cpuUs }) => cpuUs)).toFixed(1);
}

function middle<K extends string>(samples: readonly Readonly<Record<K, number>>[], field: K) {
  return median(samples.map((sample) => sample[field])).toFixed(0);
}

/** Writes the table of `--profile`. */
export function publishProfile(text: string): void {
  replace('docs/performance.md', 'profile', text);
}

function replace(file: string, mark: string, text: string): void {
  const path = join(ROOT, file);
  const old = readFileSync(path, 'utf8');
  const place = new RegExp(`(<!-- ${mark} -->\\n).*?(<!-- /${mark} -->)`, 's');
  if (!place.test(old)) throw new Error(`${file} has no <!-- ${mark} -->`);
  writeFileSync(
    path,
    old.replace(place, (_all, begin, end) => `${begin}\n${text}\n\n${end}`),
  );
}
