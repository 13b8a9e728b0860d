// HTTP(S) listener: accepts connections, passes their input to connection.ts, and shuts down gracefully.
import { once } from 'node:events';
import http from 'node:http';
import type https from 'node:https';
import net from 'node:net';
import { getBuiltinModule, versions } from 'node:process';
import { clearInterval, nextTurn, now, setInterval } from '../clock.ts';
import { HttpError } from '../http/errors.ts';
import { MAX_FIELDS, type ParseError } from '../http/message.ts';
import { Connection, type Handler, REASONS, type Shared, STATES } from './connection.ts';
import { Ledger } from './ledger.ts';
import {
  BACKLOG,
  HTTP_OPTIONS,
  IDLE_PARSERS,
  type ListenerLimits,
  SWEEP_MS,
  TLS_OPTIONS,
} from './limits.ts';
import { Turns } from './turns.ts';

/** A certificate chain and its private key, as PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

interface ListenerOptions {
  readonly limits: ListenerLimits;
  readonly idleTimeoutMs: number; // An idle connection closes after it (6.14).
  readonly unreadTimeoutMs: number; // A connection closes if the client reads nothing of a response for it (6.3).
  readonly tls?: KeyPair | undefined;
  /** Called at most once a second while connections close to make room, with their number; then once with 0. */
  readonly onRoomMade?: (count: number) => void;
}

// Before 24.15 and 25.9, node throws outside any call if a connection closes while its parser is in the middle of a read,
// where node runs microtasks. With a listener of `data`, it parses in JavaScript and runs them after the read.
const PARSES_UNSAFELY = /^(?:24\.(?:\d|1[0-4])|25\.[0-8])\./.test(versions.node);

const CONNECTION = Symbol('connection');
/** Undocumented: `_parent` is the TCP socket below a TLS socket. Without it, every handshake fails. */
type OwnedSocket = net.Socket & { [CONNECTION]?: Connection; readonly _parent?: OwnedSocket };
const connectionOf = (socket?: OwnedSocket) =>
  socket?.[CONNECTION] ?? socket?._parent?.[CONNECTION];

/** Serves HTTP/1.0 and HTTP/1.1, over TLS if given a certificate. */
export class Listener {
  readonly #server: http.Server | https.Server;
  readonly #others: net.Server[] = []; // They accept connections for #server, or lock its port.
  readonly #shared: Shared;
  readonly #options: ListenerOptions;
  readonly #timer: NodeJS.Timeout;
  /** While stop() accepts the connections that the kernel has queued; resolves when the listener closes. */
  draining: Promise<void> | undefined;
  #accepted = 0;
  #onEmpty: (() => void) | undefined;
  #report = { atMs: 0, roomMade: 0, isMaking: false };

  constructor(handler: Handler, options: ListenerOptions) {
    const { limits, idleTimeoutMs, unreadTimeoutMs, tls } = options;
    this.#options = options;
    const ledger = new Ledger<Connection>(limits);
    const closed = countsOf(REASONS);
    this.#shared = { handler, ledger, turns: new Turns(), unreadTimeoutMs, closed };
    const receive = (req: http.IncomingMessage, res: http.ServerResponse) =>
      connectionOf(req.socket)?.receive(req, res);
    const all = { ...HTTP_OPTIONS, ...TLS_OPTIONS, ...tls, keepAliveTimeout: idleTimeoutMs };
    // Loaded on first use: without TLS, the service starts sooner and uses less memory.
    const secure = tls && getBuiltinModule('node:https');
    this.#server = secure?.createServer(all, receive) ?? http.createServer(all, receive);
    // 6.3: node drops or refuses further fields, by version; checkMessage() refuses a request that has one more.
    this.#server.maxHeadersCount = MAX_FIELDS + 1;
    http.setMaxIdleHTTPParsers(IDLE_PARSERS);
    // 2.16: clients may close their side after the last request. The types of node lack the option.
    Object.assign(this.#server, { httpAllowHalfOpen: true });
    this.#server
      .prependListener('connection', (socket: net.Socket) => this.#accept(socket))
      .prependListener('secureConnection', (socket: net.Socket) => this.#secure(socket))
      .on('checkContinue', receive)
      .on('checkExpectation', receive)
      .on('timeout', (socket: OwnedSocket) => connectionOf(socket)?.expire('idle'))
      .on('connect', (_req, socket: OwnedSocket) => {
        socket.on('error', () => {}); // Node has removed its own listener.
        connectionOf(socket)?.reject(new HttpError(405, undefined, ['Allow', handler.allow])); // 2.12
      })
      .on('clientError', (err: ParseError, socket: OwnedSocket) => {
        if (err.code === 'ERR_HTTP_REQUEST_TIMEOUT') connectionOf(socket)?.rejectLate(err);
        else connectionOf(socket)?.reject(err);
      });
    if (PARSES_UNSAFELY) {
      const event = tls ? 'secureConnection' : 'connection';
      this.#server.on(event, (socket: net.Socket) => socket.on('data', () => {}));
    }
    this.#timer = setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  /** Listens on `host`, or on all interfaces, and returns the port. @throws the system's error, such as EADDRINUSE */
  async listen(port: number, host: string | undefined): Promise<number> {
    const { limits, tls } = this.#options;
    // With `reusePort`, a second service would get part of the first one's connections. Without it, the second one can't
    // start.
    const reusePort = limits.sockets > 1 && (port === 0 || (await this.#lock(port)));
    const sockets = reusePort ? limits.sockets : 1;
    const place = { host, backlog: BACKLOG / sockets, reusePort };
    const chosen = await open(this.#server, { ...place, port });
    if (reusePort && port === 0) await this.#lock(chosen);
    for (let count = 1; count < sockets; count++) {
      const options = { allowHalfOpen: !tls, noDelay: true }; // as node's servers have
      const other = new net.Server(options, (socket) => this.#server.emit('connection', socket));
      this.#others.push(other);
      await open(other, { ...place, port: chosen });
    }
    return chosen;
  }

  /** Locks the port until the listener closes. False if another service has it, or the system has no such locks. */
  async #lock(port: number): Promise<boolean> {
    const lock = new net.Server((socket) => socket.destroy());
    this.#others.push(lock);
    const path = `\0notes-users ${port}`; // an abstract Unix socket: one per network namespace, gone with the process
    return open(lock, { path }).then(
      () => true,
      () => false,
    );
  }

  /** Uses this pair for new connections. Only for a listener that was given one. */
  reloadTls(tls: KeyPair): void {
    // Without the options, node would use its default ciphers.
    (this.#server as https.Server).setSecureContext({ ...TLS_OPTIONS, ...tls });
  }

  /** True while a request is in progress. */
  get isBusy(): boolean {
    const { receiving, working, sending } = this.usage().states;
    return receiving + working + sending > 0;
  }

  /** Returns what the metrics show (7.3). */
  usage() {
    const states = countsOf(STATES);
    const { limits, heldBytes, holders } = this.#shared.ledger;
    for (const { state } of holders) if (state !== 'closed') states[state]++;
    return { ...limits, heldBytes, states, closed: this.#shared.closed };
  }

  /**
   * Accepts the connections that the kernel has already queued, then none. Resolves when the last one has
   * closed. The API's handler closes each with its last response. Every `graceMs`, `stop` closes those that have
   * been idle for at least that time (6.15).
   */
  async stop(graceMs: number, acceptMs: number): Promise<void> {
    this.draining = this.#drain(acceptMs);
    await this.draining;
    this.draining = undefined;
    // http.Server's own close() would close idle connections at once.
    for (const server of [this.#server, ...this.#others]) net.Server.prototype.close.call(server);
    const grace = setInterval(() => {
      for (const connection of this.#shared.ledger.holders) connection.expire('stopped', graceMs);
    }, graceMs);
    if (this.#shared.ledger.holders.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onEmpty = resolve;
      });
    }
    clearInterval(grace);
  }

  async #drain(acceptMs: number): Promise<void> {
    // Each turn of the event loop accepts connections, so after a turn without one the queues are
    // empty. Clients that keep connecting extend the loop by at most `acceptMs` (6.2).
    const deadline = now() + acceptMs;
    await nextTurn(); // It sends the responses that wait for it, and their clients can connect again at once.
    let accepted: number;
    do {
      accepted = this.#accepted;
      await nextTurn();
    } while (this.#accepted > accepted && now() < deadline);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const server of [this.#server, ...this.#others]) server.close();
    for (const connection of this.#shared.ledger.holders) connection.close('stopped');
  }

  #accept(socket: OwnedSocket): void {
    this.#accepted++;
    // A client that has already reset it has no address, and the log must not have a request without one (6.8).
    if (socket.remoteAddress === undefined) return void socket.destroy();
    this.#shared.turns.onAccept();
    socket[CONNECTION] = new Connection(socket, !!this.#options.tls, this.#shared);
    socket.once('close', () => {
      if (this.#shared.ledger.holders.size === 0) this.#onEmpty?.();
    });
  }

  #secure(socket: OwnedSocket): void {
    const connection = connectionOf(socket);
    if (connection === undefined) return void socket.destroy();
    // Not earlier: a connection that is half-open during its handshake would never end.
    socket.allowHalfOpen = true;
    connection.secure(socket);
  }

  #sweep(): void {
    for (const connection of this.#shared.ledger.holders) connection.sweep();
    const { atMs, roomMade, isMaking } = this.#report;
    const count = this.#shared.closed.room - roomMade;
    if (now() - atMs < 1_000 || (count === 0 && !isMaking)) return;
    this.#options.onRoomMade?.(count);
    this.#report = { atMs: now(), roomMade: roomMade + count, isMaking: count > 0 };
  }
}

/** Listens, and returns the port, if it is on one. */
async function open(server: net.Server, options: net.ListenOptions): Promise<number> {
  server.listen(options);
  await once(server, 'listening');
  return (server.address() as net.AddressInfo).port;
}

function countsOf<K extends string>(names: readonly K[]): Record<K, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<K, number>;
}
