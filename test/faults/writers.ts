// Clients that create, change and remove users over keep-alive connections as fast as possible.
// Each user has its own email. Every response is recorded in the ledger.
import { once } from 'node:events';
import {
  Agent,
  request as httpRequest,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http';
import type { Entry, Ledger } from './ledger.ts';

// The cycle of a writer. It creates more users than it removes.
const TURNS = ['create', 'create', 'change', 'create', 'create', 'change', 'remove'] as const;

let runs = 0;

export class Writers {
  /** Unexpected responses. */
  readonly surprises: string[] = [];
  /** Connections that failed. */
  broken = 0;
  slowestMs = 0;
  /** Resolves when every writer has ended, by itself or because its connection failed. */
  readonly ended: Promise<unknown>;
  readonly #ledger: Ledger;
  readonly #url: string;
  readonly #run = ++runs;
  readonly #counts = new Map<number, number>(); // responses by status
  readonly #waiting = new Set<() => void>();
  readonly #inFlight = new Set<Promise<unknown>>();
  #isStopping = false;

  /** Starts to write at once. A writer ends when its connection fails. */
  constructor(ledger: Ledger, url: string, count: number) {
    this.#ledger = ledger;
    this.#url = url;
    this.ended = Promise.all(Array.from({ length: count }, (_, i) => this.#write(i)));
  }

  count(status: number): number {
    return this.#counts.get(status) ?? 0;
  }

  get acknowledged(): number {
    return this.count(200) + this.count(201);
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  /** Resolves when every request that is now in flight has ended. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#inFlight);
  }

  /** Resolves once the condition holds. Checks it after every response. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      const isRunning = await Promise.race([
        new Promise<true>((resolve) => this.#waiting.add(() => resolve(true))),
        this.ended.then(() => false),
      ]);
      if (!isRunning && !condition()) throw new Error('the writers have ended');
    }
  }

  /** Resolves after `count` more acknowledged writes. */
  progress(count: number): Promise<void> {
    const goal = this.acknowledged + count;
    return this.until(() => this.acknowledged >= goal);
  }

  /** Sends nothing more; resolves when every request in flight has ended. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.ended;
  }

  async #write(writer: number): Promise<void> {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const own: Entry[] = [];
    try {
      for (let i = 0; !this.#isStopping; i++) {
        const turn = TURNS[i % TURNS.length]!;
        if (turn === 'create' || own.length === 0) {
          const entry = await this.#create(agent, `${process.pid}-${this.#run}-${writer}-${i}`);
          if (entry !== undefined) own.push(entry);
        } else if (turn === 'change') {
          if (!(await this.#change(agent, own.at(-1)!, `changed ${i}`))) own.pop();
        } else {
          await this.#remove(agent, own.shift()!);
        }
      }
    } catch {
      this.broken++;
    } finally {
      agent.destroy();
      this.#wake();
    }
  }

  async #create(agent: Agent, name: string): Promise<Entry | undefined> {
    const email = `${name}@example.com`;
    const entry = this.#ledger.asked(email, name);
    const response = await this.#send(agent, '/users', 'POST', { name, email });
    if (response === undefined) return undefined;
    this.#ledger.created(entry, JSON.parse(response.body).id);
    return entry;
  }

  /** True if the user can be used again. */
  async #change(agent: Agent, entry: Entry, name: string): Promise<boolean> {
    entry.unknownName = name;
    const response = await this.#send(agent, `/users/${entry.id}`, 'PATCH', { name });
    if (response !== undefined) this.#ledger.changed(entry, name);
    return response !== undefined;
  }

  async #remove(agent: Agent, entry: Entry): Promise<void> {
    entry.removal = 'unknown';
    const response = await this.#send(agent, `/users/${entry.id}`, 'DELETE');
    if (response !== undefined) this.#ledger.removed(entry);
  }

  /** The response if it acknowledges the write. @throws if the connection fails */
  async #send(agent: Agent, path: string, method: string, body?: object) {
    const asked = request(this.#url + path, { agent, method }, body);
    this.#inFlight.add(asked);
    try {
      const response = await asked;
      const { status } = response;
      this.#counts.set(status, this.count(status) + 1);
      this.slowestMs = Math.max(this.slowestMs, response.ms);
      if (status === (method === 'POST' ? 201 : 200)) return response;
      if (status !== 500) this.surprises.push(`${method} ${path}: ${status} ${response.body}`);
      return undefined;
    } finally {
      this.#inFlight.delete(asked);
      queueMicrotask(() => this.#wake());
    }
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}

/** Sends a body as JSON. @throws the error of the connection */
export async function request(url: string, options: RequestOptions, body?: object) {
  const began = performance.now();
  const headers = { ...options.headers, ...(body && { 'Content-Type': 'application/json' }) };
  const req = httpRequest(url, { ...options, headers }).on('error', () => {});
  req.end(body && JSON.stringify(body));
  const [response] = (await once(req, 'response')) as [IncomingMessage];
  let text = '';
  for await (const part of response.setEncoding('utf8')) text += part;
  const { statusCode: status = 0, headers: received } = response;
  return { status, headers: received, body: text, ms: performance.now() - began };
}
