// Litestream copies the SQLite file while it and the service are killed in turns. What it has copied can be restored.
// Without `wal_autocheckpoint=0` it fails: Litestream misses what the service merged while it was down.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { send } from '../support/client.ts';
import { newFolder, start } from '../support/program.ts';
import { goProgram, requireTools } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { type Entry, Ledger, type Row } from './ledger.ts';
import { report } from './results.ts';
import { usersIn } from './users.ts';
import { Writers } from './writers.ts';

const MODULE = 'github.com/benbjohnson/litestream/cmd/litestream@v0.5.18';
const CONFIGURATION = join(import.meta.dirname, '../../deploy/litestream/litestream.yml');
const KILLS = 6;
const WRITERS = 8;
/** More writes than fill the 1,000 pages after which SQLite merges its log. */
const LOGFUL = 60 * WRITERS;

const { program: LITESTREAM, reason } = await goProgram('litestream', MODULE);

requireTools(reason);

test('kill -9 of Litestream and the service in turns loses nothing that Litestream has copied', {
  skip: reason,
  timeout: 600_000,
}, async (t) => {
  const folder = newFolder();
  const path = join(folder, 'service.db');
  const configuration = join(folder, 'litestream.yml');
  const own = { ...process.env, LITESTREAM_REPLICA_URL: `file://${folder}/replica` };
  const text = readFileSync(CONFIGURATION, 'utf8').replace('/data/service.db', path);
  writeFileSync(configuration, text);

  const replicate = () => {
    const args = ['replicate', '-config', configuration];
    const child = spawn(LITESTREAM, args, { env: own, stdio: 'ignore' });
    t.after(() => child.kill('SIGKILL'));
    return child;
  };
  const restore = async () => {
    const copy = join(newFolder(), 'service.db');
    const args = ['restore', '-config', configuration, '-o', copy, path];
    await promisify(execFile)(LITESTREAM, args, { env: own });
    using db = new DatabaseSync(copy);
    assert.equal(db.prepare('pragma integrity_check').get()?.integrity_check, 'ok');
    return `sqlite:${copy}`;
  };
  const lost = async (entries: readonly Entry[]) =>
    missingIn(await usersIn(await restore()), entries, ledger);

  const ledger = new Ledger();
  const env = { DATABASE_URL: `sqlite:${path}?wal_autocheckpoint=0` };
  let service = await start(env);
  let replicator = replicate();
  await until(() => restore().then(Boolean, () => false)); // its first copy
  for (let kill = 0; kill < KILLS; kill++) {
    const writers = new Writers(ledger, service.url, WRITERS);
    await writers.progress(WRITERS);
    const entries = existingIn(ledger);
    await until(async () => (await lost(entries)).length === 0);
    if (kill % 2 === 0) {
      replicator.kill('SIGKILL');
      await once(replicator, 'exit');
      await writers.progress(LOGFUL);
      await writers.stop();
      assert.equal(writers.broken, 0);
      if (kill % 4 === 0) {
        await service.stop(); // merges the log
        service = await start(env);
      }
      replicator = replicate();
    } else {
      service.process.kill('SIGKILL');
      await Promise.all([service.exited, writers.stop()]);
      service = await start(env);
    }
    assert.deepEqual(await lost(entries), []);
    assert.deepEqual([writers.surprises, writers.count(500)], [[], 0]);
  }

  const writers = new Writers(ledger, service.url, WRITERS);
  await writers.progress(WRITERS);
  await writers.stop();
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  replicator.kill('SIGTERM');
  assert.deepEqual(await once(replicator, 'exit'), [0, null]);
  const DATABASE_URL = await restore();
  assert.deepEqual(ledger.check(await usersIn(DATABASE_URL)), { lost: [], duplicated: [] });
  await using restored = await start({ DATABASE_URL });
  const body = { name: 'Ann', email: 'ann@example.com' };
  assert.equal((await send(`${restored.url}/users`, { method: 'POST', body })).status, 201);
  const { acknowledged } = ledger;
  report(t, { injected: KILLS, acknowledged });
});

/** Returns copies of the users whose existence is acknowledged. */
function existingIn({ entries }: Ledger): Entry[] {
  const existing = [...entries.values()].filter(
    ({ id, removal }) => id !== undefined && removal === 'none',
  );
  return existing.map((entry) => ({ ...entry }));
}

/** Returns the earlier entries that the rows lack or have older. A user may have been removed since then. */
function missingIn(rows: readonly Row[], earlier: readonly Entry[], now: Ledger): Entry[] {
  const versions = new Map(rows.map(({ email, version }) => [email, version]));
  return earlier.filter(({ email, changes }) => {
    const isKept = now.entries.get(email)!.removal === 'none';
    return isKept && (versions.get(email) ?? 0) <= changes;
  });
}
