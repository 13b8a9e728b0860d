// dist/main.cjs and dist/start.cjs, the program and the library, run from any folder next to db/ and
// node_modules/.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { send } from './support/client.ts';
import { newFolder, Program, ROOT, start } from './support/program.ts';

describe('dist/main.cjs and dist/start.cjs', () => {
  let folder = '';
  let program = '';

  before(() => {
    folder = newFolder();
    program = join(folder, 'dist/main.cjs');
    const script = join(ROOT, 'scripts/build.ts');
    const flag = '--disable-warning=ExperimentalWarning';
    execFileSync(process.execPath, [flag, script, join(folder, 'dist')]);
    cpSync(join(ROOT, 'db'), join(folder, 'db'), { recursive: true });
    for (const name of ['src/docs.html', 'openapi.json'])
      cpSync(join(ROOT, name), join(folder, name));
    for (const name of ['node_modules', 'data']) mkdirSync(join(folder, name));
    symlinkSync(join(ROOT, 'node_modules/postgres'), join(folder, 'node_modules/postgres'));
  });

  /** Returns the command of the image, with its flags. It runs in `/`. */
  function entrypoint(): readonly string[] {
    const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8').replaceAll('\\\n', '');
    const [, command = ''] = /^ENTRYPOINT (.+)$/m.exec(dockerfile) ?? [];
    const flags = (JSON.parse(command) as string[]).slice(1, -1);
    assert.ok(flags.includes('--permission'));
    const here = flags.map((flag) => flag.replace(/=\/(?:app\/|(?=data\/))/, `=${folder}/`));
    return ['sh', '-c', 'cd /; exec "$0" "$@"', process.execPath, ...here, program];
  }

  for (const path of [':memory:', 'data/service.db', 'data/a/b/service.db']) {
    test(`it opens ${path} with the flags of the image`, async () => {
      const file = path.startsWith(':') ? path : join(folder, path);
      await using running = await start({ DATABASE_URL: `sqlite:${file}` }, entrypoint());
      assert.equal((await send(`${running.url}/users`)).status, 200);
    });
  }

  test('6.19 it copies the database with the flags of the image', async () => {
    const DATABASE_URL = `sqlite:${join(folder, 'data/original.db')}`;
    await using _ = await start({ DATABASE_URL }, entrypoint());
    const args = ['--backup', join(folder, 'data/copy.db')];
    await using copying = new Program({ DATABASE_URL }, args, entrypoint());
    assert.equal((await copying.exited).code, 0, copying.stderr);
  });

  test('1.6 5.2 with the flags of the image node may read secrets, and no other file', async () => {
    const secret = '/run/secrets/not_mounted';
    const file = '/etc/passwd';
    const files = { NOTE_TITLE_FILE: file, TLS_CERT_FILE: file, TLS_KEY_FILE: file };
    await using reading = new Program({ AUTH_PASSWORD_FILE: secret, ...files }, [], entrypoint());
    assert.equal((await reading.exited).code, 78);
    const [missing, ...rest] = reading.stderr.trimEnd().split('\n');
    assert.match(missing!, RegExp(`^AUTH_PASSWORD_FILE: ENOENT: .*${secret}`));
    const said = `node may not read ${file}; in the image, mount it below /run/secrets; expected `;
    const names = rest.map((line) => line.split(`: ${said}`)[0]);
    assert.deepEqual(names, Object.keys(files));
    await using opening = new Program({ DATABASE_URL: `sqlite:${file}` }, [], entrypoint());
    assert.equal((await opening.exited).code, 1);
    assert.match(opening.stderr, RegExp(`^cannot open the database ${file}: .+ below /data\n$`));
  });

  test('3.18 the build has a module http/form.js, which exports parseForm', async () => {
    const { parseForm } = await import(join(folder, 'dist/http/form.js'));
    assert.deepEqual(parseForm('a[b]=1'), { a: { b: '1' } });
  });

  test('imported, the library starts nothing and exports only `start`', async () => {
    const names = Object.keys(await import(join(folder, 'dist/start.cjs')));
    assert.deepEqual(names.sort(), ['default', 'module.exports', 'start']);
  });
});
