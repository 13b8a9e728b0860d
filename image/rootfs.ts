// Fills a new folder with the root file system of the image and prints the SHA-256 of every file:
//   node image/rootfs.ts FOLDER
// Runs in the build stage, as root, after `npm run build`. Needs only node.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { copyApp } from './app.ts';
import { BOM_PATH, billOfMaterials } from './bom.ts';
import { loadedLibraries, packagesOf } from './debian.ts';
import { loadedPart } from './elf.ts';
import { sha256, Tree } from './tree.ts';

/** The user of the service: "nonroot", with the number that distroless images use. */
const ID = 65_532;
const EXECUTABLE = 0o755;

const source = join(import.meta.dirname, '..');
const tree = new Tree(process.argv[2] ?? 'rootfs');
const seconds = Number(process.env.SOURCE_DATE_EPOCH ?? 0);

const node = loadedPart(readFileSync(process.execPath));
tree.put('/usr/local/bin/node', node, EXECUTABLE);
const libraries = loadedLibraries();
for (const library of libraries) tree.copy(library, library, EXECUTABLE);

// In images without dpkg, scanners read the packages from status.d.
const debian = packagesOf(libraries);
for (const { name, stanza } of debian) tree.put(`/var/lib/dpkg/status.d/${name}`, `${stanza}\n`);
const release = readFileSync('/etc/os-release', 'utf8');
tree.put('/etc/os-release', release);

for (const file of new Set(debian.map(({ copyright }) => copyright))) tree.copy(file);
tree.copy('/usr/local/LICENSE', '/usr/share/doc/node/LICENSE');

// Without this line glibc asks the name servers before /etc/hosts.
tree.put('/etc/nsswitch.conf', 'hosts: files dns\n');
tree.put(
  '/etc/passwd',
  `root:x:0:0:root:/:/sbin/nologin\nnonroot:x:${ID}:${ID}:nonroot:/data:/sbin/nologin\n`,
);
tree.put('/etc/group', `root:x:0:\nnonroot:x:${ID}:\n`);
// Group root can write too, because clusters that pick a random uid give it gid 0.
tree.folder('/data', { mode: 0o775, uid: ID, gid: 0 });

const npm = copyApp(source, tree);
tree.put(
  BOM_PATH,
  billOfMaterials({
    service: JSON.parse(readFileSync(join(source, 'package.json'), 'utf8')),
    versions: process.versions,
    nodeHash: sha256(node),
    debian,
    release: /^VERSION_ID="?([0-9]+)/m.exec(release)?.[1] ?? '',
    npm,
    seconds,
  }),
);

const list = tree.seal(seconds);
process.stdout.write(list.map((line) => `${line}\n`).join(''));
