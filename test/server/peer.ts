// The server's side of a connection without a network: a socket whose client is the test. Node parses its input
// in JavaScript; it parses that of a real socket natively, with the same events.
import { Socket } from 'node:net';

type Callback = (error?: Error | null) => void;

export class Peer extends Socket {
  override readonly remoteAddress: string;
  override bytesRead = 0;
  output = ''; // what the client has received
  hasFin = false; // The client has received the end of the server's side.
  isClosed = false;
  isReset = false;
  isCut = false; // The server has closed it with a response that the client takes for complete or late.
  windowBytes: number; // that the client takes at once
  #unread: { text: string; done: Callback }[] = []; // written, and not yet taken

  constructor(address: string, windowBytes: number) {
    super({ allowHalfOpen: true });
    this.remoteAddress = address;
    this.windowBytes = windowBytes;
    this.once('close', () => {
      this.isClosed = true;
    });
  }

  /** The client sends bytes. */
  send(text: string): void {
    if (this.destroyed) return;
    this.bytesRead += text.length;
    this.push(text, 'latin1');
  }

  /** The client closes its side. */
  sendFin(): void {
    if (!this.destroyed) this.push(null);
  }

  /** The client takes up to so many bytes more. */
  receive(bytes: number): void {
    this.windowBytes += bytes;
    for (let next = this.#unread[0]; next !== undefined; next = this.#unread[0]) {
      const text = next.text.slice(0, this.windowBytes);
      this.windowBytes -= text.length;
      this.output += text;
      next.text = next.text.slice(text.length);
      if (next.text !== '') return;
      this.#unread.shift();
      next.done();
    }
  }

  override resetAndDestroy(): this {
    this.isReset = true;
    return this.destroy();
  }

  override _read(): void {}

  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: Callback): void {
    this._writev([{ chunk, encoding }], done);
  }

  override _writev(
    chunks: { chunk: Buffer | string; encoding: BufferEncoding }[],
    done: Callback,
  ): void {
    const bytesOf = (one: (typeof chunks)[number]) =>
      typeof one.chunk === 'string' ? Buffer.from(one.chunk, one.encoding) : one.chunk;
    const text = chunks.map((one) => bytesOf(one).toString('latin1')).join('');
    this.#unread.push({ text, done });
    this.receive(0);
  }

  override _final(done: Callback): void {
    this.hasFin = true;
    done();
  }

  override _destroy(error: Error | null, done: Callback): void {
    const unread = this.#unread.splice(0);
    this.isCut = unread.length > 0 && !this.isReset && !this.writableEnded && error === null;
    for (const write of unread) write.done();
    super._destroy(error, done);
  }
}

export interface Response {
  readonly status: number;
  readonly id: string; // X-Request-Id
  readonly isLast: boolean; // Connection: close
  readonly isComplete: boolean;
}

/** Reads responses as a client does, up to the first that is incomplete. `isHead` says which have no body. */
export function readResponses(output: string, hasEnded: boolean, isHead: (id: string) => boolean) {
  const responses: Response[] = [];
  let rest = output;
  while (rest !== '') {
    if (rest.startsWith('HTTP/1.1 100 Continue\r\n\r\n')) {
      rest = rest.slice(25);
      continue;
    }
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) break;
    const head = rest.slice(0, end);
    const status = Number(/^HTTP\/1\.1 ([0-9]{3}) /.exec(head)?.[1]);
    const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'im').exec(head)?.[1]?.trim();
    const id = field('x-request-id') ?? '';
    const isLast = field('connection') === 'close';
    rest = rest.slice(end + 4);
    let isComplete: boolean;
    const length = status === 204 || status === 304 || isHead(id) ? '0' : field('content-length');
    if (length !== undefined) {
      isComplete = rest.length >= Number(length);
      rest = rest.slice(Number(length));
    } else if (field('transfer-encoding') === 'chunked') {
      [rest, isComplete] = afterChunks(rest);
    } else {
      isComplete = hasEnded;
      rest = '';
    }
    responses.push({ status, id, isLast, isComplete });
    if (!isComplete) break;
  }
  return { responses, rest };
}

/** Returns what follows the last chunk, and whether that has arrived. */
function afterChunks(text: string): [rest: string, isComplete: boolean] {
  let rest = text;
  for (;;) {
    const [line, size] = /^([0-9a-f]+)\r\n/.exec(rest) ?? [];
    if (line === undefined) return ['', false];
    const length = Number.parseInt(size!, 16);
    if (length === 0) return [rest.slice(5), rest.startsWith('0\r\n\r\n')];
    rest = rest.slice(line.length + length + 2);
  }
}
