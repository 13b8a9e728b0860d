// Writes dist/start.d.cts, the types of the package: the types of src/start.ts, with every setting
// written out. The comment of a setting comes from its row in the README.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { START_DEFAULTS, VARIABLES } from '../src/config.ts';
import type { Settings } from '../src/start.ts';

const ROOT = join(import.meta.dirname, '..');

/** The compiler writes out the members of a spread. `typesOf` reads them from the declaration. */
export const members = { ...({} as Required<Settings>) };

/** Returns the type of each setting. */
function typesOf(declaration: string): ReadonlyMap<string, string> {
  const found = declaration.matchAll(/^ {4}([A-Z_]+): (.+) \| undefined;$/gm);
  return new Map(Array.from(found, ([, name, type]) => [name!, type!]));
}

/** Returns the comment of a setting: meaning, type with unit, and default of `start`. */
function commentOf(readme: string, name: string): string {
  const row = new RegExp(`^\\| \`${name}\` \\| (.+?) \\| (.+?) \\| (.+) \\|$`, 'm').exec(readme);
  if (row === null) throw new Error(`README.md has no row for ${name}`);
  // Removes links, because an editor can't follow the README's relative ones.
  const [type, preset, meaning] = row
    .slice(1)
    .map((cell) => cell.replace(/ \(\[.*?\]\(.*?\)\)/g, ''));
  const own = (START_DEFAULTS as Readonly<Record<string, string>>)[name];
  const value = own === undefined ? preset : `\`${own}\``;
  return `${meaning!.replace(/^[a-z]/, (letter) => letter.toUpperCase())}. Type: ${type}. Default: ${value}.`;
}

function settingsOf(types: ReadonlyMap<string, string>): string {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const fields = VARIABLES.filter((name) => name !== 'LOG_LEVEL').map((name) => {
    const type = types.get(name);
    if (type === undefined) throw new Error(`no type of ${name} in the declaration`);
    return `    /** ${commentOf(readme, name)} */\n    readonly ${name}?: ${type} | undefined;\n`;
  });
  return `export interface Settings {\n${fields.join('')}}\n`;
}

const folder = mkdtempSync(join(tmpdir(), 'notes-users-types-'));
try {
  const flags = ['--noEmit', 'false', '--declaration', '--emitDeclarationOnly'];
  const places = ['--rootDir', ROOT, '--outDir', folder];
  execFileSync('tsc', ['--project', ROOT, ...flags, ...places], { stdio: 'inherit' });
  const read = (file: string) => readFileSync(join(folder, file), 'utf8');
  const settings = settingsOf(typesOf(read('scripts/declare.d.ts')));
  const types = read('src/start.d.ts')
    .replace(/^import .* from '\.\/config\.ts';\n/m, '')
    .replace(/^export type Settings = \{.*?^\};\n/ms, () => settings);
  if (!types.includes(settings)) throw new Error('src/start.d.ts has no type Settings');
  if (/\bimport\b/.test(types.replace(/\/\*[\s\S]*?\*\//g, ''))) {
    throw new Error('src/start.ts exports types of other files');
  }
  writeFileSync(join(ROOT, 'dist/start.d.cts'), types);
} finally {
  rmSync(folder, { recursive: true });
}
