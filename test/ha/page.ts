// Reads deploy/ha and the commands of docs/high-availability.md, which the tests run on one machine.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { block } from '../support/manual.ts';
import { PASSWORD, SECRET } from '../support/program.ts';

export const PAGE = 'high-availability.md';

const folder = join(import.meta.dirname, '../../deploy/ha');

/** Returns a file of deploy/ha, for machine a of the cluster. */
export const read = (name: string) => readFileSync(join(folder, name), 'utf8');

/** Routes from the service to the primary, by their headings. */
const ROUTES = { 'three hosts': 'All hosts in the URL', HAProxy: 'HAProxy on `/primary`' } as const;

export function databaseUrl(topology: keyof typeof ROUTES): string {
  return variables(block(ROUTES[topology], 'DATABASE_URL=', PAGE)).DATABASE_URL!;
}

/** Returns the page's settings of a replica, with this database, and /users without a token. */
export function settings(DATABASE_URL: string): Record<string, string> {
  return {
    ...variables(read('notes-users.env')),
    ...{ DATABASE_URL, HOST: '127.0.0.1', PROTECT_USERS: 'false' },
    ...{ AUTH_PASSWORD: PASSWORD, SIGNING_SECRET: SECRET },
  };
}

/** Returns the values of the lines `NAME=VALUE`. For a repeated name, the last one counts. */
export function variables(text: string): Record<string, string> {
  return Object.fromEntries(
    Array.from(text.matchAll(/^(\w+)=(.*)$/gm), ([, name, value]) => [name!, value!]),
  );
}

/** Replaces each of these parts of the page's text. Fails if one is missing. */
export function replaced(text: string, replacements: Readonly<Record<string, string>>): string {
  let result = text;
  for (const [from, to] of Object.entries(replacements)) {
    assert.ok(result.includes(from), `not in the page: ${from}`);
    result = result.replaceAll(from, () => to);
  }
  return result;
}
