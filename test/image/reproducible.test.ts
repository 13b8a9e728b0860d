// Every build of one source gives the same layer. Compares layers by hash.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { ENGINE, run } from '../../image/unpack.ts';
import { engine, IMAGE, inspect, NO_IMAGE } from './engine.ts';

const SOURCE = join(import.meta.dirname, '../..');
const TAG = `${IMAGE}-again`;
/** Builders, each with the clients to try. Not every client has BuildKit; Debian's has it. */
const BUILDERS = {
  'the classic builder': { DOCKER_BUILDKIT: '0', clients: [ENGINE] },
  BuildKit: { DOCKER_BUILDKIT: '1', clients: [ENGINE, '/usr/bin/docker'] },
} as const;

for (const [name, builder] of Object.entries(BUILDERS)) {
  test(`${name} makes the same layer without a cache, and another one with another SOURCE_DATE_EPOCH`, {
    skip: NO_IMAGE,
    timeout: 1_800_000,
  }, async (t) => {
    t.after(() => engine('rmi', TAG).catch(() => {}));
    if (!(await rebuild(builder, '--no-cache'))) return t.skip('no client here has it');
    const layers = (image: string) => inspect('image', image, '{{json .RootFS.Layers}}');
    assert.deepEqual(await layers(TAG), await layers(IMAGE));
    await rebuild(builder, '--build-arg', 'SOURCE_DATE_EPOCH=1');
    assert.notDeepEqual(await layers(TAG), await layers(IMAGE));
    await rebuild(builder);
    assert.deepEqual(await layers(TAG), await layers(IMAGE));
  });
}

/** Builds with the first client that can. @returns true if a client could */
async function rebuild(
  { clients, DOCKER_BUILDKIT }: (typeof BUILDERS)[keyof typeof BUILDERS],
  ...flags: readonly string[]
): Promise<boolean> {
  for (const client of clients) {
    try {
      await run(client, ['build', '-q', '-t', TAG, ...flags, SOURCE], { env: { DOCKER_BUILDKIT } });
      return true;
    } catch (err) {
      if (!/BuildKit is enabled but|buildx|ENOENT/.test((err as Error).message)) throw err;
    }
  }
  return false;
}
