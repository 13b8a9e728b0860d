// A TCP proxy between the service and Postgres that simulates network faults. It delays, stalls like a black
// hole, and cuts with FIN or RST. It counts its actions, so a test can check that its fault hit something.
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { stablePort } from '../support/daemon.ts';

/** Ends a connection with FIN or RST. */
export type Cut = 'fin' | 'rst';

/** A proxy on 127.0.0.1 to a port there. */
export class TcpProxy {
  /** One-way delay in milliseconds. */
  delayMs = 0;
  /** Cuts a new connection at this response (the first is 0), or drops everything from it on. */
  failure: { readonly how: Cut | 'silence'; readonly response: number } | undefined;
  /** Sees each response of the server, and may change it. */
  onResponse: (bytes: Buffer) => void = () => {};
  readonly counts = { cut: 0, silenced: 0, heldBytes: 0 };
  readonly port: number;
  readonly #target: number;
  readonly #links = new Set<readonly Pipe[]>();
  readonly #server: Server;
  #isStalled = false;

  private constructor(port: number, target: number) {
    this.port = port;
    this.#target = target;
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#connected(client));
  }

  static async listen(target: number): Promise<TcpProxy> {
    const proxy = new TcpProxy(await stablePort(), target);
    proxy.#server.listen(proxy.port, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** True while it forwards nothing. */
  get isStalled(): boolean {
    return this.#isStalled;
  }

  /** Acts as a black hole: connections stay open, and nothing arrives. */
  stall(): void {
    this.#isStalled = true;
  }

  /** Forwards everything held, except for connections whose sender has disconnected. */
  resume(): void {
    this.#isStalled = false;
    for (const pipe of [...this.#links].flat()) pipe.pump();
  }

  /** Cuts every connection; returns how many. */
  cut(how: Cut): number {
    const count = this.#links.size;
    for (const pipe of [...this.#links].flat()) pipe.cut(how);
    this.counts.cut += count;
    return count;
  }

  /** Makes the port refuse connections. Open ones stay. */
  refuse(): void {
    this.#server.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const pipe of [...this.#links].flat()) pipe.cut('rst');
  }

  #connected(client: Socket): void {
    const server = connect({ port: this.#target, host: '127.0.0.1', allowHalfOpen: true });
    const { failure } = this;
    let responses = 0;
    const back = new Pipe(this, server, client);
    const forth = new Pipe(this, client, server);
    const ways = [forth, back];
    this.#links.add(ways);
    const closed = () => client.destroyed && server.destroyed && this.#links.delete(ways);
    client.on('close', closed);
    server.on('close', closed);
    const silence = () => {
      this.counts.silenced++;
      forth.onData = back.onData = () => false;
      return false;
    };
    back.onData = (bytes) => {
      this.onResponse(bytes);
      if (failure !== undefined && responses++ === failure.response) {
        if (failure.how === 'silence') return silence();
        this.counts.cut++;
        for (const pipe of ways) pipe.cut(failure.how);
        return false;
      }
      return true;
    };
  }
}

/** One direction of a connection. Forwards data in order, when the proxy allows it. */
class Pipe {
  readonly from: Socket;
  /** True if what has arrived is forwarded. */
  onData: (bytes: Buffer) => boolean = () => true;
  readonly #proxy: TcpProxy;
  #queue: { readonly due: number; readonly act: () => void }[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(proxy: TcpProxy, from: Socket, to: Socket) {
    this.#proxy = proxy;
    this.from = from;
    from.setNoDelay(true);
    from.on('data', (chunk: Buffer) => {
      if (!this.onData(chunk)) return;
      if (proxy.isStalled) proxy.counts.heldBytes += chunk.length;
      this.#push(() => to.write(chunk));
    });
    from.on('end', () => this.#push(() => to.end()));
    from.on('error', () => {});
    from.on('close', (hasFailed) => {
      // A closed sender can't resend, so the data that the black hole holds is lost.
      if (proxy.isStalled) this.#queue = [];
      this.#push(() => (hasFailed || to.writableEnded === false ? reset(to) : to.destroySoon()));
    });
  }

  /** Forwards the data that is due. */
  pump(): void {
    clearTimeout(this.#timer);
    while (!this.#proxy.isStalled && this.#queue.length > 0) {
      const wait = this.#queue[0]!.due - performance.now();
      if (wait > 0) {
        this.#timer = setTimeout(() => this.pump(), wait);
        return;
      }
      this.#queue.shift()!.act();
    }
  }

  cut(how: Cut): void {
    this.#queue = [];
    this.onData = () => false;
    if (how === 'rst') reset(this.from);
    else this.from.end();
  }

  #push(act: () => void): void {
    this.#queue.push({ due: performance.now() + this.#proxy.delayMs, act });
    this.pump();
  }
}

/** Works around Node 26, which never closes a socket that is reset after it has sent FIN. */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
