// The service's part of the image: /app. The modules of dist/ go into one file, each as it was
// built, behind a line that names it: forty small files more would hide what else is in the image.
// image/entry.mjs hands them to node one by one, under the paths that they have in dist/.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NpmPackage } from './bom.ts';
import type { Tree } from './tree.ts';

/** The only npm package in the image, and of it only what is imported: its ES modules. */
const DRIVER = 'postgres';

/** Copies the service from its built source tree. @returns the npm packages that are in it */
export function copyApp(source: string, tree: Tree): readonly NpmPackage[] {
  const npm = npmPackages(join(source, 'package-lock.json'));
  if (npm.length !== 1 || npm[0]?.name !== DRIVER) {
    throw new Error(`image/app.ts copies ${DRIVER} alone, not ${npm.map(({ name }) => name)}`);
  }
  const files = [
    `node_modules/${DRIVER}/{package.json,src/**/*.js}`,
    'db/**/*.sql',
    'package.json',
  ];
  for (const file of globSync(files, { cwd: source }))
    tree.copy(join(source, file), `/app/${file}`);
  tree.copy(join(source, 'image/entry.mjs'), '/app/main.js');
  tree.copy(join(source, 'dist/docs.html'), '/app/dist/docs.html');
  tree.put('/app/modules.txt', pack(join(source, 'dist')));
  tree.copy(join(source, 'LICENSE'), '/usr/share/doc/notes-users/LICENSE');
  return npm;
}

/** All modules of a folder in order of path, each behind `==> PATH <==`. */
function pack(folder: string): string {
  const modules = globSync('**/*.js', { cwd: folder }).sort();
  return modules
    .map((path) => {
      const source = readFileSync(join(folder, path), 'utf8');
      if (/^==> /m.test(source)) throw new Error(`${path} has a line that begins with "==> "`);
      return `==> ${path} <==\n${source}`;
    })
    .join('');
}

function npmPackages(lockFile: string): readonly NpmPackage[] {
  // A link is a folder of this repository that the tests use.
  type Entry = Omit<NpmPackage, 'name'> & { dev?: true; link?: true };
  const { packages } = JSON.parse(readFileSync(lockFile, 'utf8')) as {
    packages: Record<string, Entry>;
  };
  return Object.entries(packages)
    .filter(([path, { dev, link }]) => path !== '' && !dev && !link)
    .map(([path, entry]) => ({ ...entry, name: path.replace(/^.*node_modules\//, '') }));
}
