// Starts third-party programs for the tests: paths, users and ports.
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';

/** User and group of programs that refuse to run as root. */
export const OWNER = userInfo().uid === 0 ? (idsOf('postgres') ?? idsOf('nobody') ?? {}) : {};

/** Returns the program's path; undefined if it is not installed. */
export function find(program: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'];
  return folders.map((folder) => join(folder, program)).find((path) => existsSync(path));
}

/** A process that listens on a port. Disposing it kills it. */
export class Daemon {
  readonly port: number;
  readonly process: ChildProcess;
  log = '';

  constructor(port: number, path: string, args: readonly string[], options: SpawnOptions = {}) {
    this.port = port;
    this.process = spawn(path, args, { ...OWNER, ...options, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.log += text;
      });
    }
  }

  /** Resolves once the port accepts connections. */
  async listening(): Promise<this> {
    while (this.process.exitCode === null && this.process.signalCode === null) {
      const socket = connect(this.port, '127.0.0.1');
      const isOpen = await new Promise<boolean>((resolve) => {
        socket.once('connect', () => resolve(true));
        socket.once('error', () => setTimeout(() => resolve(false), 20));
      });
      socket.destroy();
      if (isOpen) return this;
    }
    throw new Error(`the process ended:\n${this.log}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await exited;
  }
}

/** Returns a free port below the ephemeral range, so no outgoing connection can take it. */
export async function stablePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const probe = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false));
      probe.listen(port, '127.0.0.1', () => resolve(true));
    });
    await new Promise((resolve) => probe.close(resolve));
    if (isFree) return port;
  }
}

function idsOf(user: string): { readonly uid?: number; readonly gid?: number } | undefined {
  const [, , uid, gid] =
    readFileSync('/etc/passwd', 'utf8')
      .split('\n')
      .map((line) => line.split(':'))
      .find(([name]) => name === user) ?? [];
  return uid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}
