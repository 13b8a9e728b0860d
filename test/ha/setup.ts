// Installs Patroni before the high-availability tests.
import { install } from './programs.ts';

export async function globalSetup(): Promise<void> {
  await install();
}
