// Rule 6.19 of the contract: --backup copies the SQLite database while the service runs.
import assert from 'node:assert/strict';
import fs, { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { newDatabase, newFolder, PROGRAM, Program, preloaded, start } from '../support/program.ts';
import { create, execute, list, madeDatabase, pathOf } from '../support/service.ts';
import { until } from '../support/until.ts';

/** Runs `--backup FILE` to its end. */
async function backup(DATABASE_URL: string, file: string, command = PROGRAM, env = {}) {
  await using program = new Program({ DATABASE_URL, ...env }, ['--backup', file], command);
  const { code } = await program.exited;
  return { code, stderr: program.stderr };
}

test('6.19 a copy made while clients write has every user created before, and is a database', async () => {
  const url = await newDatabase('sqlite');
  const copy = join(newFolder(), 'copy.db');
  await using program = await start({ DATABASE_URL: url });
  let isOver = false;
  const created: string[] = [];
  const writers = [1, 2, 3, 4].map(async () => {
    while (!isOver) created.push((await create(program)).email);
  });
  await until(() => created.length >= 50);
  const before = [...created];
  const { code, stderr } = await backup(url, copy);
  isOver = true;
  await Promise.all(writers);
  assert.deepEqual([code, stderr], [0, '']);
  assert.equal(statSync(copy).mode & 0o777, 0o660);
  assert.equal(readFileSync(copy)[18], 1, 'its last commit, which is durable, left WAL mode');
  const read = (text: string) => execute(`sqlite:${copy}`, text);
  const [check] = await read('select * from pragma_integrity_check');
  assert.deepEqual(Object.values(check!), ['ok']);
  const copied = new Set((await read('select email from users')).map(({ email }) => email));
  for (const email of before) assert.ok(copied.has(email), email);
  assert.ok(created.length > before.length, 'clients wrote meanwhile');

  await using restored = await start({ DATABASE_URL: `sqlite:${copy}` });
  assert.equal(JSON.parse(await list(restored)).length, copied.size);
});

test('6.19 FILE is a file of the current folder, also if SQLite gives its name another meaning', async () => {
  const folder = newFolder();
  const url = await madeDatabase('sqlite');
  const inFolder = ['/usr/bin/env', '-C', folder, ...PROGRAM];
  fs.mkdirSync(`${folder}/a/b`, { recursive: true });
  fs.symlinkSync('a/b', `${folder}/link`);
  const names = ['copy.db', ':memory:', 'file:copy.db', 'file:x?mode=memory', 'link/../copy.db'];
  for (const name of names) {
    const { code, stderr } = await backup(url, name, inFolder);
    assert.equal(code, 0, stderr);
    assert.deepEqual(await execute(`sqlite:${folder}/${name}`, 'select id from users'), []);
  }
});

test('6.19 it waits for a lock, such as that of a service that stops, and names one that lasts', async () => {
  const folder = newFolder();
  const url = await madeDatabase('sqlite');
  const lock = new DatabaseSync(pathOf(url));
  lock.exec('pragma locking_mode = exclusive; begin immediate');
  const { code, stderr } = await backup(url, join(folder, 'first.db'));
  assert.equal(code, 1);
  assert.match(stderr, /: database is locked\n$/);
  const second = backup(url, join(folder, 'second.db'));
  await pause(3_000);
  lock.close();
  assert.deepEqual(await second, { code: 0, stderr: '' });
});

for (const [why, expected, file, url] of [
  ['the file exists', /EEXIST/, 'there.db'],
  ['its folder is missing', /ENOENT/, 'none/copy.db'],
  ['the database is missing', /none\.db/, 'copy.db', 'sqlite:none.db'],
  ['the database is Postgres', /pg_dump/, 'copy.db', 'postgres://127.0.0.1:1/x'],
  ['the database is in memory', /the file of/, 'copy.db', 'sqlite::memory:'],
] as const) {
  test(`6.19 it exits with 1 and leaves no file if ${why}`, async () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'there.db'), 'kept');
    const database = url ?? (await madeDatabase('sqlite'));
    const { code, stderr } = await backup(database, join(folder, file));
    assert.equal(code, 1, stderr);
    assert.match(stderr, expected);
    assert.equal(stderr.trimEnd().split('\n').length, 1);
    assert.equal(existsSync(join(folder, file)), file === 'there.db');
  });
}

const NO_MODES = preloaded(`
  import fs from 'node:fs';
  import { syncBuiltinESMExports } from 'node:module';
  fs.chmodSync = () => { throw new Error('no modes'); };
  fs.promises.rm = async () => { throw new Error('read-only'); };
  syncBuiltinESMExports();`);

for (const [why, env, limit, said, left] of [
  ['the file system refuses the mode and the removal', NO_MODES, 'unlimited', 'no modes', 1],
  ['the disk is full', {}, 1000, 'disk I/O error', 0],
] as const) {
  test(`6.19 it exits with 1, says why and leaves no file that it can remove if ${why}`, async () => {
    const folder = newFolder();
    const url = await madeDatabase('sqlite');
    // More than SQLite's cache, so it writes its journal before the copy fails.
    await execute(url, 'create table large as select zeroblob(3000000)');
    const limited = ['/bin/bash', '-c', `ulimit -f ${limit}; exec "$0" "$@"`, ...PROGRAM];
    const { code, stderr } = await backup(url, join(folder, 'copy.db'), limited, env);
    assert.equal(code, 1, stderr);
    assert.match(stderr, RegExp(`^cannot copy .*: ${said}\n$`));
    assert.equal(readdirSync(folder).length, left);
  });
}
