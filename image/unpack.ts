// Unpacks an image on this machine. Uses the layers of `docker save`, because the engine adds files
// to the file system of a container.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sha256 } from './tree.ts';

/** The engine's command: `docker`, or CONTAINER_ENGINE, such as `podman`. */
export const ENGINE = process.env.CONTAINER_ENGINE || 'docker';

/** An unpacked image. */
export interface Unpacked {
  /** Folder with the files of all layers. */
  readonly root: string;
  /** Paths of the layers' tar files, the lowest first. */
  readonly layers: readonly string[];
}

/**
 * Returns the ID of the one image with this name, tag, digest or ID.
 * @throws an Error if there is none, or if a name without a tag belongs to several images
 */
export async function resolveImage(image: string): Promise<string> {
  const id = (await run(ENGINE, ['image', 'inspect', '-f', '{{.Id}}', image])).trim();
  const format = '{{.ID}} {{.Repository}}:{{.Tag}}';
  const tags = await run(ENGINE, ['images', '--no-trunc', '--format', format, image]);
  const ids = new Set(tags.match(/^\S+/gm));
  if (ids.size > 1) {
    throw new Error(`${image}: ambiguous; give a tag or an ID:\n${tags.trimEnd()}`);
  }
  return id;
}

/** A file or folder of a layer. */
export interface Entry {
  /** As `ls -l` shows it, such as `-rwxr-xr-x`, and `*` if it has attributes such as capabilities. */
  readonly mode: string;
  /** `uid/gid` */
  readonly owner: string;
  /** Of the last change, as `1970-01-01 00:00:00` in UTC. */
  readonly time: string;
  readonly path: string;
}

/** Lists the contents of a layer. */
export async function entriesOf(layer: string): Promise<readonly Entry[]> {
  const list = ['-tvf', layer, '--xattrs-include=*', '--numeric-owner', '--utc', '--full-time'];
  const lines = (await run('tar', list)).trimEnd().split('\n');
  return lines.map((line) => {
    const [, mode = '', owner = '', time = '', path = ''] =
      /^(\S+) +(\S+) +\S+ +(\S+ \S+) +(?:\.\/)?(.*)$/.exec(line) ?? [];
    return { mode, owner, time, path };
  });
}

/**
 * Unpacks an image into an empty folder. Takes an ID, because for a name the engine saves all tags.
 * @throws an Error if the archive has another image or several, or if a layer has an entry that is
 *   neither a file nor a folder: a link could point to a file of this machine
 */
export async function unpack(id: string, folder: string): Promise<Unpacked> {
  const archive = join(folder, 'image.tar');
  const parts = join(folder, 'parts');
  const root = join(folder, 'root');
  mkdirSync(parts);
  mkdirSync(root);
  await run(ENGINE, ['save', '-o', archive, id]);
  await run('tar', ['-xf', archive, '-C', parts]);
  const manifests = JSON.parse(readFileSync(join(parts, 'manifest.json'), 'utf8'));
  if (manifests.length !== 1) throw new Error(`${id}: ${manifests.length} images in its archive`);
  const [{ Config: config, Layers }] = manifests as [{ Config: string; Layers: string[] }];
  const hex = id.replace(/^sha256:/, '');
  if (sha256(readFileSync(join(parts, config))) !== hex && !indexed(parts).includes(hex)) {
    throw new Error(`${id}: its archive holds another image, ${config}`);
  }
  const layers = Layers.map((layer) => join(parts, layer));
  for (const layer of layers) {
    const other = (await entriesOf(layer)).find(({ mode }) => !/^[-d]/.test(mode));
    if (other !== undefined) throw new Error(`${other.path}: not a file (${other.mode})`);
    await run('tar', ['-xf', layer, '-C', root, '--no-same-owner']);
  }
  return { root, layers };
}

/** Engines with containerd's image store name an image by the hash of its manifest. */
function indexed(parts: string): readonly string[] {
  const index = join(parts, 'index.json');
  if (!existsSync(index)) return [];
  const { manifests } = JSON.parse(readFileSync(index, 'utf8')) as {
    manifests: { digest: string }[];
  };
  return manifests.map(({ digest }) => digest.replace(/^sha256:/, ''));
}

/**
 * Runs a command to its end.
 * @returns its standard output
 * @throws an Error with its standard error if it fails
 */
export async function run(
  command: string,
  args: readonly string[],
  { env = {}, cwd = '.' } = {},
): Promise<string> {
  const child = spawn(command, args, {
    cwd,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const [status] = await once(child, 'close');
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}\n${output}${errors}`);
  return output;
}
