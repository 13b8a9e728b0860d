// Load on a cluster: two replicas of the service with the page's settings. Writers on both share
// one ledger.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { type Findings, Ledger } from '../faults/ledger.ts';
import { secondsSince } from '../faults/results.ts';
import { usersIn } from '../faults/users.ts';
import { Writers } from '../faults/writers.ts';
import { send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';

const REPLICAS = 2;
const WRITERS = 4;
const PROBE_EVERY_MS = 100;

/** Maximum time that a replica may take for the writes of one `progress`. */
const PROGRESS_TIMEOUT_MS = 180_000;

export interface Seen extends Findings {
  readonly acknowledged: number;
  /** Lost and duplicated writes to users that were created after `mark`. */
  readonly sinceMark: Findings;
  /** Responses other than success and 500. */
  readonly surprises: readonly string[];
  /** Longest time without an acknowledged write on either replica. */
  readonly gapSeconds: number;
  /** Longest time without a 200 from /ready on either replica. */
  readonly unreadySeconds: number;
}

/** Load that runs until `stop`. */
export class Load implements AsyncDisposable {
  readonly #ledger = new Ledger();
  readonly #replicas: Replica[] = [];
  #marked = 0;

  private constructor() {
    process.once('exit', this.#endNow);
  }

  /** Starts the replicas and resolves once each of them has written. */
  static async start(settings: Record<string, string>): Promise<Load> {
    const load = new Load();
    try {
      while (load.#replicas.length < REPLICAS) {
        const program = await start(settings);
        load.#replicas.push(new Replica(program, load.#ledger));
      }
      await load.progress('after the start');
      return load;
    } catch (err) {
      await load[Symbol.asyncDispose]();
      throw err;
    }
  }

  get inFlight(): number {
    return this.#replicas.reduce((sum, { writers }) => sum + writers.inFlight, 0);
  }

  /** Resolves once each replica has acknowledged some more writes. */
  async progress(when: string): Promise<void> {
    await Promise.all(this.#replicas.map((replica) => replica.progress(when)));
  }

  /** Starts the period of `sinceMark`. */
  mark(): void {
    this.#marked = this.#ledger.entries.size;
  }

  /** Stops the load, and compares the acknowledged writes with the database. */
  async stop(databaseUrl: string): Promise<Seen> {
    await this.#readOwnWrites();
    await Promise.all(this.#replicas.map((replica) => replica.stop()));
    const rows = await usersIn(databaseUrl);
    const entries = [...this.#ledger.entries.values()];
    return {
      ...this.#ledger.check(rows),
      sinceMark: this.#ledger.check(rows, entries.slice(this.#marked)),
      acknowledged: this.#ledger.acknowledged,
      surprises: this.#replicas.flatMap(({ writers }) => writers.surprises),
      gapSeconds: Math.max(...this.#replicas.map(({ gapSeconds }) => gapSeconds)),
      unreadySeconds: Math.max(...this.#replicas.map(({ unreadySeconds }) => unreadySeconds)),
    };
  }

  /** Checks that both replicas use one primary: the second reads a user that the first creates. */
  async #readOwnWrites(): Promise<void> {
    const [first, second] = this.#replicas.map(({ program }) => program.url);
    const body = { name: 'read on the other replica', email: 'other@replica' };
    const entry = this.#ledger.asked(body.email, body.name);
    const created = await send(`${first}/users`, { method: 'POST', body });
    if (created.status === 500) throw new Error('the write has an unknown outcome');
    assert.equal(created.status, 201, created.body);
    const { id } = JSON.parse(created.body);
    this.#ledger.created(entry, id);
    const read = await send(`${second}/users/${id}`);
    if (read.status === 500) throw new Error('the read failed');
    assert.deepEqual([read.status, read.body], [200, created.body]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    process.removeListener('exit', this.#endNow);
    await Promise.all(this.#replicas.map((replica) => replica.end()));
  }

  readonly #endNow = (): void => {
    for (const { program } of this.#replicas) program.process.kill('SIGKILL');
  };
}

/** One replica with its clients. */
class Replica {
  readonly writers: Writers;
  readonly program: Program;
  gapSeconds = 0;
  unreadySeconds = 0;
  readonly #watching: Promise<void>;
  #isStopping = false;

  constructor(program: Program, ledger: Ledger) {
    this.program = program;
    this.writers = new Writers(ledger, program.url, WRITERS);
    this.#watching = this.#watchReady();
    this.#watching.catch(() => {});
    // Rejects when the writers end.
    this.#watchGaps().catch(() => {});
  }

  /** Resolves after some more acknowledged writes; rejects with the end of the log on timeout. */
  async progress(when: string): Promise<void> {
    const over = new AbortController();
    const tooLate = pause(PROGRESS_TIMEOUT_MS, undefined, { signal: over.signal }).then(
      () => {
        const lines = this.program.stdout.split('\n').filter((line) => !/"request"/.test(line));
        throw new Error(`too few writes ${when}:\n${lines.slice(-20).join('\n')}`);
      },
      () => {},
    );
    try {
      await Promise.race([this.writers.progress(40 * WRITERS), tooLate]);
    } finally {
      over.abort();
    }
  }

  /** Stops the clients, and checks that the service never exited or lost a connection. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.writers.stop();
    await this.#watching;
    const { exitCode, signalCode } = this.program.process;
    assert.deepEqual([exitCode, signalCode], [null, null]);
    assert.equal(this.writers.broken, 0);
  }

  /** Stops the service, which also ends its clients. */
  async end(): Promise<void> {
    this.#isStopping = true;
    await this.program[Symbol.asyncDispose]();
    await this.#watching.catch(() => {});
  }

  async #watchGaps(): Promise<void> {
    while (!this.#isStopping) {
      const began = performance.now();
      await this.writers.progress(1);
      this.gapSeconds = Math.max(this.gapSeconds, secondsSince(began));
    }
  }

  async #watchReady(): Promise<void> {
    let readyAt = performance.now();
    while (!this.#isStopping) {
      const { status } = await send(`${this.program.adminUrl}/ready`);
      if (status === 200) readyAt = performance.now();
      else this.unreadySeconds = Math.max(this.unreadySeconds, secondsSince(readyAt));
      await pause(PROBE_EVERY_MS);
    }
  }
}
