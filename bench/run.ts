// The benchmark's command. `node bench/run.ts --help` prints the options; README.md explains the
// output. Exits with 1 if any contestant failed its check or its load.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { compare, compareSeconds } from './compare.ts';
import { buildPeers, CONTESTANTS, stripPeers, unavailable } from './contestants.ts';
import { type Server, slowFsync, startServer } from './database.ts';
import { guard } from './guard.ts';
import { GENERATOR, type Generator } from './load.ts';
import { DEFAULT_CORES, describeMachine, move } from './machine.ts';
import { measure, type Setup } from './measure.ts';
import { MILLION, million } from './million.ts';
import { profile } from './profile.ts';
import { publish, publishProfile, type Report } from './publish.ts';
import { millionTable, scenarioTable, startTable, summary } from './report.ts';
import { SCENARIOS } from './scenarios.ts';
import { STARTS, startup } from './startup.ts';

const ALL = [...Object.keys(SCENARIOS), 'million', 'start'];
const RESULTS = join(import.meta.dirname, 'results');
/** Times besides the load: of a run, of a contestant's start and check, and of its million rows. */
const OVERHEAD_SECONDS = 0.3;
const START_SECONDS = 1;
const MILLION_SECONDS = 60;
const USAGE = `Usage: npm run bench -- [options]
  --scenario a,b    only these: ${ALL.join(', ')}
  --only a,b        only these contestants, and the baseline; ours is ours-log too, and so on
  --rounds N        counted rounds (7)
  --seconds N       of load a run (1)
  --generator NAME  wrk or autocannon (wrk where installed)
  --name NAME       the result is bench/results/NAME.json (the time)
  --resume          with --name: continues that run without repeating its measurements
  --publish         writes the tables of README.md and docs/performance.md from the whole run
  --smoke           one short round of everything: does it work?
  --compare DIR     instead: CPU per request of this checkout against the one in DIR
  --guard           instead: CPU per request against the ratios of guard.json; fails 10 % above
  --profile         instead: where the service's CPU time goes, by scenario
  --write           with --guard: keeps what is measured in guard.json;
                    with --profile: writes the table of docs/performance.md
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
    resume: { type: 'boolean', default: false },
    publish: { type: 'boolean', default: false },
    guard: { type: 'boolean', default: false },
    profile: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    smoke: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
/** All measurements, as written to the JSON file. */
const report: Report = options.resume ? saved() : emptyReport();
let failures = 0;

const unknown = options.scenario?.split(',').filter((id) => !ALL.includes(id)) ?? [];
if (options.help) console.log(USAGE);
else if (unknown.length > 0) throw new Error(`no scenario ${unknown}`);
else await main();

async function main(): Promise<void> {
  const cores = DEFAULT_CORES;
  move(process.pid, cores.load);
  if (options.compare !== undefined) return compareWith(resolve(options.compare));
  if (options.guard) return guarded();
  if (options.profile) return profiled();
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

/** `--guard`. */
async function guarded(): Promise<void> {
  stripPeers();
  const setup = setupOf(await startServer(DEFAULT_CORES.postgres), { rounds: 5, seconds: 0.4 });
  failures += await guard(options.write, setup).finally(() => setup.postgres.stop());
  process.exit(failures > 0 ? 1 : 0);
}

/** `--profile`. */
async function profiled(): Promise<void> {
  stripPeers();
  const setup = setupOf(await startServer(DEFAULT_CORES.postgres), { rounds: 3, seconds: 1 });
  const text = await profile(setup).finally(() => setup.postgres.stop());
  console.log(text);
  if (options.write) publishProfile(text);
  process.exit();
}

/** Returns the setup from the options, with defaults. */
function setupOf(postgres: Server, defaults: { rounds: number; seconds: number }): Setup {
  const { rounds, seconds } = options.smoke ? { rounds: 1, seconds: 0.5 } : defaults;
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
  console.log(`about ${Math.ceil(expectedSeconds(setup) / 60)} minutes`);
  for (const [id, scenario] of Object.entries(SCENARIOS).filter(([name]) => isMissing(name))) {
    const { title, baseline, contestants } = scenario;
    if (scenario.slowFsync && !setup.slow) {
      console.log(`\n${title}: skipped, gcc is not installed`);
      continue;
    }
    const taking = present(contestants, baseline).map((name) => [name, CONTESTANTS[name]!]);
    const results = await measure(id, scenario, Object.fromEntries(taking), setup);
    report.measured.push({ id, title, baseline, results });
    // A resumed run may have measured later scenarios already.
    const order = Object.keys(SCENARIOS);
    report.measured.sort((x, y) => order.indexOf(x.id) - order.indexOf(y.id));
    finish(title, scenarioTable(results, baseline), results);
  }
  if (isWanted('million') && !report.million) {
    report.million = await million(present(MILLION), setup);
    finish('GET /users, one million rows', millionTable(report.million), report.million);
  }
  if (isWanted('start') && !report.start) {
    report.start = await startup(present(STARTS, 'bare'), setup);
    finish('Start to the first 200, and idle memory', startTable(report.start), report.start);
  }
  if (report.measured.length > 0) {
    console.log(`\nMedian ratios\n\n${summary(report.measured)}`);
  }
  console.log(`\n${save()}`);
  if (options.publish && setup.isSmoke) throw new Error('a smoke run is not published');
  if (!options.publish) return;
  publish(report);
  publishProfile(await profile(setup));
}

/** True if the scenario is selected and the resumed run has not measured it. */
function isMissing(id: string): boolean {
  return isWanted(id) && !report.measured.some((one) => one.id === id);
}

/** Estimates the time of the rest of the run, including starts, fills and checks. */
function expectedSeconds({ rounds, seconds }: Setup): number {
  const runs = Object.entries(SCENARIOS)
    .filter(([id]) => isMissing(id))
    .map(([, { contestants, baseline }]) => present(contestants, baseline).length);
  const each = (rounds + 1) * (seconds + OVERHEAD_SECONDS) + START_SECONDS;
  const sum = runs.reduce((all, one) => all + one, 0) * each;
  const million =
    isWanted('million') && !report.million ? MILLION_SECONDS * present(MILLION).length : 0;
  return sum + million + (isWanted('start') && !report.start ? present(STARTS).length * rounds : 0);
}

/** Prints a table, counts failures, and saves the results so far. */
function finish(title: string, table: string, results: readonly { failure?: string }[]): void {
  console.log(`\n${title}\n\n${table}`);
  failures += results.filter(({ failure }) => failure !== undefined).length;
  save();
}

function emptyReport(): Report {
  return {
    machine: describeMachine(),
    options: {},
    measured: [],
    million: undefined,
    start: undefined,
  };
}

function saved(): Report {
  return JSON.parse(readFileSync(join(RESULTS, `${options.name}.json`), 'utf8'));
}

function save(): string {
  mkdirSync(RESULTS, { recursive: true });
  const file = join(RESULTS, `${options.name}.json`);
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
  return file;
}

function isWanted(id: string): boolean {
  return options.scenario === undefined || options.scenario.split(',').includes(id);
}

/** Returns the names that can run here and that `--only` selects, and the baseline. */
function present(names: readonly string[], baseline?: string): string[] {
  const only = options.only?.split(',') ?? names;
  const missing = unavailable();
  return names.filter((name) => {
    const isAsked = only.includes(name) || only.includes(String(name.split('-')[0]));
    return name === baseline || (isAsked && missing[name] === undefined);
  });
}
