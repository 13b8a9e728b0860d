// A folder that becomes the one layer of the image. It sets order, times and modes, so that the
// same files give the same layer with every builder.
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;

/** Paths are absolute, as in the image. */
export class Tree {
  readonly #root: string;

  constructor(root: string) {
    mkdirSync(root);
    this.#root = root;
  }

  /** Writes a file, and the folders above it. */
  put(path: string, data: string | Buffer, mode = FILE_MODE): void {
    const full = join(this.#root, path);
    mkdirSync(dirname(full), { recursive: true, mode: FOLDER_MODE });
    writeFileSync(full, data);
    chmodSync(full, mode);
  }

  /** Copies a file to the same path, or to another one. */
  copy(source: string, path = source, mode = FILE_MODE): void {
    this.put(path, readFileSync(source), mode);
  }

  folder(path: string, { mode, uid, gid }: { mode: number; uid: number; gid: number }): void {
    const full = join(this.#root, path);
    mkdirSync(full);
    chmodSync(full, mode);
    chownSync(full, uid, gid);
  }

  /**
   * Gives all files and folders one time, in seconds since 1970 UTC.
   * @returns one line per file, in order of path, in the format of sha256sum
   */
  seal(seconds: number): readonly string[] {
    const paths = readdirSync(this.#root, { recursive: true, withFileTypes: true })
      .map((entry) => ({ entry, full: join(entry.parentPath, entry.name) }))
      .sort((a, b) => (a.full < b.full ? -1 : 1));
    // Starts with the deepest, because a write below a folder changes the folder's time.
    for (const { full } of paths.toReversed()) lutimesSync(full, seconds, seconds);
    lutimesSync(this.#root, seconds, seconds);
    return paths
      .filter(({ entry }) => entry.isFile())
      .map(({ full }) => `${sha256(readFileSync(full))}  ${full.slice(this.#root.length + 1)}`);
  }
}

/** Returns the SHA-256 in lower-case hexadecimal. */
export function sha256(data: string | Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}
