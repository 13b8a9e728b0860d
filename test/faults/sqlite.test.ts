// A full disk under the file of SQLite: reads work, and writes do again once it has room.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { send } from '../support/client.ts';
import { newFolder } from '../support/program.ts';
import { run, WRITERS } from './campaign.ts';
import { TIMES } from './results.ts';

/** Room for the writes between the faults, and for a log of 4 MB before it is merged. */
const DISK_BYTES = 32 * 2 ** 20;

test('5.2 a full disk', { timeout: 240_000 }, async (t) => {
  const folder = newFolder();
  const filler = join(folder, 'filler');
  try {
    const options = ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'tmpfs', folder];
    execFileSync('mount', options, { stdio: 'ignore' });
  } catch {
    return t.skip('a disk cannot be mounted here: run as root');
  }
  try {
    await run(t, {
      ...{ times: TIMES.others, databaseUrl: `sqlite:${folder}/service.db` },
      async inject(writers, _, program) {
        const before = writers.refused;
        fill(filler);
        await writers.until(() => writers.refused >= before + WRITERS);
        const { cause } = await program.logged('store unavailable');
        assert.match(String(cause), /service\.db: .*full .*code 13/); // SQLITE_FULL
        assert.equal((await send(`${program.url}/users?limit=1`)).status, 200);
        rmSync(filler);
      },
    });
  } finally {
    execFileSync('umount', ['--lazy', folder]);
  }
});

function fill(path: string): void {
  const file = openSync(path, 'w');
  try {
    for (const chunk = Buffer.alloc(2 ** 20); ; ) writeSync(file, chunk);
  } catch (err) {
    assert.equal((err as NodeJS.ErrnoException).code, 'ENOSPC');
  } finally {
    closeSync(file);
  }
}
