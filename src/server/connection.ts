// One client connection: its state, the order of its responses, and its end.
//
// Node parses all requests of one read at once and calls `receive` for each. Those that arrive before the
// current response wait in a short queue (2.11). A connection that ends first stops parsing, then sends the
// responses to what it has received and perhaps a refusal, then closes its side and waits for the client's.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { nextTurn, now, setImmediate } from '../clock.ts';
import { networksOf, plainAddress } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { type Carrier, Exchange } from '../http/exchange.ts';
import { dropBody, hasBody, type ParseError, statusOfParseError } from '../http/message.ts';
import type { Holder, Ledger, Network } from './ledger.ts';
import {
  HANDSHAKE_BYTES,
  HANDSHAKE_FACTOR,
  HEAD_FACTOR,
  LINGER_MS,
  MAX_RECORD_BYTES,
  MAX_RECORD_FACTOR,
  MAX_WAITING,
  REQUEST_BYTES,
} from './limits.ts';
import type { Turns } from './turns.ts';

export interface Handler {
  handle(exchange: Exchange): void; // processes one request; never throws
  refusal(err: HttpError, address: string): string; // the response to malformed input
  readonly allow: string; // value of `Allow`: every method
}

/** What the connections of a listener share. */
export interface Shared {
  readonly handler: Handler;
  readonly ledger: Ledger<Connection>;
  readonly turns: Turns; // of the event loop
  readonly unreadTimeoutMs: number; // A client that takes nothing of a response for so long is disconnected.
  readonly closed: Record<Reason, number>; // connections by the reason for their end
}

// Each state waits for the client or, while working, for us. docs/design.md has their deadlines.
export const STATES = [
  'handshake', // The client establishes TLS.
  'idle', // No request is in progress; a part of a head may have arrived.
  'receiving', // The client sends a body.
  'working', // The request is processed.
  'sending', // The client reads the response.
  'lingering', // Our side is closed; the client has yet to read, and to close its own.
] as const;
export type State = (typeof STATES)[number] | 'closed';

/** Why connections end: the label of a metric (7.3). */
export const REASONS = [
  'client', // The client closed it, or its network failed.
  'last', // after the last response
  'refused', // after the refusal of malformed input
  'timeout', // A handshake, a head or a body took too long.
  'idle', // No request came in time.
  'unread', // The client took too little of a response in time.
  'room', // to make room for others
  'records', // TLS records with too little data, or unread responses to them
  'failed', // The response could not be completed.
  'stopped', // The service stops.
] as const;
export type Reason = (typeof REASONS)[number];

// All connections that end read into it. Otherwise node allocates a buffer for each read, and V8 lets 50 MB of them pile
// up before it collects.
const DROPPED = new Uint8Array(64 * 1024);

/** Undocumented: the handle of a socket. */
type HandledSocket = Socket & {
  readonly _handle?: { readonly writeQueueSize: number; useUserBuffer(buffer: Uint8Array): void };
};

const PLAIN_HTTP = 'This port takes HTTPS; the request was plain HTTP.';
/** What clients are told about some errors of node, by code. For the others the status says enough. */
const SENTENCES: Readonly<Record<string, string>> = {
  HPE_INVALID_URL: 'The URL is malformed; percent-encode all characters that are not ASCII.',
  // A handshake that begins with other bytes than TLS. Before 3.5, OpenSSL takes only four methods for HTTP.
  ERR_SSL_HTTP_REQUEST: PLAIN_HTTP,
  ERR_SSL_HTTPS_PROXY_REQUEST: PLAIN_HTTP,
  ERR_SSL_WRONG_VERSION_NUMBER: PLAIN_HTTP,
};

export class Connection implements Holder, Carrier {
  readonly address: string;
  readonly network: Network;
  heldBytes = 0;
  waitingSinceMs: number | undefined;
  state!: State; // only enter() sets it
  #socket: HandledSocket;
  readonly #transport: HandledSocket; // the TCP socket below a TLS socket, or the same
  readonly #shared: Shared;
  #current: Exchange | undefined; // the request in progress
  readonly #waiting: Exchange[] = []; // requests that wait for the current one
  // A request that got its response before its body had arrived. Weak: node keeps it until then (6.17).
  #incomplete: WeakRef<IncomingMessage> | undefined;
  #requestBytes = 0; // of all requests, as clients write them, without chunks
  #ending: Reason | undefined; // set once no further request is accepted
  #refusal: HttpError | undefined; // what it sends last, after the responses to its requests
  #sweptExcessBytes = 0; // at the last sweep: the bytes of TLS records beyond what their data allows

  constructor(socket: Socket, isTls: boolean, shared: Shared) {
    this.#socket = this.#transport = socket;
    socket.once('end', () => this.#onEnd()).once('close', () => this.#onClose());
    this.#shared = shared;
    const { ledger } = shared;
    this.address = plainAddress(socket.remoteAddress ?? '');
    const { network, site } = networksOf(this.address);
    this.network = ledger.networkOf(network, site);
    this.enter(isTls ? 'handshake' : 'idle');
    ledger.add(this);
    if (isTls) this.charge(ledger.limits.connectionBytes); // its handshake
  }

  /** Changes the state. Only here do we begin or cease to wait for the client. */
  enter(state: State): void {
    if (this.state === 'closed') return;
    this.state = state;
    this.waitingSinceMs = state === 'working' ? undefined : now();
  }

  /** Continues on the TLS socket after the handshake. */
  secure(socket: Socket): void {
    this.#socket = socket;
    socket.once('end', () => this.#onEnd());
    this.#sweptExcessBytes = this.#transport.bytesRead; // of the handshake
    this.enter('idle');
    this.charge(-this.#shared.ledger.limits.connectionBytes);
    // The read that ended the handshake can have brought data too, which node decrypts in this turn.
    setImmediate(() => {
      const handshakeBytes = this.#transport.bytesRead - socket.bytesRead;
      this.charge(HANDSHAKE_FACTOR * Math.max(handshakeBytes - HANDSHAKE_BYTES, 0));
    });
  }

  charge(bytes: number): void {
    if (this.state !== 'closed') this.#shared.ledger.charge(this, bytes);
  }

  get hasReadMore(): boolean {
    return this.#socket.bytesRead !== this.#requestBytes;
  }

  /** Processes a request whose head has been read, or queues it behind the current one. */
  receive(req: IncomingMessage, res: ServerResponse): void {
    // Node reports late that the kernel has all of a response: over TLS, often after the client's next request.
    const before = this.#current?.res;
    const isSent = before?.writableEnded && before.socket && unsentBytes(this.#transport) === 0;
    if (isSent) this.#proceed();
    const exchange = new Exchange(this, req, res);
    // Node keeps a request that gets no response until the connection closes, so it stays charged.
    exchange.hold(REQUEST_BYTES + HEAD_FACTOR * exchange.headBytes);
    this.#requestBytes += exchange.headBytes + Number(req.headers['content-length'] ?? 0);
    if (this.#ending !== undefined) {
      dropBody(req); // It came with the read that has ended the connection.
    } else if (this.#current === undefined) {
      this.#begin(exchange);
    } else if (!hasBody(req) && this.#waiting.length < MAX_WAITING) {
      this.#waiting.push(exchange);
    } else {
      // 2.11: node would keep each chunk of a body that waits; one read can bring 10,000.
      dropBody(req);
      this.#end('last');
    }
  }

  #begin(exchange: Exchange): void {
    const { handler } = this.#shared;
    this.#current = exchange;
    this.enter('working');
    exchange.startMs = now();
    exchange.res.on('finish', () => {
      this.charge(-exchange.heldBytes);
      if (exchange === this.#current) this.#proceed();
    });
    const handle = () => {
      if (!exchange.hasLeft) handler.handle(exchange);
    };
    // A body is read at once: node would keep each chunk of one that waits.
    if (hasBody(exchange.req)) handle();
    else this.run(handle);
  }

  /** The current request has its response. Begins the next one, or waits for it. */
  #proceed(): void {
    const { req } = this.#current!;
    this.#incomplete = req.complete ? undefined : new WeakRef(req);
    if (!req.complete) this.#current!.release(); // Node keeps the request until its body has arrived.
    this.#current = undefined;
    const next = this.#waiting.shift();
    if (next !== undefined) {
      this.#begin(next);
    } else if (this.#ending !== undefined) {
      this.#linger();
    } else {
      this.enter('idle');
    }
  }

  run(task: () => void): void {
    this.#shared.turns.run(task);
  }

  endAfterCurrent(): void {
    this.#waiting.length = 0;
    if (this.#ending === undefined || this.#refusal) this.#end('last');
  }

  endAfterReceived(): void {
    if (this.#ending === undefined) this.#end('last');
  }

  /** Accepts no further request. Ends after the responses to those that have been received (2.3). */
  #end(reason: Reason, refusal?: HttpError): void {
    this.#ending = reason;
    this.#refusal = refusal;
    const last = this.#waiting.at(-1) ?? this.#current;
    if (last && !refusal) last.isLast = true;
    // From now on input is dropped. Node's parser would turn it into requests and keep them (2.10).
    this.#socket.removeAllListeners('data').on('data', () => {});
    this.#socket._handle?.useUserBuffer(DROPPED);
    // Node would close both sides after the last response.
    this.#socket.destroySoon = () => {};
    if (this.#current === undefined) this.#linger();
  }

  /**
   * Closes our side now, and the client's when it closes or after LINGER_MS (RFC 9112 §9.6). Closing
   * both with unread bytes would send RST, which can discard the response before the client reads it.
   */
  #linger(): void {
    this.enter('lingering');
    const text = this.#refusal && this.#shared.handler.refusal(this.#refusal, this.address);
    this.#socket.end(text ?? '');
    this.#socket.resume();
  }

  /** Refuses input that node's parser rejected or that took too long to arrive; with an HttpError, any other input. */
  reject(err: ParseError): void {
    if (this.#ending !== undefined) return;
    if (!this.#socket.writable || err.code === 'ECONNRESET') {
      this.#socket.destroy();
      return;
    }
    const sentence = SENTENCES[err.code ?? ''];
    const refusal =
      err instanceof HttpError ? err : new HttpError(statusOfParseError(err), sentence);
    const reason = refusal.status === 408 ? 'timeout' : 'refused';
    if (this.state === 'handshake' && sentence !== PLAIN_HTTP) {
      this.close(reason); // a response could not be encrypted
      return;
    }
    const open = this.#openRequest;
    this.#end(reason, open ? undefined : refusal);
    // readBody listens to it: the refusal is its response. Otherwise the request has another one (2.3).
    if (this.state === 'receiving') open?.emit('error', refusal);
  }

  /** Refuses what node says took too long to arrive, unless it arrived while the process was stalled (6.3). */
  async rejectLate(err: ParseError): Promise<void> {
    const open = this.#openRequest;
    const requestBytes = this.#requestBytes;
    await nextTurn();
    const isHere = open ? open.complete : this.#requestBytes > requestBytes;
    // Node no longer watches the request, so its body must be here too.
    if (!isHere || this.#openRequest) this.reject(err);
  }

  /** The request whose body has yet to arrive. Those that wait have none. */
  get #openRequest(): IncomingMessage | undefined {
    const req = this.#current?.req ?? this.#incomplete?.deref();
    return req?.complete ? undefined : req;
  }

  /** The client has closed its side. Node doesn't see that a body with an offer to upgrade is incomplete. */
  #onEnd(): void {
    if (this.state === 'receiving' && !this.#current!.req.complete) {
      this.reject(new HttpError(400));
    }
    // Node drops an error of its own TLS records, such as tickets: a reset then looks like an end, and nothing that is
    // written over TLS fails. A write below TLS does.
    if (this.#current && this.#socket !== this.#transport) {
      this.#transport.write('', (err) => err && this.#socket.destroy());
    }
  }

  /** Closes the connection if it has been idle for `ms`. Input that has already arrived is read first (6.14). */
  async expire(reason: 'idle' | 'stopped', ms = 0): Promise<void> {
    const { bytesRead } = this.#socket;
    await nextTurn();
    const isIdle = this.state === 'handshake' || this.state === 'idle';
    // Input without a whole head keeps an idle connection, but does not prolong a stop (6.15).
    const isKept = reason === 'idle' && this.#socket.bytesRead !== bytesRead;
    if (isIdle && !isKept && now() - this.waitingSinceMs! >= ms) this.close(reason);
  }

  /** Closes the connection if its client keeps it without a reason. Call it every SWEEP_MS. */
  sweep(): void {
    const { unreadTimeoutMs } = this.#shared;
    const waitedMs = now() - (this.waitingSinceMs ?? now());
    if (this.state === 'sending' && waitedMs > unreadTimeoutMs) return void this.close('unread'); // 6.3
    if (this.state === 'lingering' && waitedMs > LINGER_MS) return void this.close(); // 2.13
    const excessBytes = this.#transport.bytesRead - MAX_RECORD_FACTOR * this.#socket.bytesRead;
    const addedBytes = excessBytes - this.#sweptExcessBytes;
    this.#sweptExcessBytes = excessBytes;
    if (Math.max(addedBytes, unsentBytes(this.#socket)) > MAX_RECORD_BYTES) this.close('records'); // 6.3
  }

  /**
   * Closes at once. RST tells the client that a response is incomplete, and frees the data that the
   * kernel has not sent yet. A TLS socket can't be reset; there the missing last chunk tells the client.
   */
  close(reason?: Reason): void {
    const hasRequest = this.#current !== undefined;
    const socket = this.#socket;
    // Before #onClose(), so that a stream that it ends sees that the client has left.
    if (hasRequest && socket === this.#transport) socket.resetAndDestroy();
    else socket.destroy();
    this.#onClose(reason);
    // Node frees the requests and the parser now. By itself, it would first read all other sockets that are
    // readable. Input that is still buffered must not reach the parser: the next connection gets it.
    socket.removeAllListeners('data').removeAllListeners('end').emit('close');
  }

  #onClose(reason: Reason = this.#ending ?? 'client'): void {
    if (this.state === 'closed') return;
    this.enter('closed');
    this.#shared.closed[reason]++;
    this.#shared.ledger.remove(this);
    for (const exchange of this.#waiting.splice(0)) exchange.release();
    // Ends a stream that waits for the response before it (reply.ts). Node would never give it the socket.
    this.#current?.res.emit('socket', this.#socket);
    this.#current?.release();
    this.#current = undefined;
  }
}

/** What node has yet to send. Of a TLS socket this includes responses to updates of keys, which cause no event. */
function unsentBytes(socket: HandledSocket): number {
  return socket._handle?.writeQueueSize ?? 0;
}
