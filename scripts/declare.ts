// Writes dist/start.d.cts, the types of the package: the types of src/start.ts, with every setting
// written out.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SETTINGS, type Setting, START_DEFAULTS, VARIABLES } from '../src/config.ts';
import type { Settings } from '../src/start.ts';

const ROOT = join(import.meta.dirname, '..');

/** The compiler writes out the members of a spread. `typesOf` reads them from the declaration. */
export const members = { ...({} as Required<Settings>) };

/** Returns the type of each setting. */
function typesOf(declaration: string): ReadonlyMap<string, string> {
  const found = declaration.matchAll(/^ {4}([A-Z_]+): (.+) \| undefined;$/gm);
  return new Map(Array.from(found, ([, name, type]) => [name!, type!]));
}

/** Returns the comment of a setting: its meaning, valid values, and default of `start`. */
function commentOf(name: keyof typeof SETTINGS): string {
  const [{ expected }, text, preset]: Setting = SETTINGS[name];
  const own = (START_DEFAULTS as Readonly<Record<string, string>>)[name] ?? preset;
  // What the program does without the setting doesn't apply if `start` has a default.
  const known = own === undefined ? text : text.replace(/; unset: .*/, '');
  const meaning = known.replace(/^[a-z]/, (letter) => letter.toUpperCase());
  return `${meaning}. Expects ${expected}.${own === undefined ? '' : ` Default: \`${own}\`.`}`;
}

function settingsOf(types: ReadonlyMap<string, string>): string {
  const fields = VARIABLES.filter((name) => name !== 'LOG_LEVEL').map((name) => {
    const type = types.get(name);
    if (type === undefined) throw new Error(`no type of ${name} in the declaration`);
    return `    /** ${commentOf(name)} */\n    readonly ${name}?: ${type} | undefined;\n`;
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
