// An attacker: opens connections, keeps them, and counts them.
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls, createSecureContext } from 'node:tls';
import { RECORD_CIPHER, Records, trafficSecret } from './records.ts';

/** What an attacker knows of the service. */
export interface Target {
  readonly attack: string;
  readonly port: number;
  readonly adminPort: number;
  readonly isTls: boolean;
  readonly slots: number; // idle connections that fit, as the service reports
  readonly secret: string; // the key of tokens, for attackers who have valid ones
}

export interface Counts {
  opened: number;
  failed: number;
}

export interface Options {
  readonly isUnread?: boolean; // It never reads.
  readonly isAdmin?: boolean; // the admin listener
  readonly isRaw?: boolean; // no TLS, even if the listener uses it
  readonly isHalfOpen?: boolean; // Our end does not follow theirs.
  readonly isOnce?: boolean; // Connections that end are not replaced.
  readonly lifeMs?: number; // After this time a connection is replaced.
  readonly perSecond?: number; // new connections, at most
}

export type Act = (socket: Socket, number: number) => void;

const TICK_MS = 10;
const PER_SECOND = { plain: 3_000, tls: 300 }; // A TLS handshake costs us as much as the service.

// Shared, because each connection would load the certificates of all authorities again.
const CONTEXT = createSecureContext();

/** The address of a client in a network of its own. Honest clients outside have lower ones. */
export function attackerAddress(network: number): string {
  return `127.${100 + Math.floor(network / 62_500)}.${(Math.floor(network / 250) % 250) + 1}.${(network % 250) + 1}`;
}

export class Attacker {
  readonly target: Target;
  readonly counts: Counts = { opened: 0, failed: 0 };
  readonly #addresses: number;
  #made = 0;

  constructor(target: Target, addresses: number) {
    this.target = target;
    this.#addresses = addresses;
  }

  get slots(): number {
    return this.target.slots;
  }

  /** Opens a connection from the next address and calls `act` when it is open. */
  open(act: Act, options: Options = {}): Socket {
    const number = this.#made++;
    const { isTls } = this.target;
    const isSecure = isTls && !options.isAdmin && !options.isRaw;
    const place = { ...this.#place(number, options), allowHalfOpen: !!options.isHalfOpen };
    const context = { secureContext: CONTEXT, rejectUnauthorized: false };
    const socket = isSecure ? connectTls({ ...place, ...context }) : connect(place);
    this.#count(socket, isSecure ? 'secureConnect' : 'connect');
    socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      if (!options.isUnread) socket.resume();
      act(socket, number);
    });
    return socket;
  }

  /** Keeps so many connections open, and replaces those that end. */
  hold(count: number, act: Act, options: Options = {}): void {
    const isSecure = this.target.isTls && !options.isAdmin && !options.isRaw;
    const perSecond = options.perSecond ?? PER_SECOND[isSecure ? 'tls' : 'plain'];
    let open = 0;
    let allowed = 0;
    setInterval(() => {
      for (
        allowed = Math.min(allowed + (perSecond * TICK_MS) / 1000, perSecond);
        allowed >= 1 && open < count;
        allowed--
      ) {
        open++;
        const socket = this.open(act, options);
        const timer = options.lifeMs && setTimeout(() => socket.destroy(), options.lifeMs);
        socket.once('close', () => {
          if (!options.isOnce) open--;
          clearTimeout(timer);
        });
      }
    }, TICK_MS);
  }

  /** Opens so many connections, reads nothing, and writes on all of them at once. */
  together(count: number, text: string): void {
    const sockets: Socket[] = [];
    const act: Act = (socket) => {
      sockets.push(socket);
      if (sockets.length === count) for (const each of sockets) each.write(text);
    };
    this.hold(count, act, { isUnread: true, isOnce: true });
  }

  /** Writes these bytes on so many connections again and again, each after the last was sent. */
  flood(count: number, bytes: (number: number) => Buffer | string, everyMs: number): void {
    this.hold(count, (socket, number) => {
      const timer = setInterval(() => {
        if (socket.writableLength === 0) socket.write(bytes(number));
      }, everyMs);
      socket.once('close', () => clearInterval(timer));
    });
  }

  /** Sends the request again as soon as its response has begun, on one connection of each address. */
  repeat(request: Buffer): void {
    this.hold(this.#addresses, (socket) => {
      socket.on('data', () => socket.writableLength === 0 && socket.write(request));
      socket.write(request);
    });
  }

  /** Keeps TLS 1.3 connections that read nothing after the handshake and write their own records. */
  records(count: number, next: (records: Records) => Buffer, everyMs: number): void {
    const open = () => {
      const transport = connect(this.#place(this.#made++));
      const link = new Duplex({
        read: () => {},
        write: (chunk, _encoding, done) => transport.write(chunk, () => done()),
      });
      transport.on('data', (chunk) => link.push(chunk)).on('error', () => {});
      const tls = connectTls({
        ...{ socket: link, rejectUnauthorized: false },
        ...{ minVersion: 'TLSv1.3', ciphers: RECORD_CIPHER },
      });
      this.#count(tls, 'secureConnect');
      let records: Records | undefined;
      tls.on('keylog', (line: Buffer) => {
        const secret = trafficSecret(line);
        if (secret !== undefined) records = new Records(secret);
      });
      let timer: NodeJS.Timeout;
      // Later, so that the client's Finished has been sent.
      tls.once('secureConnect', () => {
        timer = setTimeout(() => {
          transport.removeAllListeners('data').pause();
          timer = setInterval(() => {
            if (transport.writableLength === 0) transport.write(next(records!));
          }, everyMs);
        }, 100);
      });
      transport.once('close', () => {
        clearInterval(timer);
        setTimeout(open, TICK_MS);
      });
    };
    for (let i = 0; i < count; i++) open();
  }

  #place(number: number, { isAdmin }: Options = {}) {
    const { port, adminPort } = this.target;
    const localAddress = attackerAddress(number % this.#addresses);
    return { host: '127.0.0.1', port: isAdmin ? adminPort : port, localAddress };
  }

  #count(socket: Socket, event: string): void {
    socket.once(event, () => this.counts.opened++);
    socket.on('error', () => this.counts.failed++);
  }
}
