// SQLite's file as a power loss leaves it: strace logs each write and sync of the store, and each point of
// that log is a crash. It keeps what was synced, and any of the later writes, the last of them torn. After each
// crash all acknowledged writes must be there (5.2, 5.5). CRASHES sets the number of crashes.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { newFolder } from '../support/program.ts';
import { SEED } from '../support/seed.ts';
import { Time } from './time.ts';

const CRASHES = Number(process.env.CRASHES ?? 400);
const STEPS = CRASHES > 1000 ? '600' : '60';

interface Operation {
  readonly kind: string; // the system call
  readonly name: string; // of the file; empty for the folder
  readonly offset: number; // of pwrite64; of ftruncate, the length that is left
  readonly data: Buffer;
}

/** A file as it is on the disk, and what was done to it since its last sync. */
interface Inode {
  synced: Buffer;
  pending: Operation[];
}

/** A folder: names that survive a crash, and creations and removals since its last sync. */
class Disk {
  readonly inodes = new Map<string, Inode>(); // by the name in use
  readonly #random: () => number;
  #synced: readonly (readonly [string, Inode])[] = [];
  #pending: (readonly (readonly [string, Inode])[])[] = []; // the names after each change

  constructor(random: () => number) {
    this.#random = random;
  }

  apply(operation: Operation): void {
    const { kind, name } = operation;
    const isSync = kind.endsWith('sync');
    const isRemoval = kind.startsWith('unlink');
    const inode = this.inodes.get(name);
    if (name === '') {
      if (!isSync) return;
      this.#synced = this.#pending.at(-1) ?? this.#synced;
      this.#pending = [];
    } else if (isRemoval || (kind === 'openat' && inode === undefined)) {
      if (isRemoval) this.inodes.delete(name);
      else this.inodes.set(name, { synced: Buffer.alloc(0), pending: [] });
      this.#pending.push([...this.inodes]);
    } else if (isSync && inode) {
      inode.synced = inode.pending.reduce(change, inode.synced);
      inode.pending = [];
    } else if (kind !== 'openat') inode?.pending.push(operation);
  }

  crash(): Map<string, Buffer> {
    const changes = Math.floor(this.#random() * (this.#pending.length + 1));
    const names = changes === 0 ? this.#synced : this.#pending[changes - 1]!;
    const kept = this.#random(); // the share of the unsynced writes that the disk has done
    return new Map(
      names.map(([name, { synced, pending }]) => {
        const done = pending.filter(() => this.#random() < kept);
        const torn = done.splice(-1).map((last) => {
          return { ...last, data: last.data.subarray(0, this.#random() * 2 * last.data.length) };
        });
        return [name, [...done, ...torn].reduce(change, synced)];
      }),
    );
  }
}

function change(file: Buffer, { kind, offset, data }: Operation): Buffer {
  const length = kind === 'ftruncate' ? offset : Math.max(file.length, offset + data.length);
  const changed = Buffer.alloc(length);
  file.copy(changed);
  data.copy(changed, offset);
  return changed;
}

function record(synchronous: string): Operation[] {
  const [folder, log] = [newFolder(), join(newFolder(), 'log')];
  const trace = 'trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,unlink,unlinkat';
  const writer = [process.execPath, join(import.meta.dirname, 'disk-writer.ts')];
  const { status, stderr } = spawnSync(
    'strace',
    // All texts are in hexadecimal. Only the first thread is traced, which runs SQLite.
    ['-o', log, '-e', trace, '-y', '-xx', '-s', '1000000', ...writer, folder, STEPS, synchronous],
    { encoding: 'utf8' },
  );
  assert.equal(status, 0, stderr);
  // Such as `openat(AT_FDCWD<path>, "path", flags) = 3<path>` and `pwrite64(3<path>, "data", 4096, 0) = 4096`.
  const call =
    /^(\w+)\((?:AT_FDCWD<.*?>, )?(?:\d+<|")(.*?)[>"](?:, "(.*?)")?(?:, ([\w|]+))*\) += [^-]/gm;
  const bytes = (text = '') => Buffer.from(text.replaceAll('\\x', ''), 'hex');
  const calls = readFileSync(log, 'latin1').matchAll(call);
  const operations = Array.from(calls, ([, kind = '', path, text, last]) => {
    const name = relative(folder, bytes(path).toString());
    return { kind, name, offset: Number(last), data: bytes(text) };
  });
  return operations.filter(({ name }) => !name.startsWith('..'));
}

/** Crashes at each point of the log. Returns what was lost. */
function replay(operations: readonly Operation[], crashes: number): string[] {
  const time = new Time(SEED);
  const disk = new Disk(time.random);
  const acks = operations.filter(({ name, kind }) => name === 'acks' && kind === 'write');
  const states = ['[]', ...acks.map(({ data }) => data.toString().trim())];
  const folder = newFolder();
  const lost: string[] = [];
  let acknowledged = 0;
  let done = 0;
  for (const [i, operation] of operations.entries()) {
    if (operation === acks[acknowledged]) acknowledged++;
    if (operation.name !== 'acks' && !operation.name.endsWith('-shm')) disk.apply(operation);
    for (; done < (crashes * (i + 1)) / operations.length; done++) {
      rmSync(folder, { recursive: true, force: true });
      mkdirSync(folder);
      for (const [name, bytes] of disk.crash()) writeFileSync(join(folder, name), bytes);
      const garbage = Buffer.alloc(32_768, Math.floor(time.random() * 256));
      if (time.random() < 0.5) writeFileSync(join(folder, 'service.db-shm'), garbage);
      const found = read(join(folder, 'service.db'));
      // The one that runs is whole or absent.
      if (states.slice(acknowledged, acknowledged + 2).includes(found)) continue;
      lost.push(`operation ${i}, ${acknowledged} acknowledged: ${found.slice(0, 200)}`);
    }
  }
  return lost;
}

function read(path: string): string {
  try {
    using db = new DatabaseSync(path);
    db.exec('pragma synchronous = off');
    const { integrity_check: check } = db.prepare('pragma integrity_check').get()!;
    if (check !== 'ok') return String(check);
    if (!db.prepare("select 1 from sqlite_schema where name = 'users'").get()) return '[]';
    const users = db.prepare('select id, name, email, version from users order by id').all();
    return JSON.stringify(users);
  } catch (err) {
    return String(err);
  }
}

const skip =
  spawnSync('strace', ['-o', '/dev/null', 'true']).status !== 0 &&
  'strace is not installed, or may not trace';

test(`5.5 a power loss at ${CRASHES} points loses no acknowledged write`, { skip }, (t) => {
  const operations = record('full');
  t.diagnostic(`${operations.length} operations`);
  assert.deepEqual(replay(operations, CRASHES), []);
});

for (const synchronous of ['normal', 'off']) {
  test(`the crashes find what synchronous=${synchronous} loses`, { skip }, () => {
    assert.notDeepEqual(replay(record(synchronous), 100), []);
  });
}
