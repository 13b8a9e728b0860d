// One or two replicas of the store on a simulated server and in simulated time, the calls that they got, and
// what must hold: after each event `pass`, after the faults `heal`, and at the end of a story `end`. The server
// itself sees a wrong host (5.1), a write without a free connection (5.9), two statements in a session, and deadlocks.
import type { Store } from '../../src/store/options.ts';
import { openPostgres } from '../../src/store/postgres.ts';
import { type PostgresDatabase, parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS, CallerLeft } from '../../src/user.ts';
import { type Call, make, runAlone, shown, type Table } from '../support/store-model.ts';
import { NORMAL, SimulatedServer } from './server.ts';
import { Time } from './time.ts';

export const TIMEOUT_MS = 1000;
const CALM_MS = 300; // longest call of a client without bursts, while there are no faults
const ALONE_MS = 20; // and of a call while there is no other: it doesn't wait for the timer of the deadlines
// A deadlock of two replicas, a read that a recovery cancels, and an email that the other replica has just taken.
const RERUN = /40P01|40001|23505/;
const URL = 'postgres://u:p@a:1,b:2/d?target_session_attrs=';

interface Surroundings {
  readonly seed: number;
  readonly poolSize: number;
  readonly replicas: number;
  readonly poolerSize: number; // or 0
  readonly attributes: string;
}

/** A call without the fields that its kind doesn't use. World gives it a name, which marks the user that it writes. */
export type Action = Pick<Call, 'kind'> & Partial<Call>;

interface Made {
  readonly call: Call;
  readonly network: string;
  readonly replica: number;
  readonly began: number;
  ended?: number;
  result?: unknown; // or an error
}

const DEFAULTS = { id: 0, name: '', email: '', change: {}, condition: ALWAYS, limit: 1000 };

interface Moment {
  readonly ms: number;
  readonly table: Table;
  readonly isCommitted: boolean;
}

export class World {
  readonly time: Time;
  readonly server: SimulatedServer;
  readonly stores: readonly ReturnType<typeof openPostgres>[]; // the replicas of the service
  readonly calls: Made[] = [];
  readonly poolSize: number;
  readonly left = new Set<string>();
  isCalm = true;
  latestMs = 2 * TIMEOUT_MS + 100; // from a call to its commit
  outages = 0; // of all replicas
  readonly #violations: string[] = [];
  #closedAt = 0;

  constructor({ seed, poolSize, replicas, poolerSize, attributes }: Surroundings) {
    const time = new Time(seed);
    this.time = time;
    this.poolSize = poolSize;
    this.server = new SimulatedServer(time);
    this.server.poolerSize = poolerSize;
    const options = {
      ...{ poolSize, timeoutMs: TIMEOUT_MS, now: () => time.ms, debug: () => {} },
      onUnavailable: () => {
        const isLost = ({ connections }: Store) => connections!.used + connections!.idle === 0;
        if (++this.outages > this.stores.filter(isLost).length)
          this.#violations.push('6.1 an outage is reported while there are connections');
      },
      onAvailable: () => this.outages--,
      onFatal: (err: Error) => this.#violations.push(`fatal: ${err}`),
    };
    const database = parseDatabaseUrl(URL + attributes) as PostgresDatabase;
    this.stores = Array.from({ length: replicas }, () =>
      openPostgres(database, options, {
        afterPoll: time.after,
        nextTurn: () => time.sleep(0),
        sleep: time.sleep,
        random: time.random,
        openSession: this.server.opener({}),
      }),
    );
  }

  call(
    action: Action,
    network = 'a',
    replica = Math.floor(this.time.random() * this.stores.length),
  ): void {
    const { left } = this;
    const caller = {
      network,
      get hasLeft() {
        return left.has(network);
      },
    };
    const name = `n${this.calls.length}`;
    const call = { ...DEFAULTS, ...action, name, change: { ...action.change, name } };
    const made: Made = { call, network, replica, began: this.time.ms };
    this.calls.push(made);
    const end = (result: unknown) => {
      if (made.ended !== undefined) this.#violations.push('a call settled twice');
      made.ended = this.time.ms;
      made.result = result;
    };
    make(this.stores[replica]!, call, caller).then(end, end);
  }

  async pass(ms: number): Promise<void> {
    await this.time.pass(ms);
    // The pool checks its deadlines every 50 ms, until it closes, which takes up to 200 ms.
    const latestMs = TIMEOUT_MS + (this.#closedAt === 0 ? 100 : 300);
    for (const call of this.calls) {
      const isLate = (call.ended ?? this.time.ms) - call.began > latestMs;
      if (isLate) this.#fail(call, '4.13 has no result in time');
    }
    const used = this.stores.reduce((sum, { connections }) => sum + connections!.used, 0);
    const { size } = this.server.unanswered;
    if (used > size)
      this.#violations.push(`5.9 ${used} connections are used by ${size} statements`);
    this.#report();
  }

  async end(): Promise<void> {
    const { server, time } = this;
    let open = this.stores.length;
    const { outages } = this;
    this.#closedAt = time.ms;
    for (const store of this.stores) void store.close().then(() => open--);
    await this.pass(8000);
    if (open > 0) this.#violations.push('9.4 close() never ends');
    if (server.clients.size > 0)
      this.#violations.push(`9.4 ${server.clients.size} connections leak`);
    if (time.pending > 0) this.#violations.push(`9.4 ${time.pending} timers leak`);
    if (this.outages !== outages) this.#violations.push('6.1 a stop is reported as an outage');
    // Another replica can give a user an email after the snapshots of two statements, and so make them meet.
    const { deadlocks } = server;
    if (deadlocks > 0 && this.stores.length === 1)
      this.#violations.push(`5.6 ${deadlocks} deadlocks`);
    const tables = this.#tables();
    for (const call of this.calls) this.#check(call, tables);
    this.#checkOrder();
    this.#checkRemovals();
    this.#report();
  }

  /** Returns the users before the first change, and after each. Nobody may see one that is not the last of its commit. */
  #tables(): readonly Moment[] {
    const { states } = this.server;
    const tables: Moment[] = [{ ms: 0, table: new Map(), isCommitted: true }];
    for (const [i, { ms, id, user }] of states.entries()) {
      const table = new Map(tables.at(-1)!.table);
      if (user) table.set(id, user);
      else table.delete(id);
      tables.push({ ms, table, isCommitted: states[i + 1]?.ms !== ms });
    }
    return tables;
  }

  /** Ends all faults, and checks that the pool is whole soon, on one host. */
  async heal(): Promise<void> {
    const { server } = this;
    for (const host of server.hosts) Object.assign(host, { isUp: true, frozenUntil: 0 });
    Object.assign(server.condition, NORMAL);
    this.left.clear();
    await this.pass(5000);
    for (const { connections } of this.stores) {
      const { used, idle } = connections!;
      if (used === 0 && idle === this.poolSize) continue;
      this.#violations.push(`5.7 the pool has ${used} used and ${idle} idle connections`);
    }
    const [pools, others] = server.hosts.map(({ backends }) =>
      [...backends].map((one) => one.owner),
    );
    if (pools!.some((pool) => others!.includes(pool)))
      this.#violations.push('5.1 a pool uses two hosts');
    if (this.outages !== 0) this.#violations.push(`6.1 ${this.outages} outages have not ended`);
    // The first read can find that its connection is lost, and a write that its server has become read-only.
    for (const replica of this.stores.keys()) {
      for (let n = -2; n <= this.poolSize + 2; n++) {
        const email = `healed${replica}${n}@x`;
        this.call({ kind: n < 0 ? 'find' : 'create', email }, 'a', replica);
        await this.pass(1500);
      }
      for (const call of [this.calls.at(-4 - this.poolSize)!, this.calls.at(-1)!])
        if (call.result instanceof Error) this.#fail(call, '4.13 failed after all faults ended');
    }
    this.#report();
  }

  #report(): void {
    const all = [...this.server.violations, ...this.#violations];
    if (all.length > 0)
      throw new Error(`${all.join('\n')}\nfound at ${this.time.ms.toFixed(1)} ms`);
  }

  #fail({ call, network, began, ended, result }: Made, rule: string): void {
    const text = result instanceof Error ? `${result}: ${result.cause}` : JSON.stringify(result);
    const end = ended === undefined ? 'without an end' : `to ${ended.toFixed(1)} ms`;
    const times = `from ${began.toFixed(1)} ms ${end}`;
    this.#violations.push(`${rule}: of ${network}, ${JSON.stringify(call)}, ${times}, ${text}`);
  }

  #check(call: Made, tables: readonly Moment[]): void {
    const { began, ended, result } = call;
    if (ended === undefined) {
      this.#fail(call, '4.13 never settled');
      return;
    }
    const isFault = result instanceof Error && result.name !== 'EmailTaken';
    // Client a sends bursts, which must not delay the others.
    const isCalm = this.isCalm && this.stores.length === 1 && ended < this.#closedAt;
    if (isCalm && call.network !== 'a' && (isFault || ended - began > CALM_MS))
      this.#fail(call, '5.11 is slow or failed');
    const isOther = (other: Made) =>
      other !== call && other.began <= ended && (other.ended ?? ended) >= began;
    if (isCalm && ended - began > ALONE_MS && !this.calls.some(isOther))
      this.#fail(call, '6.6 is slow alone');
    const commits = this.server.states.filter(({ user }) => user?.name === call.call.name);
    if (commits.length > 1) this.#fail(call, '4.13 took effect twice');
    for (const { stuckAt, isReplicated } of commits) {
      if (stuckAt > began + this.latestMs) this.#fail(call, '4.13 took effect late');
      if (!isReplicated && !isFault) this.#fail(call, '4.13 is acknowledged, and not replicated');
      if (result instanceof CallerLeft) this.#fail(call, '4.17 was done');
    }
    // The call had time left for another try.
    const isEarly = isFault && ended < began + 0.7 * TIMEOUT_MS;
    const [refusal] = (isEarly && RERUN.exec(`${result}${result.cause}`)) || [];
    if (refusal) this.#fail(call, `4.13 5.6 did not run again after ${refusal}`);
    if (isFault) return;
    if (!this.#isExplained(call, tables))
      this.#fail(call, '5.5 has a result that no commit explains');
  }

  /** True if the result was right at some time between the call and its end. A change is that of a commit. */
  #isExplained({ call, began, ended, result }: Made, tables: readonly Moment[]): boolean {
    const { states, splits } = this.server;
    // A commit of an old primary never ends. What is read there is as old as its successor.
    const split = splits.find(({ fromMs, toMs }) => fromMs <= ended! && toMs + TIMEOUT_MS >= began);
    const seenSince = Math.min(began, split?.fromMs ?? began);
    const found = result instanceof Error ? result.name : shown(result);
    return tables.some(({ ms, table, isCommitted }, i) => {
      const next = states[i];
      if (ms > ended! || (next && next.ms < seenSince)) return false;
      const alone = runAlone(table, call, next?.id ?? 0);
      if (alone.result !== found) return false;
      if (alone.table === table) return isCommitted;
      const isInTime = next && next.ms >= began && next.ms <= ended!;
      return isInTime && shown(alone.table.get(next.id)) === shown(next.user);
    });
  }

  /** 5.11: updates of one user by one client of one replica take effect in the order of their calls. */
  #checkOrder(): void {
    const latest = new Map<string, number>();
    for (const { id, user } of this.server.states) {
      const index = Number(user?.name.slice(1));
      const call = this.calls[index];
      // One that failed can take effect later.
      if (call?.call.kind !== 'update' || call.result instanceof Error) continue;
      const key = `${call.network} ${call.replica} ${id}`;
      if ((latest.get(key) ?? -1) > index) this.#fail(call, '5.11 overtook an earlier call');
      latest.set(key, index);
    }
  }

  /** One call removes a user (5.5), in time (4.13), and its caller has not left (4.17). No id is used again. */
  #checkRemovals(): void {
    for (const { ms, id, user, stuckAt } of this.server.states) {
      if (user) continue;
      const calls = this.calls.filter(({ call, began, result }) => {
        const isDelete = call.kind === 'delete' && call.id === id && began <= ms;
        return isDelete && typeof result === 'object' && !(result instanceof CallerLeft);
      });
      const [, second] = calls.filter(({ result }) => !(result instanceof Error));
      if (second) this.#fail(second, '5.5 removed a user that another call removed');
      if (!calls.some(({ began }) => stuckAt <= began + this.latestMs))
        this.#violations.push(`4.13 4.17 no call removed user ${id} in time`);
    }
  }
}
