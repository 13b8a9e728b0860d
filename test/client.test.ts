// Generates a client from openapi.json with openapi-typescript. A program that uses it compiles and
// completes the journey on both stores. test/clients tests other generators.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { JOURNEY } from './support/journey.ts';
import { newDatabase, newFolder, PASSWORD, ROOT, STORES, start, USER } from './support/program.ts';

const CLIENT = join(ROOT, 'test/client');
const GENERATOR = join(CLIENT, 'node_modules/openapi-typescript/bin/cli.js');
const COMPILER = join(ROOT, 'node_modules/typescript/bin/tsc');

describe('a client made by openapi-typescript', () => {
  let folder: string;
  before(() => {
    folder = newFolder();
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    copyFileSync(join(CLIENT, 'client.ts'), join(folder, 'client.ts'));
    const api = join(folder, 'api.ts');
    execFileSync(process.execPath, [GENERATOR, join(ROOT, 'openapi.json'), '--output', api]);
  });

  test('a program that uses it compiles', () => {
    // With the options of this project.
    const config = { extends: join(ROOT, 'tsconfig.json'), include: [], files: ['client.ts'] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    const args = [COMPILER, '-p', folder];
    const { status, stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    assert.equal(status, 0, stdout);
  });

  for (const store of STORES) {
    test(`8.1 a program with it completes the journey (${store})`, async () => {
      await using program = await start({
        PROTECT_USERS: 'true',
        DATABASE_URL: await newDatabase(store),
      });
      const script = join(folder, 'client.ts');
      const output = execFileSync(process.execPath, [script, program.url, USER, PASSWORD]);
      assert.deepEqual(JSON.parse(output.toString()), JOURNEY);
    });
  }
});
