// Clients that create, change and remove users over keep-alive connections as fast as possible, and a ledger of
// what the database must have after their responses. Each user has its own email. A write with an unknown outcome
// (a 500, or no response) may have been done, but never twice.
import assert from 'node:assert/strict';
import { sendUnchecked } from '../support/client.ts';
import { execute } from '../support/service.ts';
import { until } from '../support/until.ts';

const ABSENT = 'absent';

/** A user as its client sees it. The email identifies it. */
interface Entry {
  readonly email: string;
  id?: number;
  /** Its version and name, or ABSENT; two after a write of unknown outcome. */
  states: readonly string[];
}

export class Ledger {
  /** Writes that got 201 or 200. */
  acknowledged = 0;
  readonly #entries = new Map<string, Entry>();

  add(email: string): Entry {
    const entry = { email, states: [ABSENT] };
    this.#entries.set(email, entry);
    return entry;
  }

  /** Returns what is lost in the database, or was done again after a later write of the same user. */
  async check(databaseUrl: string): Promise<string[]> {
    const rows = await execute(databaseUrl, 'select id, version, name, email from users');
    const faults = rows
      .filter(({ email }) => !this.#entries.has(String(email)))
      .map(({ email }) => `${email} was never asked for`);
    const byEmail = new Map(rows.map((row) => [row.email, row]));
    const owners = new Map<number, string>();
    for (const { email, id, states } of this.#entries.values()) {
      const row = byEmail.get(email);
      const state = row ? `${row.version} ${row.name}` : ABSENT;
      if (!states.includes(state)) faults.push(`${email} is ${state}, not ${states}`);
      const found = row && Number(row.id);
      const given = id ?? found;
      if (given !== undefined && owners.has(given)) {
        faults.push(`${email} and ${owners.get(given)} got the id ${given}`);
      }
      if (given !== undefined) owners.set(given, email);
      if (found !== undefined && found !== given) faults.push(`${email} got two ids`);
    }
    return faults;
  }
}

// The cycle of a writer. It creates more users than it removes.
const TURNS = ['create', 'create', 'change', 'create', 'create', 'change', 'remove'] as const;

let runs = 0;

export class Writers {
  /** Responses 200 and 201. */
  acknowledged = 0;
  /** Responses 500. */
  refused = 0;
  /** Connections that failed. */
  broken = 0;
  slowestMs = 0;
  readonly #ledger: Ledger;
  readonly #url: string;
  readonly #run = ++runs;
  readonly #surprises: string[] = []; // other responses
  #running: number; // writers
  #isStopping = false;

  /** Starts to write at once. A writer ends when its connection fails. */
  constructor(ledger: Ledger, url: string, count: number) {
    this.#ledger = ledger;
    this.#url = url;
    this.#running = count;
    for (let i = 0; i < count; i++) void this.#write(i);
  }

  async until(condition: () => boolean): Promise<void> {
    await until(() => condition() || this.#running === 0);
    assert.ok(condition(), 'the writers have ended');
  }

  /** Resolves after `count` more acknowledged writes. */
  progress(count: number): Promise<void> {
    const goal = this.acknowledged + count;
    return this.until(() => this.acknowledged >= goal);
  }

  /** Sends nothing more; resolves when every request in flight has ended. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await until(() => this.#running === 0);
    assert.deepEqual(this.#surprises, []);
  }

  async #write(writer: number): Promise<void> {
    const own: Entry[] = [];
    try {
      for (let i = 0; !this.#isStopping; i++) {
        const name = `${process.pid}-${this.#run}-${writer}-${i}`;
        const turn = TURNS[i % TURNS.length]!;
        if (turn === 'create' || own.length === 0) {
          const entry = this.#ledger.add(`${name}@example.com`);
          const { email } = entry;
          const user = await this.#send(entry, `1 ${name}`, 'POST', { name, email });
          if (user) own.push(Object.assign(entry, { id: JSON.parse(user).id }));
        } else if (turn === 'change') {
          const entry = own.at(-1)!;
          const next = `${Number.parseInt(entry.states[0]!, 10) + 1} ${name}`;
          if (!(await this.#send(entry, next, 'PATCH', { name }))) own.pop();
        } else {
          await this.#send(own.shift()!, ABSENT, 'DELETE');
        }
      }
    } catch {
      this.broken++;
    }
    this.#running--;
  }

  /** Makes the user's next state with a request. Returns the body of a response that acknowledges it. */
  async #send(entry: Entry, next: string, method: string, body?: object) {
    entry.states = [...entry.states, next];
    const path = entry.id === undefined ? '/users' : `/users/${entry.id}`;
    const began = performance.now();
    const { status, body: text } = await sendUnchecked(this.#url + path, { method, body });
    this.slowestMs = Math.max(this.slowestMs, performance.now() - began);
    if (status === 500) this.refused++;
    else if (status !== (method === 'POST' ? 201 : 200)) {
      this.#surprises.push(`${method} ${path}: ${status} ${text}`);
    } else {
      entry.states = [next];
      this.acknowledged++;
      this.#ledger.acknowledged++;
      return text;
    }
    return undefined;
  }
}
