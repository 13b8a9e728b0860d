// Sends each contestant the scenario's request, and requests that it must refuse. Throws if any
// response is wrong.
import assert from 'node:assert/strict';
import type { Contestant } from './contestants.ts';
import type { Traffic } from './load.ts';
import type { Scenario } from './scenarios.ts';

const TIMEOUT_MS = 10_000;

/** @throws if a status, a content type or a body is wrong. Expects only the contestant's checks. */
export async function check(
  url: string,
  { traffic, status, type, body, refused = [] }: Scenario,
  checks: NonNullable<Contestant['checks']>,
): Promise<void> {
  const good = await send(url, traffic);
  assert.equal(good.status, status, good.what);
  if (checks === 'nothing') return;
  assert.equal(good.type, type, good.what);
  body(good.text);
  for (const { isByStatement, status: expected, ...change } of refused) {
    if (checks === 'statement' && !isByStatement) continue;
    const bad = await send(url, { ...traffic, ...change });
    assert.equal(bad.status, expected, bad.what);
  }
}

async function send(
  url: string,
  { method, path, headers, body, tokens = [] }: Traffic,
): Promise<{ status: number; type: string | undefined; text: string; what: string }> {
  const values = { id: '1', n: '1', run: 'check', token: tokens[0] ?? '' };
  const fill = (template: string) =>
    template.replace(/\{(id|n|run|token)\}/g, (_, name: keyof typeof values) => values[name]);
  const res = await fetch(url + fill(path), {
    method,
    headers: Object.entries(headers).map(([name, value]): [string, string] => [name, fill(value)]),
    ...(body !== undefined && { body: fill(body) }),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const text = await res.text();
  return {
    status: res.status,
    type: res.headers.get('content-type')?.split(';')[0]?.toLowerCase(),
    text,
    what: `${method} ${fill(path)} ${fill(body ?? '')} returned ${res.status} ${text.slice(0, 200)}`,
  };
}
