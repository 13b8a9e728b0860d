// Reads a request's body and checks its size, media type and syntax.
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { parseForm } from './form.ts';
import { type MediaType, mediaType } from './media.ts';
import { expectsContinue } from './reply.ts';

/** True if a request announces a body; without one it needs no media type (2.8, RFC 9112 §6.3). */
export function hasBody(req: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding } = req.headers;
  return coding !== undefined || (length !== undefined && Number(length) !== 0);
}

/**
 * Reads and parses the body, then calls `done`. An empty body is undefined. On a route that takes none, the
 * body is dropped as it arrives and is undefined too (2.15). The order of checks is fixed (2.5).
 * @throws HttpError 413 or 415 before the body is read; later errors, also of `done`, go to `fail`
 */
export function readBody(
  exchange: Exchange,
  accepts: readonly MediaType[],
  limitBytes: number,
  done: (body: unknown) => void,
  fail: (err: unknown) => void,
): void {
  const { req, res, connection } = exchange;
  const declared = req.headers['content-length'];
  if (Number(declared ?? 0) > limitBytes) throw tooLarge(limitBytes); // 2.8
  const isClientWaiting = expectsContinue(req);
  // 413 comes before 415, so the type of a body of unknown length is checked at its end. A client
  // that waits for 100 must not be told to send a body that is then refused (2.14).
  const type = declared === undefined && !isClientWaiting ? undefined : mediaType(req, accepts);
  if (isClientWaiting) res.writeContinue(); // 2.14
  const isKept = accepts.length > 0; // 2.15
  let buffer: Buffer = EMPTY;
  let length = 0;
  let isFinished = false;
  /** Passes the body to `call`, once, and frees it. Node keeps the request and its listeners. */
  const finish = (call: (bytes: Buffer) => void) => {
    if (isFinished) return;
    isFinished = true;
    const bytes = buffer;
    buffer = EMPTY;
    connection.hold(-bytes.length);
    call(bytes.subarray(0, length));
    free(bytes);
  };
  req.on('data', (chunk: Buffer) => {
    if (declared === undefined && !req.complete) connection.countChunk(); // 6.18
    if (length + chunk.length > limitBytes) return finish(() => fail(tooLarge(limitBytes))); // 2.8
    if (isKept && !isFinished) {
      const larger = append(buffer, length, chunk, Number(declared ?? limitBytes));
      connection.hold(larger.length - buffer.length);
      if (larger !== buffer) free(buffer);
      buffer = larger;
    }
    length += chunk.length;
    if (buffer !== chunk) free(chunk);
  });
  const complete = (bytes: Buffer) => {
    try {
      done(bytes.length > 0 ? parse(bytes, type ?? mediaType(req, accepts)) : undefined);
    } catch (err) {
      fail(err);
    }
  };
  const abandon = (err?: Error) =>
    finish(() => fail(err instanceof HttpError ? err : new HttpError(400)));
  req.on('end', () => {
    if (buffer.length <= LARGE_BYTES) return finish(complete);
    // 6.18: the client may leave before the turn.
    res.once('close', abandon);
    connection.later(() => {
      res.off('close', abandon);
      finish(complete);
    });
  });
  // The client has gone, or node's parser rejected the rest of the body.
  req.on('error', abandon);
}

function parse(bytes: Buffer, type: MediaType | undefined): unknown {
  if (!isUtf8(bytes)) throw new HttpError(400, 'The body is not valid UTF-8.'); // 2.8
  const text = bytes.toString();
  if (type === 'form') return parseForm(text);
  try {
    return JSON.parse(text);
  } catch {
    throw new HttpError(400, 'The body is not valid JSON.'); // 2.8
  }
}

const EMPTY = Buffer.alloc(0);
const LARGE_BYTES = 8 * 1024; // A larger body is parsed in its own turn: 100 kB can take 10 ms.
const MIN_BUFFER_BYTES = 4096;

// Appends the chunk, to a larger copy if needed. A list of one-byte chunks would take hundreds of times the
// memory.
function append(buffer: Buffer, length: number, chunk: Buffer, maxBytes: number): Buffer {
  if (length === 0) return chunk;
  const end = length + chunk.length;
  let larger = buffer;
  if (end > buffer.length) {
    larger = Buffer.allocUnsafe(Math.min(Math.max(2 * end, MIN_BUFFER_BYTES), maxBytes));
    buffer.copy(larger, 0, 0, length);
  }
  chunk.copy(larger, length);
  return larger;
}

/** Frees a large buffer at once. V8 lets 50 MB of such memory pile up before it collects. */
function free({ buffer, length }: Buffer): void {
  if (length > LARGE_BYTES && length === buffer.byteLength) (buffer as ArrayBuffer).transfer(0);
}

function tooLarge(limitBytes: number): HttpError {
  return new HttpError(413, `The body is larger than ${limitBytes} bytes.`);
}
