// Handlers return a Reply; `send` writes it. `rawReply` formats one for input that is not a request.
import { STATUS_CODES } from 'node:http';
import { dateOf, setImmediate, unixMs } from '../clock.ts';
import { HttpError } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { dropBody } from './message.ts';

export interface Reply {
  readonly status: number;
  readonly type?: string; // Content-Type; absent without a body (204, 304)
  readonly body: string | Buffer | Pieces; // responses share bytes without a copy
  readonly cacheControl?: string; // default: PRIVATE
  readonly headers?: readonly string[]; // a flat list of names and values
}

/** A body of unknown length that is produced while the client reads it. */
export interface Pieces {
  /** The next piece; undefined after the last. Call it again once the client has taken the piece. Never throws. */
  next(): string | Buffer | undefined | Promise<string | Buffer>;
}

const PRIVATE = 'private, no-cache'; // 2.17
const NOSNIFF = ['X-Content-Type-Options', 'nosniff'] as const; // 2.2

// A longer body is sent in slices, which show the progress of a slow client. From 16 KiB on, node keeps much
// larger buffers for a TLS connection (NodeBIO::set_allocate_tls_hint).
const SLICE_BYTES = 15 * 1024;
const UNREAD_LIMIT_BYTES = 102_400; // 2.13

export function json(body: Reply['body'], headers: readonly string[] = [], status = 200): Reply {
  return { status, type: 'application/json', body, headers };
}

export function text(status: number, body: string, headers: readonly string[] = []): Reply {
  return { status, type: 'text/plain; charset=utf-8', body, headers }; // 2.1
}

export function empty(status: 204 | 304, headers: readonly string[]): Reply {
  return { status, body: '', headers }; // RFC 9110 §15.3.5, §15.4.5
}

/** Formats the response to input that node's parser rejected (RFC 9112 §2.2). */
export function rawReply(reply: Reply, more: readonly string[] = []): string {
  const body = String(reply.body);
  const headers = [...NOSNIFF, ...more, ...(reply.headers ?? []), 'Cache-Control', PRIVATE];
  headers.push('Content-Type', reply.type ?? '');
  headers.push('Content-Length', String(Buffer.byteLength(body)), 'Connection', 'close');
  headers.push('Date', dateOf(unixMs()).toUTCString());
  let head = `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status]}\r\n`;
  for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${head}\r\n${body}`;
}

/** Returns the response to an error. Details of an internal one go to the log only. */
export function errorReply(err: unknown): Reply {
  if (err instanceof HttpError) return text(err.status, err.message, err.headers);
  return text(500, 'Internal Server Error'); // 2.1, 2.9
}

/**
 * Writes the reply and appends its headers to `headers`. The connection closes afterwards if no request can
 * follow. Calls `done` once: when node has the whole body, a piece has failed or the client has left. If
 * a piece fails, sets `fault` and closes at once, so that no client mistakes a part for the whole (4.14).
 */
export function send(
  exchange: Exchange,
  reply: Reply,
  headers: string[],
  done: (exchange: Exchange) => void,
): void {
  const { req, res, connection } = exchange;
  const { status, type, body } = reply;
  const whole = isWhole(body) ? body : undefined;
  const length = whole === undefined ? undefined : Buffer.byteLength(whole);
  exchange.status = status;
  if (reply.headers !== undefined) headers.push(...reply.headers);
  headers.push(NOSNIFF[0], NOSNIFF[1], 'Cache-Control', reply.cacheControl ?? PRIVATE);
  if (type !== undefined) headers.push('Content-Type', type);
  if (type !== undefined && length !== undefined) headers.push('Content-Length', String(length)); // 2.2
  if (exchange.isLast || mustEnd(exchange, reply)) {
    headers.push('Connection', 'close');
    connection.endAfterCurrent();
  }
  connection.enter('sending');
  dropBody(req); // 6.17: before the client has the response
  if (req.method === 'HEAD') {
    const isChunked = length === undefined && req.httpVersionMinor === 1;
    if (isChunked) headers.push('Transfer-Encoding', 'chunked'); // 2.4, 2.6
    res.writeHead(status, headers).end();
  } else if (length !== undefined && length <= SLICE_BYTES) {
    // Node writes ASCII faster as latin1.
    res.writeHead(status, headers).end(whole, length === whole!.length ? 'latin1' : 'utf8');
    exchange.bytes = length;
    // The client reads more slowly than we write.
    if (res.writableLength > 0) exchange.hold(length);
  } else {
    // Node would send chunks to a client of HTTP/1.0 that says TE: chunked (2.4).
    if (req.httpVersionMinor === 0) res.useChunkedEncodingByDefault = false;
    res.writeHead(status, headers);
    stream(exchange, reply, () => done(exchange));
    return;
  }
  done(exchange);
}

/** Writes each slice of the body in a turn of its own, once the client has taken the one before. */
function stream(exchange: Exchange, { body }: Reply, done: () => void): void {
  const pieces = isWhole(body) ? undefined : body;
  const fail = (err: unknown) => {
    if (exchange.hasLeft) return done();
    exchange.fault = err;
    exchange.connection.close('failed'); // 4.14
    done();
  };
  const next = () => {
    if (exchange.hasLeft) return done();
    const piece = pieces?.next();
    if (piece === undefined) {
      exchange.res.end();
      return done();
    }
    if (isWhole(piece)) begin(piece);
    else piece.then(begin, fail);
  };
  const begin = (piece: string | Buffer) =>
    write(typeof piece === 'string' ? Buffer.from(piece) : piece);
  const write = (piece: Buffer) => {
    if (exchange.hasLeft) return done();
    const slice = piece.subarray(0, SLICE_BYTES);
    const rest = piece.subarray(slice.length);
    exchange.bytes += slice.length;
    exchange.hold(piece.length);
    if (rest.length === 0 && pieces === undefined) {
      // With the last slice, because a client that has it can send its next request at once (2.11).
      exchange.res.end(slice);
      return done();
    }
    const proceed = () => {
      exchange.hold(-piece.length);
      exchange.connection.enter('sending');
      if (rest.length > 0) write(rest);
      else next();
    };
    exchange.res.write(slice, () => setImmediate(() => exchange.connection.run(proceed))); // 4.1
  };
  const start = isWhole(body) ? () => begin(body) : next;
  // While the response before has the socket, node would keep a piece, and drop its callback if the client leaves.
  if (exchange.res.socket === null && !exchange.hasLeft) exchange.res.once('socket', start);
  else start();
}

/**
 * True if the connection must close after this response. The request's body may still be on its way: `send`
 * drops one of known length. A body of unknown length closes the connection.
 */
function mustEnd(exchange: Exchange, { status, type, body }: Reply): boolean {
  const { req } = exchange;
  // HTTP/1.0 has no chunks: without a length, closing the connection ends the body.
  if (req.httpVersionMinor === 0 && !(isWhole(body) && type)) return true; // 2.4
  if (status === 413) return true; // 2.8
  // Node drops the bytes that follow an offer to upgrade.
  if (req.headers.upgrade !== undefined && exchange.connection.hasReadMore) return true; // 2.12
  if (req.complete) return false;
  const { 'transfer-encoding': coding, 'content-length': length } = req.headers;
  return coding !== undefined || Number(length ?? 0) > UNREAD_LIMIT_BYTES;
}

/** True for a body that is not produced while the client reads it. */
export function isWhole<T>(body: T | string | Buffer): body is string | Buffer {
  return typeof body === 'string' || Buffer.isBuffer(body);
}
