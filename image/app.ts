// The service's part of the image: /app, with folders of the source tree and the npm package.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NpmPackage } from './bom.ts';
import type { Tree } from './tree.ts';

/** The only npm package in the image. Only its CommonJS form is copied. */
const DRIVER = 'postgres';

/** Copies the service from its built source tree. @returns the npm packages in the image */
export function copyApp(source: string, tree: Tree): readonly NpmPackage[] {
  const npm = npmPackages(join(source, 'package-lock.json'));
  if (npm.length !== 1 || npm[0]?.name !== DRIVER) {
    throw new Error(`image/app.ts copies ${DRIVER} alone, not ${npm.map(({ name }) => name)}`);
  }
  const files = [
    `node_modules/${DRIVER}/{package.json,cjs/package.json,cjs/src/**/*.js}`,
    'dist/main.cjs',
    'src/docs.html',
    'openapi.json',
    'db/**/*.sql',
    'package.json',
  ];
  for (const file of globSync(files, { cwd: source }))
    tree.copy(join(source, file), `/app/${file}`);
  tree.copy(join(source, 'LICENSE'), '/usr/share/doc/notes-users/LICENSE');
  return npm;
}

function npmPackages(lockFile: string): readonly NpmPackage[] {
  // Linked packages are folders of this repository, which only the tests use.
  type Entry = Omit<NpmPackage, 'name'> & { dev?: true; link?: true };
  const { packages } = JSON.parse(readFileSync(lockFile, 'utf8')) as {
    packages: Record<string, Entry>;
  };
  return Object.entries(packages)
    .filter(([path, { dev, link }]) => path !== '' && !dev && !link)
    .map(([path, entry]) => ({ ...entry, name: path.replace(/^.*node_modules\//, '') }));
}
