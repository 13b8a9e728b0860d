// Makes dist/: the source with its types blanked out, file by file, so that what is read is what
// runs, with the same line numbers. Only the specifiers of imports change, from .ts to .js; the page of
// GET /docs is copied. Another folder can be named: `node scripts/build.ts FOLDER`.
import { copyFileSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join } from 'node:path';

const root = join(import.meta.dirname, '..');
const dist = process.argv[2] ?? join(root, 'dist');

rmSync(dist, { recursive: true, force: true });
for (const file of globSync('**/*.ts', { cwd: join(root, 'src') })) {
  const source = readFileSync(join(root, 'src', file), 'utf8');
  const script = stripTypeScriptTypes(source, { mode: 'strip' });
  const target = join(dist, file.replace(/\.ts$/, '.js'));
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, script.replace(/(from '\.[^']*|import\('\.[^']*)\.ts'/g, "$1.js'"));
}
copyFileSync(join(root, 'src/docs.html'), join(dist, 'docs.html'));
