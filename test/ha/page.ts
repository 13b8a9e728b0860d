// docs/high-availability.md, whose configuration blocks the tests use.
import assert from 'node:assert/strict';

export const PAGE = 'high-availability.md';
/** Headings of the page. */
export const PATRONI = '1. Postgres: Patroni and fencing';
export const HOSTS = '2. The way to the primary';
export const BALANCER = '4. The balancer in front of the service';

/** A configuration with each of these texts replaced; each has to be in it. */
export function withPorts(config: string, replacements: Readonly<Record<string, string>>): string {
  let text = config;
  for (const [from, to] of Object.entries(replacements)) {
    assert.ok(text.includes(from), `not in the page's configuration: ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}
