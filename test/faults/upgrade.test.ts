// Two versions of the service on one database, under load: rolling upgrade, restart of the old
// version on the new schema, and rollback. No request fails. The versions are copies of the built
// service with more migrations.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { stablePort } from '../support/daemon.ts';
import { newFolder, PROGRAM, Program, SCHEMA_VERSION, STORES, start } from '../support/program.ts';
import { until } from '../support/until.ts';
import { type Ports, startBalancer } from './balancer.ts';
import { Ledger } from './ledger.ts';
import { report, TIMES } from './results.ts';
import { databaseOf, execute, releaseServer, usersIn, whileLocked } from './users.ts';
import { Writers } from './writers.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const WRITERS = 16;
const NOTHING = { lost: [], duplicated: [] };
/** Much longer than the balancer's /ready interval of 100 ms. */
const SHUTDOWN_DELAY_MS = '1500';

/** The schema change of each version, and the oldest service that it allows. */
const ADDED = [
  { column: 'added_first', oldestService: SCHEMA_VERSION },
  { column: 'added_second', oldestService: SCHEMA_VERSION + 1 },
] as const;

/** The command of each version: the service unchanged, with one more migration, and with two. */
let versions: readonly (readonly string[])[];
/** A second version whose migration fails after its first statement. */
let brokenVersion: readonly string[];

before(() => {
  const built = join(newFolder(), 'dist');
  execFileSync(process.execPath, [join(ROOT, 'scripts/build.ts'), built], { stdio: 'ignore' });
  const added = ADDED.map(
    ({ column, oldestService }) => `-- oldest service: ${oldestService}
alter table users add column ${column} text not null default '';
`,
  );
  versions = [0, 1, 2].map((count) => copy(built, added.slice(0, count)));
  brokenVersion = copy(built, [
    'alter table users add column half text; insert into no_such_table values (1);',
  ]);
});
after(releaseServer);

test('5.8 a rolling upgrade and its rollback on Postgres', { timeout: 600_000 }, async (t) => {
  for (let i = 0; i < TIMES.upgrades; i++) await rollBothWays(t);
});

test('5.8 two versions on one SQLite file', { timeout: 600_000 }, async (t) => {
  for (let i = 0; i < TIMES.upgrades; i++) await shareFile(t);
});

for (const store of STORES) {
  test(`5.3 a failed migration leaves the database unchanged (${store})`, async () => {
    const DATABASE_URL = await databaseOf(store);
    await using first = await startVersion(1, { DATABASE_URL });
    await isReady(first);
    const broken = new Program({ PORT: '0', HOST: '127.0.0.1', DATABASE_URL }, [], brokenVersion);
    await using _ = broken;
    if (store === 'sqlite') assert.deepEqual(await broken.exited, { code: 1, signal: null });
    else await broken.until(({ stdout }) => stdout.includes('store unavailable'));
    assert.match(broken.stdout + broken.stderr, /no_such_table/);
    assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION);
    await assert.rejects(execute(DATABASE_URL, 'select half from users'), /half/);
    // The running service keeps working.
    const writers = new Writers(new Ledger(), first.url, 1);
    await progress(writers, 10);
    await stop(writers);
  });
}

/** Replaces two replicas behind a balancer with the other version, and back. */
async function rollBothWays(t: TestContext): Promise<void> {
  const DATABASE_URL = await databaseOf('postgres');
  const ports = [await newPorts(), await newPorts()] as const;
  const env = { DATABASE_URL, SHUTDOWN_DELAY_MS };
  const replica = (version: number, [port, adminPort]: Ports) =>
    startVersion(version, { ...env, PORT: String(port), ADMIN_PORT: String(adminPort) });
  const replicas = await Promise.all(ports.map((pair) => replica(1, pair)));
  const ledger = new Ledger();
  let replaced = 0;
  try {
    await using balancer = await startBalancer(ports);
    const writers = new Writers(ledger, `http://127.0.0.1:${balancer.port}`, WRITERS);
    await Promise.all(replicas.map(serves));
    const replace = async (i: 0 | 1, version: number) => {
      await progress(writers, 4 * WRITERS);
      assert.deepEqual(await replicas[i]!.stop(), { code: 0, signal: null });
      replicas[i] = await replica(version, ports[i]);
      replaced++;
    };
    // A backup reads the table meanwhile. Only the migration has to wait.
    await whileLocked(DATABASE_URL, 'lock table users in access share mode', async () => {
      await replace(0, 2);
      await progress(writers, 20 * WRITERS);
      assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION);
    });
    await serves(replicas[0]!);
    assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION + 1);
    // The old version restarts on the new schema. Then the rollout completes, and is rolled back.
    for (const [i, version] of [
      [1, 1],
      [1, 2],
      [0, 1],
      [1, 1],
    ] as const) {
      await replace(i, version);
      await serves(replicas[i]!);
    }
    await progress(writers, 4 * WRITERS);
    await stop(writers);
    for (const { log } of replicas) {
      // On a slow machine the first attempt to connect can time out.
      const errors = log.filter(
        ({ level, message }) => level === 'error' && message !== 'store unavailable',
      );
      assert.deepEqual(errors, []);
    }
  } finally {
    await Promise.all(replicas.map((program) => program[Symbol.asyncDispose]()));
  }
  assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), NOTHING);
  await assertThirdVersion(DATABASE_URL);
  const { acknowledged } = ledger;
  const fault = 'rolling upgrade and rollback (no request failed)';
  report(t, { fault, store: 'postgres', injected: replaced, acknowledged, lost: 0, duplicated: 0 });
}

/** Runs both versions at the same time, each with its own writers. */
async function shareFile(t: TestContext): Promise<void> {
  const DATABASE_URL = await databaseOf('sqlite');
  const ledger = new Ledger();
  const programs: Program[] = [];
  let started = 0;
  const begin = async (version: number) => {
    const program = await startVersion(version, { DATABASE_URL });
    programs.push(program);
    started++;
    return { program, writers: new Writers(ledger, program.url, WRITERS) };
  };
  const end = async ({ program, writers }: Awaited<ReturnType<typeof begin>>) => {
    await stop(writers);
    assert.deepEqual(await program.stop(), { code: 0, signal: null });
    assert.deepEqual(
      program.log.filter(({ level }) => level === 'error'),
      [],
    );
  };
  try {
    const first = await begin(1);
    await progress(first.writers, 4 * WRITERS);
    const second = await begin(2);
    const both = (...all: (typeof first)[]) =>
      Promise.all(all.map(({ writers }) => progress(writers, 4 * WRITERS)));
    await both(first, second);
    await end(first);
    const again = await begin(1);
    await both(again, second);
    await end(second);
    await progress(again.writers, 4 * WRITERS);
    await end(again);
  } finally {
    await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
  }
  assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), NOTHING);
  await assertThirdVersion(DATABASE_URL);
  const { acknowledged } = ledger;
  const fault = 'two versions on one file (no request failed)';
  report(t, { fault, store: 'sqlite', injected: started, acknowledged, lost: 0, duplicated: 0 });
}

/** Resolves after `count` more acknowledged writes; rejects at the first refused one. */
async function progress(writers: Writers, count: number): Promise<void> {
  const goal = writers.acknowledged + count;
  await writers.until(() => writers.acknowledged >= goal || writers.count(500) > 0);
  assert.equal(writers.count(500), 0, 'a request failed');
}

async function stop(writers: Writers): Promise<void> {
  await writers.stop();
  assert.deepEqual([writers.surprises, writers.cutOff, writers.broken], [[], [], 0]);
  assert.equal(writers.count(500), 0);
}

/** Checks that after the third version's migration the second still starts, and the first fails. */
async function assertThirdVersion(DATABASE_URL: string): Promise<void> {
  for (const version of [3, 2]) {
    await using program = await startVersion(version, { DATABASE_URL });
    await isReady(program);
    assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION + 2);
  }
  const refused = new Program({ PORT: '0', HOST: '127.0.0.1', DATABASE_URL }, [], versions[0]);
  await using _ = refused;
  assert.deepEqual(await refused.exited, { code: 1, signal: null });
  const [first, second, third] = [0, 1, 2].map((count) => SCHEMA_VERSION + count);
  const message = `schema version ${third} and needs a service that knows version ${second} or later; this service knows ${first}: `;
  assert.ok((refused.stdout + refused.stderr).includes(message));
  assert.equal(await schemaVersion(DATABASE_URL), SCHEMA_VERSION + 2);
}

function startVersion(version: number, env: Record<string, string>): Promise<Program> {
  return start(env, versions[version - 1]);
}

/** Copies the package's files, with more migrations; returns the command. */
function copy(built: string, added: readonly string[]): readonly string[] {
  const folder = newFolder();
  cpSync(built, join(folder, 'dist'), { recursive: true });
  const { files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  for (const file of files.filter((name: string) => !name.startsWith('dist/'))) {
    mkdirSync(join(folder, dirname(file)), { recursive: true });
    cpSync(join(ROOT, file), join(folder, file), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  for (const [i, sql] of added.entries()) {
    for (const engine of ['sqlite', 'postgres']) {
      const number = String(SCHEMA_VERSION + 1 + i).padStart(4, '0');
      writeFileSync(join(folder, `db/${engine}/${number}_added.sql`), sql);
    }
  }
  const flags = PROGRAM.slice(0, -1);
  return [...flags, join(folder, 'dist/main.cjs')];
}

async function schemaVersion(databaseUrl: string): Promise<unknown> {
  const text = 'select max(version) as version from notes_users_schema';
  const [row] = await execute(databaseUrl, text);
  return row!.version;
}

/** Returns ports for the API and the admin listener, which stay the same after each restart. */
async function newPorts(): Promise<Ports> {
  return [await stablePort(), await stablePort()];
}

/** Resolves once the balancer sends requests to the program. */
function serves(program: Program): Promise<void> {
  return program.until(({ stdout }) => stdout.includes('"message":"request"'));
}

/** Resolves once /ready returns 200. */
function isReady({ adminUrl }: Program): Promise<void> {
  return until(async () => (await fetch(`${adminUrl}/ready`)).ok);
}
