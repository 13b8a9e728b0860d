// Measurements in docs/results/ and docs/performance.md, each with its command, commit and date.
// `node scripts/results.ts` prints how many commits have touched src since the first one that each page names.
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const FOLDER = join(ROOT, 'docs/results');

/** One measurement: in the page, if there is one, after `<!-- results NAME -->`; otherwise in docs/results/NAME.md. */
export interface Measurement {
  readonly name: string;
  readonly page?: string;
  readonly command: string;
  readonly conditions: string; // rounds, machine and versions, in one line
  readonly text: string; // the table
}

/** Writes a measurement of the committed source. @throws if src has changes */
export function publish({ name, page, command, conditions, text }: Measurement): void {
  if (git('status', '--porcelain', '--', 'src') !== '') throw new Error('src has changes');
  const date = new Date().toISOString().slice(0, 10);
  const facts = `\`${command}\` on commit ${git('rev-parse', '--short=7', 'HEAD')}, ${date}`;
  const result = `${facts}: ${conditions}.\n\n${text}\n`;
  if (page === undefined) {
    writeFileSync(join(FOLDER, `${name}.md`), result);
    return;
  }
  const path = join(ROOT, page);
  const old = readFileSync(path, 'utf8');
  const place = new RegExp(`(<!-- results ${name} -->\n).*?(<!-- /results -->)`, 's');
  if (!place.test(old)) throw new Error(`${page} has no place for ${name}`);
  const put = (_all: string, start: string, end: string) => `${start}\n${result}\n${end}`;
  writeFileSync(path, old.replace(place, put));
}

function git(...args: string[]): string {
  return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
}

if (import.meta.main) {
  for (const file of globSync(['docs/results/*.md', 'docs/performance.md'], { cwd: ROOT }).sort()) {
    const commit = /on commit ([0-9a-f]{7,40}),/.exec(readFileSync(join(ROOT, file), 'utf8'))?.[1];
    if (commit === undefined) throw new Error(`${file} names no commit`);
    const age = git('rev-list', '--count', `${commit}..HEAD`, '--', 'src');
    console.log(`${file}: ${age} commits have touched src since ${commit}`);
  }
}
