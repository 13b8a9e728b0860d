// npm run image:verify never accepts a tampered image, whatever its tags and names are.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { run, unpack } from '../../image/unpack.ts';
import { engine, IMAGE, inspect, NO_IMAGE } from './engine.ts';

const SOURCE = join(import.meta.dirname, '../..');
const NAME = `notes-users-verify-${process.pid}`;
const KEPT = `${NAME}-kept`;
const TAGS = ['latest', '0.1.0'] as const;

/** The image under test, or one with another main.cjs. */
type Kind = 'clean' | 'tampered';

describe('the image: verified', { skip: NO_IMAGE, timeout: 900_000 }, () => {
  const ids = {} as Record<Kind, string>;
  let folder: string;
  let list: string;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'notes-users-verify-'));
    list = join(folder, 'list');
    const stage = (await engine('build', '-q', '--target', 'build', SOURCE)).trim();
    const hashes = ['run', '--rm', '--network', 'none', stage, 'cat', '/rootfs.sha256'];
    writeFileSync(list, await engine(...hashes));
    ids.clean = await inspect('image', IMAGE, '{{.Id}}');
    ids.tampered = await commit([join(SOURCE, 'tsconfig.json'), '/app/dist/main.cjs']);
    // Keeps a tag, because an image is deleted with its last tag.
    await engine('tag', ids.tampered, KEPT);
  });
  after(async () => {
    await untag();
    await engine('rmi', KEPT);
    rmSync(folder, { recursive: true, force: true });
  });

  const verify = (image: string) =>
    run(process.execPath, [join(SOURCE, 'image/verify.ts'), image, list]);

  /** Makes a container, changes it, and returns the id of its image. */
  async function commit(
    [from, to]: readonly string[],
    ...changes: readonly string[]
  ): Promise<string> {
    const container = await engine('create', IMAGE);
    try {
      if (from !== undefined) await engine('cp', from, `${container}:${to}`);
      const flags = changes.flatMap((change) => ['--change', change]);
      return (await engine('commit', ...flags, container)).trim();
    } finally {
      await engine('rm', '-v', container);
    }
  }

  async function untag(): Promise<void> {
    for (const tag of TAGS) await engine('rmi', `${NAME}:${tag}`).catch(() => {});
  }

  test('the output for an image that matches the list has its id', async () => {
    const output = await verify(IMAGE);
    assert.ok(output.startsWith(`image ${ids.clean}\n`), output);
    assert.match(output, /\nnode \d+\.\d+\.\d+: the first \d+ of /);
  });

  // Two tags of one name, each clean, tampered or absent: 8 arrangements. Tags in both orders,
  // because an engine can list them by time.
  for (const kinds of arrangements(TAGS.length)) {
    const tags = TAGS.flatMap((tag, i) => (kinds[i] ? [{ tag, kind: kinds[i] }] : []));
    const title = tags.map(({ tag, kind }) => `${kind} ${tag}`).join(', ');
    for (const order of ['first', 'last'] as const) {
      test(`of ${title}, tagged ${order} to last, no tampered image passes`, async () => {
        await untag();
        for (const { tag, kind } of order === 'first' ? tags : tags.toReversed()) {
          await engine('tag', ids[kind], `${NAME}:${tag}`);
        }
        const isMixed = new Set(tags.map(({ kind }) => kind)).size > 1;
        const latest = tags.find(({ tag }) => tag === 'latest')?.kind;
        if (isMixed) await assert.rejects(verify(NAME), /: ambiguous/);
        else if (latest !== 'clean') await assert.rejects(verify(NAME));
        for (const { tag, kind } of tags) {
          if (kind === 'tampered') {
            await assert.rejects(verify(`${NAME}:${tag}`), /app\/dist\/main\.cjs: changed/);
          }
        }
        await assert.rejects(verify(ids.tampered), /app\/dist\/main\.cjs: changed/);
      });
    }
  }

  test('a clean tag passes next to a tampered one', async () => {
    await untag();
    await engine('tag', ids.tampered, `${NAME}:latest`);
    await engine('tag', ids.clean, `${NAME}:0.1.0`);
    assert.ok((await verify(`${NAME}:0.1.0`)).startsWith(`image ${ids.clean}\n`));
  });

  for (const { what, change, problem } of [
    {
      what: 'a variable that loads code',
      change: 'ENV NODE_OPTIONS=--require=/data/x.cjs',
      problem: /Env: changed/,
    },
    {
      what: 'an entry point without the permission model',
      change: 'ENTRYPOINT ["/usr/local/bin/node", "/app/dist/main.cjs"]',
      problem: /Entrypoint: changed/,
    },
    { what: 'an argument', change: 'CMD ["--json"]', problem: /Cmd: changed/ },
    { what: 'root as its user', change: 'USER 0', problem: /User: changed/ },
    {
      what: 'a health check of its own',
      change: 'HEALTHCHECK CMD ["/usr/local/bin/node", "-e", "1"]',
      problem: /Healthcheck: changed/,
    },
  ]) {
    test(`the same files with ${what} do not pass`, async () => {
      const id = await commit([], change);
      try {
        await assert.rejects(verify(id), problem);
      } finally {
        await engine('rmi', id);
      }
    });
  }

  // The list of hashes does not cover owner, mode and type of a file.
  for (const { what, change, problem } of [
    {
      what: 'a set-uid node',
      change: 'chmod 4755 usr/local/bin/node',
      problem: /usr\/local\/bin\/node: -rwsr-xr-x 0\/0/,
    },
    {
      what: 'a file that the service can write',
      change: 'chown 65532 app/dist/main.cjs',
      problem: /app\/dist\/main\.cjs: -rw-r--r-- 65532\/0/,
    },
    {
      what: 'a link that leads to the right file only on this machine',
      change: `cp app/dist/main.cjs "$0" && ln -sf "$0" app/dist/main.cjs`,
      problem: /app\/dist\/main\.cjs -> \S+: not a file/,
    },
  ]) {
    test(`the same contents with ${what} do not pass`, async () => {
      const id = await rebuilt(change);
      try {
        await assert.rejects(verify(id), problem);
      } finally {
        await engine('rmi', id);
      }
    });
  }

  /** Builds a copy of the image under test, with its layer changed by a command. */
  async function rebuilt(change: string): Promise<string> {
    const context = mkdtempSync(join(folder, 'context-'));
    const { layers } = await unpack(ids.clean, mkdtempSync(join(folder, 'unpacked-')));
    const root = join(context, 'root');
    mkdirSync(root);
    await run('tar', ['-xpf', layers[0]!, '-C', root]);
    await run('sh', ['-ec', change, join(folder, 'copy')], { cwd: root });
    await run('tar', ['-cf', join(context, 'layer.tar'), '-C', root, '.']);
    const dockerfile = readFileSync(join(SOURCE, 'Dockerfile'), 'utf8');
    const [, stage = ''] = dockerfile.split('\nFROM scratch\n');
    const last = stage.replace('COPY --from=build /rootfs/ /', 'ADD layer.tar /');
    writeFileSync(join(context, 'Dockerfile'), `FROM scratch\n${last}`);
    rmSync(root, { recursive: true });
    return (await engine('build', '-q', context)).trim();
  }

  test('an unknown name is refused', async () => {
    await untag();
    await assert.rejects(verify(NAME), /[Nn]o such image/);
  });
});

/** Returns every choice of clean, tampered or absent for this many tags, except all absent. */
function arrangements(count: number): (Kind | undefined)[][] {
  if (count === 0) return [[]];
  const rest = arrangements(count - 1);
  const all = (['clean', 'tampered', undefined] as const).flatMap((kind) =>
    rest.map((others) => [kind, ...others]),
  );
  return count === TAGS.length ? all.filter((kinds) => kinds.some(Boolean)) : all;
}
