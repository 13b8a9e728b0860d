// Reads the files and commands of docs/high-availability.md, which the tests run on one machine.
import assert from 'node:assert/strict';
import { block } from '../support/manual.ts';
import { PASSWORD, SECRET } from '../support/program.ts';

const PAGE = 'high-availability.md';

/** Files for machine a of the cluster, for a replica and for the balancer. */
export const FILES = {
  etcd: block('etcd', 'ETCD_NAME=', PAGE),
  patroni: block('Patroni', 'scope:', PAGE),
  unit: block('Patroni', 'ExecStart=', PAGE),
  primary: block('HAProxy on `/primary`', 'GET /primary', PAGE),
  settings: block('4. Start the replicas', 'SIGNING_SECRET=', PAGE),
  balancer: block('5. Put a balancer in front', 'GET /ready', PAGE),
} as const;

export const COMMANDS = {
  list: block('Patroni', 'patronictl', PAGE),
  switchover: block('Switchover', 'patronictl', PAGE),
} as const;

export const ROLE_AND_DATABASE = block('Role and database', 'create role', PAGE);

/** Route from the service to the primary. */
export type Topology = 'three hosts' | 'HAProxy';

const URLS: Readonly<Record<Topology, string>> = {
  'three hosts': block('All hosts in the URL', 'DATABASE_URL=', PAGE),
  HAProxy: block('HAProxy on `/primary`', 'DATABASE_URL=', PAGE),
};

/** Returns the page's DATABASE_URL with the page's addresses. */
export function databaseUrl(topology: Topology): string {
  return variables(URLS[topology]).DATABASE_URL!;
}

/** Returns the page's settings of a replica, with this database, and /users without a token. */
export function settings(DATABASE_URL: string): Record<string, string> {
  return {
    ...variables(FILES.settings),
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

/**
 * Adapts a file of machine a to another machine. Replaces the name, and the address except in lines
 * that list all machines.
 */
export function fileFor(text: string, name: string, address: string): string {
  const lines = text.split('\n').map((line) => {
    if (line.includes('10.0.0.2')) return line;
    return line.replace(/^(name: |ETCD_NAME=)a$/, `$1${name}`).replaceAll('10.0.0.1', address);
  });
  return lines.join('\n');
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
