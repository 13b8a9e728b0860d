// Generates a client from openapi.json with openapi-typescript. A program that uses it compiles and
// completes the journey. test/clients tests other generators.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { JOURNEY } from './support/journey.ts';
import { newFolder, PASSWORD, ROOT, start, USER } from './support/program.ts';

const CLIENT = join(ROOT, 'test/client');
const GENERATOR = join(CLIENT, 'node_modules/openapi-typescript/bin/cli.js');
const COMPILER = join(ROOT, 'node_modules/typescript/bin/tsc');

test('8.1 a program with a client made by openapi-typescript compiles and completes the journey', async () => {
  const folder = newFolder();
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const script = join(folder, 'client.ts');
  copyFileSync(join(CLIENT, 'client.ts'), script);
  const api = join(folder, 'api.ts');
  execFileSync(process.execPath, [GENERATOR, join(ROOT, 'openapi.json'), '--output', api]);

  // With the options of this project.
  const config = { extends: join(ROOT, 'tsconfig.json'), include: [], files: ['client.ts'] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const args = [COMPILER, '-p', folder];
  const { status, stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  assert.equal(status, 0, stdout);

  await using program = await start({ PROTECT_USERS: 'true' });
  const output = execFileSync(process.execPath, [script, program.url, USER, PASSWORD]);
  assert.deepEqual(JSON.parse(output.toString()), JOURNEY);
});
