// Starts the service in the image, where all its modules lie in one file, each as it was built
// behind a line `==> PATH <==`. node gets each under the path that it has in dist/: what the
// modules read relative to themselves, and what stack traces say, is as without this file.
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

const text = readFileSync(new URL('modules.txt', import.meta.url), 'utf8');
// The group's match stays in the result: '', path, source, path, source and so on.
const parts = text.split(/^==> (.+) <==\n/m);
const sources = new Map();
for (let i = 1; i < parts.length; i += 2) {
  sources.set(new URL(`dist/${parts[i]}`, import.meta.url).href, parts[i + 1]);
}

registerHooks({
  resolve(specifier, context, next) {
    const url = specifier.startsWith('.') ? new URL(specifier, context.parentURL).href : '';
    return sources.has(url) ? { url, shortCircuit: true } : next(specifier, context);
  },
  load(url, context, next) {
    const source = sources.get(url);
    return source === undefined
      ? next(url, context)
      : { format: 'module', source, shortCircuit: true };
  },
});

await import('./dist/main.js');
