// The load: wrk in a closed loop. A request is a template; `{id}`, `{n}`, `{run}` and `{token}` vary.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { killAtExit, newFolder } from './machine.ts';

/**
 * A request template. `{id}`: a random user; `{n}`: 1, 2, 3 … within a run; `{run}`: differs from
 * run to run; `{token}`: the next of `tokens`.
 */
export interface Traffic {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly tokens?: readonly string[];
}

/** One run of one template. */
export interface Job {
  readonly url: string;
  readonly traffic: Traffic;
  readonly connections: number;
  /** A whole number, because wrk takes no other. */
  readonly seconds: number;
  /** `{id}` is a number from 1 to this. */
  readonly rows: number;
  readonly run: string;
}

/** The figures of wrk. Errors are responses from 400 on, resets and timeouts. `ids`: different values of `{id}`. */
export interface Seen {
  readonly requests: number;
  readonly ids: number;
  readonly seconds: number;
  readonly errors: number;
}

export async function load(job: Job): Promise<Seen> {
  const folder = newFolder();
  const file = join(folder, 'job.lua');
  const tokens = join(folder, 'tokens');
  writeFileSync(tokens, (job.traffic.tokens ?? []).join('\n'));
  writeFileSync(file, script(job, tokens));
  const shape = ['-t1', `-c${job.connections}`, `-d${job.seconds}s`, '--timeout=10s'];
  const args = [...shape, '-s', file, job.url];
  const child = spawn('wrk', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  killAtExit(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk) => {
      output += chunk;
    });
  }
  await once(child, 'close');
  rmSync(folder, { recursive: true });
  const result = /^RESULT (.*)$/m.exec(output)?.[1];
  if (result === undefined) throw new Error(`wrk ${args.join(' ')} printed:\n${output}`);
  return JSON.parse(result);
}

/** Prints the figures of wrk 4, which are in microseconds. */
const DONE = `
function setup(t) thread = t end
function done(summary)
  local e = summary.errors
  print(string.format('RESULT {"requests":%d,"ids":%d,"seconds":%f,"errors":%d}',
    summary.requests, thread:get('ids') or 0, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout))
end
`;

/** Returns the Lua script for this job. */
function script({ url, traffic, rows, run }: Job, tokensFile: string): string {
  const { method, path, headers, body } = traffic;
  const fields = Object.entries(headers);
  if (!/\{(id|n|token)\}/.test(path + (body ?? '') + Object.values(headers).join())) {
    const lines = [`wrk.method = ${quote(method)}`, `wrk.path = ${quote(path)}`];
    if (body !== undefined) lines.push(`wrk.body = ${quote(body)}`);
    for (const [name, value] of fields) lines.push(`wrk.headers[${quote(name)}] = ${quote(value)}`);
    return lines.join('\n') + DONE;
  }
  // The script assembles the bytes, because wrk.format takes four times as much CPU time.
  const head = [`${method} ${path} HTTP/1.1`, `Host: ${new URL(url).host}`];
  for (const [name, value] of fields) head.push(`${name}: ${value}`);
  const length = body === undefined ? "''" : "'Content-Length: ' .. #body .. '\\r\\n'";
  return `
math.randomseed(1)
local n = 0
ids = 0
local isSeen = {}
local tokens = {}
for line in io.lines(${quote(tokensFile)}) do tokens[#tokens + 1] = line end
function request()
  n = n + 1
  local id = math.random(1, ${Math.max(1, rows)})
  if not isSeen[id] then isSeen[id] = true; ids = ids + 1 end
  local token = tokens[n % math.max(1, #tokens) + 1]
  local body = ${concat(body ?? '', run)}
  return ${concat(`${head.join('\r\n')}\r\n`, run)} .. ${length} .. '\\r\\n' .. body
end
${DONE}`;
}

/** Converts the template to a Lua expression such as `'/users/' .. id`. */
function concat(template: string, run: string): string {
  return template
    .replaceAll('{run}', run)
    .split(/\{(id|n|token)\}/)
    .map((part, i) => (i % 2 === 1 ? part : quote(part)))
    .join(' .. ');
}

function quote(text: string): string {
  const escaped = text.replaceAll('\\', '\\\\').replaceAll("'", "\\'");
  return `'${escaped.replaceAll('\r', '\\r').replaceAll('\n', '\\n')}'`;
}
