// Reads the files that describe the API: openapi.json (contract 8.1) and docs.html (contract 8.2).
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { compress, type StaticDocument } from './http/static.ts';

// Relative to the root, because dist/ has only modules.
const HTML = new URL('../src/docs.html', import.meta.url);
const OPENAPI = new URL('../openapi.json', import.meta.url);

/** Compresses both. @throws an error of node:fs if a file cannot be read */
export function readDocuments(): Promise<[openapi: StaticDocument, docs: StaticDocument]> {
  const html = readFileSync(HTML);
  const headers = ['Content-Security-Policy', policyOf(html.toString())];
  headers.push('Referrer-Policy', 'no-referrer');
  return Promise.all([
    compress(readFileSync(OPENAPI), 'application/json'), // 8.1
    compress(html, 'text/html; charset=utf-8', headers), // 8.2
  ]);
}

/**
 * Returns a policy that allows the page its own script, style and origin only (8.2). Trusted Types stop
 * a user's name from becoming markup.
 */
function policyOf(html: string): string {
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

/** Returns the hash of the only element of that name, as a CSP source (CSP Level 3 §2.3.1). */
function hashOf(html: string, element: 'script' | 'style'): string {
  const text = new RegExp(`<${element}[^>]*>(.*)</${element}>`, 's').exec(html)?.[1] ?? '';
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}
