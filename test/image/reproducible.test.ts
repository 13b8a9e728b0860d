// Every build of one source gives the same layer. Compares layers by hash.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ENGINE, run } from '../../image/unpack.ts';
import { engine, IMAGE, inspect, NO_IMAGE } from './engine.ts';

const SOURCE = join(import.meta.dirname, '../..');
const TAG = `${IMAGE}-again`;
/** Clients to try in order, because not every client has BuildKit. Debian's has it. */
const WITH_BUILDKIT = [ENGINE, '/usr/bin/docker'];

describe('the image: the same bytes', { skip: NO_IMAGE, timeout: 1_800_000 }, () => {
  after(() => engine('rmi', TAG));

  test('two builds without cache make the same layer', async (t) => {
    await rebuild([ENGINE], '0');
    const first = await layers(TAG);
    await rebuild([ENGINE], '0');
    assert.deepEqual(await layers(TAG), first);
    assert.deepEqual(await layers(IMAGE), first);
    t.diagnostic(`layer ${first}`);
  });

  test('the classic builder and BuildKit make the same layer', async (t) => {
    if (!(await rebuild(WITH_BUILDKIT, '1'))) {
      t.skip('no client here has BuildKit');
      return;
    }
    assert.deepEqual(await layers(TAG), await layers(IMAGE));
  });

  test('SOURCE_DATE_EPOCH is the time of every file, even with a build cache', async () => {
    for (const [clients, buildkit] of [
      [[ENGINE], '0'],
      [WITH_BUILDKIT, '1'],
    ] as const) {
      if (!(await rebuild(clients, buildkit, []))) continue;
      assert.deepEqual(await layers(TAG), await layers(IMAGE));
      await rebuild(clients, buildkit, ['--build-arg', 'SOURCE_DATE_EPOCH=1']);
      assert.notDeepEqual(await layers(TAG), await layers(IMAGE));
      await rebuild(clients, buildkit, []);
      assert.deepEqual(await layers(TAG), await layers(IMAGE));
    }
  });
});

/** Builds with the first client that can. @returns true if a client could */
async function rebuild(
  clients: readonly string[],
  buildkit: '0' | '1',
  flags: readonly string[] = ['--no-cache'],
): Promise<boolean> {
  const env = { DOCKER_BUILDKIT: buildkit };
  for (const client of clients) {
    try {
      await run(client, ['build', '-q', '-t', TAG, ...flags, SOURCE], { env });
      return true;
    } catch (err) {
      if (!/BuildKit is enabled but|buildx|ENOENT/.test((err as Error).message)) throw err;
    }
  }
  return false;
}

function layers(image: string): Promise<string> {
  return inspect('image', image, '{{json .RootFS.Layers}}');
}
