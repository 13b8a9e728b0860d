// The benchmark's command. `node bench/run.ts --help` prints the options; README.md tells how to
// read what comes out. Exit status 1 when any contestant failed its check or its load.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { compare, compareSeconds } from './compare.ts';
import { buildPeers, CONTESTANTS, unavailable } from './contestants.ts';
import { type Server, slowFsync, startServer } from './database.ts';
import { GENERATOR, type Generator } from './load.ts';
import { DEFAULT_CORES, describeMachine, move } from './machine.ts';
import { measure, type Result, type Setup } from './measure.ts';
import { MILLION, million } from './million.ts';
import { millionTable, scenarioTable, startTable, summary } from './report.ts';
import { SCENARIOS } from './scenarios.ts';
import { STARTS, startup } from './startup.ts';

const ALL = [...Object.keys(SCENARIOS), 'million', 'start'];
const USAGE = `Usage: npm run bench -- [options]
  --scenario a,b    only these: ${ALL.join(', ')}
  --only a,b        only these contestants, and the baseline; ours is ours-log too, and so on
  --rounds N        counted rounds (7)
  --seconds N       of load a run (2)
  --generator NAME  wrk or autocannon (wrk where installed)
  --name NAME       the result is bench/results/NAME.json (the time)
  --smoke           one short round of everything: does it work?
  --compare DIR     instead: CPU per request of this checkout against the one in DIR
`;

const { values: options } = parseArgs({
  options: {
    scenario: { type: 'string' },
    only: { type: 'string' },
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    generator: { type: 'string', default: GENERATOR },
    name: { type: 'string', default: new Date().toISOString().replaceAll(':', '-') },
    compare: { type: 'string' },
    smoke: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
/** Everything that was measured, as it is written to the JSON file. */
const report = {
  machine: describeMachine(),
  options: {},
  measured: [] as { id: string; title: string; baseline: string; results: Result[] }[],
  million: undefined as Awaited<ReturnType<typeof million>> | undefined,
  start: undefined as Awaited<ReturnType<typeof startup>> | undefined,
};
let failures = 0;

const unknown = options.scenario?.split(',').filter((id) => !ALL.includes(id)) ?? [];
if (options.help) console.log(USAGE);
else if (unknown.length > 0) throw new Error(`no scenario ${unknown}`);
else await main();

async function main(): Promise<void> {
  const cores = DEFAULT_CORES;
  move(process.pid, cores.load);
  if (options.compare !== undefined) return compareWith(resolve(options.compare));
  buildPeers();
  const isSlowWanted = Object.entries(SCENARIOS).some(([id, one]) => isWanted(id) && one.slowFsync);
  const env = isSlowWanted ? slowFsync() : undefined;
  const postgres = await startServer(cores.postgres);
  const slow = env && { env, postgres: await startServer(cores.postgres, env) };
  try {
    await runAll({ ...setupOf(postgres, { rounds: 7, seconds: 1 }), ...(slow && { slow }) });
  } finally {
    await slow?.postgres.stop();
    await postgres.stop();
  }
  process.exit(failures > 0 ? 1 : 0);
}

/** `--compare DIR`. */
async function compareWith(before: string): Promise<void> {
  const cores = DEFAULT_CORES;
  const setup = setupOf(await startServer(cores.postgres), { rounds: 8, seconds: 0.5 });
  const minutes = compareSeconds(isWanted, setup) / 60;
  console.log(`before: ${before}; about ${minutes.toFixed(0)} minutes`);
  const after = join(import.meta.dirname, '..');
  failures += await compare(before, after, isWanted, setup).finally(() => setup.postgres.stop());
  process.exit(failures > 0 ? 1 : 0);
}

/** The setup that the options describe; these are the defaults of what they leave out. */
function setupOf(postgres: Server, defaults: { rounds: number; seconds: number }): Setup {
  const { rounds, seconds } = options.smoke ? { rounds: 1, seconds: 0.3 } : defaults;
  return {
    rounds: Number(options.rounds ?? rounds),
    seconds: Number(options.seconds ?? seconds),
    isSmoke: options.smoke,
    generator: options.generator as Generator,
    cores: DEFAULT_CORES,
    postgres,
  };
}

async function runAll(setup: Setup): Promise<void> {
  const { rounds, seconds, generator, cores, postgres } = setup;
  report.options = { rounds, seconds, generator, cores, postgres: postgres.version };
  console.log(JSON.stringify({ ...report.machine, ...report.options }));
  if (setup.isSmoke) console.log('smoke run: nothing is warmed up, the figures mean nothing');
  for (const [name, reason] of Object.entries(unavailable())) console.log(`${name}: ${reason}`);
  for (const [id, scenario] of Object.entries(SCENARIOS).filter(([name]) => isWanted(name))) {
    const { title, baseline, contestants } = scenario;
    if (scenario.slowFsync && !setup.slow) {
      console.log(`\n${title}: skipped, gcc is not installed`);
      continue;
    }
    const taking = present(contestants, baseline).map((name) => [name, CONTESTANTS[name]!]);
    const results = await measure(id, scenario, Object.fromEntries(taking), setup);
    report.measured.push({ id, title, baseline, results });
    finish(title, scenarioTable(results, baseline), results);
  }
  if (isWanted('million')) {
    report.million = await million(present(MILLION), setup);
    finish('GET /users, one million rows', millionTable(report.million), report.million);
  }
  if (isWanted('start')) {
    report.start = await startup(present(STARTS, 'bare'), setup);
    finish('Start to the first 200, and idle memory', startTable(report.start), report.start);
  }
  if (report.measured.length > 0) {
    console.log(`\nMedian ratios\n\n${summary(report.measured)}`);
  }
  console.log(`\n${save()}`);
}

/** Prints a table, counts what failed, and saves what there is so far. */
function finish(title: string, table: string, results: readonly { failure?: string }[]): void {
  console.log(`\n${title}\n\n${table}`);
  failures += results.filter(({ failure }) => failure !== undefined).length;
  save();
}

function save(): string {
  const folder = join(import.meta.dirname, 'results');
  mkdirSync(folder, { recursive: true });
  const file = join(folder, `${options.name}.json`);
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
  return file;
}

function isWanted(id: string): boolean {
  return options.scenario === undefined || options.scenario.split(',').includes(id);
}

/** Those of the names that can run here and that `--only` lets through; the baseline always. */
function present(names: readonly string[], baseline?: string): string[] {
  const only = options.only?.split(',') ?? names;
  const missing = unavailable();
  return names.filter((name) => {
    const isAsked = only.includes(name) || only.includes(String(name.split('-')[0]));
    return name === baseline || (isAsked && missing[name] === undefined);
  });
}
