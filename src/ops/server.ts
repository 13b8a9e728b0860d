// The listener: every limit of node:http(s) written out, what happens to bytes that are no request,
// which connections give way when there are too many, and how it stops.
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import type * as Https from 'node:https';
import { createRequire } from 'node:module';
import { Server as NetServer, type Socket } from 'node:net';
import { HttpError } from '../http/errors.ts';
import { MAX_HEADER_BYTES } from '../http/message.ts';
import { lingeringClose } from '../http/reply.ts';

/** Connections at the same time; beyond, idle ones give way. */
const MAX_CONNECTIONS = 10_000;

/** Idle connections closed at once when room is needed, so that looking for them stays rare. */
const ROOM = 100;

/** How long a stopping server takes what is on its way: connections, requests on idle ones. */
const STOP_GRACE_MS = 500;

const HANDSHAKE_TIMEOUT_MS = 10_000;

const OPTIONS: ServerOptions = {
  insecureHTTPParser: false,
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 1_000,
  // Longer than the 60 s after which load balancers commonly drop an idle connection: the side that
  // sends the next request should be the one that closes.
  keepAliveTimeout: 65_000,
  // We refuse it ourselves, with the headers of every answer.
  requireHostHeader: false,
  joinDuplicateHeaders: false,
  noDelay: true,
  // A request without a body gets no stream.
  optimizeEmptyRequests: true,
};

/** PEM texts. */
export interface TlsFiles {
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
}

/** Who answers. */
export interface Handler {
  /** Answers a request. */
  handle(req: IncomingMessage, res: ServerResponse, connection: Connection): void;
  /** The bytes that refuse what is no request. */
  refusal(err: HttpError, socketAddress: string | undefined): string;
  /** Methods for `Allow`. */
  readonly allow: string;
}

/** A server of HTTP/1.0 and HTTP/1.1, over TLS when it is given. */
export class Server {
  readonly #server: HttpServer | Https.Server;
  readonly #handler: Handler;
  // All that are open, those in a TLS handshake included.
  readonly #sockets = new Set<Socket>();
  readonly #connections = new Map<Socket, Connection>();
  #accepted = 0;
  #onEmpty: (() => void) | undefined;

  /** A connection on which nothing moves for `inactivityMs` while a request is answered is cut. */
  constructor(handler: Handler, inactivityMs: number, tls?: TlsFiles) {
    this.#handler = handler;
    const answer = this.#request.bind(this);
    this.#server = tls
      ? https().createServer({ ...OPTIONS, ...tls, handshakeTimeout: HANDSHAKE_TIMEOUT_MS }, answer)
      : createHttpServer(OPTIONS, answer);
    // The header size is the limit, not the number of headers, which node would drop silently.
    this.#server.maxHeadersCount = 0;
    // Node looks whether the client has taken something, and also counts while a request waits.
    this.#server.timeout = inactivityMs;
    this.#server.on('connection', this.#accept.bind(this));
    this.#server.on(tls ? 'secureConnection' : 'connection', this.#connected.bind(this));
    this.#server.on('checkContinue', answer);
    this.#server.on('checkExpectation', answer);
    this.#server.on('clientError', this.#unreadable.bind(this));
    this.#server.on('connect', (_req: IncomingMessage, socket: Socket) => {
      // Node has taken its own listener off.
      socket.on('error', () => socket.destroy());
      this.#refuse(socket, new HttpError(405, undefined, ['Allow', this.#handler.allow]));
    });
  }

  /**
   * Listens, on all interfaces without a host. Resolves with the port.
   * @throws the system's error when the address cannot be had
   */
  listen(port: number, host: string | undefined): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ port, host, backlog: 4096 }, () => {
        this.#server.off('error', reject);
        const address = this.#server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : port);
      });
    });
  }

  /** New connections get this certificate; those that are open keep theirs. */
  reloadTls(tls: TlsFiles): void {
    (this.#server as Https.Server).setSecureContext({ ...tls });
  }

  /**
   * Takes no new connections but those that the kernel has already taken; resolves when the last
   * connection has ended. The handler ends each with its last answer; idle ones may bring one more
   * request for `graceMs` milliseconds, as it can be on its way.
   */
  async stop(graceMs = STOP_GRACE_MS): Promise<void> {
    // Turns of the event loop that take what waits in the kernel's queue, until one finds nothing;
    // clients that connect anew all the time do not put off the end.
    const end = performance.now() + STOP_GRACE_MS;
    let accepted: number;
    do {
      accepted = this.#accepted;
      await new Promise((resolve) => setImmediate(resolve));
    } while (this.#accepted > accepted && performance.now() < end);
    const closed = new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
      // Not http.Server's own close(), which would cut idle connections at once.
      NetServer.prototype.close.call(this.#server);
    });
    // A turn later, as what has arrived by then is read first.
    const grace = setInterval(
      () => setImmediate(() => this.#closeIdle(Number.POSITIVE_INFINITY)),
      graceMs,
    );
    if (this.#connections.size > 0) await closed;
    clearInterval(grace);
  }

  /** Cuts every connection. */
  destroy(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#accepted++;
    if (this.#sockets.size >= MAX_CONNECTIONS && this.#closeIdle(ROOM) === 0) {
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
  }

  #connected(socket: Socket): void {
    if (socket.destroyed) return;
    this.#connections.set(socket, {
      request: undefined,
      latest: undefined,
      isClosing: false,
      isRefused: false,
      isBroken: false,
    });
    socket.once('close', () => {
      this.#connections.delete(socket);
      if (this.#connections.size === 0) this.#onEmpty?.();
    });
  }

  #request(req: IncomingMessage, res: ServerResponse): void {
    const connection = this.#connections.get(req.socket);
    if (connection === undefined || connection.isClosing || connection.isRefused) return;
    const { latest } = connection;
    connection.request = req;
    connection.latest = res;
    if (latest === undefined || latest.writableFinished) {
      this.#handler.handle(req, res, connection);
      return;
    }
    // Not more than one request of a pipeline is worked on, and nothing is read while others wait: a
    // client that does not read its answers, or sends without an end, would have us keep it all.
    // Later than node, which goes on reading at the end of each request, and before the next read.
    queueMicrotask(() => {
      if (!latest.writableFinished) req.socket.pause();
    });
    latest.once('finish', () => {
      if (res === connection.latest) req.socket.resume();
      const isCut = connection.isRefused && !req.complete;
      if (connection.isClosing || isCut) req.socket.destroySoon();
      else this.#handler.handle(req, res, connection);
    });
  }

  /** Closes up to `most` connections without a request in progress, the oldest first. */
  #closeIdle(most: number): number {
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

  /** What node's parser refuses, and requests that take too long. */
  #unreadable(err: Error & { code?: string }, duplex: unknown): void {
    const socket = duplex as Socket;
    const connection = this.#connections.get(socket);
    if (connection?.isClosing || connection?.isRefused) return;
    if (connection === undefined || !socket.writable || err.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    const refusal = new HttpError(statusOf(err.code));
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
    else latest.once('finish', end).once('close', () => socket.destroySoon());
  }
}

/** Loaded where TLS is set: without it the service starts sooner and is smaller. */
function https(): typeof Https {
  return createRequire(import.meta.url)('node:https');
}

function statusOf(code: string | undefined): number {
  if (code === 'HPE_HEADER_OVERFLOW') return 431;
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW') return 413;
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 408;
  if (code === 'HPE_INVALID_VERSION') return 505;
  // The preface of HTTP/2, "PRI * HTTP/2.0".
  if (code === 'HPE_PAUSED_H2_UPGRADE') return 505;
  return 400;
}
