// Modest clients, each from its own address. One sends requests at a fixed rate, alternating between
// kept and new connections. The other keeps an idle connection.
import { once } from 'node:events';
import { Agent, type ClientRequest, request } from 'node:http';
import { Agent as TlsAgent, request as tlsRequest } from 'node:https';
import { createSecureContext } from 'node:tls';

/** A request that must return 200. */
export interface HonestRequest {
  readonly path: string;
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

/** The target of requests. */
export interface Endpoint {
  readonly port: number;
  readonly isTls: boolean;
}

const ADDRESS = '127.0.0.9';
const IDLE_ADDRESS = '127.0.0.10';
const EVERY_MS = 100;
/** A request without a response after this time has failed. */
const PATIENCE_MS = 5_000;

/** Shared, because each connection would load the certificates of all authorities again. */
const TRUST = { secureContext: createSecureContext(), rejectUnauthorized: false };

/** Sends each request ten times a second until it is stopped. */
export class HonestClient {
  readonly #endpoint: Endpoint;
  readonly #requests: readonly HonestRequest[];
  readonly #kept: Agent;
  readonly #timer: NodeJS.Timeout;
  readonly #pending = new Set<Promise<void>>();
  readonly #durations: number[] = [];
  readonly #failures = new Map<string, number>();
  #turns = 0;

  constructor(endpoint: Endpoint, requests: readonly HonestRequest[]) {
    this.#endpoint = endpoint;
    this.#requests = requests;
    this.#kept = keepingAgent(endpoint);
    this.#timer = setInterval(() => this.#turn(), EVERY_MS);
  }

  /** Stops sending; resolves when the last request has its response or has failed. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#pending);
    this.#kept.destroy();
  }

  /** Resolves when that many more requests have ended. */
  async ended(count: number): Promise<void> {
    const goal = this.#durations.length + count;
    while (this.#durations.length < goal) {
      await Promise.race([...this.#pending, new Promise((done) => setTimeout(done, EVERY_MS))]);
    }
  }

  /** Resets the counts. */
  reset(): void {
    this.#durations.length = 0;
    this.#failures.clear();
  }

  /** Requests that have ended, successful or not. */
  get total(): number {
    return this.#durations.length;
  }

  /** Failures with their counts. */
  get failures(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#failures);
  }

  /** Share of the requests that got 200, from 0 to 1. */
  get successRate(): number {
    const failed = [...this.#failures.values()].reduce((sum, count) => sum + count, 0);
    return this.total === 0 ? 0 : 1 - failed / this.total;
  }

  /** The time within which 99 % of the requests ended. */
  get p99Ms(): number {
    const sorted = this.#durations.toSorted((a, b) => a - b);
    return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? 0;
  }

  #turn(): void {
    const isKept = this.#turns++ % 2 === 0;
    for (const each of this.#requests) {
      const began = performance.now();
      const pending = this.#send(each, isKept).then((failure) => {
        this.#pending.delete(pending);
        this.#durations.push(performance.now() - began);
        if (failure !== undefined) {
          this.#failures.set(failure, (this.#failures.get(failure) ?? 0) + 1);
        }
      });
      this.#pending.add(pending);
    }
  }

  /** Resolves with the failure, if any. */
  #send(
    { path, method = 'GET', headers = {}, body }: HonestRequest,
    isKept: boolean,
  ): Promise<string | undefined> {
    const { port, isTls } = this.#endpoint;
    return new Promise((resolve) => {
      const options = {
        ...{ host: '127.0.0.1', port, localAddress: ADDRESS, path, method, headers },
        ...{ agent: isKept ? this.#kept : false, ...(isTls ? TRUST : {}) },
      };
      const req: ClientRequest = (isTls ? tlsRequest : request)(options);
      const timer = setTimeout(() => {
        resolve('timeout');
        req.destroy();
      }, PATIENCE_MS);
      const end = (failure?: string) => {
        clearTimeout(timer);
        resolve(failure);
      };
      req.on('error', (err: NodeJS.ErrnoException) => end(err.code ?? err.message));
      req.on('response', (res) => {
        res.on('error', (err: NodeJS.ErrnoException) => end(err.code ?? err.message));
        res.on('end', () => end(res.statusCode === 200 ? undefined : String(res.statusCode)));
        res.resume();
      });
      req.end(body);
    });
  }
}

/** A client whose connection is idle after its first response. */
export class IdleClient {
  readonly #agent: Agent;

  private constructor(agent: Agent) {
    this.#agent = agent;
  }

  /** Resolves when the connection is idle. */
  static async connect(endpoint: Endpoint): Promise<IdleClient> {
    const agent = keepingAgent(endpoint);
    const options = { host: '127.0.0.1', port: endpoint.port, localAddress: IDLE_ADDRESS, agent };
    const [response] = await once(
      (endpoint.isTls ? tlsRequest : request)(options).end(),
      'response',
    );
    const isIdle = once(agent, 'free');
    response.resume();
    await isIdle;
    return new IdleClient(agent);
  }

  /** False once the service has closed the connection. */
  get isConnected(): boolean {
    return Object.keys(this.#agent.freeSockets).length > 0;
  }

  close(): void {
    this.#agent.destroy();
  }
}

function keepingAgent({ isTls }: Endpoint): Agent {
  return isTls ? new TlsAgent({ keepAlive: true, ...TRUST }) : new Agent({ keepAlive: true });
}
