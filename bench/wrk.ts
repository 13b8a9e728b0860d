// Writes the Lua script that makes wrk send a request template and print its figures as JSON.
import type { Job } from './load.ts';

/** Prints the figures of wrk 4, which are in microseconds. */
const DONE = `
function done(summary, latency)
  local e = summary.errors
  print(string.format(
    'RESULT {"requests":%d,"seconds":%f,"errors":%d,"p50Ms":%f,"p99Ms":%f}',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
`;

/** Returns the script for this job. It reads the tokens from a file, one per line. */
export function script(job: Job, tokensFile: string): string {
  const { method, path, headers, body } = job.traffic;
  const varies = /\{(id|n|token)\}/.test(path + (body ?? '') + Object.values(headers).join());
  return (varies ? varying(job, tokensFile) : fixed(job)) + DONE;

  function fixed({ run }: Job): string {
    const lines = Object.entries(headers).map(
      ([name, value]) => `wrk.headers[${quote(name)}] = ${quote(value)}`,
    );
    const text = body === undefined ? 'nil' : quote(body.replaceAll('{run}', run));
    const parts = [`wrk.method = ${quote(method)}`, `wrk.path = ${quote(path)}`];
    return [...parts, `wrk.body = ${text}`, ...lines, ''].join('\n');
  }

  // The script assembles the bytes, because wrk.format takes four times as much CPU time.
  function varying({ url, rows, run }: Job, tokens: string): string {
    const head = [`Host: ${new URL(url).host}`];
    for (const [name, value] of Object.entries(headers)) head.push(`${name}: ${value}`);
    const text = body === undefined ? "''" : concat(body, run);
    const length = body === undefined ? "''" : "'Content-Length: ' .. #body .. '\\r\\n'";
    return `
math.randomseed(1)
local n = 0
local tokens = {}
for line in io.lines(${quote(tokens)}) do tokens[#tokens + 1] = line end
function request()
  n = n + 1
  local id = math.random(1, ${Math.max(1, rows)})
  local token = tokens[n % math.max(1, #tokens) + 1]
  local body = ${text}
  return ${concat(`${method} ${path} HTTP/1.1\r\n${head.join('\r\n')}\r\n`, run)} .. ${length} .. '\\r\\n' .. body
end
`;
  }
}

/** Converts the template to a Lua expression such as `'/users/' .. id`. */
function concat(template: string, run: string): string {
  return template
    .replaceAll('{run}', run)
    .split(/\{(id|n|token)\}/)
    .map((part, i) => (i % 2 === 1 ? part : quote(part)))
    .filter((part) => part !== "''")
    .join(' .. ');
}

function quote(text: string): string {
  const escaped = text.replaceAll('\\', '\\\\').replaceAll("'", "\\'");
  return `'${escaped.replaceAll('\r', '\\r').replaceAll('\n', '\\n')}'`;
}
