// Tells whether an image holds what this source makes, file by file, and the published node:
//   npm run image:verify -- IMAGE [LIST]
// LIST is the output of the build, or whatever part of it has the lines of SHA-256. Without it the
// first stage is built from the source here. Exit status 0 when all is as it should be.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { BOM_PATH } from './bom.ts';
import { comparePrefix, fetchNode } from './published.ts';
import { sha256 } from './tree.ts';
import { ENGINE, run, unpack } from './unpack.ts';

const SOURCE = join(import.meta.dirname, '..');

// As sha256sum writes it. BuildKit puts a step and a time before each line.
const LINE = /(?:^|\s)([0-9a-f]{64}) {2}(\S+)$/gm;

const [image, list] = process.argv.slice(2);
if (image === undefined) {
  process.stderr.write('usage: npm run image:verify -- IMAGE [LIST]\n');
  process.exitCode = 1;
} else {
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-image-'));
  try {
    await verify(image, folder, list);
  } catch (err) {
    process.stderr.write(`${(err as Error).message}\n`);
    process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function verify(image: string, folder: string, list: string | undefined): Promise<void> {
  const { root } = await unpack(image, folder);
  const expected = hashes(list === undefined ? await build() : readFileSync(list, 'utf8'));
  if (expected.size === 0) throw new Error(`${list}: no line of SHA-256 in it`);
  const problems = differences(filesOf(root), expected);
  if (problems.length > 0) throw new Error(problems.join('\n'));
  process.stdout.write(`${expected.size} files, each as in the list\n`);

  const version = nodeVersion(readFileSync(join(root, BOM_PATH), 'utf8'));
  const inspect = ['image', 'inspect', '-f', '{{.Architecture}}', image];
  const architecture = (await run(ENGINE, inspect)).trim();
  const published = await fetchNode(version, architecture, folder);
  const cut = readFileSync(join(root, 'usr/local/bin/node'));
  const zeroed = comparePrefix(cut, published);
  process.stdout.write(
    `node ${version}: the first ${cut.length} of ${published.length} published bytes, but for ${zeroed} of the header\n`,
  );
}

/** Makes the first stage and returns the list that it prints. */
async function build(): Promise<string> {
  const stage = (await run(ENGINE, ['build', '-q', '--target', 'build', SOURCE])).trim();
  const args = ['run', '--rm', '--network', 'none', stage, 'cat', '/rootfs.sha256'];
  return run(ENGINE, args);
}

function hashes(text: string): Map<string, string> {
  return new Map([...text.matchAll(LINE)].map(([, hash, path]) => [path!, hash!]));
}

function filesOf(root: string): Map<string, string> {
  const entries = readdirSync(root, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name));
  return new Map(paths.map((path) => [relative(root, path), sha256(readFileSync(path))]));
}

/** A line for each file that is changed, missing or in excess. */
function differences(found: Map<string, string>, expected: Map<string, string>): string[] {
  return [...new Set([...expected.keys(), ...found.keys()])].sort().flatMap((path) => {
    if (!found.has(path)) return [`${path}: missing in the image`];
    if (!expected.has(path)) return [`${path}: not in the list`];
    return found.get(path) === expected.get(path) ? [] : [`${path}: changed`];
  });
}

function nodeVersion(bom: string): string {
  const { components } = JSON.parse(bom) as { components: { name: string; version: string }[] };
  const node = components.find(({ name }) => name === 'node');
  if (node === undefined) throw new Error(`${BOM_PATH}: node is not in it`);
  return node.version;
}
