// Before the tests of high availability: installs Patroni.
import { install } from './programs.ts';

export async function globalSetup(): Promise<void> {
  await install();
}
