// Installs the tools and starts Postgres before the client tests.
import * as postgres from '../support/postgres.ts';
import { install } from './toolbox.ts';

export async function globalSetup(): Promise<void> {
  await install();
  await postgres.globalSetup();
}

export async function globalTeardown(): Promise<void> {
  await postgres.globalTeardown();
}
