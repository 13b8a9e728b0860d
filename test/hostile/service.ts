// A process in a memory control group: the service with the flags of the image's entry point, `npm start`, or bare
// node:http.
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { Page } from '../support/metrics.ts';
import { newFolder, PASSWORD, SECRET, USER } from '../support/program.ts';
import { until } from '../support/until.ts';
import { MemoryGroup } from './cgroup.ts';
import type { Endpoint } from './honest.ts';

const ROOT = join(import.meta.dirname, '../..');
const CLOSE_WAIT = '08'; // in /proc/net/tcp

type Form = 'image' | 'npm start' | 'bare';
export type Settings = Readonly<Record<string, string>>;

export class Service implements Endpoint {
  readonly port: number;
  readonly adminPort: number; // 0: none
  readonly isTls: boolean;
  readonly #group: MemoryGroup;
  readonly #child: Child;
  readonly #errors: () => string;
  readonly #timer: NodeJS.Timeout;
  peakBytes = 0;

  private constructor(
    group: MemoryGroup,
    child: Child,
    listening: Listening,
    errors: () => string,
  ) {
    this.#group = group;
    this.#child = child;
    this.#errors = errors;
    this.port = Number(new URL(listening.url).port);
    this.adminPort = Number(listening.adminUrl?.split(':').at(-1) ?? 0);
    this.isTls = listening.url.startsWith('https:');
    this.#timer = setInterval(() => {
      this.peakBytes = Math.max(this.peakBytes, group.usedBytes);
    }, 50);
  }

  /** Starts one on free ports of all interfaces, with known credentials and otherwise defaults. */
  static async start(form: Form, limitBytes: number, settings: Settings): Promise<Service> {
    const group = MemoryGroup.create(limitBytes);
    const { command, env } = COMMANDS[form](settings);
    const child = spawn(...group.wrap(command), {
      ...{ cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] },
      env: {
        ...{ ...env, PORT: '0', ADMIN_PORT: '0', AUTH_USER: USER, AUTH_PASSWORD: PASSWORD },
        ...{ SIGNING_SECRET: SECRET, ...settings },
      },
    });
    const kill = () => child.kill('SIGKILL');
    process.once('exit', kill);
    child.once('exit', () => process.off('exit', kill));
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors = (errors + text).slice(-2_000);
    });
    try {
      const service = new Service(group, child, await listening(child), () => errors);
      await until(() => form === 'bare' || service.isReady());
      return service;
    } catch (err) {
      kill();
      await group[Symbol.asyncDispose]();
      throw new Error(`the service did not start: ${errors}`, { cause: err });
    }
  }

  /** How it ended; undefined while it runs and nothing in its group was killed. */
  get end(): string | undefined {
    const { exitCode, signalCode } = this.#child;
    if (this.#group.kills > 0) return 'killed at the memory limit';
    if (exitCode === null && signalCode === null) return undefined;
    return `ended with ${exitCode ?? signalCode}: ${this.#errors()}`;
  }

  async isReady(): Promise<boolean> {
    const headers = { connection: 'close' };
    return (await fetch(`http://127.0.0.1:${this.adminPort}/ready`, { headers })).ok;
  }

  metrics(): Promise<Page> {
    return Page.of(`http://127.0.0.1:${this.adminPort}`);
  }

  /** Reads no more of its log. */
  ignoreLog(): void {
    this.#child.stdout.pause();
  }

  /** Its sockets whose client has closed. Rows have the local address, the remote one and the state. */
  get closeWaiting(): number {
    const port = this.port.toString(16).toUpperCase().padStart(4, '0');
    return ['/proc/net/tcp', '/proc/net/tcp6']
      .flatMap((path) => readFileSync(path, 'utf8').split('\n'))
      .map((row) => row.trim().split(/\s+/))
      .filter(([, local, , state]) => local?.endsWith(`:${port}`) && state === CLOSE_WAIT).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    const { exitCode, signalCode } = this.#child;
    if (exitCode === null && signalCode === null) {
      const exit = once(this.#child, 'exit');
      this.#child.kill('SIGKILL');
      await exit;
    }
    await this.#group[Symbol.asyncDispose]();
  }
}

type Child = ChildProcessByStdio<null, Readable, Readable>;
type Listening = { readonly url: string; readonly adminUrl?: string };

/** Resolves with the line that names its addresses. Later output is dropped. */
async function listening({ stdout }: Child): Promise<Listening> {
  let output = '';
  stdout.setEncoding('utf8');
  for await (const text of stdout.iterator({ destroyOnReturn: false })) {
    output += text;
    const line = output
      .split('\n')
      .slice(0, -1)
      .find((one) => one.includes('"listening"'));
    if (line === undefined) continue;
    stdout.resume();
    return JSON.parse(line);
  }
  throw new Error(output);
}

type Command = { readonly command: readonly string[]; readonly env: Settings };

const COMMANDS: Record<Form, (settings: Settings) => Command> = {
  image: imageCommand,
  // Without npm.
  'npm start': () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const text = scripts.start.replace(/\bnode\b/, process.execPath);
    return { command: ['/bin/sh', '-c', text], env: {} };
  },
  bare: () => {
    const file = join(import.meta.dirname, 'bare.ts');
    return { command: [process.execPath, ...HEAP_FLAGS, file], env: {} };
  },
};

const DOCKERFILE = readFileSync(join(ROOT, 'Dockerfile'), 'utf8').replaceAll(/\\\n\s*/g, '');
const [, ...ENTRY]: string[] = JSON.parse(/^ENTRYPOINT (\[.*\])/m.exec(DOCKERFILE)![1]!);
const HEAP_FLAGS = ENTRY.filter((arg) => /^--max-.*-space/.test(arg));

/** The image's entry point and variables, with this machine's folders. */
function imageCommand({ DATABASE_URL, TLS_CERT_FILE }: Settings): Command {
  const file = /^sqlite:(\/.*)/.exec(DATABASE_URL!)?.[1];
  const data = file === undefined ? newFolder() : join(file, '..');
  const folders = {
    ...{ '/app/': `${ROOT}/`, '/data/': `${data}/` },
    '/run/secrets/': `${join(TLS_CERT_FILE ?? join(data, 'none'), '..')}/`,
  };
  const args = ENTRY.map((arg) =>
    Object.entries(folders).reduce((text, [from, to]) => {
      return text.replace(new RegExp(`(^|=)${from}`), `$1${to}`);
    }, arg),
  );
  const variables = [...DOCKERFILE.matchAll(/^ENV (.*)$/gm)].flatMap(([, line]) =>
    line!.split(/\s+/),
  );
  const env = Object.fromEntries(variables.map((pair) => pair.split('=', 2)));
  return { command: [process.execPath, ...args], env };
}
