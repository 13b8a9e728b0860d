// Builds dist/ in two equivalent forms. `node scripts/build.ts FOLDER` writes to another folder.
//
// - `main.js` and its modules: each source file with its types blanked out, so line numbers stay.
//   Only the specifiers of imports change, from .ts to .js.
// - `main.cjs`: the program in one CommonJS file, which starts in half the time and idles with 10 MB
//   less. The image and the npm package contain this form. It is readable: not minified, with
//   comments, and with the path above each module (contract 9.8). `start.cjs` is the library of the
//   package in the same form.
import { chmodSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { build, type Plugin } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
const EXECUTABLE = 0o755;
const dist = process.argv[2] ?? join(ROOT, 'dist');

/** Matches the comment of an interface or a type, because the output has neither. */
const OF_A_TYPE = /^( *)\/\*\*(?:[^*]|\*(?!\/))*\*\/\n(?=(?:export )?(?:interface|type) )/gm;

/**
 * Adapts modules for the bundle. `import.meta.url` keeps its meaning relative to the source tree, and
 * comments become `//!` and `/*!`, because the bundler keeps only those.
 */
const modules: Plugin = {
  name: 'modules',
  setup({ onLoad }) {
    onLoad({ filter: /\.[jt]s$/ }, ({ path }) => {
      const place = JSON.stringify(`/../${relative(ROOT, path)}`);
      const contents = readFileSync(path, 'utf8')
        .replaceAll(
          'import.meta.url',
          `require('node:url').pathToFileURL(__dirname + ${place}).href`,
        )
        .replace(OF_A_TYPE, '')
        .replace(/^( *)\/\/(?= )/gm, '$1//!')
        .replace(/^( *)\/\*(?=\*)/gm, '$1/*!');
      return { contents, loader: 'ts' };
    });
  },
};

const { outputFiles } = await build({
  entryPoints: ['src/main.ts', 'src/start.ts'],
  outdir: dist,
  outExtension: { '.js': '.cjs' },
  absWorkingDir: ROOT,
  bundle: true,
  external: ['postgres'],
  platform: 'node',
  format: 'cjs',
  // An old node must be able to parse the file, so that the file can report the required version.
  target: 'node18',
  charset: 'utf8',
  legalComments: 'inline',
  // The build of the image has no tsconfig.json, and must give the same bytes.
  tsconfigRaw: { compilerOptions: { alwaysStrict: true } },
  plugins: [modules],
  write: false,
  logLevel: 'warning',
});

rmSync(dist, { recursive: true, force: true });
for (const file of globSync('**/*.{js,ts}', { cwd: join(ROOT, 'src') })) {
  const source = readFileSync(join(ROOT, 'src', file), 'utf8');
  const script = stripTypeScriptTypes(source, { mode: 'strip' });
  const target = join(dist, file.replace(/\.ts$/, '.js'));
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, script.replace(/(from '\.[^']*|import\('\.[^']*)\.ts'/gm, "$1.js'"));
}
for (const { path, text } of outputFiles) {
  writeFileSync(path, text.replace(/^( *\/[/*])!/gm, '$1'));
}
const program = join(dist, 'main.cjs');
writeFileSync(program, `#!/usr/bin/env node\n${readFileSync(program, 'utf8')}`);
chmodSync(program, EXECUTABLE);
