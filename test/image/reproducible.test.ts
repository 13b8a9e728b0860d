// Every build of one source gives the same layer. Compares layers by hash.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settingsOf } from '../../image/settings.ts';
import { ENGINE, run } from '../../image/unpack.ts';
import { ROOT } from '../support/program.ts';
import { engine, IMAGE, inspect, NO_IMAGE } from './engine.ts';

const TAG = `${IMAGE}-again`;

// Each with the clients to try. Not every client has BuildKit; Debian's has it.
for (const [name, DOCKER_BUILDKIT, clients] of [
  ['the classic builder', '0', [ENGINE]],
  ['BuildKit', '1', [ENGINE, '/usr/bin/docker']],
] as const) {
  /** Builds with the first client that can. @returns true if a client could */
  const rebuild = async (...flags: readonly string[]) => {
    for (const client of clients) {
      try {
        const args = ['build', '-q', '-t', TAG, ...flags, ROOT];
        await run(client, args, { env: { DOCKER_BUILDKIT } });
        return true;
      } catch (err) {
        if (!/BuildKit is enabled but|buildx|ENOENT/.test((err as Error).message)) throw err;
      }
    }
    return false;
  };

  test(`${name} makes the same layer without a cache, and another one with another SOURCE_DATE_EPOCH`, {
    skip: NO_IMAGE,
    timeout: 1_800_000,
  }, async (t) => {
    t.after(() => engine('rmi', TAG).catch(() => {}));
    if (!(await rebuild('--no-cache'))) return t.skip('no client here has it');
    const layers = (image: string) => inspect('image', image, '{{json .RootFS.Layers}}');
    assert.deepEqual(await layers(TAG), await layers(IMAGE));
    assert.deepEqual(await settingsOf(TAG), await settingsOf(IMAGE));
    await rebuild('--build-arg', 'SOURCE_DATE_EPOCH=1');
    assert.notDeepEqual(await layers(TAG), await layers(IMAGE));
  });
}
