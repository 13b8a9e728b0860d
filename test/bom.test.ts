// image/bom.ts: the bill of materials has the names that scanners match, and a dependency graph. It is the same at
// every build (test/image/reproducible.test.ts).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { billOfMaterials, type Materials } from '../image/bom.ts';

const deb = (name: string, version: string, stanza: string) => ({
  ...{ name, version, architecture: 'amd64', copyright: `/usr/share/doc/${name}/copyright` },
  stanza: `Package: ${name}\n${stanza}`,
});
const MATERIALS: Materials = {
  service: { name: 'notes-users', version: '0.1.0', license: 'MIT' },
  versions: process.versions,
  nodeHash: 'ab'.repeat(32),
  debian: [
    deb('libc6', '2.36-9+deb12u14', 'Source: glibc\nDepends: libgcc-s1, libcrypt1 (>= 1:4.4)'),
    deb('libgcc-s1', '12.2.0-14', 'Source: gcc-12 (12.2.0-13)\nDepends: libc6 (>= 2.35) | musl'),
  ],
  release: '12',
  npm: [{ name: 'postgres', version: '3.4.9', license: 'Unlicense', integrity: 'sha512-AAAA' }],
  seconds: 0,
};

type Member = 'bom-ref' | 'type' | 'name' | 'cpe' | 'purl' | 'licenses';

const bom = JSON.parse(billOfMaterials(MATERIALS));
const components: readonly Readonly<Record<Member, string>>[] = bom.components;
const named = (name: string) => components.find((component) => component.name === name)!;

test('libraries have the names that advisories use, without the suffixes of Chromium', () => {
  const { openssl, sqlite, undici, v8, zlib } = process.versions;
  const numberOf = (version: string) => /^[\d.]+\d/.exec(version)![0];
  for (const [name, id, software = '*'] of [
    ['openssl', `openssl:openssl:${openssl}`],
    ['sqlite', `sqlite:sqlite:${sqlite}`],
    ['v8', `google:v8:${numberOf(v8)}`],
    ['undici', `nodejs:undici:${undici}`, 'node.js'],
    ['zlib', `zlib:zlib:${numberOf(zlib)}`],
  ] as const) {
    assert.equal(named(name).cpe, `cpe:2.3:a:${id}:*:*:*:*:${software}:*:*`);
  }
  assert.equal(named('undici').purl, `pkg:npm/undici@${undici}`);
  // Debian's advisories name the source package.
  const distro = 'arch=amd64&distro=debian-12';
  const libc = `pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?${distro}&upstream=glibc`;
  const libgcc = `pkg:deb/debian/libgcc-s1@12.2.0-14?${distro}&upstream=gcc-12%4012.2.0-13`;
  assert.deepEqual([named('libc6').purl, named('libgcc-s1').purl], [libc, libgcc]);
});

test('every library has one name, and one without a known licence stops the build', () => {
  for (const { type, name, purl, licenses } of components) {
    if (type === 'operating-system') continue;
    assert.match(purl, /^pkg:[a-z]+(\/[\w.%-]+)+@[\w.%~-]+(\?[\w.%=&-]+)?$/, name);
    assert.equal(licenses.length, 1, name);
  }
  const versions = { ...process.versions, another: '1.0' };
  assert.throws(() => billOfMaterials({ ...MATERIALS, versions }), /no licence for another/);
});

test('the graph has every part once, and nothing else', () => {
  const root = bom.metadata.component['bom-ref'];
  const refs = [root, ...components.map((component) => component['bom-ref'])];
  assert.equal(new Set(refs).size, refs.length);
  const graph: readonly { ref: string; dependsOn: string[] }[] = bom.dependencies;
  assert.deepEqual(graph.map(({ ref }) => ref).sort(), refs.toSorted());
  const needs = (ref: string) => graph.find((entry) => entry.ref === ref)!.dependsOn;
  for (const { dependsOn } of graph) for (const ref of dependsOn) assert.ok(refs.includes(ref));
  assert.deepEqual(needs(root), ['node', 'postgres']);
  for (const name of ['openssl', 'libc6']) assert.ok(needs('node').includes(name));
  assert.deepEqual([needs('libc6'), needs('libgcc-s1')], [['libgcc-s1'], ['libc6']]);
});

test('the serial number is a UUID of version 8 that follows from the contents', () => {
  const uuid = /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
  const other = JSON.parse(billOfMaterials({ ...MATERIALS, nodeHash: 'cd'.repeat(32) }));
  for (const { serialNumber } of [bom, other]) assert.match(serialNumber, uuid);
  assert.notEqual(other.serialNumber, bom.serialNumber);
});
