// The page of GET /docs (contract 8.2): docs.html, and the policy that lets a browser run its one
// script and apply its one style sheet, and nothing else.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** The page as it is sent. */
export interface DocsPage {
  readonly html: Buffer;
  /** Value of Content-Security-Policy (CSP level 3). */
  readonly policy: string;
}

// It lies in src only: dist/ has the modules alone.
const FILE = new URL('../src/docs.html', import.meta.url);

/** Reads the page. @throws whatever node:fs throws when it cannot be read */
export function readPage(): DocsPage {
  const html = readFileSync(FILE, 'utf8');
  return { html: Buffer.from(html), policy: policyOf(html) };
}

/**
 * Nothing but what the page holds and its own origin's answers: no markup from strings, which takes
 * the way from a user's name to a script, no frame around it, no form that leaves it.
 */
function policyOf(html: string): string {
  // 8.2
  return [
    "default-src 'none'",
    `script-src ${hashOf(html, 'script')}`,
    `style-src ${hashOf(html, 'style')}`,
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}

/** The hash of the one element of that name, as a source (CSP level 3 §2.3.1). */
function hashOf(html: string, element: 'script' | 'style'): string {
  const text = new RegExp(`<${element}[^>]*>(.*)</${element}>`, 's').exec(html)?.[1] ?? '';
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}
