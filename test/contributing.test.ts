// CONTRIBUTING.md adds a route and a column step by step. These tests follow the page in copies of the tree.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { sendUnchecked } from './support/client.ts';
import { copyOf, ENV, newDatabase, PROGRAM, ROOT, STORES } from './support/program.ts';
import { execute, serve } from './support/service.ts';

const COPIED = [
  ...['src', 'scripts', 'db', 'docs', 'test', 'image', 'biome.json', 'package.json'],
  ...['tsconfig.json', 'openapi.json', 'README.md', 'SECURITY.md'],
];
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const BIOME = join(ROOT, 'node_modules/@biomejs/biome/bin/biome');

function section(title: string): string {
  const page = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
  return new RegExp(`^## ${title}\n(.*?)^## `, 'ms').exec(page)![1]!;
}

/** Copies the tree, and writes the new files and applies the diffs of a section. */
function follow(title: string): string {
  const folder = copyOf(COPIED);
  for (const modules of ['node_modules', 'test/client/node_modules']) {
    symlinkSync(join(ROOT, modules), join(folder, modules));
  }
  let path = '';
  for (const [, file, language, code] of section(title).matchAll(
    /`([\w./]+)`:$|^```(diff|sql|ts)\n(.*?)^```$/gms,
  )) {
    if (file !== undefined) path = join(folder, file);
    else if (language === 'diff') writeFileSync(path, patched(readFileSync(path, 'utf8'), code!));
    else writeFileSync(path, code!, { flag: 'wx' });
  }
  return folder;
}

/** Applies a diff without line numbers, wherever what it replaces occurs. */
function patched(text: string, diff: string): string {
  const side = (sign: string) =>
    diff
      .split('\n')
      .slice(0, -1)
      .filter((line) => !line.startsWith(sign))
      .map((line) => line.slice(1))
      .join('\n');
  const parts = text.split(side('+'));
  assert.ok(parts.length > 1, `not found:\n${diff}`);
  return parts.join(side('-'));
}

/** @throws with the output of a command that fails */
async function run(cwd: string, ...args: readonly string[]): Promise<void> {
  await promisify(execFile)(process.execPath, args, { cwd, env: ENV }).catch((err) => {
    throw new Error(`${args.join(' ')}:\n${err.stdout}${err.stderr}`);
  });
}

test('the new route of CONTRIBUTING.md is whole and passes its tests', async () => {
  const folder = follow('Add a route');
  await Promise.all([
    run(folder, TSC),
    run(folder, BIOME, 'ci', 'src', 'test/contract'),
    run(folder, '--test', 'test/contract.test.ts'),
    run(folder, '--test', 'test/contract/audit.test.ts'),
    run(folder, '--test', '--test-name-pattern=audit', 'test/contract/description.test.ts'),
    run(folder, '--test', '--test-name-pattern=8[.]1|route', 'test/openapi.test.ts'),
  ]);
  const { routeTable } = await import(join(folder, 'scripts/readme.ts'));
  assert.match(routeTable(), /`GET \/users\/\{id\}\/audit` \| Bearer token \|/);
});

describe('the new column of CONTRIBUTING.md', () => testColumn(true));
describe('the new column of CONTRIBUTING.md that is never null', () => testColumn(false));

function testColumn(isNullable: boolean): void {
  let folder = '';
  before(async () => {
    folder = follow('Add a column');
    // The last commands of the section make it a column that is never null.
    const [, commands = ''] = /^```sh\n(.*?)^```$/ms.exec(section('Add a column'))!;
    if (!isNullable) await promisify(execFile)('bash', ['-ec', commands], { cwd: folder });
    await run(folder, BIOME, 'check', '--write', 'src', 'test');
    const design = join(folder, 'docs/design.md');
    const { withFiles } = await import(join(folder, 'scripts/readme.ts'));
    writeFileSync(design, withFiles(readFileSync(design, 'utf8')));
  });

  test('it type-checks', () => run(folder, TSC));

  test('the tests of users, of the stores and of the description pass, and no other depends on the fields', async () => {
    await run(folder, '--test', 'test/{contract,user,openapi}.test.ts');
    await run(folder, '--test', '--test-name-pattern=every|random', 'test/contract/users.test.ts');
    await run(folder, '--test', 'test/contract/paths.test.ts');
    await run(folder, '--test', 'test/store/stores.test.ts');
    await run(folder, '--test', '--test-name-pattern=4[.]2', 'test/contract/users-list.test.ts');
  });

  for (const store of STORES) {
    test(`4.16 5.8 the older version and the newer one use one database (${store})`, async () => {
      const DATABASE_URL = await newDatabase(store);
      const newer = PROGRAM.map((word) => word.replace(ROOT, folder));
      await using stack = new AsyncDisposableStack();
      const begin = async (command: readonly string[]) =>
        stack.use(await serve({ DATABASE_URL }, command));
      const services = await Array.fromAsync([PROGRAM, newer, PROGRAM], begin);
      let users = 0;
      let tag = '*'; // of user 1, from whichever service
      const send = async (url: string, method: string, fields: object, status: number) => {
        const body = { name: 'Ada', ...fields };
        const headers = { 'if-match': tag };
        const response = await sendUnchecked(url, { method, body, headers });
        assert.equal(response.status, status, `${method} ${url}: ${response.body}`);
        return response.headers.get('etag')!;
      };
      for (const { url } of [...services, ...services]) {
        await send(`${url}/users`, 'POST', { email: `${users++}@x` }, 201);
        for (const locale of ['pt-BR', 'en']) {
          tag = await send(`${url}/users/1`, 'PATCH', { locale }, 200);
        }
        tag = await send(`${url}/users/1`, 'PUT', { name: `Ada ${users}`, email: '0@x' }, 200);
      }
      if (isNullable) return;
      const response = await fetch(`${services[1]!.url}/users`);
      const all = (await response.json()) as { locale?: string }[];
      assert.deepEqual([...new Set(all.map(({ locale }) => locale))], ['en']); // POST and PUT had none.
      await assert.rejects(execute(DATABASE_URL, 'update users set locale = null'), /null/i);
    });
  }
}
