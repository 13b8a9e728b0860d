// A TCP proxy between the service and Postgres that simulates network faults. It delays, stalls like a black
// hole, and cuts with FIN or RST.
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { freePort } from './daemon.ts';

type Cut = 'fin' | 'rst';

interface Link {
  readonly sockets: readonly [Socket, Socket];
  isSilent: boolean; // Data is dropped, in both directions.
}

export class TcpProxy {
  /** One-way delay in milliseconds. */
  delayMs = 0;
  /** Cuts a new connection at this response (the first is 0), or drops everything from it on. */
  failure: { readonly how: Cut | 'silence'; readonly response: number } | undefined;
  /** Sees each response of the server, and may change it. */
  onResponse: (bytes: Buffer) => void = () => {};
  readonly port: number;
  readonly #target: number;
  readonly #links = new Set<Link>();
  readonly #server: Server;
  #stall: PromiseWithResolvers<void> | undefined;

  private constructor(port: number, target: number) {
    this.port = port;
    this.#target = target;
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#connected(client));
  }

  static async listen(target: number): Promise<TcpProxy> {
    const proxy = new TcpProxy(await freePort(), target);
    proxy.#server.listen(proxy.port, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** Acts as a black hole: connections stay open, and nothing arrives. */
  stall(): void {
    this.#stall ??= Promise.withResolvers();
  }

  /** Forwards everything held, except for connections whose sender has disconnected. */
  resume(): void {
    this.#stall?.resolve();
    this.#stall = undefined;
  }

  cut(how: Cut): number {
    const count = this.#links.size;
    for (const link of this.#links) this.#cut(link, how);
    return count;
  }

  refuse(): void {
    this.#server.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.cut('rst');
  }

  #connected(client: Socket): void {
    const server = connect({ port: this.#target, host: '127.0.0.1', allowHalfOpen: true });
    const link: Link = { sockets: [client, server], isSilent: false };
    this.#links.add(link);
    const { failure } = this;
    let responses = 0;
    this.#forward(link, client, server, () => {});
    this.#forward(link, server, client, (bytes) => {
      this.onResponse(bytes);
      if (failure === undefined || responses++ !== failure.response) return;
      if (failure.how !== 'silence') return this.#cut(link, failure.how);
      link.isSilent = true;
    });
  }

  /** Forwards what one socket receives to the other, in order. */
  #forward(link: Link, from: Socket, to: Socket, onData: (bytes: Buffer) => void): void {
    let last: Promise<unknown> = Promise.resolve();
    const enqueue = (action: () => void) => {
      const isDue = this.delayMs > 0 ? pause(this.delayMs) : undefined;
      last = last
        .then(() => isDue)
        .then(() => this.#stall?.promise)
        .then(action);
    };
    from.setNoDelay(true);
    from.on('data', (bytes: Buffer) => {
      onData(bytes);
      // A closed sender can't resend, so the data that a black hole holds is lost.
      enqueue(() => !link.isSilent && !from.destroyed && to.write(bytes));
    });
    from.on('end', () => enqueue(() => to.end()));
    from.on('error', () => {});
    from.on('close', (hasFailed) => {
      if (to.destroyed) this.#links.delete(link);
      enqueue(() => (hasFailed || !to.writableEnded ? reset(to) : to.destroySoon()));
    });
  }

  #cut(link: Link, how: Cut): void {
    link.isSilent = true;
    for (const socket of link.sockets) {
      if (how === 'rst') reset(socket);
      else socket.end();
    }
  }
}

/** Works around Node 26, which never closes a socket that is reset after it has sent FIN. */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/** Returns the URL of a database with other ports of 127.0.0.1. */
export function through(databaseUrl: string, ...ports: readonly number[]): string {
  const { username, password, pathname, search } = new URL(databaseUrl);
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
  return `postgres://${username}:${password}@${hosts}${pathname}${search}`;
}
