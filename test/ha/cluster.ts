// A Patroni cluster on 127.0.0.1: three members (Patroni and its Postgres), etcd, and HAProxy in
// front. Every process has its working folder below the cluster's, Postgres by itself, so all of
// them are found by it, whoever started them: Patroni's Postgres outlives its Patroni.
import assert from 'node:assert/strict';
import {
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, sep } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { Daemon, OWNER, stablePort } from '../support/daemon.ts';
import { block } from '../support/manual.ts';
import { HOSTS, PAGE, PATRONI, withPorts } from './page.ts';
import { ETCD, HAPROXY, IS_FULL, POSTGRES_BIN, PYTHON } from './programs.ts';

const PASSWORD = 'test';
const NAMES = ['a', 'b', 'c'] as const;
const POLL_MS = 100;

/** The longest that a cluster takes to be whole again, a copy of a whole member included. */
export const WHOLE_TIMEOUT_MS = 180_000;

/** Instead of the page's times, Patroni's defaults: the shortest that it accepts, in seconds. */
const SHORT_TIMES = { ttl: 20, loop_wait: 1, retry_timeout: 9 };

/** Settings of Patroni that decide whether a failover loses writes. */
export type Replication = 'synchronous' | 'quorum' | 'asynchronous';

const SYNCHRONOUS_MODE = { synchronous: true, quorum: 'quorum', asynchronous: false } as const;
/** What Patroni and pg_stat_replication say of the two standbys. */
const STANDBYS: Record<Replication, { readonly roles: string; readonly states: string }> = {
  synchronous: { roles: 'replica,sync_standby', states: 'async,sync' },
  quorum: { roles: 'quorum_standby,quorum_standby', states: 'quorum,quorum' },
  asynchronous: { roles: 'replica,replica', states: 'async,async' },
};

/** A member as GET /cluster of any Patroni describes it. */
interface Described {
  readonly name: string;
  readonly role: string;
  readonly state: string;
}

// Ended by a signal, the process first ends what it has started. The listeners stay, because a second
// signal would end it in the middle of that.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));

/** One Patroni with its Postgres. */
export class Member {
  readonly name: string;
  readonly folder: string;
  readonly port: number;
  readonly restPort: number;
  #patroni: Daemon | undefined;

  constructor(name: string, folder: string, port: number, restPort: number) {
    this.name = name;
    this.folder = folder;
    this.port = port;
    this.restPort = restPort;
  }

  /** The maintenance database as superuser. */
  get url(): string {
    return `postgres://postgres:${PASSWORD}@127.0.0.1:${this.port}/postgres`;
  }

  startPatroni(): void {
    this.#patroni = new Daemon(
      this.restPort,
      PYTHON,
      ['-m', 'patroni', join(this.folder, 'patroni.yaml')],
      { cwd: this.folder, env: { ...process.env, HOME: this.folder } },
    );
  }

  /** What this member's Patroni has written. */
  get log(): string {
    return this.#patroni?.log ?? '';
  }

  /** kill -9 of Patroni alone. Its Postgres goes on. */
  async killPatroni(): Promise<void> {
    await this.#patroni?.[Symbol.asyncDispose]();
  }

  /** kill -9 of every process of Postgres; returns how many. */
  killPostgres(): number {
    return signalAll(join(this.folder, 'data'), 'SIGKILL');
  }

  /** How many processes Postgres has. */
  get postgresProcesses(): number {
    return processesIn(join(this.folder, 'data')).length;
  }

  /** Patroni and Postgres stand still; the kernel goes on taking connections for them. */
  freeze(): number {
    return signalAll(this.folder, 'SIGSTOP');
  }

  thaw(): void {
    signalAll(this.folder, 'SIGCONT');
  }

  /** Runs SQL as superuser; undefined if Postgres does not respond in time. */
  async query<Row extends object>(text: string): Promise<Row[] | undefined> {
    const sql = postgres(this.url, { max: 1, onnotice: () => {}, connect_timeout: 2 });
    const over = new AbortController();
    try {
      return await Promise.race([
        sql.unsafe<Row[]>(text),
        pause(5000, undefined, { signal: over.signal }).catch(() => undefined),
      ]);
    } catch {
      return undefined;
    } finally {
      over.abort();
      await sql.end({ timeout: 0 }).catch(() => {});
    }
  }
}

/** Three members, etcd, HAProxy. */
export class Cluster {
  readonly members: readonly Member[];
  readonly replication: Replication;
  /** Port of HAProxy, which sends connections to the member whose GET /primary returns 200. */
  readonly balancerPort: number;
  readonly #endNow: () => void;

  private constructor(folder: string, replication: Replication, ports: readonly number[]) {
    const [balancerPort, ...others] = ports;
    this.replication = replication;
    this.balancerPort = balancerPort!;
    this.members = NAMES.map((name, i) => {
      const memberFolder = join(folder, name);
      return new Member(name, memberFolder, others[2 * i]!, others[2 * i + 1]!);
    });
    this.#endNow = () => {
      signalAll(folder, 'SIGKILL');
      rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
    };
    process.once('exit', this.#endNow);
  }

  /** Starts everything and resolves once the cluster is whole. */
  static async start(replication: Replication): Promise<Cluster> {
    const folder = mkdtempSync(join(tmpdir(), 'notes-users-ha-cluster-'));
    const ports = await distinctPorts(1 + 2 * NAMES.length + 2);
    const cluster = new Cluster(folder, replication, ports);
    try {
      const folders = [folder, ...['etcd', 'haproxy', ...NAMES].map((name) => join(folder, name))];
      for (const path of folders) {
        mkdirSync(path, { recursive: true });
        if (OWNER.uid !== undefined) chownSync(path, OWNER.uid, OWNER.gid!);
      }
      const [etcdPort, peerPort] = ports.slice(-2) as [number, number];
      await startEtcd(join(folder, 'etcd'), etcdPort, peerPort);
      for (const member of cluster.members) cluster.#configure(member, etcdPort);
      // The first one makes the cluster, the others copy it.
      cluster.members[0]!.startPatroni();
      await cluster.#until('the first member is the leader', async () => {
        return (await cluster.members[0]!.query('create table started ()')) !== undefined;
      });
      for (const member of cluster.members.slice(1)) member.startPatroni();
      await startHaproxy(join(folder, 'haproxy'), cluster);
      await cluster.whole();
      return cluster;
    } catch (err) {
      cluster.#end();
      throw err;
    }
  }

  /** The member that holds the leader's key and is a primary. */
  async leader(): Promise<Member | undefined> {
    const leader = (await this.#described()).find(({ role }) => role === 'leader');
    if (leader?.state !== 'running') return undefined;
    return this.members.find(({ name }) => name === leader.name);
  }

  /** Resolves with the leader once it is another one. */
  async newLeader(old: Member): Promise<Member> {
    return this.#until(`another leader than ${old.name}`, async () => {
      const leader = await this.leader();
      return leader === old ? undefined : leader;
    });
  }

  /** Resolves with the leader once both others stream from it, as `replication` says. */
  async whole(): Promise<Member> {
    const { roles, states } = STANDBYS[this.replication];
    return this.#until('a leader with two standbys', async () => {
      const leader = await this.leader();
      const others = (await this.#described()).filter(({ role }) => role !== 'leader');
      const found = others.map(({ role }) => role).sort();
      if (leader === undefined || found.join() !== roles) return undefined;
      const rows = await leader.query<{ states: string }>(
        `select string_agg(sync_state, ',' order by sync_state) as states
         from pg_stat_replication where state = 'streaming' and not pg_is_in_recovery()`,
      );
      return rows?.[0]?.states === states ? leader : undefined;
    });
  }

  /** The standby that commits wait for. */
  async synchronousStandby(leader: Member): Promise<Member> {
    const rows = await leader.query<{ name: string }>(
      `select application_name as name from pg_stat_replication where sync_state in ('sync', 'quorum')`,
    );
    const standby = this.members.find(({ name }) => name === rows?.[0]?.name);
    assert.ok(standby, 'no synchronous standby');
    return standby;
  }

  /** As `patronictl switchover`. */
  async switchover(leader: Member): Promise<void> {
    const response = await fetch(`http://127.0.0.1:${leader.restPort}/switchover`, {
      method: 'POST',
      body: JSON.stringify({ leader: leader.name }),
    });
    assert.equal(response.status, 200, await response.text());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  /** The members, as the first Patroni that responds sees them. */
  async #described(): Promise<readonly Described[]> {
    for (const { restPort } of this.members) {
      try {
        const signal = AbortSignal.timeout(1000);
        const response = await fetch(`http://127.0.0.1:${restPort}/cluster`, { signal });
        return ((await response.json()) as { members: Described[] }).members;
      } catch {
        // It is dead or stands still.
      }
    }
    return [];
  }

  #end(): void {
    process.removeListener('exit', this.#endNow);
    this.#endNow();
  }

  #configure(member: Member, etcdPort: number): void {
    const { name, folder, port, restPort } = member;
    const user = (username: string) => ({ username, password: PASSWORD });
    const settings = {
      scope: 'notes-users',
      name,
      restapi: { listen: `127.0.0.1:${restPort}`, connect_address: `127.0.0.1:${restPort}` },
      etcd3: { hosts: [`127.0.0.1:${etcdPort}`] },
      postgresql: {
        listen: `127.0.0.1:${port}`,
        connect_address: `127.0.0.1:${port}`,
        data_dir: join(folder, 'data'),
        bin_dir: POSTGRES_BIN,
        pgpass: join(folder, 'pgpass'),
        authentication: { superuser: user('postgres'), replication: user('replicator') },
        parameters: { unix_socket_directories: '' },
        pg_hba: [
          'host all all 127.0.0.1/32 scram-sha-256',
          'host replication replicator 127.0.0.1/32 scram-sha-256',
        ],
      },
      watchdog: { mode: 'off' },
    };
    // JSON is YAML, so each section is a line.
    const sections = Object.entries(settings).map(
      ([section, value]) => `${section}: ${JSON.stringify(value)}\n`,
    );
    const initdb = `  initdb: [encoding: UTF8, locale: C, data-checksums]\n`;
    const dcs = this.#dynamicSettings().replace(/^/gm, '    ');
    const text = `${sections.join('')}bootstrap:\n${initdb}  dcs:\n${dcs}\n`;
    writeFileSync(join(folder, 'patroni.yaml'), text);
  }

  /** The page's settings, with this cluster's replication. */
  #dynamicSettings(): string {
    let text = block(PATRONI, 'synchronous_mode', PAGE);
    const settings = {
      synchronous_mode: SYNCHRONOUS_MODE[this.replication],
      ...(IS_FULL ? {} : SHORT_TIMES),
    };
    for (const [name, value] of Object.entries(settings)) {
      const line = new RegExp(`^${name}: .*$`, 'm');
      assert.match(text, line);
      text = text.replace(line, `${name}: ${value}`);
    }
    return text.trimEnd();
  }

  /** Polls; a cluster that never gets there fails with what its members say. */
  async #until<T>(what: string, poll: () => Promise<T | undefined | false>): Promise<T> {
    const deadline = performance.now() + WHOLE_TIMEOUT_MS;
    while (performance.now() < deadline) {
      const found = await poll();
      if (found) return found;
      await pause(POLL_MS);
    }
    const logs = this.members.map(({ name, log }) => `${name}:\n${log.slice(-3000)}`);
    throw new Error(`waited for ${what} for ${WHOLE_TIMEOUT_MS} ms\n${logs.join('\n')}`);
  }
}

async function startEtcd(folder: string, port: number, peerPort: number): Promise<void> {
  const [client, peer] = [port, peerPort].map((each) => `http://127.0.0.1:${each}`);
  const args = {
    'data-dir': folder,
    'listen-client-urls': client,
    'advertise-client-urls': client,
    'listen-peer-urls': peer,
    'initial-advertise-peer-urls': peer,
    'initial-cluster': `default=${peer}`,
  };
  const flags = Object.entries(args).flatMap(([name, value]) => [`--${name}`, value!]);
  await new Daemon(port, ETCD, flags, { cwd: folder }).listening();
}

/** The page's configuration with the ports of this cluster. */
async function startHaproxy(folder: string, cluster: Cluster): Promise<void> {
  const port = cluster.balancerPort;
  const config = withPorts(block(HOSTS, 'GET /primary', PAGE), {
    'bind 127.0.0.1:5432': `bind 127.0.0.1:${port}`,
    ...Object.fromEntries(
      cluster.members.map((member, i) => [
        `10.0.0.${i + 1}:5432 check port 8008`,
        `127.0.0.1:${member.port} check port ${member.restPort}`,
      ]),
    ),
  });
  const file = join(folder, 'haproxy.cfg');
  writeFileSync(file, config);
  await new Daemon(port, HAPROXY, ['-db', '-f', file], { cwd: folder }).listening();
}

async function distinctPorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) ports.add(await stablePort());
  return [...ports];
}

/** The processes whose working folder is this one or below it. */
function processesIn(folder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return `${readlinkSync(`/proc/${pid}/cwd`)}${sep}`.startsWith(folder + sep);
      } catch {
        return false;
      }
    });
}

/** Sends a signal to each of them, and to those that they start meanwhile; returns how many. */
function signalAll(folder: string, signal: NodeJS.Signals): number {
  const signalled = new Set<number>();
  for (;;) {
    const others = processesIn(folder).filter((pid) => !signalled.has(pid));
    if (others.length === 0) return signalled.size;
    for (const pid of others) {
      signalled.add(pid);
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended by itself meanwhile.
      }
    }
  }
}
