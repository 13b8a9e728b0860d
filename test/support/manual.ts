// The command blocks of the pages of docs/.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const DOCS = join(import.meta.dirname, '../../docs');
const MANUAL = 'operations.md';

/** A fenced block of commands or configuration. */
interface Block {
  readonly language: string;
  readonly heading: string;
  readonly text: string;
}

/** Returns every block of a page of docs/ in order. */
export function blocks(page = MANUAL): readonly Block[] {
  let heading = '';
  const found: Block[] = [];
  const text = readFileSync(join(DOCS, page), 'utf8');
  for (const [, title, language, body] of text.matchAll(/^#+ (.+)$|^```(\w*)\n([\s\S]*?)^```$/gm)) {
    if (title !== undefined) heading = title;
    else found.push({ language: language!, heading, text: body! });
  }
  return found;
}

/** Returns the text of the first block under that heading that contains the words. */
export function block(heading: string, words: string, page = MANUAL): string {
  const found = blocks(page).find((each) => each.heading === heading && each.text.includes(words));
  if (found === undefined) throw new Error(`${page}: no block with "${words}" under ${heading}`);
  return found.text;
}
