// The contents of the image: files, modes, times, settings, and bill of materials.
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { BOM_PATH } from '../../image/bom.ts';
import {
  type Entry,
  entriesOf,
  resolveImage,
  run,
  type Unpacked,
  unpack,
} from '../../image/unpack.ts';
import { newFolder, ROOT } from '../support/program.ts';
import { IMAGE, inspect, NO_IMAGE } from './engine.ts';

const MB = 1_000_000;
/** Maximum size without node, which grows with its versions. */
const MOST_MB = 7;
const MOST_FILES = 45;

interface Bom {
  readonly specVersion: string;
  readonly metadata: { readonly timestamp: string };
  readonly components: readonly {
    readonly name: string;
    readonly purl?: string;
    readonly cpe?: string;
    readonly hashes?: readonly { readonly content: string }[];
  }[];
}

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

  test('it is one layer, within its limits of size and number of files', async (t) => {
    const size = Number(await inspect('image', IMAGE, '{{.Size}}')) / MB;
    t.diagnostic(`${size.toFixed(1)} MB, ${files().length} files`);
    assert.equal(unpacked.layers.length, 1);
    const node = statSync(join(unpacked.root, 'usr/local/bin/node')).size / MB;
    assert.ok(size - node <= MOST_MB, `${size} MB, ${node} of it node`);
    assert.ok(files().length <= MOST_FILES, files().join('\n'));
  });

  test('it contains only node, its libraries, the service, and their descriptions', () => {
    const others = files().filter((path) => !ALLOWED.some((pattern) => pattern.test(path)));
    assert.deepEqual(others, []);
    for (const pattern of ALLOWED) {
      assert.ok(
        files().some((path) => pattern.test(path)),
        String(pattern),
      );
    }
  });

  test('root owns every file, and only root may write, except in /data', () => {
    for (const { mode, owner, path } of entries.filter(({ path }) => path !== 'data/')) {
      assert.equal(owner, '0/0', path);
      assert.match(mode, /^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--)$/, path);
    }
    const data = entries.find(({ path }) => path === 'data/');
    assert.deepEqual([data?.mode, data?.owner], ['drwxrwxr-x', '65532/0']);
  });

  test('every time is SOURCE_DATE_EPOCH, by default 0', () => {
    const times = new Set(entries.map(({ time }) => time));
    assert.deepEqual([...times], ['1970-01-01 00:00:00']);
  });

  test('its service is the output of npm run build, byte for byte', async () => {
    await run(process.execPath, [join(ROOT, 'scripts/build.ts'), join(folder, 'dist')]);
    assert.equal(
      readFileSync(join(unpacked.root, 'app/dist/main.cjs'), 'utf8'),
      readFileSync(join(folder, 'dist/main.cjs'), 'utf8'),
    );
  });

  test('its settings: user, volume, ports, labels, and programs without a shell', async () => {
    const config = JSON.parse(await inspect('image', IMAGE, '{{json .Config}}'));
    const { version, scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    assert.equal(config.User, '65532:65532');
    assert.deepEqual(Object.keys(config.Volumes), ['/data']);
    assert.deepEqual(Object.keys(config.ExposedPorts), ['3000/tcp', '3001/tcp']);
    assert.equal(config.Labels['org.opencontainers.image.version'], version);
    assert.equal(config.Labels['org.opencontainers.image.licenses'], 'MIT');
    assert.deepEqual(config.Healthcheck.Test.slice(-2), ['/app/dist/main.cjs', '--live']);
    assert.equal(config.Healthcheck.Test[0], 'CMD');
    assert.equal(config.Entrypoint[0], '/usr/local/bin/node');
    // The image uses the same flags of node as `npm start`.
    for (const flag of scripts.start.match(/ --\S+/g) ?? []) {
      assert.ok(config.Entrypoint.includes(flag.trim()), flag);
    }
  });

  test('the bill of materials names node, the Debian packages and the npm package', () => {
    const bom = JSON.parse(readFileSync(join(unpacked.root, BOM_PATH), 'utf8')) as Bom;
    const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
    const { version, integrity } = lock.packages['node_modules/postgres'];
    const names = (prefix: string) =>
      bom.components.filter(({ purl = '' }) => purl.startsWith(prefix));
    assert.equal(bom.specVersion, '1.6');
    assert.equal(bom.metadata.timestamp, '1970-01-01T00:00:00.000Z');
    assert.equal(bom.components[0]?.name, 'node');
    assert.deepEqual(
      names('pkg:generic/openssl@').map(({ cpe }) => cpe?.split(':')[3]),
      ['openssl'],
    );
    const [driver] = names(`pkg:npm/postgres@${version}`);
    assert.equal(
      `sha512-${Buffer.from(driver!.hashes![0]!.content, 'hex').toString('base64')}`,
      integrity,
    );
    const packages = files().filter((path) => path.includes('status.d'));
    assert.equal(names('pkg:deb/').length, packages.length);
  });
});
