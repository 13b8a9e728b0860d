// One or two replicas of the store on a simulated server and in simulated time, the calls that they got, and
// what must hold: after each event `pass`, after the faults `heal`, and at the end of a story `end`. The server
// itself sees a write without a free connection (5.9), two statements in a session, and deadlocks (5.6).
import { openPostgres } from '../../src/store/postgres.ts';
import { type PostgresDatabase, parseDatabaseUrl } from '../../src/store/url.ts';
import { ALWAYS, type Condition, type User, type UserStore } from '../../src/user.ts';
import { newUser } from '../support/users.ts';
import { NORMAL, SimulatedServer, type State } from './server.ts';
import { Time } from './time.ts';

export const TIMEOUT_MS = 1000;
const CALM_MS = 300; // longest call of a client without bursts, while there are no faults
// A deadlock of two replicas, a stricter isolation, and an email that the other replica has just taken.
const RERUN = /40P01|40001|23505/;
const DATABASE = parseDatabaseUrl('postgres://u:p@a:1,b:2/d') as PostgresDatabase;

/** What a call does. A name marks the write, so that its commit can be found. */
export type Action =
  | { readonly kind: 'create'; readonly email: number }
  | {
      readonly kind: 'update';
      readonly id: number;
      readonly email: number | undefined;
      readonly version: number | undefined;
    }
  | { readonly kind: 'delete'; readonly id: number; readonly version: number | undefined }
  | { readonly kind: 'find'; readonly id: number }
  | { readonly kind: 'findByEmail'; readonly email: number }
  | { readonly kind: 'list'; readonly id: number }
  | { readonly kind: 'ping' };

interface Surroundings {
  readonly seed: number;
  readonly poolSize: number;
  readonly replicas: number;
  readonly poolerSize: number; // or 0
}

interface Call {
  readonly action: Action;
  readonly name: string; // of the user, if it is a write
  readonly network: string;
  readonly replica: number;
  readonly began: number;
  ended?: number;
  result?: unknown; // or an error
}

const emailOf = (n: number) => `e${String(n).padStart(3, '0')}@x`;

export class World {
  readonly time: Time;
  readonly server: SimulatedServer;
  readonly stores: readonly ReturnType<typeof openPostgres>[]; // the replicas of the service
  readonly calls: Call[] = [];
  readonly poolSize: number;
  readonly left = new Set<string>();
  isCalm = true;
  canBeLate = false; // a frozen machine, or a clock that was set back
  outages = 0; // of all replicas
  readonly #violations: string[] = [];
  readonly #commits = new Map<string, State[]>(); // by the name that the write gave
  readonly #moments: { readonly ms: number; readonly users: readonly User[] }[] = [
    { ms: 0, users: [] },
  ]; // after each commit
  #closedAt = 0;

  constructor({ seed, poolSize, replicas, poolerSize }: Surroundings) {
    const time = new Time(seed);
    this.time = time;
    this.poolSize = poolSize;
    this.server = new SimulatedServer(time);
    this.server.poolerSize = poolerSize;
    const options = {
      ...{ poolSize, timeoutMs: TIMEOUT_MS, now: () => time.ms },
      ...{ debug: () => {} },
      onUnavailable: () => this.outages++,
      onAvailable: () => this.outages--,
      onFatal: (err: Error) => this.#violations.push(`fatal: ${err}`),
    };
    this.stores = Array.from({ length: replicas }, () =>
      openPostgres(DATABASE, options, {
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
    const call: Call = { action, name, network, replica, began: this.time.ms };
    this.calls.push(call);
    const end = (result: unknown) => {
      if (call.ended !== undefined) this.#violations.push('a call settled twice');
      call.ended = this.time.ms;
      call.result = result;
    };
    make(this.stores[replica]!, action, name, caller).then(end, end);
  }

  /** Lets time pass, and checks what must hold at any time. */
  async pass(ms: number): Promise<void> {
    await this.time.pass(ms);
    // The pool checks its deadlines every 50 ms, until it closes, which takes up to 200 ms.
    const latestMs = TIMEOUT_MS + (this.#closedAt === 0 ? 100 : 300);
    for (const call of this.calls) {
      const isLate = (call.ended ?? this.time.ms) - call.began > latestMs;
      if (isLate) this.#fail(call, '4.13 has no result in time');
    }
    this.#report();
  }

  /** Closes the store, and checks all of the story. */
  async end(): Promise<void> {
    const { server, time } = this;
    let open = this.stores.length;
    this.#closedAt = time.ms;
    for (const store of this.stores) void store.close().then(() => open--);
    await this.pass(8000);
    if (open > 0) this.#violations.push('9.4 close() never ends');
    if (server.clients.size > 0)
      this.#violations.push(`9.4 ${server.clients.size} connections leak`);
    if (time.pending > 0) this.#violations.push(`9.4 ${time.pending} timers leak`);
    if (server.deadlocks > 0) this.#violations.push(`5.6 ${server.deadlocks} deadlocks`);
    this.#prepare();
    for (const call of this.calls) this.#check(call);
    this.#checkOrder();
    this.#report();
  }

  #prepare(): void {
    const { states } = this.server;
    const users = new Map<number, User>();
    for (const [i, { ms, id, user }] of states.entries()) {
      if (user) users.set(id, user);
      else users.delete(id);
      if (user) this.#commits.set(user.name, [...(this.#commits.get(user.name) ?? []), states[i]!]);
      if (states[i + 1]?.ms === ms) continue; // of the same commit
      this.#moments.push({ ms, users: [...users.values()].sort((a, b) => a.id - b.id) });
    }
  }

  /** Ends all faults, and checks that the pool is whole soon. */
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
    if (this.outages !== 0) this.#violations.push(`6.1 ${this.outages} outages have not ended`);
    // A write can find that its connection leads to a server that has become read-only.
    for (const replica of this.stores.keys()) {
      for (let n = 0; n <= this.poolSize; n++) {
        this.call({ kind: 'create', email: 900 + 10 * replica + n }, 'a', replica);
        await this.pass(1500);
      }
      const last = this.calls.at(-1)!;
      if (last.result instanceof Error) this.#fail(last, '4.13 failed after all faults had ended');
    }
    this.#report();
  }

  #report(): void {
    const all = [...this.server.violations, ...this.#violations];
    if (all.length > 0)
      throw new Error(`${all.join('\n')}\nfound at ${this.time.ms.toFixed(1)} ms`);
  }

  #fail({ action, name, network, began, ended, result }: Call, rule: string): void {
    const shown = result instanceof Error ? `${result}: ${result.cause}` : JSON.stringify(result);
    const end = ended === undefined ? 'without an end' : `to ${ended.toFixed(1)} ms`;
    const times = `from ${began.toFixed(1)} ms ${end}`;
    this.#violations.push(
      `${rule}: ${name} of ${network}, ${JSON.stringify(action)}, ${times}, ${shown}`,
    );
  }

  #check(call: Call): void {
    const { name, began, ended, result } = call;
    if (ended === undefined) {
      this.#fail(call, '4.13 never settled');
      return;
    }
    const isFault = result instanceof Error && result.name !== 'EmailTaken';
    // Client a sends bursts, which must not delay the others.
    const isCalm = this.isCalm && this.stores.length === 1 && ended < this.#closedAt;
    if (isCalm && call.network !== 'a' && (isFault || ended - began > CALM_MS))
      this.#fail(call, '5.11 is slow or failed');
    const commits = this.#commits.get(name) ?? [];
    if (commits.length > 1) this.#fail(call, '4.13 took effect twice');
    for (const { ms } of commits) {
      if (ms > began + 2 * TIMEOUT_MS + 100 && !this.canBeLate)
        this.#fail(call, '4.13 took effect late');
      if (result instanceof Error && result.name === 'CallerLeft')
        this.#fail(call, '4.17 was done');
    }
    // The call had time left for another try.
    const isEarly = isFault && ended < began + 0.7 * TIMEOUT_MS;
    const [refusal] = (isEarly && RERUN.exec(`${result}${result.cause}`)) || [];
    if (refusal) this.#fail(call, `4.13 5.6 did not run again after ${refusal}`);
    if (isFault) return;
    if (!this.#isExplained(call)) this.#fail(call, '5.5 has a result that no commit explains');
  }

  /** True if the result was right at some time between the call and its end. */
  #isExplained({ action, name, began, ended, result }: Call): boolean {
    const { states, splits } = this.server;
    const inTime = ({ ms }: { ms: number }) => ms >= began && ms <= ended!;
    // A commit of an old primary never ends. What is read there is as old as its successor.
    const split = splits.find(({ fromMs, toMs }) => fromMs <= ended! && toMs + TIMEOUT_MS >= began);
    const seenSince = Math.min(began, split?.fromMs ?? began);
    const seenDuring = (holds: (users: readonly User[]) => boolean) =>
      this.#during(seenSince, ended!, holds);
    const isTaken = (email: string, id?: number) =>
      seenDuring((users) => users.some((u) => u.email === email && u.id !== id));
    if (result instanceof Error) {
      if (action.kind === 'create') return isTaken(emailOf(action.email));
      return action.kind === 'update' && isTaken(emailOf(action.email!), action.id);
    }
    const same = (user: User | undefined) => isSame(user, result as User | undefined);
    const listed = JSON.stringify(result);
    switch (action.kind) {
      case 'create':
        return states.some((one) => inTime(one) && same(one.user) && one.user!.name === name);
      case 'ping':
        return true;
      case 'find':
        return seenDuring((users) => same(users.find(({ id }) => id === action.id)));
      case 'findByEmail':
        return seenDuring((users) =>
          same(users.find(({ email }) => email === emailOf(action.email))),
        );
      case 'list':
        return seenDuring(
          (users) => JSON.stringify(users.filter(({ id }) => id > action.id)) === listed,
        );
    }
    const { id, version } = action;
    const seen = (holds: (user: User | undefined) => boolean) =>
      seenDuring((users) => holds(users.find((user) => user.id === id)));
    if (result === undefined) return seen((user) => user === undefined);
    if (result === 'stale') return seen((user) => user !== undefined && user.version !== version);
    if (action.kind === 'update') {
      return states.some((one) => inTime(one) && same(one.user) && one.user!.name === name);
    }
    return states.some((one, i) => {
      const before = states.slice(0, i).findLast((other) => other.id === id);
      return inTime(one) && one.id === id && one.user === undefined && same(before?.user);
    });
  }

  /** True if it held for the users at some time. */
  #during(began: number, ended: number, holds: (users: readonly User[]) => boolean): boolean {
    return this.#moments.some(
      ({ ms, users }, i) =>
        ms <= ended && (this.#moments[i + 1]?.ms ?? ended) >= began && holds(users),
    );
  }

  /** 5.11: updates of one user by one client of one replica take effect in the order of their calls. */
  #checkOrder(): void {
    const latest = new Map<string, number>();
    for (const { id, user } of this.server.states) {
      const index = Number(user?.name.slice(1));
      const call = this.calls[index];
      // One that failed can take effect later.
      if (call?.action.kind !== 'update' || call.result instanceof Error) continue;
      const key = `${call.network} ${call.replica} ${id}`;
      if ((latest.get(key) ?? -1) > index) this.#fail(call, '5.11 overtook an earlier call');
      latest.set(key, index);
    }
  }
}

function isSame(a: User | undefined, b: User | undefined): boolean {
  return (
    a?.id === b?.id && a?.name === b?.name && a?.email === b?.email && a?.version === b?.version
  );
}

function make(
  store: UserStore,
  action: Action,
  name: string,
  caller: Parameters<UserStore['find']>[1],
) {
  const conditionOf = (version: number | undefined): Condition =>
    version === undefined ? ALWAYS : { oneOf: [version], noneOf: [] };
  switch (action.kind) {
    case 'create':
      return store.create(newUser({ name, email: emailOf(action.email) }), caller);
    case 'update': {
      const email = action.email === undefined ? {} : { email: emailOf(action.email) };
      return store.update(action.id, { name, ...email }, conditionOf(action.version), caller);
    }
    case 'delete':
      return store.delete(action.id, conditionOf(action.version), caller);
    case 'find':
      return store.find(action.id, caller);
    case 'findByEmail':
      return store.findByEmail(emailOf(action.email), caller);
    case 'ping':
      return store.ping(caller);
    case 'list':
      return store.list({ after: action.id, limit: 1000 }, caller);
  }
}
