// Before the tests of the clients: installs the tools and starts the Postgres.
import * as postgres from '../support/postgres.ts';
import { install } from './toolbox.ts';

export async function globalSetup(): Promise<void> {
  await install();
  await postgres.globalSetup();
}

export async function globalTeardown(): Promise<void> {
  await postgres.globalTeardown();
}
