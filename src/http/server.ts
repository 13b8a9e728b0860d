// HTTP(S) listener: accepts connections, passes their input to connection.ts, and shuts down gracefully.
import { once } from 'node:events';
import type { Server as HttpServer, IncomingMessage, ServerResponse } from 'node:http';
import http from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net';
import { getBuiltinModule } from 'node:process';
import { clearInterval, now, setImmediate, setInterval } from '../clock.ts';
import { plainAddress } from './address.ts';
import type { Budget } from './budget.ts';
import { Connection, type Handler } from './connection.ts';
import { BACKLOG, HTTP_OPTIONS, IDLE_PARSERS, TLS_OPTIONS } from './limits.ts';
import type { ParseError } from './message.ts';

/** A certificate chain and its private key, as PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

const CONNECTION = Symbol('connection');
/** Undocumented: `_parent` is the TCP socket below a TLS socket. Without it, every handshake fails. */
type OwnedSocket = Socket & { [CONNECTION]?: Connection; readonly _parent?: OwnedSocket };

/** Serves HTTP/1.0 and HTTP/1.1, over TLS if given a certificate. */
export class Server {
  readonly #server: HttpServer | HttpsServer;
  readonly #handler: Handler;
  readonly #budget: Budget;
  readonly #startTls: ((socket: Socket) => void) | undefined; // begins a handshake
  readonly #startHttp: (socket: Socket) => void; // attaches the parser
  readonly #connections = new Set<Connection>();
  #accepted = 0;
  #onEmpty: (() => void) | undefined;

  constructor(handler: Handler, budget: Budget, idleTimeoutMs: number, tls?: KeyPair) {
    this.#handler = handler;
    this.#budget = budget;
    const receive = (req: IncomingMessage, res: ServerResponse) =>
      (req.socket as OwnedSocket)[CONNECTION]?.receive(req, res);
    const keepAlive = { keepAliveTimeout: idleTimeoutMs }; // 6.14
    const options = { ...HTTP_OPTIONS, ...keepAlive, ...(tls && TLS_OPTIONS), ...tls };
    // Loaded on first use: without TLS, the service starts sooner and uses less memory.
    const https = tls && getBuiltinModule('node:https');
    this.#server = https?.createServer(options, receive) ?? http.createServer(options, receive);
    // 6.3: with a maximum number of header fields, node would silently drop some.
    this.#server.maxHeadersCount = 0;
    http.setMaxIdleHTTPParsers(IDLE_PARSERS);
    // One timer of Budget checks the progress of all connections.
    this.#server.timeout = 0;
    // 2.16: clients may close their side after the last request. 6.18: sockets start paused. The types of
    // node lack both options.
    Object.assign(this.#server, { httpAllowHalfOpen: true, pauseOnConnect: true });
    // Node's own listeners would begin at once, not in the connection's turn (6.18).
    this.#startTls = tls && takeListener(this.#server, 'connection');
    this.#startHttp = takeListener(this.#server, tls ? 'secureConnection' : 'connection');
    this.#server.on('secureConnection', (socket: Socket) => this.#secure(socket));
    this.#server.on('connection', (socket: Socket) => this.#accept(socket));
    this.#server.on('checkContinue', receive);
    this.#server.on('checkExpectation', receive);
    this.#server.on('clientError', (err: ParseError, socket: OwnedSocket) => {
      if (socket[CONNECTION]) socket[CONNECTION].reject(err);
      else socket.destroy();
    });
    this.#server.on('connect', (_req, socket: OwnedSocket) => socket[CONNECTION]?.refuseTunnel());
  }

  /** Listens on `host`, or on all interfaces, and returns the port. */
  async listen(port: number, host: string | undefined): Promise<number> {
    this.#server.listen({ port, host, backlog: BACKLOG });
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  reloadTls(tls: KeyPair): void {
    // Without the options, node would use its default ciphers.
    (this.#server as HttpsServer).setSecureContext({ ...TLS_OPTIONS, ...tls });
  }

  /**
   * Accepts the connections that the kernel has already queued, then none. Resolves when the last one has
   * closed. The handler closes each with its last response. Every `graceMs`, `stop` closes idle ones (6.15).
   */
  async stop(graceMs: number, acceptMs: number): Promise<void> {
    // Node accepts one connection per turn of the event loop, so after a turn without one the queue
    // is empty. Clients that keep reconnecting extend the loop by at most `acceptMs` (6.2).
    const limit = this.#accepted + BACKLOG;
    const deadline = now() + acceptMs;
    let accepted: number;
    do {
      accepted = this.#accepted;
      await new Promise((resolve) => setImmediate(resolve));
    } while (this.#accepted > accepted && this.#accepted < limit && now() < deadline);
    const closed = new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
      // http.Server's own close() would close idle connections at once.
      NetServer.prototype.close.call(this.#server);
    });
    // One turn later, so that input that has already arrived is read first.
    const grace = setInterval(() => setImmediate(() => this.#closeIdle()), graceMs);
    if (this.#connections.size > 0) await closed;
    clearInterval(grace);
  }

  destroy(): void {
    this.#server.close();
    for (const connection of this.#connections) connection.destroy();
  }

  #accept(socket: OwnedSocket): void {
    this.#accepted++;
    this.#budget.turns.recordAccept();
    const address = plainAddress(socket.remoteAddress ?? '');
    const connection = new Connection(socket, address, this.#handler, this.#budget);
    if (!this.#budget.add(connection)) {
      socket.destroy();
      return;
    }
    this.#connections.add(connection);
    socket[CONNECTION] = connection;
    const startTls = this.#startTls;
    if (startTls) {
      // 6.18: a handshake takes a millisecond.
      connection.later(() => {
        if (socket.destroyed) return;
        startTls(socket);
        this.#budget.countRead(false);
      });
    } else {
      this.#open(connection, socket);
    }
    socket.once('close', () => {
      connection.onClose();
      this.#connections.delete(connection);
      if (this.#connections.size === 0) this.#onEmpty?.();
    });
  }

  #secure(socket: OwnedSocket): void {
    const connection = socket._parent?.[CONNECTION];
    if (connection === undefined || socket.destroyed) {
      socket.destroy();
      return;
    }
    // Not earlier: a connection that is half-open during its handshake would never end.
    socket.allowHalfOpen = true;
    socket[CONNECTION] = connection;
    this.#open(connection, socket);
  }

  #open(connection: Connection, socket: Socket): void {
    const destroy = () => socket.destroy();
    socket.on('error', destroy);
    // 6.18: many connections can begin in one turn of the event loop, each with a pipeline of requests.
    connection.open(socket, () => {
      socket.off('error', destroy);
      // Node's listeners would miss an end that has passed.
      if (socket.readableEnded) socket.destroySoon();
      else this.#startHttp(socket);
    });
  }

  #closeIdle(): void {
    for (const connection of this.#connections) if (connection.isIdle) connection.close();
  }
}

/** Removes node's own listener; returns a function that calls it. */
function takeListener(server: NetServer, event: string): (socket: Socket) => void {
  const [listener] = server.listeners(event);
  server.removeAllListeners(event);
  return (socket) => listener!.call(server, socket);
}
