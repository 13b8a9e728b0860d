// The built form is the source with its types blanked out: what is read is what runs.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { newFolder } from './support/program.ts';

const ROOT = join(import.meta.dirname, '..');

const read = (path: string) => readFileSync(path, 'utf8');

test('3.18 every module is built with the same lines, the page is copied, and http/form.js exports parseForm', async () => {
  const folder = newFolder();
  const script = join(ROOT, 'scripts/build.ts');
  execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', script, folder]);
  const sources = globSync('**/*.ts', { cwd: join(ROOT, 'src') });
  assert.ok(sources.includes('main.ts'));
  for (const source of sources) {
    const lines = (path: string) => read(path).split('\n').length;
    const built = join(folder, source.replace(/ts$/, 'js'));
    assert.equal(lines(built), lines(join(ROOT, 'src', source)), source);
  }
  const page = 'docs.html';
  assert.equal(read(join(folder, page)), read(join(ROOT, 'src', page)));
  const { parseForm } = await import(join(folder, 'http/form.js'));
  assert.deepEqual(parseForm('a[b]=1'), { a: { b: '1' } });
});
