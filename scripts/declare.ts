// Writes dist/main.d.cts, the types of the package. They are those of src/start.ts, which needs no
// others.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');

const folder = mkdtempSync(join(tmpdir(), 'notes-users-types-'));
try {
  const flags = ['--noEmit', 'false', '--declaration', '--emitDeclarationOnly'];
  const places = ['--rootDir', ROOT, '--outDir', folder];
  execFileSync('tsc', ['--project', ROOT, ...flags, ...places], { stdio: 'inherit' });
  const types = readFileSync(join(folder, 'src/start.d.ts'), 'utf8');
  if (/\bimport\b/.test(types.replace(/\/\*[\s\S]*?\*\//g, ''))) {
    throw new Error('src/start.ts exports types of other files');
  }
  writeFileSync(join(ROOT, 'dist/main.d.cts'), types);
} finally {
  rmSync(folder, { recursive: true });
}
