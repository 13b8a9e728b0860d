// An attacker's connections: raw sockets of one process, bounded in number and rate.
import { connect, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext } from 'node:tls';

/** The target, and the attacker's knowledge. */
export interface Target {
  readonly attack: string;
  readonly port: number;
  readonly adminPort: number;
  readonly isTls: boolean;
  /** The name of the attack, for its data. */
  readonly run: string;
  /** The key of tokens, for attackers who have valid ones. */
  readonly secret: string;
}

/** Counts of an attacker. */
export interface Counts {
  /** Number of connections that it tries to hold. */
  goal: number;
  /** Connections that were open, TLS included. */
  opened: number;
  /** Connections that have ended since. */
  closed: number;
  /** Connections that failed to open or broke. */
  failed: number;
  writtenBytes: number;
  readBytes: number;
}

/** Options of connections. */
export interface ConnectionOptions {
  /** True if it reads responses. */
  readonly isRead?: boolean;
  /** The admin listener instead of the API. */
  readonly isAdmin?: boolean;
  /** No TLS, even if the listener uses it. */
  readonly isRaw?: boolean;
  /** Number of client addresses. */
  readonly addresses?: number;
  /** Half-open connections: our end does not follow theirs. */
  readonly allowHalfOpen?: boolean;
  /** The newest version of TLS that is offered. */
  readonly tlsVersion?: keyof typeof CONTEXTS;
}

export interface HoldOptions extends ConnectionOptions {
  /** After this time a connection is replaced by a new one. */
  readonly lifeMs?: number;
  /** True if closed connections are not replaced. */
  readonly isOnce?: boolean;
}

/** New connections of each 10 ms: a TLS handshake costs us as much as the service. */
const PACE = { plain: 30, tls: 3 };
const TICK_MS = 10;

/** Shared, because each connection would load the certificates of all authorities again. */
const CONTEXTS = {
  'TLSv1.2': createSecureContext({ maxVersion: 'TLSv1.2' }),
  'TLSv1.3': createSecureContext(),
};

/** Every connection of an attacker. */
export class Connections {
  readonly target: Target;
  readonly counts: Counts = {
    goal: 0,
    opened: 0,
    closed: 0,
    failed: 0,
    writtenBytes: 0,
    readBytes: 0,
  };
  #made = 0;

  constructor(target: Target) {
    this.target = target;
  }

  /** Opens one and calls `act` when it is open. */
  open(
    act: (socket: Socket) => void,
    {
      isRead = true,
      isAdmin,
      isRaw,
      addresses = 1,
      allowHalfOpen = false,
      tlsVersion = 'TLSv1.3',
    }: ConnectionOptions = {},
  ): Socket {
    const { port, adminPort, isTls } = this.target;
    const number = this.#made++ % addresses;
    const options = {
      host: '127.0.0.1',
      port: isAdmin ? adminPort : port,
      localAddress: `127.0.${1 + Math.floor(number / 250)}.${2 + (number % 250)}`,
      allowHalfOpen,
    };
    const isSecure = isTls && !isAdmin && !isRaw;
    const secure = { secureContext: CONTEXTS[tlsVersion], rejectUnauthorized: false };
    const socket = isSecure ? connectTls({ ...options, ...secure }) : connect(options);
    if (!isRead && !isSecure) socket.pause();
    socket.on('error', () => {
      this.counts.failed++;
    });
    socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      this.counts.opened++;
      socket.once('close', () => {
        this.counts.closed++;
      });
      if (isRead) {
        socket.on('data', (chunk) => {
          this.counts.readBytes += chunk.length;
        });
      }
      act(socket);
    });
    socket.once('close', () => {
      this.counts.writtenBytes += socket.bytesWritten;
    });
    return socket;
  }

  /** Keeps this many open, replacing those that close. */
  hold(count: number, act: (socket: Socket) => void, options: HoldOptions = {}): void {
    const { lifeMs } = options;
    const isSecure = this.target.isTls && !options.isAdmin && !options.isRaw;
    const pace = isSecure ? PACE.tls : PACE.plain;
    this.counts.goal += count;
    let open = 0;
    setInterval(() => {
      for (let i = 0; i < pace && open < count; i++) {
        open++;
        const socket = this.open(act, options);
        const timer = lifeMs && setTimeout(() => socket.destroy(), lifeMs);
        socket.once('close', () => {
          if (!options.isOnce) open--;
          clearTimeout(timer);
        });
      }
    }, TICK_MS);
  }

  /** Writes these bytes on this many connections again and again, as fast as possible. */
  flood(count: number, bytes: () => Buffer | string, everyMs: number): void {
    this.hold(count, (socket) => {
      const timer = setInterval(() => {
        if (socket.writableLength === 0) socket.write(bytes());
      }, everyMs);
      socket.once('close', () => clearInterval(timer));
    });
  }
}
