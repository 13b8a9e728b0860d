// image/verify.ts never accepts a tampered image, whatever its tags and names are.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { run, unpack } from '../../image/unpack.ts';
import { newFolder, ROOT } from '../support/program.ts';
import { engine, IMAGE, inspect, NO_IMAGE } from './engine.ts';

const NAME = `notes-users-verify-${process.pid}`;
const KEPT = `${NAME}-kept`;
const TAGS = ['latest', '0.1.0'] as const;

describe('the image: verified', { skip: NO_IMAGE, timeout: 900_000 }, () => {
  const ids = { clean: '', tampered: '' }; // the image under test, and one with another main.cjs
  const folder = newFolder();
  const list = join(folder, 'list');

  before(async () => {
    const stage = (await engine('build', '-q', '--target', 'build', ROOT)).trim();
    const hashes = ['run', '--rm', '--network', 'none', stage, 'cat', '/rootfs.sha256'];
    writeFileSync(list, await engine(...hashes));
    ids.clean = await inspect('image', IMAGE, '{{.Id}}');
    ids.tampered = await withFiles('echo >> app/dist/main.cjs');
    // Keeps a tag, because an image is deleted with its last tag.
    await engine('tag', ids.tampered, KEPT);
  });
  after(async () => {
    await untag();
    await engine('rmi', KEPT);
  });

  const verify = (image: string) =>
    run(process.execPath, [join(ROOT, 'image/verify.ts'), image, list]);

  async function untag(): Promise<void> {
    for (const tag of TAGS) await engine('rmi', `${NAME}:${tag}`).catch(() => {});
  }

  // An engine can list the tags of a name in the order of their times.
  for (const kinds of [
    ['clean', 'tampered'],
    ['tampered', 'clean'],
    ['tampered', 'tampered'],
  ] as const) {
    test(`of a name whose tags are ${kinds.join(' and ')}, no tampered image passes`, async () => {
      await untag();
      for (const [i, kind] of kinds.entries()) await engine('tag', ids[kind], `${NAME}:${TAGS[i]}`);
      await assert.rejects(verify(NAME), kinds[0] === kinds[1] ? /changed/ : /: ambiguous/);
      for (const [i, kind] of kinds.entries()) {
        const verified = verify(`${NAME}:${TAGS[i]}`);
        if (kind === 'tampered') await assert.rejects(verified, /app\/dist\/main\.cjs: changed/);
        else assert.ok((await verified).startsWith(`image ${ids.clean}\n`));
      }
      await assert.rejects(verify(ids.tampered), /app\/dist\/main\.cjs: changed/);
    });
  }

  // The list of hashes does not cover settings, nor the owner, mode and type of a file.
  for (const [what, change, problem] of [
    ['a new file', 'echo > app/more.js', /app\/more\.js: not in the list/],
    ['a variable that loads code', 'ENV NODE_OPTIONS=--require=/data/x.cjs', /Env: changed/],
    ['another entry point', 'ENTRYPOINT ["/app/dist/main.cjs"]', /Entrypoint: changed/],
    ['an argument', 'CMD ["--json"]', /Cmd: changed/],
    ['root as its user', 'USER 0', /User: changed/],
    ['another health check', 'HEALTHCHECK CMD ["/x"]', /Healthcheck: changed/],
    ['a set-uid node', 'chmod 4755 usr/local/bin/node', /local\/bin\/node: -rwsr-xr-x 0\/0/],
    ['capabilities', 'setcap cap_setuid+ep usr/local/bin/node', /local\/bin\/node: -rwxr-xr-x\*/],
    ['a file of the service', 'chown 65532 app/dist/main.cjs', /\.cjs: -rw-r--r-- 65532\/0/],
    [
      'a link that leads to the right file only on this machine',
      `cp app/dist/main.cjs "$0" && ln -sf "$0" app/dist/main.cjs`,
      /app\/dist\/main\.cjs -> \S+: not a file/,
    ],
  ] as const) {
    const skip = /^(ch|setcap)/.test(change) && userInfo().uid !== 0 && 'needs root';
    test(`the image with ${what} does not pass`, { skip }, async () => {
      const isSetting = /^[A-Z]/.test(change);
      const id = await (isSetting ? built(`FROM ${IMAGE}\n${change}\n`) : withFiles(change));
      await assert.rejects(verify(id), problem).finally(() => engine('rmi', id));
    });
  }

  /** Builds a copy of the image under test, with its files changed by a command. */
  async function withFiles(change: string): Promise<string> {
    const context = newFolder();
    const { layers } = await unpack(ids.clean, newFolder());
    const root = join(context, 'root');
    mkdirSync(root);
    await run('tar', ['-xpf', layers[0]!, '-C', root]);
    await run('sh', ['-ec', change, join(folder, 'copy')], { cwd: root });
    const keep = '--xattrs-include=security.capability';
    await run('tar', [keep, '-cf', join(context, 'layer.tar'), '-C', root, '.']);
    const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
    const [, stage = ''] = dockerfile.split('\nFROM scratch\n');
    const last = stage.replace('COPY --from=build /rootfs/ /', 'ADD layer.tar /');
    rmSync(root, { recursive: true });
    return built(`FROM scratch\n${last}`, context);
  }

  /** Builds an image of a Dockerfile. Returns its id. */
  function built(dockerfile: string, context = newFolder()): Promise<string> {
    writeFileSync(join(context, 'Dockerfile'), dockerfile);
    return engine('build', '-q', context);
  }
});
