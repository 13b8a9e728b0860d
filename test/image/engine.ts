// Runs the container engine for the tests. setup.ts builds the image and names it in TEST_IMAGE.
import { randomUUID } from 'node:crypto';
import { ENGINE, run } from '../../image/unpack.ts';
import { until } from '../support/until.ts';

export const IMAGE = process.env.TEST_IMAGE ?? '';

/** Reason to skip tests: without setup.ts there is no image. */
export const NO_IMAGE = IMAGE === '' && 'TEST_IMAGE is not set: run npm run test:image';

/** The flags under which the image must work; docs/operations.md recommends them. */
export const HARDENED: readonly string[] = [
  '--read-only',
  '--cap-drop=ALL',
  '--security-opt=no-new-privileges',
  '--pids-limit=64',
  '--memory=128m',
];

// Limits the kernel's buffer for a client that doesn't read (docs/operations.md). Not for the host's network.
const SYSCTL = '--sysctl=net.ipv4.tcp_wmem=4096 16384 65536';

/** Runs the engine's command and resolves with its standard output without the last newline. */
export async function engine(...args: readonly string[]): Promise<string> {
  return (await run(ENGINE, args)).replace(/\n$/, '');
}

export function inspect(kind: 'image' | 'container', name: string, template: string) {
  return engine(kind, 'inspect', '-f', template, name);
}

/** A container of the image, removed with its anonymous volumes when disposed. */
export class Container {
  readonly name = `notes-users-test-${randomUUID()}`;

  /** Starts a container on a free loopback port, with all hardening flags and then these flags. */
  static async start(...flags: readonly string[]): Promise<Container> {
    const container = new Container();
    const own = ['--name', container.name, SYSCTL, '-p', '127.0.0.1::3000'];
    await engine('run', '-d', ...HARDENED, ...own, ...flags, IMAGE);
    return container;
  }

  async url(): Promise<string> {
    return `http://${(await engine('port', this.name, '3000')).split('\n')[0]}`;
  }

  /** Resolves once the API responds. */
  async responses(): Promise<void> {
    const url = await this.url();
    // Closes the connection, so that a stop has no idle connection to wait for.
    const headers = { connection: 'close' };
    await until(async () => (await fetch(url, { headers }).catch(() => undefined))?.ok === true);
  }

  /** Returns all its output so far, from standard output and standard error. */
  async lines(): Promise<readonly string[]> {
    // The engine prints the two streams separately.
    const text = await run('sh', ['-c', '"$0" logs "$1" 2>&1', ENGINE, this.name]);
    return text.split('\n').filter(Boolean);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await engine('rm', '-f', '-v', this.name);
  }
}
