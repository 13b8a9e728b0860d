// One client connection: the order of its responses, its end, and the memory that it makes the process hold.
//
// Pipelining (2.11): node parses all requests of one read at once and calls `receive` for each. Those that
// arrive before the current response join a queue, and reading pauses until it is empty. Each waits until
// the response before it has been written ('finish'), and then for a turn of the event loop of its own.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate } from '../clock.ts';
import { counterKeys } from './address.ts';
import type { Budget } from './budget.ts';
import { HttpError } from './errors.ts';
import { Exchange } from './exchange.ts';
import { endOfOffer, hasEnded, Input } from './input.ts';
import { headerBytes, MAX_HEADER_BYTES, type ParseError, statusOfParseError } from './message.ts';

export interface Handler {
  handle(exchange: Exchange): void; // processes one request; never throws
  refusal(err: HttpError, connection: Connection): string; // the response to malformed input
  readonly allow: string; // value of `Allow`: every method
}

type State =
  | 'handshake' // accepted, or establishing TLS
  | 'open' // receives requests
  | 'refused' // Input that is refused followed the latest request; the refusal follows its response.
  | 'closing' // ends with the response that is in progress or being sent
  | 'closed';

const REQUEST_BYTES = 3 * 1024; // memory of a request in progress without its headers
const HEADER_TEXT_BYTES = 62; // of each header name or value, in addition to its bytes
const TAG_BYTES = 3; // for each character of a list of entity tags, while the request waits for the store
// So many characters of such a list, or header names and values, take as long as one pipelined request.
const TAGS_PER_MESSAGE = 160;
const HEADER_TEXTS_PER_MESSAGE = 64;
const CHUNKS_PER_READ = 10_000; // maximum for a queued request
const CHUNKS_BYTES = 400 * CHUNKS_PER_READ; // the memory that they take
const LONG_QUEUE = 32; // requests; with this many, node's errors at the close have no stack traces

export class Connection {
  readonly address: string; // the socket's, IPv4 in its plain form
  readonly network: string; // the address, or the /64 of an IPv6 address: clients take turns by it (6.18)
  heldBytes = 0; // charged for requests in progress, bodies and unsent responses
  #state: State = 'handshake';
  #socket: Socket;
  readonly #handler: Handler;
  readonly #budget: Budget;
  #current: Exchange | undefined; // the request in progress, or the last one that got a response
  readonly #queue: Exchange[] = []; // requests that wait for the current one
  readonly #work: (() => void)[] = []; // waits for its turn (6.18)
  #isYielding = false;
  #hasOmittedStacks = false;
  readonly #input = new Input();
  #drainedBytes = 0; // what the client had taken at the last check
  #drainedAtMs = 0; // the last check at which it had taken more

  constructor(socket: Socket, address: string, handler: Handler, budget: Budget) {
    this.#socket = socket;
    this.address = address;
    this.network = counterKeys(address).network;
    this.#handler = handler;
    this.#budget = budget;
  }

  /**
   * Starts to receive requests in this connection's first turn (6.18). After a handshake, `socket` is the
   * TLS socket. `begin` attaches node's parser. Resumes reading in the same turn. If it resumed later,
   * node could parse new bytes before the buffered ones.
   */
  open(socket: Socket, begin: () => void): void {
    this.#socket = socket;
    this.#state = 'open';
    this.pauseForTurn(() => {
      begin();
      // Runs after node's own listener, which resumes reading.
      socket.on('resume', () => this.#keepPaused());
    });
  }

  /** Call it once the socket has closed. */
  onClose(): void {
    this.#release();
    // Each piece of work checks whether the client has left.
    for (const work of this.#work.splice(0)) setImmediate(work);
  }

  #release(): void {
    this.#state = 'closed';
    this.#queue.length = 0;
    this.#current = undefined;
    this.#budget.delete(this);
    // Otherwise the task would keep the socket and its requests until its turn.
    this.#budget.turns.delete(this.network, this.#runNext);
  }

  /** Runs the work in a later turn of the event loop. */
  later(work: () => void): void {
    if (this.#state === 'closed') {
      setImmediate(work);
      return;
    }
    this.#work.push(work);
    this.#budget.turns.add(this.network, this.#runNext);
  }

  readonly #runNext = (): void => {
    this.#work.shift()?.();
    if (this.#work.length > 0) this.#budget.turns.add(this.network, this.#runNext);
  };

  spend(ms: number): void {
    this.#budget.turns.spend(ms);
  }

  /** Stops reading until this connection's next turn. */
  pauseForTurn(begin?: () => void): void {
    if (this.#isYielding || this.#state === 'handshake' || this.#state === 'closed') return;
    this.#isYielding = true;
    this.#socket.pause();
    this.later(() => {
      this.#isYielding = false;
      if (this.#state === 'closed') return;
      begin?.();
      if (!this.#isPaused) this.#resume();
    });
  }

  /** Pauses again after node has resumed the socket, as it does at the end of each request. */
  #keepPaused(): void {
    if (!this.#isPaused) return;
    // Node emits 'resume' a tick late. If we paused in between, pause() would do nothing now; this event
    // stops node's reading.
    if (this.#socket.isPaused()) this.#socket.emit('pause');
    else this.#socket.pause();
  }

  get #isPaused(): boolean {
    return this.#isYielding || this.#queue.length > 0 || this.#state === 'refused';
  }

  /** Counts a chunk, and stops reading until the next turn: one read can bring 10,000 chunks. */
  countChunk(): void {
    this.pauseForTurn();
    this.#budget.countMessage(this.network);
  }

  /** Charges bytes to the connection; a negative number gives them back. */
  hold(bytes: number): void {
    if (this.#state === 'closed') return;
    this.heldBytes += bytes;
    this.#budget.hold(bytes);
  }

  /** Processes a request whose head has been read, or queues it behind the current one. */
  receive(req: IncomingMessage, res: ServerResponse): void {
    const { 'if-match': match = '', 'if-none-match': noneMatch = '' } = req.headers;
    const tags = match.length + noneMatch.length;
    const exchange = new Exchange(this, req, res);
    exchange.heldBytes = REQUEST_BYTES + headMemory(req) + TAG_BYTES * tags;
    const isFirst = this.#queue.length === 0;
    const isNext = this.#state === 'open' && isFirst && this.#hasResponded;
    if (isNext) this.#begin(exchange);
    this.hold(exchange.heldBytes);
    // 2.11: drops a request that follows the last one. Node keeps it until the connection closes, so it
    // stays charged.
    if (this.#state !== 'open') {
      this.#socket.pause();
      this.#budget.countMessage(this.network);
      this.#dropBody(req);
      return;
    }
    const weight = req.rawHeaders.length / HEADER_TEXTS_PER_MESSAGE + tags / TAGS_PER_MESSAGE;
    if (weight > 1) this.#budget.countMessage(this.network, weight);
    // This copies the latest read, so it happens for the first of a pipeline only.
    if (isFirst && req.headers.upgrade !== undefined) exchange.offerEnd = endOfOffer(req);
    if (isNext) {
      this.#handler.handle(exchange);
      return;
    }
    if (this.#queue.push(exchange) === LONG_QUEUE) this.#omitStacks(); // 2.11
    this.#socket.pause();
    this.#budget.countMessage(this.network);
    if (req.headers['transfer-encoding'] !== undefined) {
      // Node keeps the chunks of its body without an event.
      exchange.heldBytes += CHUNKS_BYTES;
      this.hold(CHUNKS_BYTES);
      this.#budget.countMessage(this.network, CHUNKS_PER_READ);
    }
    // Undefined if the budget has just closed this connection.
    if (isFirst) this.#current?.res.once('finish', () => this.#advance());
  }

  /** Node makes two errors for each queued request. Stack traces would take most of the time. */
  #omitStacks(): void {
    if (this.#hasOmittedStacks) return;
    this.#hasOmittedStacks = true;
    const { stackTraceLimit } = Error;
    this.#socket.prependOnceListener('close', () => {
      Error.stackTraceLimit = 0;
    });
    this.#socket.once('close', () => {
      Error.stackTraceLimit = stackTraceLimit;
    });
  }

  /** Closes the connection after the response to this request, which is the last (2.11). */
  endAfter({ req }: Exchange): void {
    if (this.#state === 'closed') return;
    this.#state = 'closing';
    this.#dropBody(req);
    // Node calls this once that response has been written.
    this.#socket.destroySoon = () => this.#linger();
  }

  /** Reads and drops the rest of a body. Its chunks still count, because node parses them. */
  #dropBody(req: IncomingMessage): void {
    if (!hasEnded(req)) req.on('data', () => this.#budget.countMessage(this.network));
  }

  /** Gives back what the request was charged, once it has been read and the socket has its response. */
  settle({ req, heldBytes }: Exchange): void {
    // Node keeps a request until its end, which may never come.
    if (hasEnded(req)) this.hold(-heldBytes);
    else req.once('end', () => this.hold(-heldBytes));
    this.#input.settle(this.#socket, req);
  }

  /** True unless another request was read after this one. */
  isLatest(exchange: Exchange): boolean {
    return exchange === this.#latest;
  }

  /** Handles input that node's parser rejected, and requests that took too long to arrive. */
  reject(err: ParseError): void {
    if (this.#state !== 'open') return;
    if (!this.#socket.writable || err.code === 'ECONNRESET') {
      this.#socket.destroy();
      return;
    }
    const refusal = new HttpError(statusOfParseError(err));
    const latest = this.#latest;
    // The head was valid; the body is malformed or late. The refusal is this request's response.
    if (latest && !latest.req.complete && latest.req.listenerCount('error') > 0) {
      this.#state = 'closing';
      latest.res.shouldKeepAlive = false;
      latest.req.emit('error', refusal);
      return;
    }
    this.#refuse(refusal);
  }

  /** Sends the refusal after the responses to all earlier requests, and closes. */
  #refuse(refusal: HttpError): void {
    if (this.#state !== 'open') return;
    this.#state = 'refused';
    this.#socket.pause(); // Node would end the socket after the last response if it read the client's end.
    const latest = this.#latest;
    // Input that is the rest of a request isn't refused again: that request has its own response.
    const isRest = latest !== undefined && !latest.req.complete;
    const end = () => {
      if (this.#state !== 'refused') return;
      this.#state = 'closing';
      if (!isRest) this.#socket.write(this.#handler.refusal(refusal, this), 'latin1');
      this.#linger();
    };
    if (latest === undefined || latest.res.writableFinished) {
      end();
    } else {
      latest.res.once('finish', end); // 2.3
      // The response closed without 'finish', so the client has gone.
      latest.res.once('close', () => this.#state === 'refused' && this.#socket.destroySoon());
    }
  }

  /** Refuses `CONNECT`. Node has already removed its own listeners from the socket. */
  refuseTunnel(): void {
    this.#socket.on('error', () => this.#socket.destroy());
    this.#refuse(new HttpError(405, undefined, ['Allow', this.#handler.allow])); // 2.12
  }

  /** True if the client has yet to complete the TLS handshake or a request. */
  get isUnfinished(): boolean {
    if (this.#state !== 'open') return this.#state === 'handshake';
    if (!this.#hasResponded) return !this.#current!.req.complete;
    return this.#input.isUnfinished(this.#socket);
  }

  /** True if the client has yet to read a response. */
  get isUnread(): boolean {
    return this.#socket.writableLength > 0;
  }

  /** True if no request is in progress or waits to be read. A handshake is idle once it has begun. */
  get isIdle(): boolean {
    if (this.#state === 'handshake') return this.#work.length === 0;
    return this.#state === 'open' && this.#hasResponded && !this.#isPaused;
  }

  /** Start of the request in progress; 0 if there is none. */
  get busySinceMs(): number {
    return this.#current?.startMs ?? 0;
  }

  /** Returns the bytes that the client makes the process hold, without the idle connection itself. */
  measure(): number {
    if (this.#state === 'handshake') return this.heldBytes;
    const isIdle = this.#hasResponded;
    if (isIdle) this.#forget();
    return this.heldBytes + this.#input.heldBytes(this.#socket, isIdle);
  }

  /** Destroys the connection if the client reads nothing of a response for `inactivityMs` (6.3). */
  checkProgress(nowMs: number, inactivityMs: number): void {
    if (this.#hasResponded && this.#queue.length === 0) {
      this.#forget();
      return;
    }
    const drained = this.#socket.bytesWritten - this.#socket.writableLength;
    if (drained !== this.#drainedBytes) {
      this.#drainedBytes = drained;
      this.#drainedAtMs = nowMs;
    } else if (nowMs - Math.max(this.#drainedAtMs, this.#current!.startMs) > inactivityMs) {
      this.destroy();
    }
  }

  /** Closes gracefully; at once if it is not open, or if the client has yet to read a response. */
  close(): void {
    if (this.#state !== 'open' || this.isUnread) {
      this.destroy();
      return;
    }
    this.#state = 'closing';
    this.#socket.end();
    this.#socket.destroySoon();
  }

  /**
   * Closes at once. RST tells the client that a response is incomplete, and frees the data that the
   * kernel has not sent yet. A TLS socket can't be reset; there the missing last chunk tells the client.
   */
  destroy(): void {
    const socket: Socket & { encrypted?: boolean } = this.#socket;
    // Node 26 keeps the descriptor of a socket that is reset after its end.
    const canReset = this.#state !== 'handshake' && !socket.encrypted && !socket.writableEnded;
    this.#release();
    Reflect.deleteProperty(socket, 'destroySoon'); // The one of endAfter lingers.
    if (canReset) socket.resetAndDestroy();
    else socket.destroy();
  }

  /** Frees the last request of an idle connection: 3 kB. */
  #forget(): void {
    if (this.#queue.length > 0 || this.#current === undefined) return;
    // A refusal must not follow the response to a request whose body has yet to arrive.
    if (hasEnded(this.#current.req)) this.#current = undefined;
  }

  get #latest(): Exchange | undefined {
    return this.#queue.at(-1) ?? this.#current;
  }

  get #hasResponded(): boolean {
    return this.#current === undefined || this.#current.res.writableFinished;
  }

  /** Processes the next request of the queue in a later turn. */
  #advance(): void {
    this.later(() => {
      const next = this.#queue.shift();
      if (next === undefined) return;
      if (this.#queue.length === 0) this.#resume();
      this.#begin(next);
      // The refused input is the rest of this request's body: it can get no response.
      const isTruncated = this.#state === 'refused' && !next.req.complete;
      if (this.#state === 'closing' || isTruncated) return this.#socket.destroySoon();
      if (this.#queue.length > 0) next.res.once('finish', () => this.#advance());
      this.#handler.handle(next);
    });
  }

  #begin(exchange: Exchange): void {
    this.#current = exchange;
    exchange.startMs = this.#budget.turns.now();
  }

  #resume(): void {
    this.#socket.resume();
    this.#budget.countRead(this.#latest === undefined);
  }

  /**
   * Closes our side now, and the client's when it closes or after LINGER_MS (RFC 9112 §9.6). Closing
   * both with unread bytes would send RST, which can discard the response before the client reads it.
   */
  #linger(): void {
    const socket = this.#socket;
    socket.end();
    // Further input is dropped here. Node's parser would turn it into requests and keep them (2.10).
    socket.removeAllListeners('data').on('data', () => {});
    socket.resume();
    this.#budget.linger(this);
  }
}

/** Memory of a head, and of the trailers of a chunked body, which node's parser keeps without an event. */
function headMemory(req: IncomingMessage): number {
  const trailerBytes = req.headers['transfer-encoding'] === undefined ? 0 : MAX_HEADER_BYTES;
  const textBytes = HEADER_TEXT_BYTES * req.rawHeaders.length + headerBytes(req);
  return req.url!.length + textBytes + trailerBytes;
}
