// One client connection: which requests it takes, in which order they are answered, how it ends, and
// what it makes the process hold. The only owner of this state.
//
// Requests of a pipeline are answered one after another, each in a turn of the event loop of its
// own, so that a long pipeline delays no other client. Nothing more is read while requests wait.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Budget } from './budget.ts';
import { HttpError } from './errors.ts';
import { Exchange } from './exchange.ts';
import { type ParseError, statusOfParseError } from './message.ts';
import { endOfOffer } from './upgrade.ts';

/** Answers requests. */
export interface Handler {
  /** Answers one request; never throws. */
  handle(exchange: Exchange): void;
  /** The bytes that refuse input which is not a request. */
  refusal(err: HttpError, connection: Connection): string;
  /** Every method, for `Allow`. */
  readonly allow: string;
}

/**
 * - `handshake`: TLS is not established yet.
 * - `open`: takes requests.
 * - `broken`: the body of the latest request is malformed; its response is the last.
 * - `refused`: malformed input follows the latest request; its response is followed by a refusal.
 * - `closing`: the last response has been handed to the socket.
 * - `closed`.
 */
type State = 'handshake' | 'open' | 'broken' | 'refused' | 'closing' | 'closed';

/** Memory of a request in progress, and of each name and each value of its header fields. */
const REQUEST_BYTES = 3 * 1024;
const HEADER_TEXT_BYTES = 64;

/** Memory per byte of an unfinished head: four times its bytes if it has 2,400 tiny fields. */
const HEAD_FACTOR = 4;

/** A connection from its acceptance to its end. */
export class Connection {
  /** The client's address; IPv4 in its plain form. */
  readonly address: string;
  /** What the account holds: requests in progress, bodies, unsent responses. */
  heldBytes = 0;
  /** When a closing connection is destroyed; see Budget. */
  deadlineMs = 0;
  #state: State;
  #socket: Socket;
  readonly #handler: Handler;
  readonly #budget: Budget;
  /** The request that is being answered, or was answered last. */
  #current: Exchange | undefined;
  /** The request that was read last. */
  #latest: Exchange | undefined;
  /** Requests that wait for the current one. */
  readonly #queue: Exchange[] = [];
  #isYielding = false;
  /** What the socket had received when the last response was handed over. */
  #settledBytes = 0;
  /** What the client had taken at the latest look, and when it last took something. */
  #takenBytes = 0;
  #takenAtMs = 0;

  constructor(socket: Socket, address: string, isTls: boolean, handler: Handler, budget: Budget) {
    this.#socket = socket;
    this.address = address;
    this.#state = isTls ? 'handshake' : 'open';
    this.#handler = handler;
    this.#budget = budget;
  }

  /** TLS is established: requests come over this socket. */
  secure(socket: Socket): void {
    this.#socket = socket;
    this.#state = 'open';
  }

  /** The socket has closed. */
  closed(): void {
    this.#state = 'closed';
    this.#queue.length = 0;
    this.#current = undefined;
    this.#latest = undefined;
    this.#budget.delete(this);
  }

  /** Runs a piece of work in a later turn of the event loop. */
  later(work: () => void): void {
    this.#budget.turns.add(this.address, work);
  }

  /** Reads nothing until other clients have had their turn. */
  pauseForTurn(): void {
    if (this.#isYielding) return;
    this.#isYielding = true;
    this.#socket.pause();
    this.later(() => {
      this.#isYielding = false;
      if (this.#queue.length === 0) this.#resume();
    });
  }

  /** Adds bytes to the account; negative to give them back. */
  hold(bytes: number): void {
    if (this.#state === 'closed') return;
    this.heldBytes += bytes;
    this.#budget.hold(bytes);
  }

  /** A request has been read up to its body. */
  receive(req: IncomingMessage, res: ServerResponse): void {
    const bytes = REQUEST_BYTES + HEADER_TEXT_BYTES * req.rawHeaders.length;
    this.hold(bytes);
    // Requests that arrived together with the one that ends the connection. Node keeps them until
    // it is closed, so they stay in the account.
    if (this.#state !== 'open') {
      this.#stopReading();
      return;
    }
    const exchange = new Exchange(this, req, res, bytes);
    this.#latest = exchange;
    const current = this.#current;
    const isFree = current === undefined || current.res.writableFinished;
    if (isFree && this.#queue.length === 0) {
      // Copies the read: once, not for each request of a pipeline.
      if (req.headers.upgrade !== undefined) exchange.offerEnd = endOfOffer(req);
      this.#current = exchange;
      this.#handler.handle(exchange);
      return;
    }
    // 2.11
    this.#queue.push(exchange);
    this.#stopReading();
    if (this.#queue.length === 1) current!.res.once('finish', () => this.#advance());
  }

  /** The response that is sent next is the last. */
  endAfter({ req, res }: Exchange): void {
    this.#state = 'closing';
    res.once('finish', () => req.resume());
    // Node calls this once the last response of a connection has been written.
    this.#socket.destroySoon = () => this.#linger();
  }

  /** The response has been handed to the socket. */
  settle(exchange: Exchange): void {
    this.hold(-exchange.heldBytes);
    this.#settledBytes = this.#socket.bytesRead;
  }

  /** Whether the rest of the latest request is malformed, so that its response is the last. */
  get isBroken(): boolean {
    return this.#state === 'broken';
  }

  /** Whether no request was read after this one. */
  isLatest(exchange: Exchange): boolean {
    return exchange === this.#latest;
  }

  /** Node's parser has rejected the input, or a request took too long to arrive. */
  reject(err: ParseError): void {
    if (this.#state !== 'open') return;
    if (!this.#socket.writable || err.code === 'ECONNRESET') {
      this.#socket.destroy();
      return;
    }
    const refusal = new HttpError(statusOfParseError(err));
    const { req } = this.#latest ?? {};
    // The body of a request whose head was valid: its own response is the refusal.
    if (req !== undefined && !req.complete && req.listenerCount('error') > 0) {
      this.#state = 'broken';
      req.emit('error', refusal);
      return;
    }
    this.refuse(refusal);
  }

  /** Sends the refusal after the responses to all earlier requests, and closes. */
  refuse(refusal: HttpError): void {
    if (this.#state !== 'open') return;
    this.#state = 'refused';
    const latest = this.#latest;
    // The rest of a request that has its response already is not refused a second time.
    const isAnswered = latest !== undefined && !latest.req.complete;
    const end = () => {
      if (this.#state !== 'refused') return;
      this.#state = 'closing';
      if (!isAnswered) this.#socket.write(this.#handler.refusal(refusal, this), 'latin1');
      this.#linger();
    };
    if (latest === undefined || latest.res.writableFinished) {
      end();
      return;
    }
    latest.res.once('finish', end); // 2.3
    // Closed without being finished: the client has gone.
    latest.res.once('close', () => this.#state === 'refused' && this.#socket.destroySoon());
  }

  /** `CONNECT`: node has taken its listeners off the socket. */
  refuseTunnel(): void {
    const socket = this.#socket;
    socket.on('error', () => socket.destroy());
    socket.on('drain', () => this.#current?.res.emit('drain'));
    this.refuse(new HttpError(405, undefined, ['Allow', this.#handler.allow])); // 2.12
  }

  /** Whether the TLS handshake or a request is still to be received in full. */
  get isUnfinished(): boolean {
    if (this.#state === 'handshake' || this.#settledBytes === 0) return true;
    if (!this.#isAnswered) return !this.#current!.req.complete;
    return this.#state === 'open' && this.#socket.bytesRead > this.#settledBytes;
  }

  /** Whether no request is in progress. */
  get isIdle(): boolean {
    return (this.#state === 'open' || this.#state === 'handshake') && this.#isAnswered;
  }

  /** When the request in progress began, in milliseconds of the clock. */
  get busySinceMs(): number {
    return this.#current?.startMs ?? 0;
  }

  /** Bytes that the client makes the process hold beside an idle connection. */
  measure(): number {
    if (this.#state === 'handshake' || !this.#isAnswered) return this.heldBytes;
    this.#forget();
    return this.heldBytes + HEAD_FACTOR * (this.#socket.bytesRead - this.#settledBytes);
  }

  /** Destroys a connection whose client has taken nothing of a response for that long (6.3). */
  checkProgress(nowMs: number, inactivityMs: number): void {
    if (this.#current === undefined) return;
    if (this.#isAnswered && this.#queue.length === 0) {
      this.#forget();
      return;
    }
    const taken = this.#socket.bytesWritten - this.#socket.writableLength;
    if (taken !== this.#takenBytes) {
      this.#takenBytes = taken;
      this.#takenAtMs = nowMs;
      return;
    }
    if (nowMs - Math.max(this.#takenAtMs, this.#current.startMs) > inactivityMs) this.destroy();
  }

  /** Closes in order, as far as there is something to finish. */
  close(): void {
    if (this.#state === 'handshake') {
      this.destroy();
      return;
    }
    this.#state = 'closing';
    this.#socket.end();
    this.#socket.destroySoon();
  }

  /** Closes at once; RST also frees what the kernel has not sent yet. */
  destroy(): void {
    const socket: Socket & { encrypted?: boolean } = this.#socket;
    // Node 26 keeps the descriptor of a socket that is reset after its end.
    const canReset = this.#state !== 'handshake' && !socket.encrypted && !socket.writableEnded;
    if (!canReset) socket.destroy();
    else socket.resetAndDestroy();
  }

  /** An idle connection keeps nothing of its last request: 3 kB. */
  #forget(): void {
    if (this.#queue.length > 0) return;
    this.#current = undefined;
    this.#latest = undefined;
  }

  get #isAnswered(): boolean {
    return this.#current === undefined || this.#current.res.writableFinished;
  }

  /** Answers the next request of the pipeline in a later turn. */
  #advance(): void {
    this.later(() => {
      const next = this.#queue.shift();
      if (next === undefined) return;
      if (this.#queue.length === 0) this.#resume();
      this.#current = next;
      // Its body is part of the input that was refused.
      const isCut = this.#state === 'refused' && !next.req.complete;
      if (this.#state === 'closing' || isCut) {
        this.#socket.destroySoon();
        return;
      }
      if (this.#queue.length > 0) next.res.once('finish', () => this.#advance());
      this.#handler.handle(next);
    });
  }

  /** Reads on, alone in this turn: one read can bring 1,800 requests, or 10,000 chunks of a body. */
  #resume(): void {
    this.#socket.resume();
    this.#budget.turns.end();
  }

  /** After node, which resumes reading at the end of each request, and before the next read. */
  #stopReading(): void {
    queueMicrotask(() => {
      if (this.#queue.length > 0 || this.#state === 'refused') this.#socket.pause();
    });
  }

  /**
   * Closes in two steps (RFC 9112 §9.6): our side at once, the client's when it is done or after a
   * while. Closing both with unread bytes in the kernel would send RST, which can take the response
   * away from the client before it has read it.
   */
  #linger(): void {
    const socket = this.#socket;
    socket.end();
    // Not read by node's parser, which would make requests of it and keep them (2.10).
    socket.removeAllListeners('data').on('data', () => {});
    socket.resume();
    this.#budget.linger(this);
  }
}
