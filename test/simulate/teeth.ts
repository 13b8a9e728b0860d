// Plants faults in copies of the store, one at a time, and runs the simulation on each: it must find all.
// node test/simulate/teeth.ts [number of stories]
import { spawnSync } from 'node:child_process';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { copyOf, ENV, ROOT } from '../support/program.ts';

const [count = '60000', only = ''] = process.argv.slice(2);

// By file: a fault, the code that it replaces, and what it puts there.
const PLANTED: Readonly<Record<string, Readonly<Record<string, readonly [string, string]>>>> = {
  'session.ts': {
    'a commit waits for locks without a limit (4.13)': ['`lock_timeout =', '// `lock_timeout ='],
    'a statement has no limit': ['`statement_timeout =', '// `statement_timeout ='],
    'a commit that no standby has is acknowledged (4.13)': ["=== 'SyncRepWaitForLSN'", '=== 0'],
  },
  'pool.ts': {
    'the oldest connection is used first, which a network can have dropped': ['findLast(', 'find('],
    'a pool returns to the first host of its URL (5.1)': ['this.#firstHost = host;', ''],
    'a pool stays at a host without standby (5.1)': [' || err instanceof NotReplicated', ''],
    'writes leave one connection less than the size of the pool (5.9)': [
      'Math.max(1, this.#connections.length - 1)',
      'Math.max(1, this.#options.poolSize - 1)',
    ],
    'calls that wait have no deadline': ['queue.expire(now, this.fault);', 'queue;'],
    'statements have no deadline': ['batch.deadline > now', 'batch.deadline > 0'],
    'a lost connection is not replaced': ['destroy();\n    this.#connect();', 'destroy();'],
    'an attempt to connect that failed still counts': [
      '    this.#attempts--;\n',
      '    if (connection) this.#attempts--;\n',
    ],
    'a connection is not given back after a read-only server refused its write (5.9)': [
      '    connection.batch = undefined;',
      '    if (err === undefined) connection.batch = undefined;',
    ],
    'attempts to connect do not pause (5.7)': ['if (failures > 0) {', 'if (false) {'],
    'a pool stays at a host that refuses writes (5.1)': ['mayBeStandby || ', ''],
    'a connection that is lost at once is no failed attempt (5.7)': ['< MIN_LIFETIME_MS', '< 0'],
    'idle connections stay on the host that the pool has left (5.1)': [
      'if (this.#isLeft(other) && other.batch === undefined) this',
      'if (false) this',
    ],
    'a busy connection stays on the host that the pool has left (5.1)': [
      'else if (this.#isLeft(connection)) this',
      'else if (false) this',
    ],
    'a host that did not respond is tried first (5.1)': [
      '[...database.hosts.slice(first), ...database.hosts.slice(0, first)]',
      'database.hosts',
    ],
  },
  'queue.ts': {
    'batches that give the same emails run at the same time (deadlocks)': [
      'if (running.has(email) && !own.has(email)) return false;',
      '',
    ],
    'networks do not take turns': ["call.caller?.network ?? ''", "''"],
    'a deadline that is an hour late for the server': ['!.expires)', '!.expires + 3_600_000)'],
    'a batch with two changes of one user': ['running.has(id)', 'running.has(id) && !own.has(id)'],
    'a batch with two unconditional deletes of one user, which both get it': [
      'if (running.has(id)) return false;',
      `const isPlain = !item.name && item.condition.oneOf === 'any' && item.condition.noneOf.length === 0;
    if (running.has(id) && !(isPlain && own.has(-id))) return false;
    if (isPlain) own.add(-id);`,
    ],
    'a statement of unknown outcome runs again': [
      "if (outcome === 'unknown') {",
      "if (outcome === 'unknown') for (const call of batch) this.#add(call);\n if (outcome === 'unknown') { this.options.schedule(this); return err as Error;",
    ],
    'keys of a batch that failed are never released': ['keys) this', 'keys) if (calls[1]) this'],
    'a caller that has left is still served': [
      'if (!caller?.hasLeft) return false;\n    reject',
      'if (!caller?.hasLeft) return false;\n    if (expires > 0) return reject(new CallerLeft()), false;\n    reject',
    ],
    'later calls for a user overtake one that waits': ['id ?? email', 'email ?? id'],
    'calls that were refused as raced get no second statement': ['groups.push(notDone);', ''],
    'after a deadlock or a race only half of the calls run again': ['calls.slice(middle), ', ''],
  },
  'postgres.ts': {
    'a connection is kept while commits wait for a standby (7.2)': ['state!.isStuck', 'false'],
    'an acknowledged write before its commit': [
      'const rows = await session.query<User>(CREATE, [session.serverTime(expires), ...values]);',
      `const rows = users.map((user) => ({ ...user, id: 1, version: 1 }));
    session.query(CREATE, [session.serverTime(expires), ...values]).catch(() => {});`,
    ],
    'a change and a removal of one user run at the same time (5.6)': [
      'WriteResult>({ ...writes, statement: deleteUsers',
      'WriteResult>({ ...writes, writes: { keysOf, running: new Set() }, statement: deleteUsers',
    ],
    'a deadline of deletes that is an hour late for the server': [
      'statement: deleteUsers',
      'statement: (session, items, ms) => deleteUsers(session, items, ms + 3_600_000)',
    ],
    'a read-only server is taken for a fault of one call (a lost 25006)': [
      "  '25006': 'unknown'",
      "  '25006': 'rolled back'",
    ],
    'a deadlock with another replica fails calls (5.6)': [
      "  '40P01': 'not done'",
      "  '40P01': 'rolled back'",
    ],
    "a standby's recovery fails calls (5.6)": ["  '40001': 'not done'", "  '40001': 'rolled back'"],
    'an email that another replica has just taken fails its call (4.10)': [
      'items.length > 1 ||',
      'items.length > 0 ||',
    ],
    'a connection that measured another time than the clock of its server is kept (4.13)': [
      ' || message.includes(LATE)',
      '',
    ],
    'results of a batch reach the wrong calls': [
      'if (user?.name !== name) return new EmailTaken();\n    created.delete(email);',
      'if (user === undefined) return new EmailTaken();',
    ],
  },
};

let missed = 0;
const faults = Object.entries(PLANTED).flatMap(([file, planted]) =>
  Object.entries(planted).map(([why, [from, to]]) => ({ why, file, from, to })),
);
for (const { why, file, from, to } of faults.filter((one) => one.why.includes(only))) {
  const names = ['src', 'test/simulate', 'test/support', 'test/vectors', 'package.json', 'db'];
  const folder = copyOf(names);
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const path = join(folder, 'src/store', file);
  const text = readFileSync(path, 'utf8');
  if (text.split(from).length !== 2) throw new Error(`${file} has not once: ${from}`);
  const planted = text.replace(from, () => to);
  writeFileSync(path, planted);
  const env = { ...ENV, SIMULATE: count };
  const { stdout } = spawnSync(
    process.execPath,
    ['--test', '--test-timeout=1800000', join(folder, 'test/simulate/store.test.ts')],
    { cwd: folder, env, encoding: 'utf8' },
  );
  const [, seed] = /FAST_CHECK_SEED=(\d+)/.exec(stdout) ?? [];
  const [, rule] = /AssertionError \[ERR_ASSERTION\]: (.*)/.exec(stdout) ?? [];
  const [, after] = /Property failed after (\d+)/.exec(stdout) ?? [];
  if (after === undefined) missed++;
  const result = after ? `story ${after} of seed ${seed}: ${rule?.slice(0, 90)}` : 'NOT FOUND';
  process.stdout.write(`| ${why} | ${result} |\n`);
}
process.exitCode = missed === 0 ? 0 : 1;
