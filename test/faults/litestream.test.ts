// Litestream copies the SQLite file while it and the service are killed in turns. After its next snapshot, all
// acknowledged writes can be restored.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { newFolder, type Program, ROOT, start } from '../support/program.ts';
import { create } from '../support/service.ts';
import { missing, requireTools } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { report, TIMES } from './results.ts';
import { Ledger, Writers } from './writers.ts';

const WRITERS = 8;
/** More writes than fill the 1,000 pages after which SQLite merges its log. */
const LOGFUL = 60 * WRITERS;

const NO_LITESTREAM = missing('litestream');

requireTools(NO_LITESTREAM);

test('kill -9 of Litestream and the service in turns loses nothing', {
  skip: NO_LITESTREAM,
  timeout: 600_000,
}, async (t) => {
  const folder = newFolder();
  const path = join(folder, 'service.db');
  const configuration = join(folder, 'litestream.yml');
  const own = { ...process.env, LITESTREAM_REPLICA_URL: `file://${folder}/replica` };
  const text = readFileSync(join(ROOT, 'deploy/litestream/litestream.yml'), 'utf8');
  const shorter = text.replace('interval: 1h', 'interval: 2s');
  writeFileSync(configuration, shorter.replace('/data/service.db', path));

  const replicate = () => {
    const args = ['replicate', '-config', configuration];
    const child = spawn('litestream', args, { env: own, stdio: 'ignore' });
    t.after(() => child.kill('SIGKILL'));
    return child;
  };
  const restore = async () => {
    const copy = join(newFolder(), 'service.db');
    const args = ['-config', configuration, '-integrity-check', 'full', '-o', copy, path];
    await promisify(execFile)('litestream', ['restore', ...args], { env: own });
    return `sqlite:${copy}`;
  };

  const ledger = new Ledger();
  const env = { DATABASE_URL: `sqlite:${path}?wal_autocheckpoint=0` };
  let service = await start(env);
  let replicator = replicate();
  await until(() => restore().then(Boolean, () => false)); // its first copy

  /** Resolves after so many acknowledged writes, once the clients have ended, or were ended with the service. */
  const write = async (count: number, kill?: Program) => {
    const writers = new Writers(ledger, service.url, WRITERS);
    await writers.progress(count);
    kill?.process.kill('SIGKILL');
    await Promise.all([kill?.exited, writers.stop()]);
    assert.equal(writers.refused, 0);
  };
  for (let i = 0; i < TIMES.others; i++) {
    replicator.kill('SIGKILL');
    await once(replicator, 'exit');
    await write(LOGFUL);
    if (i % 2 === 0) {
      await service.stop(); // merges the log
      service = await start(env);
    }
    replicator = replicate();
    await write(LOGFUL, service);
    service = await start(env);
  }
  await write(WRITERS);
  const isWhole = async (url: string) => (await ledger.check(url)).length === 0;
  await until(() => restore().then(isWhole, () => false));
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  replicator.kill('SIGTERM');
  assert.deepEqual(await once(replicator, 'exit'), [0, null]);
  const DATABASE_URL = await restore();
  assert.deepEqual(await ledger.check(DATABASE_URL), []);
  await using restored = await start({ DATABASE_URL });
  await create(restored);
  report(t, 2 * TIMES.others, ledger.acknowledged);
});
