// Reads the files that describe the API: openapi.json (contract 8.1) and docs.html (contract 8.2).
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { compress } from './http/static.ts';

/** Compresses both. @throws an error of node:fs if a file cannot be read */
export function readDocuments() {
  // Relative to the root, because dist/ has only modules.
  const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url));
  const html = read('src/docs.html');
  // The hash of the only element of that name (CSP Level 3 §2.3.1). Throws if there is none.
  const hashOf = (element: 'script' | 'style') => {
    const [, text] = new RegExp(`<${element}[^>]*>(.*)</${element}>`, 's').exec(String(html))!;
    return `'sha256-${hash('sha256', text!, 'base64')}'`;
  };
  // Allows only the page's own script, style and origin (8.2). Trusted Types stop names from becoming markup.
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf('script')}`,
    `style-src ${hashOf('style')}`,
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "require-trusted-types-for 'script'; trusted-types 'none'",
  ].join('; ');
  const headers = ['Content-Security-Policy', policy, 'Referrer-Policy', 'no-referrer'];
  return {
    openapi: compress(read('openapi.json'), 'application/json'), // 8.1
    docs: compress(html, 'text/html; charset=utf-8', headers), // 8.2
  };
}
