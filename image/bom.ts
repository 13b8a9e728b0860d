// The bill of materials in CycloneDX 1.6 (cyclonedx.org/docs/1.6/json). `npm sbom` would know only
// the npm packages, and writes a random serial number and the time of day; these bytes are the same
// at every build.
import type { DebianPackage } from './debian.ts';

/** Where it lies in the image. */
export const BOM_PATH = '/usr/share/sbom/bom.cdx.json';

/** An npm package as package-lock.json describes it. */
export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Of the package as published: `sha512-` and base64. */
  readonly integrity: string;
}

/** What is in the image. */
export interface Materials {
  readonly service: { readonly name: string; readonly version: string; readonly license: string };
  /** `process.versions`: node itself and the libraries bundled in its binary. */
  readonly versions: NodeJS.ProcessVersions;
  /** SHA-256 of the binary in the image. */
  readonly nodeHash: string;
  readonly debian: readonly DebianPackage[];
  /** Of Debian, `12`. */
  readonly release: string;
  readonly npm: readonly NpmPackage[];
  /** The time of every file in the image, in seconds since 1970. */
  readonly seconds: number;
}

/** The document as JSON text. */
export function billOfMaterials(materials: Materials): string {
  const { service, npm, debian, release, seconds } = materials;
  const document = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      // Builders take a layer from their cache when its contents are the same, whatever its times:
      // with this line, another time is another content.
      timestamp: new Date(seconds * 1000).toISOString(),
      component: {
        type: 'application',
        name: service.name,
        version: service.version,
        licenses: [{ license: { id: service.license } }],
      },
    },
    components: [
      node(materials),
      ...debian.map((material) => debianComponent(material, release)),
      ...npm.map(npmComponent),
    ],
  };
  return `${JSON.stringify(document, null, 1)}\n`;
}

function node({ versions, nodeHash }: Materials) {
  // `modules` and `napi` number interfaces; an empty version is of a library that is not built in.
  const bundled = Object.entries(versions).filter(
    ([name, version]) => !['node', 'modules', 'napi'].includes(name) && version,
  );
  return {
    type: 'application',
    name: 'node',
    version: versions.node,
    cpe: `cpe:2.3:a:nodejs:node.js:${versions.node}:*:*:*:*:*:*:*`,
    purl: `pkg:generic/node@${versions.node}`,
    hashes: [{ alg: 'SHA-256', content: nodeHash }],
    components: bundled.map(([name, version]) => ({
      type: 'library',
      name,
      version,
      purl: `pkg:generic/${name}@${version}`,
    })),
  };
}

function debianComponent({ name, version, architecture }: DebianPackage, release: string) {
  const qualifiers = `arch=${architecture}&distro=debian-${release}`;
  const escaped = [name, version].map(encodeURIComponent).join('@');
  return { type: 'library', name, version, purl: `pkg:deb/debian/${escaped}?${qualifiers}` };
}

function npmComponent({ name, version, license, integrity }: NpmPackage) {
  const [algorithm, hash] = integrity.split('-');
  if (algorithm !== 'sha512' || !hash) throw new Error(`${name}: no SHA-512 in package-lock.json`);
  return {
    type: 'library',
    name,
    version,
    licenses: [{ license: { id: license } }],
    purl: `pkg:npm/${name}@${version}`,
    hashes: [{ alg: 'SHA-512', content: Buffer.from(hash, 'base64').toString('hex') }],
  };
}
