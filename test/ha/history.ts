// Calls of many clients on a few users and emails, recorded for porcupine/main.go.
import assert from 'node:assert/strict';
import { createWriteStream, type WriteStream } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { sendUnchecked } from '../support/client.ts';

const CLIENTS = 24;
const USERS = 64; // at a time
const EMAILS = 16;
const TIMEOUT_MS = 30_000; // until a call counts as without a response
const PAUSE_MS = 100; // of a client, after a call of unknown outcome
// A user or an email is used until it has this many writes of unknown outcome. The checker tries each set of them.
const MAX_UNKNOWN = 3;

export class History {
  calls = 0;
  unknown = 0;
  readonly #url: string;
  readonly #file: WriteStream;
  readonly #users = new Map<number, number>(); // versions by id, as far as the clients know
  readonly #owners = new Map<string, number>(); // ids that own an email, as far as the clients know
  readonly #clients: Promise<void>[];
  readonly #unknowns = new Map<string, number>(); // writes by key
  readonly #emails = Array.from({ length: EMAILS }, (_, i) => `first${i}@emails`);
  #names = 0;
  #isStopping = false;

  constructor(url: string, file: string) {
    this.#url = url;
    this.#file = createWriteStream(file);
    this.#clients = Array.from({ length: CLIENTS }, (_, i) => this.#run(i));
    for (const client of this.#clients) client.catch(() => {}); // `stop` rejects.
  }

  async progress(count: number): Promise<void> {
    const goal = this.calls - this.unknown + count;
    while (this.calls - this.unknown < goal) {
      await Promise.race([pause(50), ...this.#clients]);
    }
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#clients);
    await new Promise<void>((resolve) => this.#file.end(resolve));
  }

  async #run(client: number): Promise<void> {
    while (!this.#isStopping) {
      const dice = Math.random();
      if (dice < 0.15) await this.#useEmail(client);
      else if (this.#users.size < USERS) await this.#create(client);
      else await this.#useUser(client, (dice - 0.15) / 0.85);
    }
  }

  async #create(client: number): Promise<void> {
    const name = `n${++this.#names}`;
    const start = clock();
    const { status, body } = await this.#send('POST', '/users', { name, email: `${name}@users` });
    if (status === 0) return; // Nobody learns its id.
    assert.equal(status, 201, body);
    const { id } = JSON.parse(body);
    this.#users.set(id, 1);
    this.#record({ key: `user ${id}`, kind: 'create', start, client, status, name });
  }

  async #useUser(client: number, dice: number): Promise<void> {
    const [id, known] = [...this.#users][Math.floor(Math.random() * this.#users.size)]!;
    const call = { key: `user ${id}`, start: clock(), client };
    const path = `/users/${id}`;
    if (dice < 0.4) {
      const { status, etag, body } = await this.#send('GET', path);
      if (status === 0) return; // A read without a response says nothing.
      const name = status === 200 ? JSON.parse(body).name : '';
      const version = versionOf(etag);
      if (status === 200 && this.#users.has(id)) this.#users.set(id, version);
      this.#record({ ...call, kind: 'get', status, version, name });
    } else if (dice < 0.98) {
      const name = `n${++this.#names}`;
      const ifMatch = dice < 0.6 ? known : 0;
      const headers = ifMatch > 0 ? { 'If-Match': `"${ifMatch}"` } : {};
      const { status, etag } = await this.#send('PATCH', path, { name }, headers);
      this.#record({ ...call, kind: 'patch', status, version: versionOf(etag), name, ifMatch });
      if (this.#isWorn(call.key)) this.#users.delete(id);
    } else {
      this.#users.delete(id);
      const { status } = await this.#send('DELETE', path);
      this.#record({ ...call, kind: 'delete', status });
    }
  }

  /** Claims a free email, or finds its owner or releases it. */
  async #useEmail(client: number): Promise<void> {
    const slot = Math.floor(Math.random() * EMAILS);
    const email = this.#emails[slot]!;
    const id = this.#owners.get(email);
    const call = { key: email, start: clock(), client };
    const dice = Math.random();
    if (dice < 0.4) {
      const { status, body } = await this.#send('GET', `/users?email=${email}`);
      if (status === 0) return;
      const found: number | undefined = JSON.parse(body)[0]?.id;
      if (found !== undefined) this.#owners.set(email, found);
      this.#record({ ...call, kind: 'find', status, id: found ?? 0 });
    } else if (id === undefined || dice < 0.6) {
      const { status, body } = await this.#send('POST', '/users', { name: 'Owner', email });
      const created = status === 201 ? JSON.parse(body).id : 0;
      if (status === 201) this.#owners.set(email, created);
      this.#record({ ...call, kind: 'claim', status, id: created });
    } else {
      if (this.#owners.get(email) === id) this.#owners.delete(email);
      const { status } = await this.#send('DELETE', `/users/${id}`);
      this.#record({ ...call, kind: 'release', status, id });
    }
    if (this.#isWorn(email)) this.#emails[slot] = `${++this.#names}@emails`;
  }

  #isWorn(key: string): boolean {
    return (this.#unknowns.get(key) ?? 0) >= MAX_UNKNOWN;
  }

  #record(call: Readonly<Record<string, string | number>> & { key: string; status: number }): void {
    if (call.status === 0) this.#unknowns.set(call.key, (this.#unknowns.get(call.key) ?? 0) + 1);
    this.#file.write(`${JSON.stringify({ ...call, end: clock() })}\n`);
  }

  /** Resolves with status 0 if the outcome is unknown: after a 5xx, and without a response. */
  async #send(
    method: string,
    path: string,
    body?: object,
    headers: Readonly<Record<string, string>> = {},
  ) {
    this.calls++;
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const options = { method, headers, body, signal };
    const response = await sendUnchecked(this.#url + path, options).catch(() => undefined);
    if (response !== undefined && response.status < 500) {
      assert.ok([200, 201, 400, 404, 412].includes(response.status), response.body);
      return { ...response, etag: response.headers.get('etag') };
    }
    this.unknown++;
    await pause(PAUSE_MS);
    return { status: 0, etag: null, body: '' };
  }
}

function versionOf(etag: string | null): number {
  return Number(/-(\d+)"$/.exec(etag ?? '"0-0"')?.[1]);
}

/** Nanoseconds. */
function clock(): number {
  return Math.round(performance.now() * 1e6);
}
