// Takes an image apart on this machine: the layers of `docker save`, not the file system of a
// container, in which the engine has already put files of its own.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The engine's command: `docker`, or what CONTAINER_ENGINE names, such as `podman`. */
export const ENGINE = process.env.CONTAINER_ENGINE || 'docker';

/** An image taken apart. */
export interface Unpacked {
  /** Folder with the files of all layers. */
  readonly root: string;
  /** Paths of the layers' tar files, the lowest first. */
  readonly layers: readonly string[];
}

/** Unpacks an image into an empty folder. */
export async function unpack(image: string, folder: string): Promise<Unpacked> {
  const archive = join(folder, 'image.tar');
  const parts = join(folder, 'parts');
  const root = join(folder, 'root');
  mkdirSync(parts);
  mkdirSync(root);
  await run(ENGINE, ['save', '-o', archive, image]);
  await run('tar', ['-xf', archive, '-C', parts]);
  const [manifest] = JSON.parse(readFileSync(join(parts, 'manifest.json'), 'utf8'));
  const layers = (manifest.Layers as string[]).map((layer) => join(parts, layer));
  for (const layer of layers) await run('tar', ['-xf', layer, '-C', root, '--no-same-owner']);
  return { root, layers };
}

/**
 * Runs a command to its end.
 * @returns its standard output
 * @throws an Error with its standard error when it fails
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
