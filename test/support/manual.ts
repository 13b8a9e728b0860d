// The command blocks of docs/operations.md, each with its kind of test. test/manual.test.ts fails
// if a block has no entry here, or an entry no block.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const DOCS = join(import.meta.dirname, '../../docs');
const MANUAL = 'operations.md';

/** A fenced block of commands or configuration. */
export interface Block {
  readonly language: string;
  readonly heading: string;
  readonly text: string;
}

/** The test of a block. */
export type Treatment =
  /** A container engine, in test/image/operations.test.ts. */
  | 'engine'
  /** `docker build` and `docker push` to a registry, which no test runs. */
  | 'registry'
  /** A container engine and qemu, with IMAGE=full, in test/image/operations.test.ts. */
  | 'qemu'
  /** A container engine with compose and a Postgres, in test/image/operations.test.ts. */
  | 'compose'
  /** kubectl and a stand-in for the cluster, in test/manual.test.ts. */
  | 'kubectl'
  /** The Postgres of the tests, in test/manual.test.ts. */
  | 'postgres'
  /** Prometheus' promtool, in test/manual.test.ts. */
  | 'promtool'
  /** nginx, in test/proxies/cache.test.ts. */
  | 'nginx'
  /**
   * The service with TLS, and a stand-in for docker, in test/manual.test.ts. Also a container
   * without TLS, in test/image/operations.test.ts.
   */
  | 'tls';

/** Tests by heading, for each block below it in order. */
export const TREATMENTS: Readonly<Record<string, readonly Treatment[]>> = {
  'The image': ['engine'],
  'Audit it': ['engine'],
  arm64: ['qemu'],
  Compose: ['compose'],
  Kubernetes: ['registry', 'postgres', 'kubectl', 'kubectl'],
  Password: ['compose'],
  'Signing key, one container': ['compose', 'compose'],
  'Signing key, replicas': ['kubectl'],
  'Database password': ['compose', 'postgres', 'postgres'],
  'TLS files': ['tls'],
  'Backup and restore': ['engine', 'engine', 'compose', 'compose'],
  Sizing: ['nginx'],
  'Behind a cache or a compressing proxy': ['nginx'],
  Metrics: ['promtool', 'promtool'],
};

/** Returns every block of a page of docs/ in order. */
export function blocks(page = MANUAL): readonly Block[] {
  let heading = '';
  const found: Block[] = [];
  const text = readFileSync(join(DOCS, page), 'utf8');
  for (const [, title, language, body] of text.matchAll(/^#+ (.+)$|^```(\w*)\n([\s\S]*?)^```$/gm)) {
    if (title !== undefined) heading = title;
    else found.push({ language: language!, heading, text: body! });
  }
  return found;
}

/** Returns the text of the first block under that heading that contains the words. */
export function block(heading: string, words: string, page = MANUAL): string {
  const found = blocks(page).find((each) => each.heading === heading && each.text.includes(words));
  if (found === undefined) throw new Error(`${page}: no block with "${words}" under ${heading}`);
  return found.text;
}
