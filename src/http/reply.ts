// How a reply becomes bytes. Handlers return a Reply; nothing else writes the answer to a request.
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';

/** What a request is answered with. */
export interface Reply {
  readonly status: number;
  /** Content-Type; absent when there is no body (204, 304). */
  readonly type?: string;
  /** Whole, or in pieces whose number and length are not known before. */
  readonly body: string | AsyncIterable<string>;
  /** Flat list of further header names and values. */
  readonly headers?: readonly string[];
}

/** A JSON reply. */
export function json(body: string, headers: readonly string[] = [], status = 200): Reply {
  // 2.1
  return { status, type: 'application/json', body, headers };
}

/** A plain-text reply. */
export function text(status: number, body: string, headers: readonly string[] = []): Reply {
  // 2.1
  return { status, type: 'text/plain; charset=utf-8', body, headers };
}

/** A reply without a body: 204 and 304 (RFC 9110 §15.3.5, §15.4.5). */
export function empty(status: 204 | 304, headers: readonly string[]): Reply {
  return { status, body: '', headers };
}

/** How long a closing connection is still read, so that the client gets to read its answer. */
const LINGER_MS = 2_000; // 2.13

/**
 * Writes the reply: one head, one body. Resolves with the bytes of the body that were written;
 * a whole body's at once, a streamed one's when its last piece has been taken.
 * `headers` are those of every reply, and this reply's are appended to them; `isLast` closes the
 * connection.
 * @throws whatever a streamed body throws; the connection has been reset then, so that no client
 * takes a part for the whole.
 */
export function send(
  req: IncomingMessage,
  res: ServerResponse,
  reply: Reply,
  headers: string[],
  isLast: boolean,
): number | Promise<number> {
  if (reply.headers !== undefined) headers.push(...reply.headers);
  if (reply.type !== undefined) headers.push('Content-Type', reply.type);
  if (isLast) closeAfter(req, res, headers);
  if (typeof reply.body !== 'string') return stream(req, res, reply, headers);
  const length = Buffer.byteLength(reply.body);
  if (reply.type !== undefined) headers.push('Content-Length', String(length)); // 2.2
  res.writeHead(reply.status, headers);
  res.end(reply.body);
  // After this turn, in which node goes on reading at the end of the request (contract 6.3).
  if (req.socket.writableLength > 0) setImmediate(() => taken(req, res, 'finish'));
  return req.method === 'HEAD' ? 0 : length;
}

/** The bytes of a reply for a request that node's parser has refused (RFC 9112 §2.2). */
export function rawReply(reply: Reply, common: readonly string[]): string {
  const body = String(reply.body);
  const headers = [...common, ...(reply.headers ?? []), 'Content-Type', reply.type ?? ''];
  headers.push('Content-Length', String(Buffer.byteLength(body)), 'Connection', 'close');
  headers.push('Date', new Date().toUTCString());
  let head = `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status]}\r\n`;
  for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${head}\r\n${body}`;
}

async function stream(
  req: IncomingMessage,
  res: ServerResponse,
  reply: Reply,
  headers: string[],
): Promise<number> {
  if (req.method === 'HEAD') {
    // 2.6
    if (req.httpVersionMinor === 1) headers.push('Transfer-Encoding', 'chunked'); // 2.4
    res.writeHead(reply.status, headers).end();
    return 0;
  }
  // Node would send chunks to a client that says TE: chunked (contract 2.4).
  if (req.httpVersionMinor === 0) res.useChunkedEncodingByDefault = false;
  res.writeHead(reply.status, headers);
  let bytes = 0;
  try {
    for await (const piece of reply.body) {
      bytes += Buffer.byteLength(piece);
      if (!res.write(piece)) await taken(req, res, 'drain'); // 4.1
      // A turn of the event loop for other requests: the kernel may take all of it at once.
      await turn(); // 4.1
      if (res.destroyed) return bytes;
    }
  } catch (err) {
    reset(req.socket);
    throw err;
  }
  res.end();
  return bytes;
}

/**
 * Resolves when the client has taken what was written, or has gone. Nothing is read meanwhile: each
 * byte that it sends would let it stand still for longer (contract 6.3).
 */
function taken(
  { socket }: IncomingMessage,
  res: ServerResponse,
  event: 'drain' | 'finish',
): Promise<void> {
  return new Promise((resolve) => {
    const isRead = !socket.isPaused();
    if (isRead) socket.pause();
    const done = () => {
      res.off(event, done).off('close', done);
      socket.off(event, done);
      if (isRead) socket.resume();
      resolve();
    };
    res.on(event, done).on('close', done);
    // After CONNECT node does not hand it on from the socket.
    socket.on(event, done);
    if (res.destroyed || res.writableFinished) done();
  });
}

/** RST where the transport can send it; under TLS the missing last chunk says the same. */
function reset(socket: Socket & { encrypted?: boolean }): void {
  // 4.14
  // Node 26 keeps the descriptor of a socket that is reset after its end.
  if (socket.encrypted || socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/** Longer bodies that no one wants are not read to the end for the sake of the connection. */
const UNREAD_LIMIT_BYTES = 102_400;

/**
 * Whether the connection has to end with this answer. It may go out before the request's body has
 * come in: node reads on and drops a body of known length, but one without an end in sight, or one
 * that the client may never send because it waits for 100 (RFC 9110 §10.1.1), ends it.
 */
// 2.13
export function endsConnection(req: IncomingMessage, res: ServerResponse, reply: Reply): boolean {
  // The client asked for it, or its version does not know better (RFC 9112 §9.3).
  if (!res.shouldKeepAlive) return true;
  // HTTP/1.0 has no chunks: without a length the end of the connection is the end of the answer.
  // 2.4
  if (req.httpVersionMinor === 0 && !(typeof reply.body === 'string' && reply.type)) return true;
  if (reply.status === 413 || reply.status === 408) return true; // 2.8
  // We take no upgrade, and node drops what came behind the offer of one.
  if (req.headers.upgrade !== undefined) return true; // 2.12
  if (req.complete) return false;
  const { 'transfer-encoding': coding, 'content-length': length } = req.headers;
  return coding !== undefined || expectsContinue(req) || Number(length ?? 0) > UNREAD_LIMIT_BYTES;
}

/**
 * Whether the client waits for 100 before it sends the body: never in HTTP/1.0, and no other
 * expectation is one that a body waits for (RFC 9110 §10.1.1).
 */
export function expectsContinue({ headers, httpVersionMinor }: IncomingMessage): boolean {
  // 2.14
  return httpVersionMinor === 1 && headers.expect?.toLowerCase() === '100-continue';
}

/**
 * Closes the connection after the answer in two steps (RFC 9112 §9.6): our side at once, the
 * client's when it is done or LINGER_MS later. Closing both with unread bytes in the kernel would
 * send RST, which can take the answer away from the client before it has read it.
 */
function closeAfter(req: IncomingMessage, res: ServerResponse, headers: string[]): void {
  headers.push('Connection', 'close');
  const { socket } = req;
  res.once('finish', () => req.resume());
  // Node calls this when the last answer of a connection has been written.
  socket.destroySoon = () => lingeringClose(socket);
}

/** Sends FIN, reads on and drops what comes, and closes when the client does, or in LINGER_MS. */
export function lingeringClose(socket: Socket): void {
  // 2.13
  socket.end();
  // Not to node's parser, which would make a request of it and keep that (contract 2.11).
  socket.removeAllListeners('data').on('data', () => {}); // 2.11
  socket.resume();
  destroyIn(socket, LINGER_MS);
}

/** Closes it that many milliseconds later, unless it is closed by then. */
export function destroyIn(socket: Socket, ms: number): void {
  const timer = setTimeout(() => socket.destroy(), ms);
  socket.once('close', () => clearTimeout(timer));
}
