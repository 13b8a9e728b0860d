// Installs the tools and starts Postgres before the client tests.
import { globalSetup as startPostgres } from '../support/postgres.ts';
import { install } from './toolbox.ts';

export { globalTeardown } from '../support/postgres.ts';

export async function globalSetup(): Promise<void> {
  await install();
  await startPostgres();
}
