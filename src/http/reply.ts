// Handlers return a Reply; `send` writes it. Refusals of malformed input are written by connection.ts.
import { type IncomingMessage, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { dateOf, unixMs } from '../clock.ts';
import { TURN_MS } from '../turns.ts';
import { CallerLeft } from '../user.ts';
import type { Exchange } from './exchange.ts';

export interface Reply {
  readonly status: number;
  readonly type?: string; // Content-Type; absent without a body (204, 304)
  readonly body: string | Buffer | Pieces; // responses share bytes without a copy
  readonly isStatic?: boolean; // The body is kept anyway, so no connection is charged for it.
  readonly cacheControl?: string; // default: PRIVATE
  readonly headers?: readonly string[]; // a flat list of names and values
}

/** A body of unknown length that is produced while the client reads it. */
export interface Pieces {
  /** Returns the next piece, undefined after the last, or a promise: call again once it has resolved. */
  next(): Buffer | undefined | Promise<void>;
}

const PRIVATE = 'private, no-cache'; // 2.17

const SLICE_BYTES = 32 * 1024; // A longer body is sent in slices, which show the progress of a slow client.
// From 16 KiB on, node keeps much larger buffers for the connection (NodeBIO::set_allocate_tls_hint).
const TLS_SLICE_BYTES = 15 * 1024;
const LOAD_MS = TURN_MS / 4; // charged for a piece to load; most of its work happens after loading
const EMPTY = Buffer.alloc(0);

export function json(body: Reply['body'], headers: readonly string[] = [], status = 200): Reply {
  return { status, type: 'application/json', body, headers }; // 2.1
}

export function text(status: number, body: string, headers: readonly string[] = []): Reply {
  return { status, type: 'text/plain; charset=utf-8', body, headers }; // 2.1
}

export function empty(status: 204 | 304, headers: readonly string[]): Reply {
  return { status, body: '', headers }; // RFC 9110 §15.3.5, §15.4.5
}

/**
 * Writes the reply and appends its headers to `headers`. The connection closes afterwards if `isLast`, or if
 * no further request can follow. Calls `done` once: when the socket has the whole body, a piece has failed or
 * the client has left. If a piece fails, sets `exchange.fault` and closes at once, so that no client mistakes
 * a part for the whole (4.14).
 */
export function send(
  exchange: Exchange,
  reply: Reply,
  headers: string[],
  isLast: boolean,
  done: (exchange: Exchange) => void,
): void {
  const { req, res, connection } = exchange;
  const { status, type, body } = reply;
  exchange.status = status;
  if (reply.headers !== undefined) headers.push(...reply.headers);
  headers.push('Cache-Control', reply.cacheControl ?? PRIVATE);
  if (type !== undefined) headers.push('Content-Type', type);
  if (isLast || endsConnection(exchange, reply)) {
    headers.push('Connection', 'close');
    connection.endAfter(exchange);
  }
  const length = isWhole(body) ? Buffer.byteLength(body) : undefined;
  if (type !== undefined && length !== undefined) headers.push('Content-Length', String(length)); // 2.2
  if (req.method === 'HEAD') {
    const isChunked = length === undefined && req.httpVersionMinor === 1;
    if (isChunked) headers.push('Transfer-Encoding', 'chunked'); // 2.4, 2.6
    res.writeHead(status, headers).end();
  } else if (length === undefined || length > sliceBytesOf(req.socket)) {
    // Node would send chunks to a client of HTTP/1.0 that says TE: chunked (2.4).
    if (req.httpVersionMinor === 0) res.useChunkedEncodingByDefault = false;
    res.writeHead(status, headers);
    stream(exchange, reply, () => {
      connection.settle(exchange);
      done(exchange);
    });
    return;
  } else {
    res.writeHead(status, headers).end(body);
    exchange.bytes = length;
  }
  connection.settle(exchange);
  // The client reads more slowly than we write: charge it for the response until it is gone.
  if (exchange.bytes > 0 && req.socket.writableLength > 0 && !reply.isStatic) {
    connection.hold(exchange.bytes);
    res.once('close', () => connection.hold(-exchange.bytes));
  }
  done(exchange);
}

/** Formats the response to input that node's parser rejected (RFC 9112 §2.2). */
export function rawReply(reply: Reply, common: readonly string[]): string {
  const body = String(reply.body);
  const headers = [...common, ...(reply.headers ?? []), 'Cache-Control', PRIVATE];
  headers.push('Content-Type', reply.type ?? '');
  headers.push('Content-Length', String(Buffer.byteLength(body)), 'Connection', 'close');
  headers.push('Date', dateOf(unixMs()).toUTCString());
  let head = `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status]}\r\n`;
  for (let i = 0; i < headers.length; i += 2) head += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return `${head}\r\n${body}`;
}

/** Writes each slice of the body in its own turn, once the client has taken the one before. */
function stream(exchange: Exchange, { body, isStatic }: Reply, done: () => void): void {
  const { req, res, connection } = exchange;
  const fail = (err: unknown) => {
    if (!(err instanceof CallerLeft)) exchange.fault = err;
    connection.destroy(); // 4.14
    done();
  };
  const source = typeof body === 'string' ? Buffer.from(body) : body;
  const pieces = Buffer.isBuffer(source) ? undefined : source;
  let rest = Buffer.isBuffer(source) ? source : EMPTY;
  const sliceBytes = sliceBytesOf(req.socket);
  const writeNext = () => {
    if (exchange.hasLeft) return done();
    if (rest.length === 0) {
      const piece = pieces?.next();
      if (piece instanceof Promise) {
        connection.spend(LOAD_MS);
        piece.then(writeNext, fail); // At once, so that nothing loaded waits for its turn.
        return;
      }
      if (piece === undefined) {
        res.end();
        return done();
      }
      rest = piece;
    }
    const slice = rest.subarray(0, sliceBytes);
    rest = rest.subarray(slice.length);
    exchange.bytes += slice.length;
    const held = slice.length + (isStatic ? 0 : rest.length);
    let isTaken = false;
    const proceed = () => {
      if (isTaken) return;
      isTaken = true;
      connection.later(() => {
        connection.hold(-held);
        writeNext();
      });
    };
    res.write(slice, proceed); // 4.1: waits for a client that reads slowly.
    connection.hold(held);
    // If the budget has just closed this connection, the write may not call back.
    if (exchange.hasLeft) proceed();
  };
  writeNext();
}

function sliceBytesOf({ encrypted }: Socket & { readonly encrypted?: boolean }): number {
  return encrypted ? TLS_SLICE_BYTES : SLICE_BYTES;
}

const UNREAD_LIMIT_BYTES = 102_400; // 2.13

/**
 * True if the connection must close after this response. The request's body may still be on its way: node
 * drops one of known length. A body of unknown length closes the connection, and so does one that the client
 * may never send because it waits for 100 (RFC 9110 §10.1.1).
 */
export function endsConnection(exchange: Exchange, reply: Reply): boolean {
  const { req, res, offerEnd } = exchange;
  // The client asked for it, or speaks HTTP/1.0 without keep-alive (RFC 9112 §9.3).
  if (!res.shouldKeepAlive) return true;
  // HTTP/1.0 has no chunks: without a length, closing the connection ends the body.
  if (req.httpVersionMinor === 0 && !(isWhole(reply.body) && reply.type)) return true; // 2.4
  if (reply.status === 413 || reply.status === 408) return true; // 2.8
  // Node drops the bytes that follow an offer to upgrade.
  if (req.headers.upgrade !== undefined && req.socket.bytesRead !== offerEnd) return true; // 2.12
  if (req.complete) return false;
  const { 'transfer-encoding': coding, 'content-length': length } = req.headers;
  return coding !== undefined || expectsContinue(req) || Number(length ?? 0) > UNREAD_LIMIT_BYTES;
}

function isWhole(body: Reply['body']): body is string | Buffer {
  return typeof body === 'string' || Buffer.isBuffer(body);
}

/** Node's own pattern, by which node decides whether the connection closes. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** True if the client waits for 100 before it sends the body; only HTTP/1.1 has this (RFC 9110 §10.1.1). */
export function expectsContinue({ headers, httpVersionMinor }: IncomingMessage): boolean {
  return httpVersionMinor === 1 && CONTINUE.test(headers.expect ?? ''); // 2.14
}
