// An attacker: opens connections, keeps them, and counts them.
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
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

/** Acts again and again until the connection ends. */
export function every(socket: Socket, ms: number, act: () => void): void {
  const timer = setInterval(act, ms);
  socket.once('close', () => clearInterval(timer));
}

export class Attacker {
  readonly target: Target;
  readonly slots: number;
  opened = 0; // connections
  readonly #addresses: number;
  #made = 0;

  constructor(target: Target, addresses: number) {
    this.target = target;
    this.slots = target.slots;
    this.#addresses = addresses;
  }

  /** Keeps so many connections open, each from the next address, and replaces those that end. */
  hold(count: number, act: Act, options: Options = {}): void {
    const isSecure = this.target.isTls && !options.isAdmin && !options.isRaw;
    const perSecond = options.perSecond ?? PER_SECOND[isSecure ? 'tls' : 'plain'];
    let open = 0;
    let allowed = 0;
    const add = () => {
      open++;
      const number = this.#made++;
      const place = this.#place(number, options);
      const socket = isSecure
        ? connectTls({ ...place, secureContext: CONTEXT, rejectUnauthorized: false })
        : connect(place);
      const timer = options.lifeMs && setTimeout(() => socket.destroy(), options.lifeMs);
      this.#count(socket, isSecure ? 'secureConnect' : 'connect', () => {
        if (!options.isUnread) socket.resume();
        act(socket, number);
      });
      socket.once('close', () => {
        if (!options.isOnce) open--;
        clearTimeout(timer);
      });
    };
    setInterval(() => {
      allowed = Math.min(allowed + (perSecond * TICK_MS) / 1000, perSecond);
      for (; allowed >= 1 && open < count; allowed--) add();
    }, TICK_MS);
  }

  /** Opens so many connections, reads nothing, and writes on all of them at once. */
  together(count: number, text: string): void {
    const sockets: Socket[] = [];
    const act: Act = (socket) => {
      sockets.push(socket);
      this.opened = sockets.length < count ? 0 : count; // The test fails if they never write.
      if (sockets.length === count) for (const each of sockets) each.write(text);
    };
    this.hold(count, act, { isUnread: true, isOnce: true });
  }

  /** Writes these bytes on so many connections again and again, each after the last was sent. */
  flood(count: number, bytes: (number: number) => Buffer | string, everyMs: number): void {
    this.hold(count, (socket, number) =>
      every(socket, everyMs, () => socket.writableLength === 0 && socket.write(bytes(number))),
    );
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
      let records: Records | undefined;
      tls.on('keylog', (line: Buffer) => {
        const secret = trafficSecret(line);
        if (secret !== undefined) records = new Records(secret);
      });
      this.#count(tls, 'secureConnect', async () => {
        await pause(100); // The client's Finished has been sent.
        if (transport.destroyed) return;
        transport.removeAllListeners('data').pause();
        const write = () => transport.writableLength === 0 && transport.write(next(records!));
        every(transport, everyMs, write);
      });
      transport.once('close', () => setTimeout(open, TICK_MS));
    };
    for (let i = 0; i < count; i++) open();
  }

  #place(number: number, { isAdmin, isHalfOpen = false }: Options = {}) {
    const { port, adminPort } = this.target;
    const localAddress = attackerAddress(number % this.#addresses);
    const place = { host: '127.0.0.1', port: isAdmin ? adminPort : port, localAddress };
    return { ...place, allowHalfOpen: isHalfOpen };
  }

  #count(socket: Socket, event: string, act: () => void): void {
    socket.on('error', () => {});
    socket.once(event, () => {
      this.opened++;
      act();
    });
  }
}
