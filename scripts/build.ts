// Makes dist/, in two forms that do the same. `node scripts/build.ts FOLDER` names another.
//
// - `main.js` and the modules below it: the source with its types blanked out, file by file, with
//   the same line numbers. Only the specifiers of imports change, from .ts to .js.
// - `main.cjs`: all of it in one CommonJS file, which node starts in half the time that it needs
//   for the modules, and which idles with 10 MB less. The image and the npm package hold this one.
//   It is the program when it is run, and `start` when it is imported. It can be read: nothing is
//   minified, comments stay, and each module is preceded by its path (contract 9.8).
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

/** A comment of an interface or a type, which leaves nothing behind. */
const OF_A_TYPE = /^( *)\/\*\*(?:[^*]|\*(?!\/))*\*\/\n(?=(?:export )?(?:interface|type) )/gm;

/**
 * What the bundler does not do by itself: modules find files relative to where they lie in the
 * source tree, also in CommonJS, and comments marked `//!` and `/*!` are the ones that it keeps.
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
  // So that an old node can read the file and say that it is too old.
  target: 'node18',
  charset: 'utf8',
  legalComments: 'inline',
  banner: { js: '#!/usr/bin/env node' },
  plugins: [modules],
  write: false,
  logLevel: 'warning',
});
const [output] = outputFiles;
if (output === undefined) throw new Error('esbuild made no file');

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
