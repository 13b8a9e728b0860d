// Builds dist/ in two equivalent forms. `node scripts/build.ts FOLDER` writes to another folder.
//
// - `main.js` and its modules: each source file with its types blanked out, so line numbers stay.
//   Only the specifiers of imports change, from .ts to .js.
// - `main.cjs`: the same in one CommonJS file, which starts in half the time and idles with 10 MB
//   less. The image and the npm package contain this form. Run, it is the program; imported, it
//   exports `start`. It is readable: not minified, with comments, and with the path above each
//   module (contract 9.8).
import { chmodSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { build, type Plugin } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
const EXECUTABLE = 0o755;

const ENTRY = `
export { start } from './src/start.ts';
import './src/main.ts';
`;

/** Matches the comment of an interface or a type, because the output has neither. */
const OF_A_TYPE = /^( *)\/\*\*(?:[^*]|\*(?!\/))*\*\/\n(?=(?:export )?(?:interface|type) )/gm;

/**
 * Adapts modules for the bundle. `import.meta.url` keeps its meaning relative to the source tree, and
 * comments become `//!` and `/*!`, because the bundler keeps only those.
 */
const modules: Plugin = {
  name: 'modules',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const place = JSON.stringify(`/../${relative(ROOT, path)}`);
      const contents = readFileSync(path, 'utf8')
        .replaceAll(
          'import.meta.url',
          `require('node:url').pathToFileURL(__dirname + ${place}).href`,
        )
        .replaceAll('import.meta.main', '(require.main === module)')
        .replace(OF_A_TYPE, '')
        .replace(/^( *)\/\/(?= )/gm, '$1//!')
        .replace(/^( *)\/\*(?=\*)/gm, '$1/*!');
      return { contents, loader: 'ts' };
    });
  },
};

const { outputFiles } = await build({
  stdin: { contents: ENTRY, resolveDir: ROOT, sourcefile: 'scripts/build.ts' },
  absWorkingDir: ROOT,
  bundle: true,
  external: ['postgres'],
  platform: 'node',
  format: 'cjs',
  // An old node must be able to parse the file, so that the file can report the required version.
  target: 'node18',
  charset: 'utf8',
  legalComments: 'inline',
  banner: { js: '#!/usr/bin/env node' },
  plugins: [modules],
  write: false,
  logLevel: 'warning',
});
const [output] = outputFiles;
if (output === undefined) throw new Error('esbuild wrote no file');

const dist = process.argv[2] ?? join(ROOT, 'dist');
rmSync(dist, { recursive: true, force: true });
for (const file of globSync('**/*.ts', { cwd: join(ROOT, 'src') })) {
  const source = readFileSync(join(ROOT, 'src', file), 'utf8');
  const script = stripTypeScriptTypes(source, { mode: 'strip' });
  const target = join(dist, file.replace(/\.ts$/, '.js'));
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, script.replace(/(from '\.[^']*|^import '\.[^']*)\.ts'/gm, "$1.js'"));
}
const bundle = join(dist, 'main.cjs');
writeFileSync(bundle, output.text.replace(/^( *\/[/*])!/gm, '$1'));
chmodSync(bundle, EXECUTABLE);
