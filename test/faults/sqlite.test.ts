// Faults of the disk of the SQLite file: it is full, then its file system becomes read-only. The service
// responds in time, reads work, and the store recovers.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  accessSync,
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { send } from '../support/client.ts';
import { start } from '../support/program.ts';
import { until } from '../support/until.ts';
import { assertStoreLines, HEAL_SECONDS } from './campaign.ts';
import { Ledger } from './ledger.ts';
import { report, secondsSince, TIMES } from './results.ts';
import { usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 16;
const DATABASE_TIMEOUT_MS = '2000';
/** Time that contract 4.13 allows. */
const LATEST_MS = Number(DATABASE_TIMEOUT_MS) + 1000;
/** Room for the writes between the faults, and for a log of 4 MB before it is merged. */
const DISK_BYTES = 32 * 2 ** 20;

test('5.2 a full disk, then a file system that turns read-only', {
  timeout: 240_000,
}, async (t) => {
  // Linux can simulate an error of an ext4 file system, which then applies its `errors=` option.
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-disk-'));
  const image = `${folder}.ext4`;
  const mount = () =>
    execFileSync('mount', ['-o', 'loop,errors=remount-ro', image, folder], { stdio: 'ignore' });
  let trigger: string;
  try {
    execFileSync('mkfs.ext4', ['-q', image, `${DISK_BYTES / 1024}k`], { stdio: 'ignore' });
    mount();
    const device = execFileSync('findmnt', ['-no', 'SOURCE', folder], { encoding: 'utf8' });
    trigger = `/sys/fs/ext4/${basename(device.trim())}/trigger_fs_error`;
    accessSync(trigger, constants.W_OK);
  } catch {
    spawnSync('umount', [folder]);
    rmSync(folder, { recursive: true });
    rmSync(image, { force: true });
    return t.skip('an ext4 cannot be mounted here: run as root, with mkfs.ext4 and loop devices');
  }
  try {
    const DATABASE_URL = `sqlite:${folder}/service.db`;
    const ledger = new Ledger();
    const filler = join(folder, 'filler');
    let healSeconds = 0;
    {
      await using program = await start({ DATABASE_URL, DATABASE_TIMEOUT_MS });
      const writers = new Writers(ledger, program.url, WRITERS);
      const fails = async (inject: () => void | Promise<void>) => {
        await writers.progress(4 * WRITERS);
        const before = writers.count(500);
        await inject();
        await writers.until(() => writers.count(500) >= before + WRITERS);
        assert.equal((await send(`${program.url}/users?limit=1`)).status, 200);
      };
      for (let i = 0; i < TIMES.others; i++) {
        await fails(() => fill(filler));
        rmSync(filler);
        const began = performance.now();
        await writers.progress(1);
        healSeconds = Math.max(healSeconds, secondsSince(began));
      }
      assert.ok(healSeconds < HEAL_SECONDS, `healed after ${healSeconds} s`);
      await fails(async () => {
        // An fsync that races with the abort of the journal can return success and lose its data
        // (ext4 of Linux 6.18, without SQLite too). A stopped process runs no system call.
        program.process.kill('SIGSTOP');
        await allStopped(program.process.pid!);
        writeFileSync(trigger, '1');
        program.process.kill('SIGCONT');
      });
      await writers.stop();
      assert.deepEqual([writers.surprises, writers.broken], [[], 0]);
      assert.ok(writers.slowestMs < LATEST_MS, `a response after ${writers.slowestMs} ms`);
      assertStoreLines(program);
      const causes = program.log
        .filter(({ message }) => message === 'store unavailable')
        .map(({ cause }) => String(cause));
      assert.ok(causes.length > TIMES.others, `${causes.length} lines`);
      assert.match(causes[0]!, /service\.db: .*full/);
      assert.match(causes.at(-1)!, /service\.db: disk I\/O error \(SQLite result code [0-9]+\)$/);
      assert.deepEqual(await program.stop(), { code: 0, signal: null });
    }
    // The file system accepts writes again only after it is remounted.
    execFileSync('umount', [folder]);
    mount();
    await using program = await start({ DATABASE_URL });
    const writers = new Writers(ledger, program.url, WRITERS);
    await writers.progress(1);
    await writers.stop();
    assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), { lost: [], duplicated: [] });
    const { acknowledged } = ledger;
    report(t, { injected: TIMES.others + 1, acknowledged, healSeconds });
  } finally {
    execFileSync('umount', ['-l', folder]);
    rmSync(folder, { recursive: true });
    rmSync(image);
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

/** Resolves once every thread of the process is stopped, so none runs a system call. */
function allStopped(pid: number): Promise<void> {
  const state = (thread: string) =>
    readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8').split(') ')[1]![0];
  return until(() => readdirSync(`/proc/${pid}/task`).every((thread) => state(thread) === 'T'));
}
