// dist/main.cjs and dist/start.cjs, the program and the library, run from any folder next to db/ and
// node_modules/. They load only the modules that the settings need.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { newFolder } from './support/program.ts';

const ROOT = join(import.meta.dirname, '..');

/** Ends the program once it listens, and writes its loaded modules to the file LOADED. */
const PRELOAD = `
const { writeFileSync } = require('node:fs');
const { Server } = require('node:net');
const { listen } = Server.prototype;
Server.prototype.listen = function (...args) {
  const packages = Object.keys(require.cache).map((path) => path.replace(__dirname, ''));
  writeFileSync(process.env.LOADED, [...process.moduleLoadList, ...packages].join('\\n'));
  process.exit(0);
};
`;

test('3.18 the build has a module http/form.js, which exports parseForm', async () => {
  const folder = newFolder();
  build(folder);
  const { parseForm } = await import(join(folder, 'http/form.js'));
  assert.deepEqual(parseForm('a[b]=1'), { a: { b: '1' } });
});

describe('dist/main.cjs and dist/start.cjs', () => {
  let folder = '';
  let file = '';
  let library = '';

  before(() => {
    folder = newFolder();
    file = join(folder, 'dist/main.cjs');
    build(join(folder, 'dist'));
    library = join(folder, 'dist/start.cjs');
    cpSync(join(ROOT, 'db'), join(folder, 'db'), { recursive: true });
    for (const name of ['src/docs.html', 'openapi.json'])
      cpSync(join(ROOT, name), join(folder, name));
    for (const name of ['node_modules', 'data']) mkdirSync(join(folder, name));
    symlinkSync(join(ROOT, 'node_modules/postgres'), join(folder, 'node_modules/postgres'));
    writeFileSync(join(folder, 'preload.cjs'), PRELOAD);
  });

  /** Runs the file until it exits, in `/` as in the image, with only these variables. */
  function run(env: Record<string, string>, ...flags: readonly string[]) {
    return spawnSync(process.execPath, [...flags, file], { cwd: '/', env, encoding: 'utf8' });
  }

  /** Returns the modules that a start with these variables has loaded when it listens. */
  function loaded(env: Record<string, string>, flags: readonly string[] = []): string {
    const list = join(folder, 'data/loaded');
    const all = { LOADED: list, PORT: '0', HOST: '127.0.0.1', ...env };
    const { status, stderr } = run(all, ...flags, '--require', join(folder, 'preload.cjs'));
    assert.equal(status, 0, stderr);
    return readFileSync(list, 'utf8');
  }

  test('it loads node:sqlite, the Postgres driver and TLS only if the settings need them', () => {
    const sqlite = loaded({ DATABASE_URL: 'sqlite::memory:' });
    assert.match(sqlite, /^NativeModule sqlite$/m);
    assert.doesNotMatch(sqlite, /^NativeModule (?:https|tls)$|postgres/m);
    const postgres = loaded({ DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' });
    assert.match(postgres, /postgres\/cjs\/src\/index\.js$/m);
    assert.doesNotMatch(postgres, /^NativeModule (?:https|sqlite)$/m);
  });

  for (const path of [':memory:', 'data/service.db', 'data/a/b/service.db']) {
    test(`it opens ${path} with the flags of the image`, () => {
      const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8').replaceAll('\\\n', '');
      const [, command = ''] = /^ENTRYPOINT (.+)$/m.exec(dockerfile) ?? [];
      const flags = (JSON.parse(command) as string[]).slice(1, -1);
      assert.ok(flags.includes('--permission'));
      const here = flags.map((flag) => flag.replace(/=\/(app\/)?/, `=${folder}/`));
      const file = path.startsWith(':') ? path : join(folder, path);
      assert.match(loaded({ DATABASE_URL: `sqlite:${file}` }, here), /^NativeModule sqlite$/m);
    });
  }

  test('imported, the library starts nothing and exports only `start`', async () => {
    assert.deepEqual(Object.keys(await import(library)).sort(), [
      'default',
      'module.exports',
      'start',
    ]);
  });
});

function build(folder: string): void {
  const script = join(ROOT, 'scripts/build.ts');
  execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', script, folder]);
}
