// The contents of the image: files, version and bill of materials. verify.test.ts compares its settings and modes with
// the source, and reproducible.test.ts its times.
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { BOM_PATH } from '../../image/bom.ts';
import { type Entry, entriesOf, resolveImage, type Unpacked, unpack } from '../../image/unpack.ts';
import { newFolder, ROOT } from '../support/program.ts';
import { IMAGE, inspect, NO_IMAGE } from './engine.ts';

const MB = 1_000_000;
/** Maximum size without node, which grows with its versions. */
const MOST_MB = 7;

/** All allowed files. There is no shell, npm or development package. */
const ALLOWED = [
  /^app\/(dist\/main\.cjs|src\/docs\.html|openapi\.json|package\.json)$/,
  /^app\/db\/(sqlite|postgres)\/\d{4}_\w+\.sql$/,
  /^app\/node_modules\/postgres\/((cjs\/)?package\.json|cjs\/src\/\w+\.js)$/,
  /^etc\/(group|nsswitch\.conf|os-release|passwd)$/,
  /^lib\/\w+-linux-gnu\/lib(atomic|c|dl|gcc_s|m|pthread|stdc\+\+)\.so\.\d$/,
  /^lib(64)?\/ld-linux-[\w-]+\.so\.\d$/,
  /^usr\/local\/bin\/node$/,
  /^usr\/share\/doc\/(gcc-12-base|libc6)\/copyright$/,
  /^usr\/share\/doc\/(node|notes-users)\/LICENSE$/,
  /^usr\/share\/sbom\/bom\.cdx\.json$/,
  /^var\/lib\/dpkg\/status\.d\/(libatomic1|libc6|libgcc-s1|libstdc\+\+6)$/,
];

describe('the image: contents', { skip: NO_IMAGE, timeout: 900_000 }, () => {
  const folder = newFolder();
  let unpacked: Unpacked;
  let entries: readonly Entry[];

  before(async () => {
    unpacked = await unpack(await resolveImage(IMAGE), folder);
    entries = await entriesOf(unpacked.layers[0]!);
  });

  const files = () => entries.filter(({ mode }) => !mode.startsWith('d')).map(({ path }) => path);

  test('it has the version of the package, and is one layer within its limit of size', async (t) => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const label = '{{index .Config.Labels "org.opencontainers.image.version"}}';
    assert.equal(await inspect('image', IMAGE, label), version);
    const size = Number(await inspect('image', IMAGE, '{{.Size}}')) / MB;
    t.diagnostic(`${size.toFixed(1)} MB, ${files().length} files`);
    assert.equal(unpacked.layers.length, 1);
    const node = statSync(join(unpacked.root, 'usr/local/bin/node')).size / MB;
    assert.ok(size - node <= MOST_MB, `${size} MB, ${node} of it node`);
  });

  test('it contains only node, its libraries, the service, and their descriptions', () => {
    const others = files().filter((path) => !ALLOWED.some((pattern) => pattern.test(path)));
    assert.deepEqual(others, []);
    for (const pattern of ALLOWED) {
      const isThere = files().some((path) => pattern.test(path));
      assert.ok(isThere, String(pattern));
    }
  });

  test('the bill of materials names node, the Debian packages and the npm package', () => {
    const bom = readFileSync(join(unpacked.root, BOM_PATH), 'utf8');
    const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
    const { version, integrity } = lock.packages['node_modules/postgres'];
    const hash = Buffer.from(integrity.replace('sha512-', ''), 'base64').toString('hex');
    for (const part of ['"pkg:generic/node@', `"pkg:npm/postgres@${version}"`, `"${hash}"`]) {
      assert.ok(bom.includes(part), part);
    }
    const packages = files().filter((path) => path.includes('status.d'));
    assert.equal(bom.match(/"pkg:deb\//g)?.length, packages.length);
  });
});
