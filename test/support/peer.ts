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

  send(text: string): void {
    if (this.destroyed) return;
    this.bytesRead += text.length;
    this.push(text, 'latin1');
  }

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
