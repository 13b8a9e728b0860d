// Postgres connection pool with deadlines, reconnection and failover. docs/design.md says why it is our own.
// If a connection is lost, late or read-only, the calls of its batch fail, because their outcome is unknown,
// and an attempt to connect begins. Waiting calls keep waiting. An attempt tries the hosts of the URL, the
// one in use first, or last if it was late, lost its standby or, under `any`, refused a write. All connections move
// to the host that an attempt reaches.
import { nextTurn, sleep } from '../clock.ts';
import { StoreUnavailable } from '../user.ts';
import type { StoreOptions } from './options.ts';
import { type Batch, type BatchSource, TICK_MS } from './queue.ts';
import { UnusableDatabase } from './schema.ts';
import type { Session, SessionOptions } from './session.ts';
import { afterPoll, NotReplicated, openSession } from './session.ts';
import { type Host, nameOf } from './url.ts';

// Pauses between attempts double from the first to the longest.
const BACKOFF_MS = { first: 25, longest: 1_000 }; // 5.7
// A connection lost sooner is a failed attempt: a server can accept connections and be unusable.
const MIN_LIFETIME_MS = 100;
// A connection to a read-only server is replaced if it is older: the server may have lost its role to another.
// If each write replaced one, none would be left for reads.
const READ_ONLY_LIFETIME_MS = 1_000;
// While a batch of at least `size` calls runs, the next one of its queue waits up to this long, so that more
// calls join it. For fewer calls or slower commits, parallel statements are faster. Without it, others wait twice as
// long (p99 3.9 instead of 2.0 s) while 1,000 clients read long lists.
const SHARE = { ms: 3, size: 8 };
const END_TIMEOUT_MS = 200; // for saying goodbye to the server

const MOVED = 'the pool moved to another server';

/** What the pool takes from its surroundings. A simulation replaces it. */
export const SURROUNDINGS = {
  afterPoll,
  nextTurn: (): Promise<void> => nextTurn(),
  sleep: (ms: number): Promise<void> => sleep(ms, undefined, { ref: false }),
  random: Math.random,
  openSession,
};

type PoolOptions = StoreOptions & Pick<SessionOptions, 'database'> & typeof SURROUNDINGS;
type Queue = BatchSource<Session>;

interface PooledConnection {
  readonly session: Session;
  readonly host: Host;
  readonly connectedAt: number;
  isReadOnly: boolean; // as the server said when it was opened, or to a write of any connection
  batch?: Batch<Session> | undefined;
}

export class Pool {
  fault: unknown; // of the last attempt to connect, while no connection exists; or the one that ended the pool
  readonly #options: PoolOptions;
  readonly #queues = new Set<Queue>(); // those in which calls may wait
  readonly #resting = new Set<Queue>(); // those whose next batch must wait
  #connections: readonly PooledConnection[] = [];
  #attempts = 0; // to connect
  #firstHost: Host; // the one that the next attempt tries first
  #failures = 0; // attempts that failed since a connection lived for MIN_LIFETIME_MS
  readonly #closing = new AbortController(); // ends the attempts to connect
  #isAssigning = false; // in a later turn
  #cancelTick: (() => void) | undefined;

  /** Starts to connect; the server need not be up (6.1). */
  constructor(options: PoolOptions) {
    this.#options = options;
    this.#firstHost = options.database.hosts[0]!;
    this.#connect();
  }

  get connections() {
    const used = this.#connections.filter(({ batch }) => batch).length;
    const waiting = [...this.#queues].reduce((sum, { size }) => sum + size, 0);
    const { poolSize: limit } = this.#options;
    return { used, idle: this.#connections.length - used, limit, waiting };
  }

  /** Runs the calls of the queue once all requests of this turn of the event loop have arrived. */
  readonly schedule = (queue: Queue) => {
    if (this.#closing.signal.aborted) return queue.expire(Number.POSITIVE_INFINITY, this.fault);
    this.#queues.add(queue);
    this.#cancelTick ??= this.#options.afterPoll(TICK_MS, this.#tick); // 6.6
    if (this.#isAssigning) return;
    this.#isAssigning = true;
    void this.#options.nextTurn().then(() => {
      this.#isAssigning = false;
      this.#assign();
    });
  };

  /** Closes everything. The outcome of running statements is unknown. */
  async close(): Promise<void> {
    this.#stop();
    this.#cancelTick?.();
    const sessions = this.#connections.map(({ session }) => session);
    const ended = Promise.allSettled(sessions.map((session) => session.end()));
    await Promise.race([ended, this.#options.sleep(END_TIMEOUT_MS)]);
    for (const session of sessions) session.destroy();
  }

  /** Ends all attempts to connect, and fails the waiting calls. Running statements continue. */
  #stop(): void {
    this.#closing.abort();
    for (const queue of this.#queues) queue.expire(Number.POSITIVE_INFINITY, this.fault);
    this.#queues.clear();
  }

  /** Gives idle connections the next batches. Queues take turns, so that none starves another. */
  #assign(): void {
    // The loop returns to a queue that is added again, after the others.
    for (const queue of this.#queues) {
      // The newest, because a network can silently drop all older ones (4.13).
      const connection = this.#connections.findLast(({ batch }) => batch === undefined);
      if (connection === undefined) return;
      // A lock can stop all writes, so they leave one of the connections that exist to reads (5.9).
      const writing = this.#connections.filter(({ batch }) => batch?.isWrite).length;
      const canWrite = writing < Math.max(1, this.#connections.length - 1);
      if (this.#resting.has(queue) || (queue.options.writes && !canWrite)) continue;
      const batch = queue.take(this.#options.now());
      if (batch !== undefined || queue.size === 0) this.#queues.delete(queue);
      if (batch === undefined) continue; // The calls that it considered wait for writes that run.
      this.#queues.add(queue);
      void this.#run(connection, queue, batch);
    }
  }

  async #run(connection: PooledConnection, queue: Queue, batch: Batch<Session>): Promise<void> {
    connection.batch = batch;
    const running = batch.run(connection.session);
    this.#rest(queue, batch.size, running);
    const err = await running;
    if (!this.#connections.includes(connection)) return; // Replaced meanwhile; its calls have failed.
    connection.batch = undefined;
    const isReadOnly = (err as { code?: string } | undefined)?.code === '25006'; // read_only_sql_transaction
    const mayBeStandby = isReadOnly && this.#options.database.sessionAttributes === 'any';
    if (mayBeStandby || err instanceof NotReplicated) this.#avoid(connection.host);
    const isYoung = this.#options.now() - connection.connectedAt < READ_ONLY_LIFETIME_MS;
    // While an attempt looks for a server that can write, the other connections stay for reads (5.9).
    const isUsable = err === undefined || (isReadOnly && (isYoung || this.#attempts > 0));
    // The host's name may lead to a new server by now. The other connections may be to the old one (5.1).
    if (isReadOnly && !isUsable) for (const other of this.#connections) other.isReadOnly = true;
    if (!isUsable) this.#replace(connection, err);
    else if (this.#isLeft(connection)) this.#replace(connection, MOVED);
    this.#assign();
  }

  /** Makes the next batch of the queue wait, if this one is large. */
  #rest(queue: Queue, size: number, running: Promise<unknown>): void {
    if (size < SHARE.size) return;
    this.#resting.add(queue);
    void Promise.race([running, this.#options.sleep(SHARE.ms)]).then(() => {
      this.#resting.delete(queue);
      this.#assign();
    });
  }

  /** Drops the connection and makes a new one. A running statement has an unknown outcome (4.13). */
  #replace(connection: PooledConnection, cause: unknown): void {
    if (!this.#connections.includes(connection)) return;
    const { session, host, connectedAt, batch } = connection;
    const fields = { host: nameOf(host), cause: String(cause) };
    if (!this.#closing.signal.aborted) this.#options.debug('connection lost', fields);
    this.#connections = this.#connections.filter((other) => other !== connection);
    if (this.#options.now() - connectedAt < MIN_LIFETIME_MS) this.#failures ||= 1;
    batch?.fail(cause);
    session.destroy();
    this.#connect();
  }

  /** Enforces all deadlines (4.13). The timer runs only while calls wait or run. */
  readonly #tick = (): void => {
    const now = this.#options.now();
    for (const connection of this.#connections) {
      connection.batch?.expire(now);
      if (connection.batch === undefined || connection.batch.deadline > now) continue;
      this.#avoid(connection.host);
      this.#replace(connection, `no response within ${this.#options.timeoutMs} ms`);
    }
    for (const queue of this.#queues) queue.expire(now, this.fault);
    this.#assign();
    const isBusy = this.#queues.size > 0 || this.connections.used > 0;
    this.#cancelTick = isBusy ? this.#options.afterPoll(TICK_MS, this.#tick) : undefined;
  };

  /** Starts the attempts that are missing: all while the host works, otherwise one at a time (5.1). */
  #connect(): void {
    while (this.#connections.length + this.#attempts < this.#options.poolSize) {
      // One connection at a time migrates, or tests whether the server works again.
      const isSingle = this.#connections.length === 0 || this.#failures > 0;
      if (this.#closing.signal.aborted || (isSingle && this.#attempts > 0)) return;
      void this.#attempt();
    }
  }

  async #attempt(): Promise<void> {
    const { sleep, random } = this.#options;
    this.#attempts++;
    const failures = this.#failures;
    if (failures > 0) {
      const pauseMs = Math.min(BACKOFF_MS.first * 2 ** (failures - 1), BACKOFF_MS.longest);
      // Jitter keeps replicas from reconnecting all at once.
      await sleep(pauseMs * (0.5 + random() / 2)); // 5.7
    }
    const connection = await this.#open();
    if (connection && this.#failures > 0) await sleep(MIN_LIFETIME_MS);
    if (connection && this.#connections.includes(connection)) this.#failures = 0;
    // Attempts that fail together count once.
    else if (this.#failures === failures) this.#failures++;
    this.#attempts--;
    this.#connect();
  }

  /** Connects to the first host that qualifies. Returns undefined if none does. */
  async #open(): Promise<PooledConnection | undefined> {
    const { database, debug, openSession } = this.#options;
    const first = database.hosts.indexOf(this.#firstHost);
    const faults: Error[] = [];
    const round = [...database.hosts.slice(first), ...database.hosts.slice(0, first)];
    const hosts = database.sessionAttributes === 'prefer-standby' ? [...round, ...round] : round;
    for (const [i, host] of hosts.entries()) {
      const session = await openSession({
        ...this.#options,
        host,
        isSecondPass: i >= round.length,
        signal: this.#closing.signal,
        // Asked late: after an outage the database can be a new one.
        schema: () => this.#connections[0]?.session.schema,
      }).catch((err: Error) => void faults.push(err));
      // No class tells: in contexts of Jest and jsdom, node's errors have others.
      if (session !== undefined) return this.#adopt(session, host);
      const fault = faults.at(-1)!;
      if (this.#closing.signal.aborted) return undefined;
      if (fault instanceof UnusableDatabase) return this.#giveUp(fault);
      debug('cannot connect', { host: nameOf(host), cause: String(fault) });
      // It works, but has no room for another one (5.1). PgBouncer 1.18 says so with 08P01.
      const isFull = ['53300', '08P01'].includes((fault as { code?: string }).code ?? '');
      if (isFull && this.#connections.some((other) => other.host === host)) return undefined;
    }
    if (this.#connections.length > 0) return undefined;
    const fault = combined(faults, hosts);
    if (this.fault === undefined) this.#options.onUnavailable(fault); // 6.1
    this.fault = fault;
    return undefined;
  }

  /** Ends the pool, because this service can never use the database. */
  #giveUp(fault: UnusableDatabase): undefined {
    this.fault = fault; // 7.2: a suite doesn't end with it
    this.#stop();
    this.#options.onFatal(fault);
  }

  /** Adds a connection to the pool. The others move to its host, a busy one when its batch has ended. */
  #adopt(session: Session, host: Host): PooledConnection | undefined {
    if (this.#closing.signal.aborted) return void session.destroy();
    const connectedAt = this.#options.now();
    const { isReadOnly } = session;
    const connection: PooledConnection = { session, host, connectedAt, isReadOnly };
    void session.closed.then(() => this.#replace(connection, 'the connection was closed'));
    this.#firstHost = host;
    this.#options.debug('connected', { host: nameOf(host) });
    if (this.fault !== undefined) this.#options.onAvailable(); // 6.1
    this.fault = undefined;
    this.#connections = [...this.#connections, connection];
    for (const other of this.#connections) {
      if (this.#isLeft(other) && other.batch === undefined) this.#replace(other, MOVED);
    }
    this.#assign();
    return connection;
  }

  /** True if the newest connection is to another host, or to a server that can write while this one's could not. */
  #isLeft({ host, isReadOnly }: PooledConnection): boolean {
    const newest = this.#connections.at(-1)!;
    return host !== newest.host || (isReadOnly && !newest.isReadOnly);
  }

  /** Makes the next attempt try this host last (5.1). Several connections can report the same host. */
  #avoid(host: Host): void {
    const { hosts } = this.#options.database;
    if (this.#firstHost === host) this.#firstHost = hosts[hosts.indexOf(host) + 1] ?? hosts[0]!;
  }
}

/** Returns one fault for those of an attempt. Several need the names of their hosts, which only some of them have. */
function combined(faults: readonly Error[], hosts: readonly Host[]): Error {
  const messages = faults.map(({ message }, i) => {
    const name = nameOf(hosts[i]!);
    return message.includes(name) ? message : `${name}: ${message}`;
  });
  const distinct = [...new Set(messages)];
  return distinct.length === 1 ? faults[0]! : new StoreUnavailable(distinct.join('; '));
}
