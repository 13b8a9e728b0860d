// Plants faults in copies of the store, one at a time, and runs the simulation on each: it must find all.
// node test/simulate/teeth.ts [number of stories]
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';

const ROOT = join(import.meta.dirname, '../..');
const [count = '30000', only = ''] = process.argv.slice(2);

const PLANTED: readonly { why: string; file: string; from: string; to: string }[] = [
  {
    why: 'writes leave one connection less than the size of the pool (5.9)',
    file: 'pool.ts',
    from: 'Math.max(1, this.#connections.length - 1)',
    to: 'Math.max(1, this.#options.poolSize - 1)',
  },
  {
    why: 'batches that give the same emails run at the same time (deadlocks)',
    file: 'queue.ts',
    from: 'if (running.has(email) && !own.has(email)) return false;',
    to: '',
  },
  {
    why: 'networks do not take turns',
    file: 'queue.ts',
    from: "const network = call.caller?.network ?? '';",
    to: "const network = '';",
  },
  {
    why: 'an acknowledged write before its commit',
    file: 'postgres.ts',
    from: 'const rows = await session.query<User>(CREATE, [session.serverTime(expires), ...values]);',
    to: `const rows = users.map((user) => ({ ...user, id: 1, version: 1 }));
    session.query(CREATE, [session.serverTime(expires), ...values]).catch(() => {});`,
  },
  {
    why: 'a deadline that is an hour late for the server',
    file: 'queue.ts',
    from: 'await this.options.statement(session, items, calls[0]!.expires)',
    to: 'await this.options.statement(session, items, calls[0]!.expires + 3_600_000)',
  },
  {
    why: 'a batch with two changes of one user',
    file: 'queue.ts',
    from: 'if (running.has(id)) return false;',
    to: 'if (running.has(id) && !own.has(id)) return false;',
  },
  {
    why: 'a change and a removal of one user run at the same time (5.6)',
    file: 'postgres.ts',
    from: 'WriteResult>({ ...writes, statement: deleteUsers',
    to: 'WriteResult>({ ...writes, writes: { keysOf, running: new Set() }, statement: deleteUsers',
  },
  {
    why: 'a read-only server is taken for a fault of one call (a lost 25006)',
    file: 'postgres.ts',
    from: "  '25006': 'unknown'",
    to: "  '25006': 'rolled back'",
  },
  {
    why: 'a deadlock with another replica fails calls (5.6)',
    file: 'postgres.ts',
    from: "  '40P01': 'not done'",
    to: "  '40P01': 'rolled back'",
  },
  {
    why: 'a serialization failure fails calls (5.6)',
    file: 'postgres.ts',
    from: "  '40001': 'not done'",
    to: "  '40001': 'rolled back'",
  },
  {
    why: 'an email that another replica has just taken fails its call (4.10)',
    file: 'postgres.ts',
    from: 'targets.length > 1 ||',
    to: 'targets.length > 0 ||',
  },
  {
    why: 'a statement of unknown outcome runs again',
    file: 'queue.ts',
    from: "if (outcome === 'unknown') {",
    to: "if (outcome === 'unknown') for (const call of batch) this.#add(call);\n if (outcome === 'unknown') { this.options.schedule(this); return err as Error;",
  },
  {
    why: 'a connection that measured another time than the clock of its server is kept (4.13)',
    file: 'postgres.ts',
    from: "  '22P02': 'unknown'",
    to: "  '22P02': 'rolled back'",
  },
  {
    why: 'keys of a batch that failed are never released',
    file: 'queue.ts',
    from: 'for (const key of keys) this',
    to: 'for (const key of keys) if (calls.length !== 1) this',
  },
  {
    why: 'calls that wait have no deadline',
    file: 'pool.ts',
    from: 'for (const queue of this.#queues) queue.expire(now);',
    to: '',
  },
  {
    why: 'statements have no deadline',
    file: 'pool.ts',
    from: 'connection.batch.deadline > now',
    to: 'connection.batch.deadline > 0',
  },
  {
    why: 'a lost connection is not replaced',
    file: 'pool.ts',
    from: '    session.destroy();\n    this.#connect();',
    to: '    session.destroy();',
  },
  {
    why: 'an attempt to connect that failed still counts',
    file: 'pool.ts',
    from: '    this.#attempts--;\n',
    to: '    if (connection) this.#attempts--;\n',
  },
  {
    why: 'results of a batch reach the wrong calls',
    file: 'postgres.ts',
    from: 'if (user?.name !== name) return new EmailTaken();\n    created.delete(email);',
    to: 'if (user === undefined) return new EmailTaken();',
  },
  {
    why: 'a caller that has left is still served',
    file: 'queue.ts',
    from: 'if (!caller?.hasLeft) return false;\n    reject',
    to: 'if (!caller?.hasLeft) return false;\n    if (expires > 0) return reject(new CallerLeft()), false;\n    reject',
  },
  {
    why: 'later calls for a user overtake one that waits',
    file: 'queue.ts',
    from: 'return id === undefined ? Symbol()',
    to: 'return id !== undefined ? Symbol()',
  },
  {
    why: 'calls that were refused as raced get no second statement',
    file: 'queue.ts',
    from: 'groups.push(notDone);',
    to: '',
  },
  {
    why: 'after a deadlock or a race only half of the calls run again',
    file: 'queue.ts',
    from: 'else groups.push(calls.slice(middle), calls.slice(0, middle));',
    to: 'else groups.push(calls.slice(0, middle));',
  },
];

let missed = 0;
for (const { why, file, from, to } of PLANTED.filter((one) => one.why.includes(only))) {
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-teeth-'));
  const names = ['src', 'test/simulate', 'test/support', 'test/vectors', 'package.json', 'db'];
  for (const name of names) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const path = join(folder, 'src/store', file);
  const text = readFileSync(path, 'utf8');
  if (text.split(from).length !== 2) throw new Error(`${file} has not once: ${from}`);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
  const env = { ...process.env, SIMULATE: count, NODE_TEST_CONTEXT: undefined };
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
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = missed === 0 ? 0 : 1;
