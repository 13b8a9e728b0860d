// The load generator for machines without wrk: `node autocannon.ts job.json` runs the job and
// prints the same line as the script of wrk.ts. SIGINT ends it early.
import { readFileSync } from 'node:fs';
import autocannon from 'autocannon';
import type { Job } from './load.ts';

const job: Job = JSON.parse(readFileSync(String(process.argv[2]), 'utf8'));
const { method, path, headers, body, tokens = [] } = job.traffic;
let n = 0;

const instance = autocannon(
  {
    url: job.url,
    connections: job.connections,
    duration: Math.ceil(job.seconds),
    timeout: 10,
    requests: [{ setupRequest: (request) => ({ ...request, ...next() }) }],
  },
  (err, result) => {
    if (err) throw err;
    const { requests, duration, errors, non2xx, latency } = result;
    const seen = {
      requests: requests.total,
      seconds: duration,
      errors: errors + non2xx,
      p50Ms: latency.p50,
      p99Ms: latency.p99,
    };
    console.log(`RESULT ${JSON.stringify(seen)}`);
  },
);
process.once('SIGINT', () => instance.stop());

function next(): autocannon.Request {
  n += 1;
  const values: Record<string, string> = {
    id: String(1 + Math.floor(Math.random() * Math.max(1, job.rows))),
    n: String(n),
    run: job.run,
    token: tokens[n % Math.max(1, tokens.length)] ?? '',
  };
  const fill = (template: string) => template.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? '');
  return {
    method: method as 'GET',
    path: fill(path),
    headers: Object.fromEntries(Object.entries(headers).map(([k, v]) => [k, fill(v)])),
    ...(body !== undefined && { body: fill(body) }),
  };
}
