// Starts third-party programs for the tests: paths, users and ports.
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { userInfo } from 'node:os';
import { join, sep } from 'node:path';
import { until } from './until.ts';

const { uid, gid } = userInfo();

/** User and group of programs that refuse to run as root: our own, or nobody's. */
export const OWNER = uid === 0 ? { uid: 65534, gid: 65534 } : { uid, gid };

/** Returns the program's path; undefined if it is not installed. */
export function find(program: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'];
  return folders.map((folder) => join(folder, program)).find((path) => existsSync(path));
}

/** A process that listens on a port. Disposing it kills it. */
export class Daemon {
  readonly port: number;
  readonly url: string;
  readonly process: ChildProcess;
  log = '';

  constructor(port: number, path: string, args: readonly string[], options: SpawnOptions = {}) {
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.process = spawn(path, args, { ...OWNER, ...options, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.log += text;
      });
    }
  }

  /** Resolves once the port accepts connections. */
  async listening(): Promise<this> {
    await until(async () => this.hasEnded || (await accepts(this.url)));
    if (this.hasEnded) throw new Error(`the process ended:\n${this.log}`);
    return this;
  }

  get hasEnded(): boolean {
    return this.process.exitCode !== null || this.process.signalCode !== null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.hasEnded) return;
    const exited = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await exited;
  }
}

/** True if the server of `url` accepts connections. */
export async function accepts(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const isOpen = await once(socket, 'connect').then(Boolean, () => false);
  socket.destroy();
  return isOpen;
}

/** Returns how many TCP sockets with this local port are in a state, whose number is in hexadecimal (proc_net(5)). */
export function socketsOn(port: number, state: string): number {
  const local = port.toString(16).toUpperCase().padStart(4, '0');
  const tables = ['tcp', 'tcp6'].map((name) => readFileSync(`/proc/net/${name}`, 'utf8'));
  return tables.join().match(RegExp(`:${local} \\S+ ${state} `, 'g'))?.length ?? 0;
}

/** Returns the target of a symbolic link; empty if it is gone. */
export function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** Returns the processes whose working folder is this one or below it. */
function processesIn(folder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .filter((pid) => `${targetOf(`/proc/${pid}/cwd`)}${sep}`.startsWith(folder + sep))
    .map(Number);
}

/** Signals the processes in the folder, and those that they start meanwhile; returns how many. */
export function signalAll(folder: string, signal: NodeJS.Signals): number {
  const signalled = new Set<number>();
  for (;;) {
    const others = processesIn(folder).filter((pid) => !signalled.has(pid));
    if (others.length === 0) return signalled.size;
    for (const pid of others) {
      signalled.add(pid);
      try {
        process.kill(pid, signal);
      } catch {
        // It has already ended.
      }
    }
  }
}

/** Returns a free port below the ephemeral range, so no outgoing connection can take it. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 30_000);
    if (!(await accepts(`http://127.0.0.1:${port}`))) return port;
  }
}
