// Access to the databases of the fault tests without the service.
import { execute } from '../support/service.ts';
import type { Row } from './ledger.ts';

export async function usersIn(databaseUrl: string): Promise<Row[]> {
  const numbers = ['id', 'version'].map((column) => `cast(${column} as integer) as ${column}`);
  const users = await execute(databaseUrl, `select ${numbers}, name, email from users order by id`);
  return users as unknown as Row[];
}

/** Returns the URL with other ports of 127.0.0.1. */
export function through(databaseUrl: string, ...ports: readonly number[]): string {
  const { username, password, pathname, search } = new URL(databaseUrl);
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
  return `postgres://${username}:${password}@${hosts}${pathname}${search}`;
}
