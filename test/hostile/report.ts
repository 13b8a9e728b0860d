// Prints the results in HOSTILE_RESULTS as a Markdown table, one row for each attack.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Result, summary } from './results.ts';

const folder = process.argv[2] ?? process.env.HOSTILE_RESULTS;
if (folder === undefined) throw new Error('usage: node test/hostile/report.ts FOLDER');

const results = readFileSync(join(folder, 'results.jsonl'), 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line): Result => JSON.parse(line));

process.stdout.write(summary(results));
