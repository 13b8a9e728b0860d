// The files that describe the API: openapi.json (contract 8.1), and docs.html (contract 8.2) with the
// policy that lets a browser run its one script and apply its one style sheet, and nothing else.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { StaticDocument } from './http/static.ts';

// Relative to the root: dist/ has the modules alone.
const PAGE = new URL('../src/docs.html', import.meta.url);
const OPENAPI = new URL('../openapi.json', import.meta.url);

/** Reads the document, which `npm run openapi` wrote. @throws an error of node:fs if it cannot */
export function readOpenapi(): Promise<StaticDocument> {
  // 8.1
  return StaticDocument.compress(readFileSync(OPENAPI), 'application/json');
}

/** Reads the page. @throws an error of node:fs if it cannot */
export function readPage(): Promise<StaticDocument> {
  const html = readFileSync(PAGE);
  // 8.2
  const headers = ['Content-Security-Policy', policyOf(html.toString())];
  headers.push('Referrer-Policy', 'no-referrer');
  return StaticDocument.compress(html, 'text/html; charset=utf-8', headers);
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
