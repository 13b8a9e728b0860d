// Runs before the client tests: installs the tools and starts Postgres.
import * as postgres from '../support/postgres.ts';
import { install } from './toolbox.ts';

export async function globalSetup(): Promise<void> {
  await install();
  await postgres.globalSetup();
}

export async function globalTeardown(): Promise<void> {
  await postgres.globalTeardown();
}
