// Writes the bill of materials in CycloneDX 1.6 (cyclonedx.org/docs/1.6/json), with the same bytes
// at every build. `npm sbom` has only npm packages, a random serial number and the current time.
import { type DebianPackage, field } from './debian.ts';
import { sha256 } from './tree.ts';

/** Its path in the image. */
export const BOM_PATH = '/usr/share/sbom/bom.cdx.json';

/** An npm package as package-lock.json describes it. */
export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Hash of the published package: `sha512-` and base64. */
  readonly integrity: string;
}

/** The contents of the image. */
export interface Materials {
  readonly service: { readonly name: string; readonly version: string; readonly license: string };
  /** `process.versions`: node itself and the libraries bundled in its binary. */
  readonly versions: NodeJS.ProcessVersions;
  /** SHA-256 of the binary in the image. */
  readonly nodeHash: string;
  readonly debian: readonly DebianPackage[];
  /** Version of Debian, `12`. */
  readonly release: string;
  readonly npm: readonly NpmPackage[];
  /** The time of every file in the image, in seconds since 1970. */
  readonly seconds: number;
}

/** A component, and the names of the components that it needs. */
interface Part {
  readonly component: { readonly name: string } & Readonly<Record<string, unknown>>;
  readonly needs: readonly string[];
}

/** Returns the document as JSON text. */
export function billOfMaterials(materials: Materials): string {
  const { service, npm, debian, release, seconds } = materials;
  const bundled = bundledParts(materials.versions);
  const names = (parts: readonly Part[]) => parts.map(({ component }) => component.name);
  const libraries = debian.map((material) => debianPart(material, release, debian));
  const drivers = npm.map(npmPart);
  const parts: readonly Part[] = [
    nodePart(materials, [...names(bundled), ...names(libraries)]),
    ...bundled,
    ...libraries,
    ...drivers,
    // Scanners need this component to choose the advisories for the Debian packages.
    { component: { type: 'operating-system', name: 'debian', version: release }, needs: [] },
  ];
  const document = {
    metadata: {
      // Builders reuse a cached layer with the same contents, even if its times differ. With this
      // line, another time changes the contents.
      timestamp: new Date(seconds * 1000).toISOString(),
      component: {
        'bom-ref': service.name,
        type: 'application',
        name: service.name,
        version: service.version,
        licenses: [{ license: { id: service.license } }],
        purl: `pkg:generic/${service.name}@${service.version}`,
      },
    },
    components: parts.map(({ component }) => ({ 'bom-ref': component.name, ...component })),
    dependencies: [
      { ref: service.name, dependsOn: ['node', ...names(drivers)] },
      ...parts.map(({ component, needs }) => ({ ref: component.name, dependsOn: needs })),
    ],
  };
  const head = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${uuid(JSON.stringify(document))}`,
    version: 1,
  };
  return `${JSON.stringify({ ...head, ...document }, null, 1)}\n`;
}

/** Returns a UUID of version 8 (RFC 9562 section 5.8) from the first bits of the text's SHA-256. */
function uuid(text: string): string {
  const hex = sha256(text);
  const variant = ((Number.parseInt(hex[16]!, 16) & 0b0011) | 0b1000).toString(16);
  const parts = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`];
  return [...parts, `${variant}${hex.slice(17, 20)}`, hex.slice(20, 32)].join('-');
}

function nodePart({ versions, nodeHash }: Materials, needs: readonly string[]): Part {
  const component = {
    type: 'application',
    name: 'node',
    version: versions.node,
    licenses: licensesOf('node'),
    cpe: cpe('nodejs:node.js', versions.node),
    purl: `pkg:generic/node@${versions.node}`,
    hashes: [{ alg: 'SHA-256', content: nodeHash }],
  };
  return { component, needs };
}

/**
 * Libraries in node's binary by their names in `process.versions`: vendor and product in the
 * National Vulnerability Database, and the software of the entry. Libraries without an entry there
 * have only a generic purl.
 */
const PRODUCTS: Readonly<Record<string, readonly [product: string, software?: string]>> = {
  ares: ['c-ares:c-ares'],
  brotli: ['google:brotli'],
  icu: ['unicode:international_components_for_unicode', 'c\\/c\\+\\+'],
  llhttp: ['llhttp:llhttp', 'node.js'],
  nghttp2: ['nghttp2:nghttp2'],
  openssl: ['openssl:openssl'],
  sqlite: ['sqlite:sqlite'],
  undici: ['nodejs:undici', 'node.js'],
  uv: ['libuv:libuv'],
  v8: ['google:v8'],
  zlib: ['zlib:zlib'],
  zstd: ['facebook:zstandard'],
};

/** Libraries that are npm packages with the same name. */
const NPM = ['acorn', 'amaro', 'undici'];

/** SPDX expressions: node and the libraries in its binary as its LICENSE has them, and Debian's source packages. */
const LICENSES: Readonly<Record<string, string>> = {
  node: 'MIT',
  acorn: 'MIT',
  ada: 'MIT',
  amaro: 'MIT',
  ares: 'MIT',
  brotli: 'MIT',
  icu: 'Unicode-3.0',
  libffi: 'MIT',
  lief: 'Apache-2.0',
  llhttp: 'MIT',
  merve: 'MIT',
  nbytes: 'MIT',
  ncrypto: 'MIT',
  nghttp2: 'MIT',
  openssl: 'Apache-2.0',
  simdjson: 'Apache-2.0',
  simdutf: 'MIT',
  sqlite: 'blessing',
  undici: 'MIT',
  uv: 'MIT',
  uvwasi: 'MIT',
  v8: 'BSD-3-Clause',
  zlib: 'Zlib',
  zstd: 'BSD-3-Clause',
  glibc: 'LGPL-2.1-or-later',
  'gcc-12': 'GPL-3.0-or-later WITH GCC-exception-3.1',
};

/** Throws for a part without a known licence, so that a new one stops the build. */
function licensesOf(name: string): readonly object[] {
  const expression = LICENSES[name];
  if (expression === undefined) throw new Error(`image/bom.ts: no licence for ${name}`);
  return [{ expression }];
}

/** Versions of interfaces or data. */
const NO_LIBRARIES = ['node', 'modules', 'napi', 'cldr', 'tz', 'unicode'];

function bundledParts(versions: NodeJS.ProcessVersions): readonly Part[] {
  return Object.entries(versions).flatMap(([name, version]) => {
    // An empty version means that the library is not built in.
    if (NO_LIBRARIES.includes(name) || !version) return [];
    // Advisories have only the number of "14.6.202.34-node.34" or "1.3.2.1-motley-285e94b".
    const number = /^\d+(?:\.\d+)*/.exec(version)?.[0] ?? version;
    const [product, software] = PRODUCTS[name] ?? [];
    const component = {
      type: 'library',
      name,
      version,
      licenses: licensesOf(name),
      ...(product && { cpe: cpe(product, number, software) }),
      purl: `pkg:${NPM.includes(name) ? 'npm' : 'generic'}/${name}@${number}`,
    };
    return [{ component, needs: [] }];
  });
}

function cpe(product: string, version: string, software = '*'): string {
  return `cpe:2.3:a:${product}:${version}:*:*:*:*:${software}:*:*`;
}

function debianPart(
  { name, version, architecture, stanza }: DebianPackage,
  release: string,
  all: readonly DebianPackage[],
): Part {
  // "gcc-12 (12.2.0-13)" if the source has its own version.
  const [source = name, sourceVersion] = field(stanza, 'Source')?.split(/ \(|\)/) ?? [];
  const upstream = encodeURIComponent([source, sourceVersion].filter(Boolean).join('@'));
  const qualifiers = `arch=${architecture}&distro=debian-${release}&upstream=${upstream}`;
  const escaped = [name, version].map(encodeURIComponent).join('@');
  const purl = `pkg:deb/debian/${escaped}?${qualifiers}`;
  const wanted = (field(stanza, 'Depends') ?? '').split(/[,|]/).map((text) => text.trim());
  const names = wanted.map((text) => text.replace(/[\s:(].*/, ''));
  return {
    component: { type: 'library', name, version, licenses: licensesOf(source), purl },
    needs: all.map((other) => other.name).filter((other) => names.includes(other)),
  };
}

function npmPart({ name, version, license, integrity }: NpmPackage): Part {
  const [algorithm, hash] = integrity.split('-');
  if (algorithm !== 'sha512' || !hash) throw new Error(`${name}: no SHA-512 in package-lock.json`);
  const component = {
    type: 'library',
    name,
    version,
    licenses: [{ license: { id: license } }],
    purl: `pkg:npm/${name}@${version}`,
    hashes: [{ alg: 'SHA-512', content: Buffer.from(hash, 'base64').toString('hex') }],
  };
  return { component, needs: [] };
}
