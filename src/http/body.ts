// Reads a request's body and checks its size, media type and syntax.
import { isUtf8 } from 'node:buffer';
import { HttpError } from './errors.ts';
import type { Exchange } from './exchange.ts';
import { parseForm } from './form.ts';
import { FORM, mediaType } from './media.ts';
import { expectsContinue, free, LARGE_BYTES } from './message.ts';

// Charged for each byte of a body's buffer: a larger copy replaces it while the body grows, and then there is the text.
// Parsing nested arrays takes up to 160 times the text, also if it fails, but one body is parsed at a time.
const BODY_FACTOR = 8;
const EMPTY = Buffer.alloc(0);

/**
 * Reads and parses the body, then calls `done`. An empty body is undefined. On a route that takes none, the
 * body is dropped as it arrives and is undefined too (2.15). The order of checks is fixed (2.5).
 * The request's event `error` ends the reading: with an HttpError from the server, otherwise with 400.
 * @throws HttpError 413 or 415 before the body is read; later errors, also of `done`, go to `fail`
 */
export function readBody(
  exchange: Exchange,
  accepts: readonly string[],
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
  if (isClientWaiting) {
    res.writeContinue(); // 2.14
    exchange.isLast = !res.shouldKeepAlive;
  }
  connection.enter('receiving');
  let buffer: Buffer = EMPTY;
  let length = 0;
  let hasEnded = false;
  /** Ends the reading, once. */
  const end = (next: () => void) => {
    if (hasEnded) return;
    hasEnded = true;
    connection.enter('working');
    next();
  };
  /** Frees the body after the call. Node keeps the request and its listeners. */
  const finish = (call: () => void) => {
    exchange.hold(-BODY_FACTOR * buffer.length);
    call();
    free(buffer);
    buffer = EMPTY;
  };
  const refuse = (err: HttpError) => end(() => finish(() => fail(err)));
  req.on('data', (chunk: Buffer) => {
    length += chunk.length;
    if (length > limitBytes) return refuse(tooLarge(limitBytes)); // 2.8
    if (accepts.length === 0 || hasEnded) return free(chunk); // 2.15
    const larger = append(buffer, length, chunk, Number(declared ?? limitBytes));
    if (larger !== chunk) free(chunk);
    if (larger === buffer) return;
    exchange.hold(BODY_FACTOR * (larger.length - buffer.length));
    free(buffer);
    buffer = larger;
  });
  const complete = () => {
    const bytes = buffer.subarray(0, length);
    try {
      if (exchange.hasLeft) throw new HttpError(400);
      done(buffer.length > 0 ? parse(bytes, type ?? mediaType(req, accepts)) : undefined);
    } catch (err) {
      fail(err);
    }
  };
  req.on('end', () => {
    req.rawTrailers = []; // Nothing charges them (6.17).
    end(() => connection.run(() => finish(complete)));
  });
  // The client has gone, or node's parser rejected the rest of the body.
  req.on('error', (err) => refuse(err instanceof HttpError ? err : new HttpError(400)));
}

function parse(bytes: Buffer, type: string | undefined): unknown {
  if (!isUtf8(bytes)) throw new HttpError(400, 'The body is not valid UTF-8.'); // 2.8
  const text = bytes.toString();
  if (type === FORM) return parseForm(text);
  try {
    return JSON.parse(text);
  } catch {
    throw new HttpError(400, 'The body is not valid JSON.'); // 2.8
  }
}

function tooLarge(limitBytes: number): HttpError {
  return new HttpError(413, `The body is larger than ${limitBytes} bytes.`);
}

// Appends the chunk, to a larger copy if needed. A list of one-byte chunks would take hundreds of times the
// memory. `length` includes the chunk.
function append(buffer: Buffer, length: number, chunk: Buffer, maxBytes: number): Buffer {
  const start = length - chunk.length;
  if (start === 0) return chunk;
  let larger = buffer;
  if (length > buffer.length) {
    larger = Buffer.allocUnsafeSlow(Math.min(Math.max(2 * length, LARGE_BYTES), maxBytes));
    buffer.copy(larger, 0, 0, start);
  }
  chunk.copy(larger, start);
  return larger;
}
