// Backup and restore of SQLite with the very commands of docs/operations.md.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ENGINE, run } from '../../image/unpack.ts';
import { Container, engine, IMAGE, NO_IMAGE } from './engine.ts';

const MANUAL = join(import.meta.dirname, '../../docs/operations.md');
const VOLUME = `notes-users-test-backup-${process.pid}`;

describe('the image: backup', { skip: NO_IMAGE, timeout: 900_000 }, () => {
  test('a backup of a running service, restored, has the users that it had', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'notes-users-backup-'));
    try {
      await using container = await Container.start('-v', `${VOLUME}:/data`);
      await container.answers();
      const ann = await create(container, 'Ann');
      await run('sh', ['-ec', commands('docker exec', container)], { cwd: folder });
      await create(container, 'Bob');
      await run('sh', ['-ec', commands('docker stop', container)], { cwd: folder });
      await container.answers();
      const users = await (await fetch(`${await container.url()}/users`)).json();
      assert.deepEqual(users, [ann]);
    } finally {
      await engine('volume', 'rm', VOLUME).catch(() => {});
      rmSync(folder, { recursive: true });
    }
  });
});

/** The manual's commands of the section on backups that begin so, for this container. */
function commands(beginning: string, container: Container): string {
  const [, section = ''] = readFileSync(MANUAL, 'utf8').split('\n## Backup and restore\n');
  const blocks = [...section.matchAll(/```sh\n(.*?)```/gs)].map(([, block]) => block ?? '');
  const block = blocks.find((text) => text.startsWith(`${beginning} notes`));
  assert.ok(block, `${MANUAL} has no block that begins with ${beginning} notes`);
  return block
    .replaceAll('notes-users', IMAGE)
    .replaceAll('notes-data', VOLUME)
    .replaceAll(/\bnotes(?=[ :\n])/g, container.name)
    .replaceAll(/^docker\b/gm, ENGINE);
}

async function create(container: Container, name: string): Promise<unknown> {
  const body = JSON.stringify({ name, email: `${name}@example.com` });
  const headers = { 'content-type': 'application/json' };
  const res = await fetch(`${await container.url()}/users`, { method: 'POST', headers, body });
  assert.equal(res.status, 201);
  return res.json();
}
