// How much of a connection's input belongs to requests that have their response. What follows is the
// unfinished head of the next one: node's parser keeps it without an event, so it must be derived from
// the number of bytes (6.17).
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { MAX_HEADER_BYTES } from './message.ts';

/** Memory per byte of an unfinished head. A head of 2,400 tiny fields takes four times its bytes. */
const HEAD_FACTOR = 4;

/** Memory of each name or value of an unfinished head or trailer. */
const PARSED_TEXT_BYTES = 8;

/** A request can be longer than requestBytes() by blanks in its header. */
const BLANKS_BYTES = 1024;

/** Undocumented: the fields of an unfinished head or trailer that the parser has passed on so far. */
type ParsedSocket = Socket & { readonly parser?: { readonly _headers?: readonly string[] } };

export class Input {
  /** Position after the latest request that got its response; 0 before the first. */
  #settledBytes = 0;

  /** Records that the request has its response. */
  settle(socket: Socket, req: IncomingMessage): void {
    const { bytesRead } = socket;
    const end = this.#settledBytes + requestBytes(req);
    if (!hasEnded(req)) {
      // The rest of a body that nobody reads is not the start of the next request.
      this.#settledBytes = Math.max(end, bytesRead);
    } else if (bytesRead <= end + BLANKS_BYTES) {
      this.#settledBytes = bytesRead;
    } else {
      // The read that ended this request brought more. The length of a chunked request is unknown, so
      // this assumes up to a whole head.
      const isChunked = req.headers['transfer-encoding'] !== undefined;
      this.#settledBytes = isChunked ? Math.max(end, bytesRead - MAX_HEADER_BYTES) : end;
    }
  }

  /** True if no request got a response yet, or a part of the next one has arrived. */
  isUnfinished({ bytesRead }: Socket): boolean {
    return this.#settledBytes === 0 || bytesRead > this.#settledBytes;
  }

  /** Memory of an unfinished head or, while a request is in progress, of a possible head or trailer. */
  heldBytes(socket: ParsedSocket, isIdle: boolean): number {
    const parsedBytes = PARSED_TEXT_BYTES * (socket.parser?._headers?.length ?? 0);
    const unsettledBytes = socket.bytesRead - this.#settledBytes;
    if (isIdle) return Math.max(HEAD_FACTOR * unsettledBytes, parsedBytes);
    return parsedBytes + Math.min(unsettledBytes, MAX_HEADER_BYTES);
  }
}

/** True if the request has been read. Without a body, that is before it is `complete`. */
export function hasEnded(req: IncomingMessage): boolean {
  return req.complete || req.readableEnded;
}

/** Returns the length of a request as clients write it, without the framing of a chunked body. */
function requestBytes({ method, url, rawHeaders, headers }: IncomingMessage): number {
  let bytes = `${method} ${url} HTTP/1.1\r\n\r\n`.length + Number(headers['content-length'] ?? 0);
  for (let i = 0; i < rawHeaders.length; i++) bytes += rawHeaders[i]!.length + 2;
  return bytes;
}
