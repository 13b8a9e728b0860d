// The service as it ships, in a memory control group: dist/main.cjs with the flags of the image's
// entry point, or `npm start`.
import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { newFolder, PASSWORD, SECRET, USER } from '../support/program.ts';
import { MemoryGroup } from './cgroup.ts';
import type { Endpoint } from './honest.ts';

const ROOT = join(import.meta.dirname, '../..');

/** A form of the service that the repository ships. */
export type Form = 'image' | 'npm start';

/** Options of a start. */
export interface ServiceOptions {
  readonly limitBytes: number;
  readonly form?: Form;
  readonly settings?: Readonly<Record<string, string>>;
  /** False if nobody reads the log. */
  readonly isLogRead?: boolean;
}

/** A process of the service. */
export class Process implements Endpoint {
  readonly pid: number;
  readonly group: MemoryGroup;
  readonly port: number;
  readonly adminPort: number;
  readonly isTls: boolean;
  /** Memory and descriptors of the idle process, before any client. */
  readonly atRest: Usage;

  constructor(pid: number, group: MemoryGroup, url: string, adminUrl: string) {
    this.pid = pid;
    this.group = group;
    this.port = Number(new URL(url).port);
    this.adminPort = Number(new URL(adminUrl).port);
    this.isTls = url.startsWith('https:');
    this.atRest = this.usage();
  }

  /** Its resources now; zero after it has exited. */
  usage(): Usage {
    const folder = `/proc/${this.pid}/fd`;
    if (!existsSync(folder)) return { usedBytes: 0, descriptors: 0 };
    return {
      usedBytes: this.group.usedBytes,
      descriptors: readdirSync(folder).length,
    };
  }
}

/** Memory and open descriptors of a process. */
export interface Usage {
  readonly usedBytes: number;
  readonly descriptors: number;
}

/** A running service, killed with its scope. */
export class Service extends Process {
  readonly #child: ChildProcess;
  readonly #errors: () => string;
  /** Resolves when it has ended. */
  readonly ended: Promise<unknown>;

  private constructor(
    child: ChildProcess,
    group: MemoryGroup,
    listening: { url: string; adminUrl: string },
    errors: () => string,
  ) {
    super(child.pid!, group, listening.url, listening.adminUrl);
    this.#child = child;
    this.ended = once(child, 'exit');
    this.#errors = errors;
  }

  /** Starts one on free ports of all interfaces, with a known credential and otherwise defaults. */
  static async start({
    limitBytes,
    form = 'image',
    settings = {},
    isLogRead = true,
  }: ServiceOptions): Promise<Service> {
    const group = MemoryGroup.create(limitBytes);
    const [command, args] = group.wrap(form === 'image' ? imageCommand(settings) : startCommand());
    const env = {
      ...(form === 'image' ? imageEnvironment() : {}),
      ...{ PORT: '0', ADMIN_PORT: '0', DATABASE_URL: 'sqlite::memory:' },
      ...{ AUTH_USER: USER, AUTH_PASSWORD: PASSWORD, SIGNING_SECRET: SECRET },
      ...settings,
    };
    const child = spawn(command, args, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const kill = () => child.kill('SIGKILL');
    process.once('exit', kill);
    child.once('exit', () => process.off('exit', kill));
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      if (errors.length < 10_000) errors += text;
    });
    try {
      const listening = await listens(child);
      if (!isLogRead) child.stdout.pause();
      await ready(listening.adminUrl);
      return new Service(child, group, listening, () => errors);
    } catch (err) {
      kill();
      await group[Symbol.asyncDispose]();
      throw new Error(`the service did not start: ${errors}`, { cause: err });
    }
  }

  /** Its exit; undefined while it runs. */
  get end(): string | undefined {
    const { exitCode, signalCode } = this.#child;
    if (exitCode === null && signalCode === null) return undefined;
    const kills = this.group.kills === 0 ? '' : ', killed by the kernel for want of memory';
    return `exit status ${exitCode}, signal ${signalCode}${kills}\n${this.#errors().slice(0, 1000)}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.ended;
    await this.group[Symbol.asyncDispose]();
  }
}

/** The peak memory during an action, sampled every few milliseconds. */
export async function peakDuring(group: MemoryGroup, action: () => Promise<void>): Promise<number> {
  let peak = group.usedBytes;
  const timer = setInterval(() => {
    peak = Math.max(peak, group.usedBytes);
  }, 20);
  try {
    await action();
  } finally {
    clearInterval(timer);
  }
  return peak;
}

/** Time for a service to become idle. */
const SETTLE_MS = 40_000;
const SETTLE_EVERY_MS = 200;

/** Waits until the process's resources satisfy the condition; returns the last sample. */
export async function settled(
  service: Process,
  condition: (usage: Usage) => boolean,
  ms = SETTLE_MS,
): Promise<Usage> {
  for (let attempt = 1; ; attempt++) {
    const usage = service.usage();
    if (condition(usage) || attempt * SETTLE_EVERY_MS >= ms) return usage;
    await pause(SETTLE_EVERY_MS);
  }
}

/** Resolves with the line that names its address. Later output is dropped. */
async function listens(
  child: ChildProcessByStdio<null, Readable, Readable>,
): Promise<{ url: string; adminUrl: string }> {
  const { stdout } = child;
  let output = '';
  stdout.setEncoding('utf8');
  while (!output.includes('"listening"') || !output.endsWith('\n')) {
    const [text] = await Promise.race([once(stdout, 'data'), once(child, 'close')]);
    if (typeof text !== 'string') throw new Error(output);
    output += text;
  }
  stdout.resume();
  return JSON.parse(output.split('\n').find((text) => text.includes('"listening"'))!);
}

/** Resolves once the store has its schema and can be read. */
async function ready(adminUrl: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const { status } = await fetch(`${adminUrl}/ready`, { headers: { connection: 'close' } });
    if (status === 200) return;
    if (attempt * SETTLE_EVERY_MS >= SETTLE_MS)
      throw new Error('the service does not become ready');
    await pause(SETTLE_EVERY_MS);
  }
}

/** The variables that the image sets. */
function imageEnvironment(): Record<string, string> {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8').replaceAll(/\\\n\s*/g, '');
  const lines = [...text.matchAll(/^ENV (.*)$/gm)].map(([, line]) => line!);
  const pairs = lines.flatMap((line) => line.match(/\w+=\S+/g) ?? []);
  return Object.fromEntries(pairs.map((pair) => pair.split('=', 2)));
}

/** The image's entry point, with this machine's folders. */
function imageCommand(settings: Readonly<Record<string, string>>): string[] {
  const text = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  const entry: string[] = JSON.parse(
    /^ENTRYPOINT (\[[^\]]*\])/m.exec(text)![1]!.replaceAll('\\\n', ''),
  );
  const [node, ...args] = entry;
  if (node !== '/usr/local/bin/node') throw new Error(`the entry point is ${node}`);
  const data = settings.DATABASE_URL?.startsWith('sqlite:/')
    ? join(settings.DATABASE_URL.slice('sqlite:'.length), '..')
    : newFolder();
  const secrets = join(settings.TLS_CERT_FILE ?? data, '..');
  const folders: Readonly<Record<string, string>> = {
    '/app': ROOT,
    '/data': data,
    '/run/secrets': secrets,
  };
  const placed = args.map((arg) =>
    arg.replace(/(^|=)(\/app|\/data|\/run\/secrets)\//, (_, before, path) => {
      return `${before}${folders[path]}/`;
    }),
  );
  return [process.execPath, ...placed];
}

/** `npm start` without npm. */
function startCommand(): string[] {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  return ['/bin/sh', '-c', scripts.start.replace(/\bnode\b/, process.execPath)];
}
