// Rule 6.19 of the contract: --backup copies the SQLite database while the service runs.
import assert from 'node:assert/strict';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import { send } from '../support/client.ts';
import { newFolder, Program, start } from '../support/program.ts';

/** Runs `--backup FILE` to its end. */
async function backup(DATABASE_URL: string, file: string) {
  await using program = new Program({ DATABASE_URL }, ['--backup', file]);
  const { code } = await program.exited;
  return { code, stderr: program.stderr };
}

function emailsIn(file: string): string[] {
  using db = new DatabaseSync(file, { readOnly: true });
  assert.deepEqual(db.prepare('pragma integrity_check').all().map(Object.values), [['ok']]);
  return db
    .prepare('select email from users')
    .all()
    .map(({ email }) => String(email));
}

describe('6.19 --backup', () => {
  test('6.19 a copy made while clients write has every user created before, and is a database', async () => {
    const folder = newFolder();
    const url = `sqlite:${join(folder, 'service.db')}`;
    const copy = join(folder, 'copy.db');
    await using program = await start({ DATABASE_URL: url });
    let isOver = false;
    const created: string[] = [];
    const write = async (client: number) => {
      for (let i = 0; !isOver; i++) {
        const body = { name: 'Ann', email: `${client}-${i}@example.com` };
        const { status } = await send(`${program.url}/users`, { method: 'POST', body });
        assert.equal(status, 201);
        created.push(body.email);
      }
    };
    const writers = [1, 2, 3, 4].map(write);
    const { code, stderr, before } = await (async () => {
      while (created.length < 50) await send(program.url);
      const known = [...created];
      return { ...(await backup(url, copy)), before: known };
    })();
    isOver = true;
    await Promise.all(writers);
    assert.deepEqual([code, stderr], [0, '']);
    assert.equal(statSync(copy).mode & 0o777, 0o660);
    const copied = new Set(emailsIn(copy));
    assert.deepEqual(
      before.filter((email) => !copied.has(email)),
      [],
    );
    assert.ok(created.length > before.length, 'clients wrote meanwhile');

    await using restored = await start({ DATABASE_URL: `sqlite:${copy}` });
    assert.equal(JSON.parse((await send(`${restored.url}/users`)).body).length, copied.size);
  });

  for (const { why, url, file, expected } of [
    { why: 'the file exists', file: 'there.db', expected: /EEXIST/ },
    { why: 'its folder is missing', file: 'none/copy.db', expected: /ENOENT/ },
    {
      why: 'the database is missing',
      url: 'sqlite:none.db',
      file: 'copy.db',
      expected: /none\.db/,
    },
    {
      why: 'the database is Postgres',
      url: 'postgres://127.0.0.1:1/x',
      file: 'copy.db',
      expected: /pg_dump/,
    },
    {
      why: 'the database is in memory',
      url: 'sqlite::memory:',
      file: 'copy.db',
      expected: /in memory/,
    },
  ]) {
    test(`6.19 it exits with 1 and leaves no file if ${why}`, async () => {
      const folder = newFolder();
      const own = `sqlite:${join(folder, 'service.db')}`;
      await (await start({ DATABASE_URL: own })).stop();
      writeFileSync(join(folder, 'there.db'), 'kept');
      const { code, stderr } = await backup(url ?? own, join(folder, file));
      assert.equal(code, 1, stderr);
      assert.match(stderr, expected);
      assert.equal(stderr.trimEnd().split('\n').length, 1);
      assert.equal(existsSync(join(folder, file)), file === 'there.db');
    });
  }
});
