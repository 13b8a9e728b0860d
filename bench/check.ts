// Asks each contestant the scenario's request once and throws unless the answer is right.
import assert from 'node:assert/strict';
import type { Scenario } from './scenarios.ts';

/** Throws when status, content type or body are wrong. Of a fixed answer only the status counts. */
export async function check(url: string, scenario: Scenario, isFixed: boolean): Promise<void> {
  const { method, path, headers, body, tokens = [] } = scenario.traffic;
  const values = { id: '1', n: '1', run: 'check', token: tokens[0] ?? '' };
  const fill = (template: string) =>
    template.replace(/\{(id|n|run|token)\}/g, (_, name: keyof typeof values) => values[name]);
  const res = await fetch(url + fill(path), {
    method,
    headers: Object.entries(headers).map(([name, value]): [string, string] => [name, fill(value)]),
    ...(body !== undefined && { body: fill(body) }),
    signal: AbortSignal.timeout(10_000),
  });
  const text = await res.text();
  const what = `${method} ${path} answered ${res.status} ${text.slice(0, 200)}`;
  assert.equal(res.status, scenario.status, what);
  if (isFixed) return;
  const type = res.headers.get('content-type')?.split(';')[0]?.toLowerCase();
  assert.equal(type, scenario.type, what);
  scenario.body(text);
}
