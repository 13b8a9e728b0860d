// The benchmark's command. `npm run bench -- --help` prints the options; README.md explains the output.
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { publish } from '../scripts/results.ts';
import { compare } from './compare.ts';
import { CONTESTANTS, compilePeers, type Name, stripPeers } from './contestants.ts';
import { startServer } from './database.ts';
import { guard } from './guard.ts';
import { describeMachine, has, leaveServerCore } from './machine.ts';
import { measure, type Plan, type Sample } from './measure.ts';
import { profile } from './profile.ts';
import { SCENARIOS, type Scenario } from './scenarios.ts';
import { median, table } from './table.ts';

const ROOT = join(import.meta.dirname, '..');
const COLUMNS: readonly (readonly [name: Name, head: string])[] = [
  ...(['raw', 'raw-pg', 'raw-sqlite', 'fastify'] as const).map((name) => [name, name] as const),
  ['go', 'Go, pgx'],
  ['axum', 'axum, tokio-postgres'],
  ['ours', 'notes-users, Postgres'],
  ['ours-log', 'the same with its log'],
  ['ours-sqlite', 'notes-users, SQLite'],
];
const USAGE = `Usage: npm run bench -- [options]
  --scenario a,b    only these: ${Object.keys(SCENARIOS).join(', ')}
  --only a,b        only these, and the baseline: ${Object.keys(CONTESTANTS).join(', ')}
  --rounds N        counted rounds (7)
  --seconds N       of load a run, a whole number (1)
  --publish         writes the table to docs/performance.md
  --smoke           one short round: does it work?
  --compare DIR     instead: CPU per request of this checkout against the one in DIR
  --guard           instead: CPU per request against the ratios of guard.json; fails 10 % above
  --write           with --guard: keeps what is measured in guard.json
  --profile         instead: where the service's CPU time goes, by scenario
`;

const { values: options } = parseArgs({
  options: {
    scenario: { type: 'string' },
    only: { type: 'string' },
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    publish: { type: 'boolean', default: false },
    smoke: { type: 'boolean', default: false },
    compare: { type: 'string' },
    guard: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    profile: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const isWanted = (id: string) => options.scenario?.split(',').includes(id) ?? true;
const isContestant = (name: string) => options.only?.split(',').includes(name) ?? true;

if (options.help) console.log(USAGE);
else await main();

async function main(): Promise<void> {
  if (!has('wrk')) throw new Error('wrk is not installed');
  const isPart = options.smoke || options.scenario !== undefined || options.only !== undefined;
  if (options.publish && isPart) throw new Error('only a whole run is published');
  leaveServerCore();
  stripPeers();
  const postgres = await startServer();
  const plan = (rounds: number): Plan => ({
    rounds: Number(options.rounds ?? (options.smoke ? 1 : rounds)),
    seconds: Number(options.seconds ?? 1),
    postgres,
  });
  try {
    if (options.compare !== undefined) {
      await compare(resolve(options.compare), ROOT, isWanted, plan(4));
    } else if (options.guard) {
      process.exitCode = (await guard(options.write, plan(3))) > 0 ? 1 : 0;
    } else if (options.profile) {
      await profile(isWanted, plan(3));
    } else {
      const machine = describeMachine(postgres.version);
      await measureAll(machine, plan(7));
    }
  } finally {
    await postgres.stop();
  }
}

/** Measures all scenarios, and prints or publishes the table. */
async function measureAll(machine: string, plan: Plan): Promise<void> {
  const skipped = compilePeers(isContestant);
  for (const name of skipped) console.log(`${name}: skipped, its compiler is not installed`);
  const isPresent = (name: string) => isContestant(name) && !skipped.includes(name);
  const rows: string[][] = [];
  for (const [, scenario] of Object.entries(SCENARIOS).filter(([id]) => isWanted(id))) {
    const { contestants, baseline, title } = scenario;
    const names = contestants.filter((name) => name === baseline || isPresent(name));
    const chosen = Object.fromEntries(names.map((name) => [name, CONTESTANTS[name]]));
    const samples = await measure(scenario, chosen, plan);
    rows.push([title, ...COLUMNS.map(([name]) => cell(scenario, samples, name))]);
    console.log(rows.at(-1)!.join(' | '));
  }
  const text = table(['requests/s (CPU)', ...COLUMNS.map(([, head]) => head)], rows);
  console.log(`\n${machine}\n\n${text}`);
  if (!options.publish) return;
  if (skipped.length > 0) throw new Error(`not published without ${skipped.join(', ')}`);
  publish({
    ...{ name: 'performance', page: 'docs/performance.md', text },
    command: `npm run bench -- ${process.argv.slice(2).join(' ')}`,
    conditions: `medians of ${plan.rounds} rounds of ${plan.seconds} s; ${machine}`,
  });
}

/** Returns `1.96 (25.1 µs)`: the rate relative to the baseline's in the same round, and the CPU time. */
function cell(
  { baseline }: Scenario,
  samples: Readonly<Record<string, readonly Sample[]>>,
  name: Name,
): string {
  const own = samples[name];
  if (own === undefined) return '';
  const ratios = own.map(({ rate }, round) => rate / samples[baseline]![round]!.rate);
  const cpuUs = median(own.map((sample) => sample.cpuUs));
  return `${median(ratios).toFixed(2)} (${cpuUs.toFixed(1)} µs)`;
}
