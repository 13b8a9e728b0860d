// Compares one image with this source: its files, their modes, its settings, and node with the
// published binary.
//   npx node image/verify.ts IMAGE [LIST]
// LIST is the output of a build, or its lines with a SHA-256. Without LIST, this builds the first
// stage. Exit status 0 if nothing differs. The first line has the ID of the compared image. Run
// that ID.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { BOM_PATH } from './bom.ts';
import { comparePrefix, fetchNode } from './published.ts';
import { settingsChanged, settingsIn, settingsOf } from './settings.ts';
import { sha256 } from './tree.ts';
import { ENGINE, entriesOf, resolveImage, run, unpack } from './unpack.ts';

const SOURCE = join(import.meta.dirname, '..');

// A line of sha256sum. BuildKit puts a step and a time before it.
const LINE = /(?:^|\s)([0-9a-f]{64}) {2}(\S+)$/gm;

const [image, list] = process.argv.slice(2);
if (image === undefined) {
  process.stderr.write('usage: npx node image/verify.ts IMAGE [LIST]\n');
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
  const id = await resolveImage(image);
  process.stdout.write(`image ${id}\n`);
  const inspect = ['image', 'inspect', '-f', '{{.Architecture}}', id];
  const architecture = (await run(ENGINE, inspect)).trim();
  const { root, layers } = await unpack(id, folder);
  const built = list === undefined ? await build(architecture) : readFileSync(list, 'utf8');
  const expected = hashes(built);
  if (expected.size === 0) throw new Error(`${list}: no line of SHA-256 in it`);
  const dockerfile = settingsIn(readFileSync(join(SOURCE, 'Dockerfile'), 'utf8'));
  const problems = [
    ...differences(filesOf(root), expected),
    ...(await Promise.all(layers.map(strangeModes))).flat(),
    ...settingsChanged(await settingsOf(id), dockerfile),
  ];
  if (problems.length > 0) throw new Error(problems.join('\n'));
  process.stdout.write(`${expected.size} files match the list\n`);
  process.stdout.write(`${Object.keys(dockerfile).length} settings match the Dockerfile\n`);

  const version = nodeVersion(readFileSync(join(root, BOM_PATH), 'utf8'));
  const published = await fetchNode(version, architecture, folder);
  const cut = readFileSync(join(root, 'usr/local/bin/node'));
  const zeroed = comparePrefix(cut, published);
  process.stdout.write(
    `node ${version}: the first ${cut.length} of ${published.length} published bytes, except ${zeroed} header bytes\n`,
  );
}

/** Builds the first stage and returns the list that it prints. */
async function build(architecture: string): Promise<string> {
  const platform = ['--platform', `linux/${architecture}`];
  const flags = ['-q', '--target', 'build', ...platform];
  const stage = (await run(ENGINE, ['build', ...flags, SOURCE])).trim();
  const args = ['run', '--rm', ...platform, '--network', 'none', stage, 'cat', '/rootfs.sha256'];
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

/** Returns one line per changed, missing or extra file. */
function differences(found: Map<string, string>, expected: Map<string, string>): string[] {
  return [...new Set([...expected.keys(), ...found.keys()])].sort().flatMap((path) => {
    if (!found.has(path)) return [`${path}: missing in the image`];
    if (!expected.has(path)) return [`${path}: not in the list`];
    return found.get(path) === expected.get(path) ? [] : [`${path}: changed`];
  });
}

/** Returns one line per entry with a wrong owner or mode, such as set-uid or writable by others. */
async function strangeModes(layer: string): Promise<string[]> {
  return (await entriesOf(layer))
    .filter(({ mode, owner, path }) =>
      path === 'data/'
        ? mode !== 'drwxrwxr-x' || owner !== '65532/0'
        : owner !== '0/0' || !/^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--)$/.test(mode),
    )
    .map(({ mode, owner, path }) => `${path}: ${mode} ${owner}`);
}

function nodeVersion(bom: string): string {
  const { components } = JSON.parse(bom) as { components: { name: string; version: string }[] };
  const node = components.find(({ name }) => name === 'node');
  if (node === undefined) throw new Error(`${BOM_PATH}: node is not in it`);
  return node.version;
}
