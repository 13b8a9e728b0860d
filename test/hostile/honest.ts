// Honest clients with round trips of 0, 50 and 150 ms. Each waits as long as its network would delay it, and checks
// that each response belongs to its request.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls, createSecureContext } from 'node:tls';
import { type HttpResponse, responsesIn } from '../support/client.ts';
import { PASSWORD, USER } from '../support/program.ts';
import { attackerAddress } from './attacker.ts';
import type { Service } from './service.ts';

export const ROUND_TRIPS = [0, 50, 150] as const; // milliseconds
const PATIENCE_MS = 5_000; // without the round trips
const PROBE_MS = 250;
const CONTEXT = createSecureContext();

// Clients with one connection at a time, and those of one network that overlap. Each address but the last is their own.
const KINDS = [
  { kind: 'new', everyMs: 200, isKept: false, isInside: false },
  { kind: 'kept', everyMs: 200, isKept: true, isInside: false },
  { kind: 'several', everyMs: 100, isKept: false, isInside: false },
  { kind: 'inside', everyMs: 300, isKept: false, isInside: true }, // in the attacker's network
  { kind: 'inside, kept', everyMs: 300, isKept: true, isInside: true },
] as const;

/** What a client sends: text, then perhaps more after a round trip; and what each response must be. */
interface Exchange {
  readonly parts: readonly string[]; // with ID for the request's own
  readonly bodies: readonly RegExp[];
}

const LOGIN = JSON.stringify({ id: USER, pw: PASSWORD });
const TOKEN = /^\{"token":"[\w-]+\.[\w-]+\.[\w-]+"\}\s*$/;
const HELLO = /^Hello[^\n]*\n$/;
const head = (line: string, i = 0) =>
  `${line} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ID.${i}\r\n`;
const greeting = (i = 0) => `${head('GET /', i)}\r\n`;
const login = `${head('POST /token')}Content-Type: application/json\r\nContent-Length: ${LOGIN.length}\r\n\r\n`;
const EXCHANGES: readonly Exchange[] = [
  { parts: [greeting()], bodies: [HELLO] },
  { parts: [login + LOGIN], bodies: [TOKEN] },
  { parts: [greeting(0) + greeting(1) + greeting(2)], bodies: [HELLO, HELLO, HELLO] },
  { parts: [login, LOGIN], bodies: [TOKEN] },
];
const READ = { parts: [`${head('GET /users/1')}\r\n`], bodies: [/^\{"id":1,"name":.*\}\s*$/] };

interface Client {
  readonly kind: string;
  readonly isInside: boolean;
  readonly isKept: boolean;
  readonly service: Service;
  readonly localAddress: string;
  readonly roundTripMs: number;
  kept?: Socket | undefined;
}

interface Sample {
  readonly client: Client;
  readonly ms: number; // above the round trips
  readonly failure: string | undefined;
}

export class Crowd {
  readonly broken: string[] = []; // responses that are not what their request asked for
  live = { sent: 0, failed: 0 };
  #samples: Sample[] = [];
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #pending: Promise<void>[] = [];
  #turns = 0;

  constructor(service: Service, hasUsers: boolean) {
    const exchanges = hasUsers ? [...EXCHANGES, READ] : EXCHANGES;
    for (const [i, roundTripMs] of ROUND_TRIPS.entries()) {
      for (const [j, kind] of KINDS.entries()) {
        const localAddress = kind.isInside ? attackerAddress(0) : `127.0.${i + 1}.${j + 1}`;
        const client: Client = { ...kind, service, localAddress, roundTripMs };
        this.#every(kind.everyMs, async () => {
          const id = ++this.#turns;
          const exchange = exchanges[id % exchanges.length]!;
          const samples = this.#samples;
          samples.push({ client, ...(await ask(client, exchange, `h${id}`, this.broken)) });
        });
      }
    }
    if (service.adminPort > 0) this.#every(PROBE_MS, () => this.#probe(service.adminPort));
  }

  /** Drops the samples of all requests so far, and of those in progress. What is broken stays. */
  begin(): void {
    this.#samples = [];
    this.live = { sent: 0, failed: 0 };
  }

  /** Resolves once every request has its response or has failed. Kept connections end with the service. */
  async stop(): Promise<void> {
    this.#timers.forEach(clearInterval);
    await Promise.all(this.#pending);
  }

  /** Share of successful requests. */
  share(isInside: boolean, roundTripMs?: number): number {
    const of = this.#samples.filter(({ client }) => {
      return client.isInside === isInside && [undefined, client.roundTripMs].includes(roundTripMs);
    });
    return of.filter(({ failure }) => failure === undefined).length / of.length;
  }

  /** Time within which 99 % of the requests of clients outside ended, above their round trips. */
  get p99Ms(): number {
    const outside = this.#samples.filter(({ client }) => !client.isInside).map(({ ms }) => ms);
    return outside.sort((a, b) => a - b)[Math.ceil(outside.length * 0.99) - 1] ?? 0;
  }

  get failures(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { client, failure } of this.#samples) {
      const key = `${client.kind} ${client.roundTripMs} ${failure}`;
      if (failure !== undefined) counts[key] = (counts[key] ?? 0) + 1;
    }
    return counts;
  }

  #every(ms: number, act: () => Promise<void>): void {
    this.#timers.push(setInterval(() => this.#pending.push(act()), ms));
  }

  async #probe(adminPort: number): Promise<void> {
    const { live } = this;
    live.sent++;
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const options = { headers: { connection: 'close' }, signal };
    const response = fetch(`http://127.0.0.1:${adminPort}/live`, options);
    if (!(await response.then(({ ok }) => ok).catch(() => false))) live.failed++;
  }
}

/** Sends a request. Resolves with the time that it took and what failed; adds to `broken` what is wrong. */
async function ask(client: Client, { parts, bodies }: Exchange, id: string, broken: string[]) {
  const { isKept, roundTripMs } = client;
  const began = performance.now();
  const sockets: Socket[] = [];
  let tripsMs = 0;
  const trip = async () => {
    const start = performance.now();
    if (roundTripMs > 0) await pause(roundTripMs);
    tripsMs += performance.now() - start;
  };
  const fail = () => sockets.at(-1)?.destroy(new Error('timeout'));
  const timer = setTimeout(fail, PATIENCE_MS + 4 * roundTripMs);
  let failure: string | undefined;
  try {
    const { kept } = client;
    client.kept = undefined; // One that was closed while it was idle is replaced, as clients do.
    const isOpen = kept?.readyState === 'open';
    const socket = isOpen ? kept : await open(client, sockets, trip);
    sockets.push(socket);
    const reading = read(socket, id, bodies, broken);
    reading.catch(() => {}); // It is awaited below.
    for (const [i, part] of parts.entries()) {
      if (i > 0) await trip();
      socket.write(part.replaceAll('ID', id));
    }
    await reading;
    await trip();
    if (isKept && client.kept === undefined) client.kept = socket.resume();
    else socket.destroy();
  } catch (err) {
    const { code, message } = err as NodeJS.ErrnoException;
    failure = code ?? message;
    for (const socket of sockets) socket.destroy();
  }
  clearTimeout(timer);
  return { ms: performance.now() - began - tripsMs, failure };
}

/** Connects. The request, and over TLS the handshake too, comes a round trip later. */
async function open(
  { service, localAddress }: Client,
  sockets: Socket[],
  trip: () => Promise<void>,
) {
  const plain = connect({ host: '127.0.0.1', port: service.port, localAddress });
  sockets.push(plain.on('error', () => {}));
  await once(plain, 'connect');
  plain.once('end', () => plain.destroy()).resume(); // It may be closed before it is used.
  await trip();
  if (!service.isTls) return plain;
  if (plain.destroyed) throw new Error('ended');
  const tls = connectTls({ socket: plain, secureContext: CONTEXT, rejectUnauthorized: false });
  sockets.push(tls.on('error', () => {}));
  await once(tls, 'secureConnect');
  await trip();
  return tls;
}

/** Resolves with the last response. @throws the first status but 200; adds to `broken` what is wrong */
async function read(socket: Socket, id: string, bodies: readonly RegExp[], broken: string[]) {
  let text = '';
  let responses: readonly HttpResponse[] = [];
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    text += chunk.toString('latin1');
    responses = responsesIn(text);
    const failed = responses.find(({ status }) => status !== 200);
    if (failed) throw new Error(`${failed.status}`);
    if (responses.length >= bodies.length) break;
  }
  if (responses.length < bodies.length) throw new Error('ended');
  const isOwn = ({ headers, body }: HttpResponse, i: number) =>
    headers.get('x-request-id') === `${id}.${i}` && bodies[i]?.test(body);
  const isWhole = text.endsWith(responses.at(-1)!.body); // nothing came after it
  if (!isWhole || !responses.every(isOwn)) broken.push(`${id} got ${text}`);
}
