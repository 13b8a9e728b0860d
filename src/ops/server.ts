// The listener: what happens to bytes that are not a request, which connections give way when there
// are too many, and how it stops.
import { once } from 'node:events';
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type * as Https from 'node:https';
import { createRequire } from 'node:module';
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net';
import { HttpError } from '../http/errors.ts';
import { type ParseError, statusOfParseError } from '../http/message.ts';
import { destroyIn, lingeringClose } from '../http/reply.ts';
import {
  BACKLOG,
  EVICTION_BATCH_SIZE,
  HTTP_OPTIONS,
  MAX_CONNECTIONS,
  MAX_DROPPED,
  MAX_QUEUED,
  TLS_OPTIONS,
} from './limits.ts';

/** A certificate chain and its private key, as PEM texts. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/** A connection, and what goes over it. */
export interface Connection {
  /** The latest request and its response; all earlier ones are sent before it. */
  request: IncomingMessage | undefined;
  latest: ServerResponse | undefined;
  /** An answer that ends the connection has been given: nothing more is taken (RFC 9112 §9.6). */
  isClosing: boolean;
  /** What came after the latest request is refused behind its answer: nothing more is taken. */
  isRefused: boolean;
  /** What came after the latest request cannot be read: its answer ends the connection. */
  isBroken: boolean;
  /** Requests that wait for the answers before theirs. */
  queued: number;
  /** Requests behind the last that is answered. */
  dropped: number;
}

/** Who answers. */
export interface Handler {
  /** Answers a request. */
  handle(req: IncomingMessage, res: ServerResponse, connection: Connection): void;
  /** The bytes that refuse what is not a request. */
  refusal(err: HttpError, socketAddress: string | undefined): string;
  /** Methods for `Allow`. */
  readonly allow: string;
}

/** A server of HTTP/1.0 and HTTP/1.1, over TLS when it is given. */
export class Server {
  readonly #server: HttpServer | Https.Server;
  readonly #handler: Handler;
  // All that are open; under TLS these are not the sockets of the connections.
  readonly #sockets = new Set<Socket>();
  readonly #connections = new Map<Socket, Connection>();
  #accepted = 0;
  #queued = 0;
  #dropped = 0;
  #onEmpty: (() => void) | undefined;

  /** A connection on which nothing moves for `inactivityMs` while a request is answered is cut. */
  constructor(handler: Handler, inactivityMs: number, tls?: KeyPair) {
    this.#handler = handler;
    const answer = this.#request.bind(this);
    this.#server = tls
      ? https().createServer({ ...HTTP_OPTIONS, ...TLS_OPTIONS, ...tls }, answer)
      : createHttpServer(HTTP_OPTIONS, answer);
    // The header size is the limit, not the number of headers, which node would drop silently.
    this.#server.maxHeadersCount = 0;
    // The timer restarts when the client takes bytes, and runs while a request waits for the store.
    this.#server.timeout = inactivityMs; // 6.3
    // A client that has said all it wants to say still gets its answers; @types/node misses it.
    Object.assign(this.#server, { httpAllowHalfOpen: true }); // 2.16
    this.#server.on('connection', this.#accept.bind(this));
    this.#server.on(tls ? 'secureConnection' : 'connection', this.#connected.bind(this));
    this.#server.on('checkContinue', answer);
    this.#server.on('checkExpectation', answer);
    this.#server.on('clientError', this.#unreadable.bind(this));
    this.#server.on('connect', ({ socket }: IncomingMessage) => {
      // 2.12
      // Node has taken its listeners off: the answers before have this long in all (contract 6.3).
      socket.on('error', () => socket.destroy());
      destroyIn(socket, inactivityMs);
      this.#refuse(socket, new HttpError(405, undefined, ['Allow', this.#handler.allow]));
    });
  }

  /**
   * Listens, on all interfaces without a host; with `reusePort`, beside other processes that do the
   * same (SO_REUSEPORT). Resolves with the port.
   * @throws the system's error when the address cannot be had
   */
  async listen(port: number, host: string | undefined, reusePort = false): Promise<number> {
    this.#server.listen({ port, host, backlog: BACKLOG, reusePort });
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  /** New connections get this certificate; those that are open keep theirs. */
  reloadTls(tls: KeyPair): void {
    (this.#server as Https.Server).setSecureContext({ ...tls });
  }

  /**
   * Takes no new connections but those that the kernel has already taken; resolves when the last
   * connection has ended. The handler ends each with its last answer; idle ones may bring one more
   * request for `graceMs` milliseconds, as it can be on its way.
   */
  async stop(graceMs: number, acceptMs: number): Promise<void> {
    // 6.2
    // Turns of the event loop that take what waits in the kernel's queue, until one finds nothing;
    // clients that connect anew put off the end for `acceptMs` milliseconds at most (contract 6.2).
    const most = this.#accepted + BACKLOG;
    const latest = performance.now() + acceptMs;
    let accepted: number;
    do {
      accepted = this.#accepted;
      await new Promise((resolve) => setImmediate(resolve));
    } while (this.#accepted > accepted && this.#accepted < most && performance.now() < latest);
    const closed = new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
      // Not http.Server's own close(), which would cut idle connections at once.
      NetServer.prototype.close.call(this.#server);
    });
    // A turn later, as what has arrived by then is read first.
    const grace = setInterval(() => setImmediate(() => this.#closeUnused()), graceMs); // 6.15
    if (this.#sockets.size > 0) await closed;
    clearInterval(grace);
  }

  /** Cuts every connection. */
  destroy(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#accepted++;
    // 6.3
    if (this.#sockets.size >= MAX_CONNECTIONS && this.#closeIdle(EVICTION_BATCH_SIZE) === 0) {
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#onEmpty?.();
    });
  }

  #connected(socket: Socket): void {
    if (socket.destroyed) return;
    // Over TLS too, but not before the handshake is done.
    socket.allowHalfOpen = true; // 2.16
    const connection: Connection = {
      request: undefined,
      latest: undefined,
      isClosing: false,
      isRefused: false,
      isBroken: false,
      queued: 0,
      dropped: 0,
    };
    this.#connections.set(socket, connection);
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#queued -= connection.queued;
      this.#dropped -= connection.dropped;
    });
  }

  #request(req: IncomingMessage, res: ServerResponse): void {
    const connection = this.#connections.get(req.socket);
    if (connection === undefined) return;
    if (connection.isClosing || connection.isRefused) {
      this.#drop(req.socket, connection);
      return;
    }
    const { latest } = connection;
    const isFree = latest === undefined || latest.writableFinished;
    if (!isFree && this.#queued === MAX_QUEUED) {
      // 2.11
      this.#refuse(req.socket, new HttpError(503));
      return;
    }
    connection.request = req;
    connection.latest = res;
    if (isFree) {
      this.#handler.handle(req, res, connection);
      return;
    }
    connection.queued++;
    this.#queued++;
    // Not more than one request of a pipeline is worked on, and nothing is read while others wait:
    // a client that does not read its answers, or sends without an end, would have us keep it all.
    // Later than node, which goes on reading at the end of each request, and before the next read.
    queueMicrotask(() => {
      if (!latest.writableFinished) req.socket.pause();
    });
    latest.once('finish', () => {
      // 2.11
      if (!this.#connections.has(req.socket)) return;
      connection.queued--;
      this.#queued--;
      if (res === connection.latest) req.socket.resume();
      const isCut = connection.isRefused && !req.complete;
      if (connection.isClosing || isCut) req.socket.destroySoon();
      else this.#handler.handle(req, res, connection);
    });
  }

  /** Node keeps what comes behind the last request until the connection ends: it must be little. */
  #drop(socket: Socket, connection: Connection): void {
    connection.dropped++;
    this.#dropped++;
    if (this.#dropped > MAX_DROPPED) socket.destroy(); // 2.11
    // As above. A connection that is closing is read, and what comes is not parsed.
    queueMicrotask(() => connection.isClosing || socket.pause());
  }

  /** Closes up to `most` connections without a request in progress, the oldest first. */
  #closeIdle(most: number): number {
    // 6.3
    let count = 0;
    for (const [socket, { latest, isClosing }] of this.#connections) {
      if (count >= most) break;
      // One that never sent anything counts as idle too.
      if (isClosing || (latest !== undefined && !latest.writableFinished)) continue;
      socket.end();
      socket.destroySoon();
      count++;
    }
    return count;
  }

  /** Closes what brings no request: idle connections, and those still in a TLS handshake. */
  #closeUnused(): void {
    this.#closeIdle(Number.POSITIVE_INFINITY);
    const used = new Set(Array.from(this.#connections.keys(), addressOf));
    for (const socket of this.#sockets) if (!used.has(addressOf(socket))) socket.destroy();
  }

  /** What node's parser refuses, and requests that take too long. */
  #unreadable(err: ParseError, duplex: unknown): void {
    // 2.10
    const socket = duplex as Socket;
    const connection = this.#connections.get(socket);
    if (connection?.isClosing || connection?.isRefused) return;
    if (connection === undefined || !socket.writable || err.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    const refusal = new HttpError(statusOfParseError(err));
    const { request } = connection;
    // The body of a request whose head was good: its own answer is the refusal.
    if (request !== undefined && !request.complete && request.listenerCount('error') > 0) {
      connection.isBroken = true;
      request.emit('error', refusal);
      return;
    }
    this.#refuse(socket, refusal);
  }

  /** Refuses after the answers to all earlier requests, and closes. */
  #refuse(socket: Socket, refusal: HttpError): void {
    const connection = this.#connections.get(socket);
    if (connection === undefined || connection.isClosing) return;
    connection.isRefused = true;
    const { request, latest } = connection;
    const isAnswered = request !== undefined && !request.complete;
    const end = () => {
      // The answer to the latest request has been the last.
      if (connection.isClosing) return;
      connection.isClosing = true;
      // The rest of a request that has had its answer is not refused a second time.
      if (!isAnswered) socket.write(this.#handler.refusal(refusal, socket.remoteAddress), 'latin1');
      lingeringClose(socket);
    };
    if (latest === undefined || latest.writableFinished) end();
    else {
      latest.once('finish', end); // 2.3
      // Without 'finish' before: the client has gone.
      latest.once('close', () => connection.isClosing || socket.destroySoon());
    }
  }
}

/** Loaded where TLS is set: without it the service starts sooner and is smaller. */
function https(): typeof Https {
  return createRequire(import.meta.url)('node:https');
}

/** The other end's address, which a TLS connection and the socket below it share. */
function addressOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
