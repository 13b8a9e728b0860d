// The load on a cluster: two replicas of the service with their defaults, writers on each with one
// ledger, and clients of what needs no store, which must not notice a failover.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { type Findings, Ledger } from '../faults/ledger.ts';
import { secondsSince } from '../faults/results.ts';
import { usersIn } from '../faults/users.ts';
import { Writers } from '../faults/writers.ts';
import { basic, send } from '../support/client.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';

const REPLICAS = 2;
const WRITERS = 8;
const PROBE_EVERY_MS = 100;

/** The longest that replicas go without a write before the test fails. */
const PROGRESS_TIMEOUT_MS = 180_000;

/** What a load has seen. */
export interface Seen extends Findings {
  readonly acknowledged: number;
  /** Requests with another status than success or 500. */
  readonly surprises: readonly string[];
  /** Longest time without an acknowledged write, of the replica that had the longest. */
  readonly gapSeconds: number;
  /** Longest time in which /ready was not 200, of the same. */
  readonly unreadySeconds: number;
}

/** Load that goes on until `stop`. */
export class Load implements AsyncDisposable {
  readonly ledger = new Ledger();
  readonly #replicas: readonly Replica[];

  private constructor(programs: readonly Program[]) {
    this.#replicas = programs.map((program) => new Replica(program, this.ledger));
  }

  /** Starts the replicas and resolves once each of them has written. */
  static async start(databaseUrl: string): Promise<Load> {
    const programs = await Promise.all(
      Array.from({ length: REPLICAS }, () => start({ DATABASE_URL: databaseUrl })),
    );
    const load = new Load(programs);
    try {
      await load.progress('after the start');
      return load;
    } catch (err) {
      await load[Symbol.asyncDispose]();
      throw err;
    }
  }

  /** Requests without a response. */
  get inFlight(): number {
    return this.#replicas.reduce((sum, { writers }) => sum + writers.inFlight, 0);
  }

  /** Resolves once each writer of each replica has, on average, written 20 times more. */
  async progress(when: string): Promise<void> {
    await Promise.all(this.#replicas.map((replica) => replica.progress(when)));
  }

  /** Stops, and compares what was acknowledged with what is in the database. */
  async stop(databaseUrl: string): Promise<Seen> {
    await this.#readOwnWrites();
    await Promise.all(this.#replicas.map((replica) => replica.stop()));
    const findings = this.ledger.check(await usersIn(databaseUrl));
    return {
      ...findings,
      acknowledged: this.ledger.acknowledged,
      surprises: this.#replicas.flatMap(({ writers }) => writers.surprises),
      gapSeconds: Math.max(...this.#replicas.map(({ gapSeconds }) => gapSeconds)),
      unreadySeconds: Math.max(...this.#replicas.map(({ unreadySeconds }) => unreadySeconds)),
    };
  }

  /** A user that one replica creates is there on the other: both are on the same primary. */
  async #readOwnWrites(): Promise<void> {
    const [first, second] = this.#replicas.map(({ program }) => program.url);
    const name = 'read on the other replica';
    const email = 'other@replica';
    this.ledger.asked(email, name);
    const created = await send(`${first}/users`, { method: 'POST', body: { name, email } });
    assert.equal(created.status, 201, created.body);
    const { id } = JSON.parse(created.body);
    this.ledger.created(this.ledger.entries.get(email)!, id);
    const read = await send(`${second}/users/${id}`);
    assert.deepEqual([read.status, read.body], [200, created.body]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#replicas.map(({ program }) => program[Symbol.asyncDispose]()));
  }
}

/** One replica with its clients. */
class Replica {
  readonly program: Program;
  readonly writers: Writers;
  gapSeconds = 0;
  unreadySeconds = 0;
  #isStopping = false;
  readonly #done: Promise<unknown>;
  /** What clients of routes without a store got instead of 200. */
  readonly #failures: string[] = [];

  constructor(program: Program, ledger: Ledger) {
    this.program = program;
    this.writers = new Writers(ledger, program.url, WRITERS);
    this.#done = Promise.all([this.#watchGaps(), this.#watchReady(), this.#useOtherRoutes()]);
  }

  async progress(when: string): Promise<void> {
    const over = new AbortController();
    const tooLate = pause(PROGRESS_TIMEOUT_MS, undefined, { signal: over.signal }).then(
      () => {
        const lines = this.program.stdout.split('\n').filter((line) => !/"request"/.test(line));
        throw new Error(`no progress ${when}:\n${lines.slice(-20).join('\n')}`);
      },
      () => {},
    );
    try {
      await Promise.race([this.writers.progress(20 * WRITERS), tooLate]);
    } finally {
      over.abort();
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.writers.stop();
    await this.#done;
    const { exitCode, signalCode } = this.program.process;
    assert.deepEqual([exitCode, signalCode], [null, null]);
    assert.equal(this.writers.broken, 0);
    assert.deepEqual(this.#failures, []);
  }

  async #watchGaps(): Promise<void> {
    while (!this.#isStopping) {
      const began = performance.now();
      // It throws when the writers end.
      await this.writers.progress(1).catch(() => {});
      this.gapSeconds = Math.max(this.gapSeconds, secondsSince(began));
    }
  }

  async #watchReady(): Promise<void> {
    let readyAt = performance.now();
    while (!this.#isStopping) {
      const { status } = await send(`${this.program.adminUrl}/ready`);
      this.unreadySeconds = Math.max(
        this.unreadySeconds,
        status === 200 ? 0 : secondsSince(readyAt),
      );
      if (status === 200) readyAt = performance.now();
      await pause(PROBE_EVERY_MS);
    }
  }

  async #useOtherRoutes(): Promise<void> {
    const { url } = this.program;
    const body = { id: USER, pw: PASSWORD };
    while (!this.#isStopping) {
      const token = await send(`${url}/token`, { method: 'POST', body });
      const bearer = token.status === 200 ? JSON.parse(token.body).token : '';
      const answers = {
        '/token': token,
        '/': await send(url),
        '/notes': await send(`${url}/notes`, { headers: { Authorization: `Bearer ${bearer}` } }),
        '/protected': await send(`${url}/protected`, {
          headers: { Authorization: basic(USER, PASSWORD) },
        }),
      };
      for (const [path, { status }] of Object.entries(answers)) {
        if (status !== 200) this.#failures.push(`${path}: ${status}`);
      }
      await pause(PROBE_EVERY_MS);
    }
  }
}
