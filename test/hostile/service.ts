// A process in a memory control group: the service with the flags of the image's entry point, or bare node:http.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { settingsIn } from '../../image/settings.ts';
import { socketsOn } from '../support/daemon.ts';
import { newFolder, type Program, ROOT, start } from '../support/program.ts';
import { until } from '../support/until.ts';
import { MemoryGroup } from './cgroup.ts';

const CLOSE_WAIT = '08';

export type Settings = Readonly<Record<string, string>>;

export class Service {
  readonly port: number;
  readonly adminPort: number; // 0: none
  readonly isTls: boolean;
  readonly #program: Program;
  readonly #group: MemoryGroup;
  readonly #timer: NodeJS.Timeout;
  peakBytes = 0;

  private constructor(program: Program, group: MemoryGroup) {
    this.#program = program;
    this.#group = group;
    const { url, adminUrl } = program;
    this.port = Number(new URL(url).port);
    this.adminPort = Number(adminUrl.split(':').at(-1));
    this.isTls = url.startsWith('https:');
    program.process.stdout!.removeAllListeners('data').resume(); // Its log is dropped.
    this.#timer = setInterval(() => {
      this.peakBytes = Math.max(this.peakBytes, group.usedBytes);
    }, 50);
  }

  /** Starts one on free ports of all interfaces, with known credentials and otherwise defaults. */
  static async start(form: 'image' | 'bare', limitBytes: number, settings: Settings) {
    const { command, env } = form === 'image' ? imageCommand(settings) : BARE;
    const group = new MemoryGroup(limitBytes);
    const all = { ...env, HOST: '', ADMIN_PORT: '0', ...settings };
    const program = await start(all, group.wrap(command));
    const service = new Service(program, group);
    await until(() => form === 'bare' || service.isReady());
    return service;
  }

  /** How it ended; undefined while it runs and nothing in its group was killed. */
  get end(): string | undefined {
    const { exitCode, signalCode } = this.#program.process;
    if (this.#group.kills > 0) return 'killed at the memory limit';
    if (exitCode === null && signalCode === null) return undefined;
    return `ended with ${exitCode ?? signalCode}: ${this.#program.stderr}`;
  }

  async isReady(): Promise<boolean> {
    const headers = { connection: 'close' };
    return (await fetch(`http://127.0.0.1:${this.adminPort}/ready`, { headers })).ok;
  }

  /** Reads no more of its log. */
  ignoreLog(): void {
    this.#program.process.stdout!.pause();
  }

  /** Its sockets whose client has closed. */
  get closeWaiting(): number {
    return socketsOn(this.port, CLOSE_WAIT);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    this.#program.process.stdout!.resume(); // Otherwise it would never close.
    await this.#program[Symbol.asyncDispose]();
    await this.#group[Symbol.asyncDispose]();
  }
}

const IMAGE = settingsIn(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'));
const [, ...ENTRY] = IMAGE.Entrypoint as string[];
const HEAP_FLAGS = ENTRY.filter((arg) => /^--max-.*-space/.test(arg));
const BARE_FILE = join(import.meta.dirname, 'bare.ts');
const BARE = { command: [process.execPath, ...HEAP_FLAGS, BARE_FILE], env: {} };

/** The image's entry point and variables, with this machine's folders. */
function imageCommand({ DATABASE_URL, TLS_CERT_FILE }: Settings) {
  const file = /^sqlite:(\/.*)/.exec(DATABASE_URL!)?.[1];
  const data = file === undefined ? newFolder() : join(file, '..');
  const secrets = join(TLS_CERT_FILE ?? join(data, 'none'), '..');
  const folders: Settings = { '/app': ROOT, '/data': data, '/run/secrets': secrets };
  const args = ENTRY.map((arg) =>
    arg.replace(/(?<=^|=)(\/app|\/data|\/run\/secrets)(?=\/)/, (folder) => folders[folder]!),
  );
  const env = Object.fromEntries((IMAGE.Env as string[]).map((pair) => pair.split('=', 2)));
  return { command: [process.execPath, ...args], env };
}
