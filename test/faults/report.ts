// Prints the results in FAULTS_RESULTS as a Markdown table, for docs/durability.md.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Result } from './results.ts';

const folder = process.argv[2] ?? process.env.FAULTS_RESULTS;
if (folder === undefined) throw new Error('usage: node test/faults/report.ts FOLDER');

const results = readdirSync(folder)
  .filter((name) => name.endsWith('.jsonl'))
  .flatMap((name) => readFileSync(join(folder, name), 'utf8').split('\n'))
  .filter((line) => line !== '')
  .map((line): Result => JSON.parse(line));

const rows = [...Map.groupBy(results, ({ fault, store }) => `${fault} | ${store}`)].map(
  ([name, runs]) => {
    const sum = (key: 'injected' | 'acknowledged' | 'lost' | 'duplicated') =>
      runs.reduce((total, run) => total + run[key], 0).toLocaleString('en');
    const healed = runs.flatMap(({ healSeconds }) => healSeconds ?? []);
    const longest = healed.length === 0 ? '' : `${Math.max(...healed).toFixed(2)} s`;
    const counts = `${sum('injected')} | ${sum('acknowledged')} | ${sum('lost')} | ${sum('duplicated')}`;
    return `| ${name} | ${counts} | ${longest} |\n`;
  },
);

process.stdout.write(
  `| fault | store | injected | writes acknowledged | lost | duplicated | recovered within |
|---|---|--:|--:|--:|--:|--:|
${rows.join('')}`,
);
