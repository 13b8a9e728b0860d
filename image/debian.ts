// Finds the shared libraries that node loads, and their Debian packages.
import { readdirSync, readFileSync, realpathSync } from 'node:fs';

const DATABASE = '/var/lib/dpkg';

/** node 26 loads eight. Fewer than this means that the format of the report has changed. */
const FEWEST_LIBRARIES = 3;

/** A package of which the image has at least one file. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly architecture: string;
  /** Its entry in dpkg's database. */
  readonly stanza: string;
  /** Path of its licences. Several packages of one source share a file. */
  readonly copyright: string;
}

/**
 * Returns the paths of the libraries in this process, including the dynamic loader, which reports
 * them. Works on every architecture and includes indirectly linked libraries.
 */
export function loadedLibraries(): readonly string[] {
  const { sharedObjects } = process.report.getReport() as { sharedObjects: string[] };
  // The object that the kernel maps (vDSO) has no path.
  const libraries = sharedObjects.filter(
    (path) => path.startsWith('/') && path !== process.execPath,
  );
  if (libraries.length < FEWEST_LIBRARIES) {
    throw new Error(`too few shared libraries: ${sharedObjects.join(' ')}`);
  }
  return libraries.sort();
}

/**
 * Returns the packages that own these files, by name.
 * @throws an Error if a file belongs to no package
 */
export function packagesOf(files: readonly string[]): readonly DebianPackage[] {
  const owners = readOwners();
  const stanzas = readStanzas();
  const names = files.map((file) => {
    const name = owners.get(unmerged(realpathSync(file)));
    if (name === undefined) throw new Error(`no Debian package owns ${file}`);
    return name;
  });
  return [...new Set(names)].sort().map((name) => describe(name, stanzas.get(name) ?? ''));
}

/** Returns package names by path, from the lists `NAME.list` and `NAME:ARCHITECTURE.list`. */
function readOwners(): Map<string, string> {
  const owners = new Map<string, string>();
  for (const file of readdirSync(`${DATABASE}/info`).filter((name) => name.endsWith('.list'))) {
    const name = file.replace(/(:[a-z0-9]+)?\.list$/, '');
    for (const path of readFileSync(`${DATABASE}/info/${file}`, 'utf8').split('\n')) {
      owners.set(unmerged(path), name);
    }
  }
  return owners;
}

function readStanzas(): Map<string | undefined, string> {
  const text = readFileSync(`${DATABASE}/status`, 'utf8');
  const stanzas = text.split(/\n\n+/).map((stanza) => stanza.trim());
  return new Map(stanzas.map((stanza) => [field(stanza, 'Package'), stanza]));
}

/** Converts /usr/lib to /lib, which dpkg's lists still have although Debian 12 merged them. */
function unmerged(path: string): string {
  return path.replace(/^\/usr\/lib/, '/lib');
}

function describe(name: string, stanza: string): DebianPackage {
  const version = field(stanza, 'Version');
  const architecture = field(stanza, 'Architecture');
  if (version === undefined || architecture === undefined) {
    throw new Error(`${DATABASE}/status does not describe ${name}`);
  }
  const copyright = realpathSync(`/usr/share/doc/${name}/copyright`);
  return { name, version, architecture, stanza, copyright };
}

/** Returns a field of an entry in dpkg's database. */
export function field(stanza: string, name: string): string | undefined {
  return new RegExp(`^${name}: (.+)$`, 'm').exec(stanza)?.[1];
}
