// Runs the Patroni cluster of docs/high-availability.md on 127.0.0.1, from deploy/ha: three
// members (Patroni and its Postgres), three etcd members, and HAProxy in front. Every process has
// its working folder below the cluster's. Cleanup finds processes by that folder, because Postgres
// keeps running after its Patroni is killed.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Daemon, freePort, OWNER, signalAll } from '../support/daemon.ts';
import { block } from '../support/manual.ts';
import { query } from '../support/postgres-server.ts';
import { startHaproxy } from './balancer.ts';
import { databaseUrl, PAGE, read, replaced, settings, variables } from './page.ts';
import { ETCD, PATRONI_BIN, POSTGRES_BIN } from './programs.ts';

const PASSWORD = 'test';
const NAMES = ['a', 'b', 'c'] as const;
/** Ports of each machine in the page. Here every member gets its own. */
const PORTS = [2379, 2380, 5432, 8008] as const;
const POLL_MS = 100;
const QUERY_TIMEOUT_MS = 5000;

/** Maximum time for a cluster to recover, including a full copy of one member. */
const WHOLE_TIMEOUT_MS = 180_000;

// On a signal, the exit listeners kill the cluster. These handlers stay installed, because without
// them a second signal would interrupt the cleanup.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));

/** One machine of the page: Patroni with its Postgres, and a member of etcd. */
export class Member {
  readonly name: string;
  /** Of Patroni and Postgres, whose data is in its folder `data`. */
  readonly folder: string;
  /** The member's ports by the page's ports. */
  readonly ports: ReadonlyMap<number, number>;
  #patroni: Daemon | undefined;

  constructor(name: string, folder: string, ports: readonly number[]) {
    this.name = name;
    this.folder = folder;
    this.ports = new Map(PORTS.map((port, i) => [port, ports[i]!]));
  }

  get port(): number {
    return this.ports.get(5432)!;
  }

  get restPort(): number {
    return this.ports.get(8008)!;
  }

  /** URL of the maintenance database, as superuser. */
  get url(): string {
    return `postgres://postgres:${PASSWORD}@127.0.0.1:${this.port}/postgres`;
  }

  startPatroni(): void {
    const command = this.#here(variables(read('patroni.service')).ExecStart!);
    const [program, ...args] = command.split(' ');
    this.#patroni = new Daemon(this.restPort, program!, args, this.#options);
  }

  /** Runs a command of the page. @returns its output */
  async run(command: string): Promise<string> {
    const options = { ...OWNER, ...this.#options, timeout: WHOLE_TIMEOUT_MS };
    return (await promisify(execFile)('sh', ['-ec', this.#here(command)], options)).stdout;
  }

  #here(command: string): string {
    return replaced(command, {
      '/opt/patroni/bin': PATRONI_BIN,
      '/etc/patroni.yml': join(this.folder, 'patroni.yml'),
    });
  }

  get #options() {
    return { cwd: this.folder, env: { ...process.env, HOME: this.folder } };
  }

  get log(): string {
    return this.#patroni?.log ?? '';
  }

  /** Kills Patroni with SIGKILL. Its Postgres keeps running. */
  async killPatroni(): Promise<void> {
    await this.#patroni?.[Symbol.asyncDispose]();
  }

  /** Runs SQL as superuser; undefined if Postgres does not respond in time. */
  query(text: string): Promise<Record<string, unknown>[] | undefined> {
    const rows = query(this.url, text).catch(() => undefined);
    return Promise.race([rows, pause(QUERY_TIMEOUT_MS, undefined, { ref: false })]);
  }
}

export class Cluster {
  readonly members: readonly Member[];
  /** Port of HAProxy, which sends connections to the member whose GET /primary returns 200. */
  readonly balancerPort: number;
  readonly #end: () => void;

  private constructor(folder: string, ports: number[]) {
    this.balancerPort = ports.pop()!;
    this.members = NAMES.map((name) => {
      return new Member(name, join(folder, name), ports.splice(0, PORTS.length));
    });
    this.#end = () => {
      signalAll(folder, 'SIGKILL');
      rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
    };
    process.once('exit', this.#end);
  }

  /** Starts everything, and creates the page's role and database. Both standbys stream from the leader. */
  static async start(): Promise<Cluster> {
    const folder = mkdtempSync(join(tmpdir(), 'notes-users-ha-cluster-'));
    const ports = new Set<number>();
    while (ports.size < 1 + NAMES.length * PORTS.length) ports.add(await freePort());
    const cluster = new Cluster(folder, [...ports]);
    for (const name of ['', 'etcd', 'haproxy', ...NAMES]) {
      mkdirSync(join(folder, name), { recursive: true });
      chownSync(join(folder, name), OWNER.uid, OWNER.gid);
    }
    await cluster.#startEtcd(join(folder, 'etcd'));
    for (const member of cluster.members) cluster.#configure(member);
    // The first member initializes the cluster, the others copy it.
    const [first, ...others] = cluster.members as [Member, ...Member[]];
    first.startPatroni();
    await cluster.#until('the first member is the leader', async () => {
      return (await first.query('create table started ()')) !== undefined;
    });
    for (const member of others) member.startPatroni();
    await cluster.#startHaproxy(join(folder, 'haproxy'));
    await cluster.whole();
    const listed = await first.run(block('Patroni', 'patronictl', PAGE));
    assert.match(listed, /\| a +\|.*\| Leader +\| running +\|/);
    const statements = replaced(read('database.sql'), { PASSWORD }).trim().split(';\n');
    for (const text of statements) await query(first.url, text);
    return cluster;
  }

  /** The member that holds the leader's key and is a primary. */
  async leader(): Promise<Member | undefined> {
    const leader = (await this.#described()).find(({ role }) => role === 'leader');
    if (leader?.state !== 'running') return undefined;
    return this.members.find(({ name }) => name === leader.name);
  }

  /** Resolves with the new leader once it has replaced the old one. */
  async newLeader(old: Member): Promise<Member> {
    return this.#until(`another leader than ${old.name}`, async () => {
      const leader = await this.leader();
      return leader === old ? undefined : leader;
    });
  }

  /** Resolves with the leader once both standbys stream from it, and commits wait for one of them. */
  async whole(): Promise<Member> {
    return this.#until('a leader with two standbys', async () => {
      const leader = await this.leader();
      const others = (await this.#described()).filter(({ role }) => role !== 'leader');
      const found = others.map(({ role }) => role).sort();
      if (leader === undefined || found.join() !== 'replica,sync_standby') return undefined;
      const text = `select string_agg(sync_state, ',' order by sync_state) as states
        from pg_stat_replication where state = 'streaming' and not pg_is_in_recovery()`;
      const rows = await leader.query(text);
      return rows?.[0]?.states === 'async,sync' ? leader : undefined;
    });
  }

  async synchronousStandby(leader: Member): Promise<Member> {
    const rows = await leader.query(
      `select application_name as name from pg_stat_replication where sync_state = 'sync'`,
    );
    return this.members.find(({ name }) => name === rows?.[0]?.name)!;
  }

  settings(topology: Parameters<typeof databaseUrl>[0]): Record<string, string> {
    const url = this.#local(databaseUrl(topology));
    const balancer = `127.0.0.1:${this.balancerPort}`;
    return settings(replaced(url.replace('127.0.0.1:5432', balancer), { PASSWORD }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  /** Returns the members as the first Patroni that responds reports them. */
  async #described(): Promise<readonly Record<'name' | 'role' | 'state', string>[]> {
    for (const { restPort } of this.members) {
      const options = { signal: AbortSignal.timeout(1000) }; // It can be dead or frozen.
      const response = fetch(`http://127.0.0.1:${restPort}/cluster`, options);
      const cluster = await response.then((res) => res.json()).catch(() => undefined);
      if (cluster) return (cluster as { members: [] }).members;
    }
    return [];
  }

  async #startEtcd(folder: string): Promise<void> {
    const started = this.members.map((member) => {
      const file = replaced(this.#fileOf(member, read('etcd.env')), {
        '/var/lib/etcd/notes-users': join(folder, member.name),
      });
      const options = { cwd: folder, env: { ...process.env, ...variables(file) } };
      return new Daemon(member.ports.get(2379)!, ETCD, [], options).listening();
    });
    const daemons = await Promise.all(started);
    await this.#until('etcd is healthy', async () => {
      const health = await fetch(`${daemons[0]!.url}/health`).catch(() => {});
      return health?.ok;
    });
  }

  #configure(member: Member): void {
    const file = replaced(this.#fileOf(member, read('patroni.yml')), {
      '/var/lib/postgresql/15/notes-users': join(member.folder, 'data'),
      '/usr/lib/postgresql/15/bin': POSTGRES_BIN,
      'unix_socket_directories: /var/run/postgresql': `unix_socket_directories: ''`,
      SUPERUSER_PASSWORD: PASSWORD,
      REPLICATION_PASSWORD: PASSWORD,
      '10.0.0.0/16': '127.0.0.1/32',
      '10.0.0.0/24': '127.0.0.1/32',
      // Patroni's watchdog would reset the test machine.
      'mode: required': 'mode: off',
      // The shortest times that Patroni accepts, in seconds, unless HA_TIMES is `page`.
      ...(process.env.HA_TIMES !== 'page' && {
        ...{ 'ttl: 30': 'ttl: 20', 'loop_wait: 10': 'loop_wait: 1' },
        'retry_timeout: 10': 'retry_timeout: 9',
      }),
    });
    writeFileSync(join(member.folder, 'patroni.yml'), file);
  }

  async #startHaproxy(folder: string): Promise<void> {
    const config = replaced(read('haproxy-primary.cfg'), {
      'bind 127.0.0.1:5432': `bind 127.0.0.1:${this.balancerPort}`,
      ...Object.fromEntries(
        this.members.map((member, i) => [
          `10.0.0.${i + 1}:5432 check port 8008`,
          `127.0.0.1:${member.port} check port ${member.restPort}`,
        ]),
      ),
    });
    await startHaproxy(this.balancerPort, config, folder);
  }

  /** Adapts a file of the page from machine a to this member, with the page's command. */
  #fileOf(member: Member, text: string): string {
    const [, script] = /sed -i (".*")/.exec(block('Install', 'sed -i', PAGE))!;
    const ADDRESS = `10.0.0.${this.members.indexOf(member) + 1}`;
    const env = { ...process.env, NAME: member.name, ADDRESS };
    const options = { input: text, env, encoding: 'utf8' } as const;
    return this.#local(execFileSync('sh', ['-c', `sed ${script}`], options));
  }

  /** Replaces the page's addresses with this cluster's. */
  #local(text: string): string {
    return text.replaceAll(/10\.0\.0\.([123]):(\d+)/g, (address, number, port) => {
      const local = this.members[number - 1]!.ports.get(Number(port));
      assert.ok(local, `not a port of the page: ${address}`);
      return `127.0.0.1:${local}`;
    });
  }

  /** Polls until it gets a result. On timeout, throws with the end of each member's log. */
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
