// image/bom.ts: the bill of materials has the names that scanners match, a dependency graph, and
// the same bytes at every build.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { billOfMaterials, type Materials } from '../image/bom.ts';

const MATERIALS: Materials = {
  service: { name: 'notes-users', version: '0.1.0', license: 'MIT' },
  versions: process.versions,
  nodeHash: 'ab'.repeat(32),
  debian: [
    {
      name: 'libc6',
      version: '2.36-9+deb12u14',
      architecture: 'amd64',
      stanza: 'Package: libc6\nSource: glibc\nDepends: libgcc-s1, libcrypt1 (>= 1:4.4.10-10)',
      copyright: '/usr/share/doc/libc6/copyright',
    },
    {
      name: 'libgcc-s1',
      version: '12.2.0-14',
      architecture: 'amd64',
      stanza: 'Package: libgcc-s1\nSource: gcc-12 (12.2.0-13)\nDepends: libc6 (>= 2.35) | musl',
      copyright: '/usr/share/doc/gcc-12-base/copyright',
    },
  ],
  release: '12',
  npm: [
    {
      name: 'postgres',
      version: '3.4.9',
      license: 'Unlicense',
      integrity: `sha512-${Buffer.alloc(64).toString('base64')}`,
    },
  ],
  seconds: 0,
};

interface Component {
  readonly 'bom-ref': string;
  readonly type: string;
  readonly name: string;
  readonly cpe?: string;
  readonly purl?: string;
  readonly licenses?: readonly unknown[];
}

const parse = (materials: Materials) => JSON.parse(billOfMaterials(materials));
const bom = parse(MATERIALS);
const components: readonly Component[] = bom.components;
const named = (name: string) => components.find((component) => component.name === name)!;

/** NISTIR 7695 section 6.2.3: 11 attributes after the prefix, with `\` before punctuation. */
const CPE = /^cpe:2\.3:a(:(\*|-|([\w.-]|\\[^\w\s])+)){10}$/;
/** The purl specification: type, perhaps namespaces, name, version, perhaps qualifiers. */
const PURL = /^pkg:[a-z]+(\/[\w.%-]+)+@[\w.%~-]+(\?[a-z]+=[\w.%-]+(&[a-z]+=[\w.%-]+)*)?$/;

describe('the bill of materials', () => {
  test('names the parts of node that scanners know: openssl, sqlite, v8, undici and others', () => {
    const { openssl, sqlite, undici, v8, zlib } = process.versions;
    const [number] = /^[\d.]+/.exec(v8)!;
    assert.equal(named('openssl').cpe, `cpe:2.3:a:openssl:openssl:${openssl}:*:*:*:*:*:*:*`);
    assert.equal(named('sqlite').cpe, `cpe:2.3:a:sqlite:sqlite:${sqlite}:*:*:*:*:*:*:*`);
    assert.equal(named('v8').cpe, `cpe:2.3:a:google:v8:${number}:*:*:*:*:*:*:*`);
    assert.equal(named('undici').cpe, `cpe:2.3:a:nodejs:undici:${undici}:*:*:*:*:node.js:*:*`);
    assert.equal(named('undici').purl, `pkg:npm/undici@${undici}`);
    // Advisories have versions without Chromium's suffix.
    const [release] = /^\d+\.\d+\.\d+/.exec(zlib)!;
    assert.ok(named('zlib').cpe?.startsWith(`cpe:2.3:a:zlib:zlib:${release}`));
    assert.doesNotMatch(named('zlib').cpe!, /motley/);
  });

  test('every library has a purl, a licence and perhaps a CPE, and one without a known licence stops the build', () => {
    for (const { name, cpe, purl, licenses } of components) {
      if (cpe !== undefined) assert.match(cpe, CPE, name);
      if (name === 'debian') continue; // the operating system
      assert.match(purl ?? '', PURL, name);
      assert.equal(licenses?.length, 1, name);
    }
    const versions = { ...process.versions, another: '1.0' };
    assert.throws(() => billOfMaterials({ ...MATERIALS, versions }), /no licence for another/);
  });

  test("a Debian package has its source package, which Debian's advisories name", () => {
    const distro = 'arch=amd64&distro=debian-12';
    const { purl: libc } = named('libc6');
    assert.equal(libc, `pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?${distro}&upstream=glibc`);
    const { purl: libgcc } = named('libgcc-s1');
    assert.equal(
      libgcc,
      `pkg:deb/debian/libgcc-s1@12.2.0-14?${distro}&upstream=gcc-12%4012.2.0-13`,
    );
    assert.deepEqual(
      components.filter(({ type }) => type === 'operating-system').map(({ name }) => name),
      ['debian'],
    );
  });

  test('the graph has every part once, and nothing else', () => {
    const root = bom.metadata.component['bom-ref'];
    const refs = [root, ...components.map((component) => component['bom-ref'])];
    assert.equal(new Set(refs).size, refs.length);
    const graph: readonly { ref: string; dependsOn: string[] }[] = bom.dependencies;
    assert.deepEqual(graph.map(({ ref }) => ref).sort(), refs.toSorted());
    const needs = (ref: string) => graph.find((entry) => entry.ref === ref)!.dependsOn;
    for (const { dependsOn } of graph) for (const ref of dependsOn) assert.ok(refs.includes(ref));
    assert.deepEqual(needs(root), [named('node')['bom-ref'], named('postgres')['bom-ref']]);
    assert.ok(needs(named('node')['bom-ref']).includes(named('openssl')['bom-ref']));
    assert.ok(needs(named('node')['bom-ref']).includes(named('libc6')['bom-ref']));
    assert.deepEqual(needs(named('libc6')['bom-ref']), [named('libgcc-s1')['bom-ref']]);
    assert.deepEqual(needs(named('libgcc-s1')['bom-ref']), [named('libc6')['bom-ref']]);
  });

  test('the serial number follows from the contents: same for the same, different for others', () => {
    const uuid = /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
    assert.match(bom.serialNumber, uuid);
    assert.equal(billOfMaterials(MATERIALS), billOfMaterials(MATERIALS));
    const other = parse({ ...MATERIALS, nodeHash: 'cd'.repeat(32) });
    assert.notEqual(other.serialNumber, bom.serialNumber);
  });
});
