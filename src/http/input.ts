// Finds where a request ends in the input of a connection; node's parser has no event for it. An
// unfinished head that follows counts as memory (6.17). We ignore offers to upgrade (RFC 9110 §7.8), but
// node treats the bytes that follow one in the same read as the other protocol, and drops them (2.12).
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { headerBytes, MAX_HEADER_BYTES } from './message.ts';

const HEAD_FACTOR = 4; // memory per byte of an unfinished head: 2,400 tiny fields take four times their bytes
const PARSED_TEXT_BYTES = 8; // memory of each name or value of an unfinished head or trailer
const BLANKS_BYTES = 1024; // blanks in a header can make a request longer than requestBytes()
const HEAD_END = '\r\n\r\n';
const CR = 0x0d;
const LF = 0x0a;

/** Undocumented: the parser of a connection. */
type ParsedSocket = Socket & {
  readonly parser?: {
    readonly _headers?: readonly string[]; // of an unfinished head or trailer
    getCurrentBuffer?(): Buffer | undefined; // during the event `request`: a copy of the latest read
  };
};

export class Input {
  #settledBytes = 0; // position after the latest request that got its response

  /** Records that the request has its response. */
  settle(socket: Socket, req: IncomingMessage): void {
    const { bytesRead } = socket;
    const end = this.#settledBytes + requestBytes(req);
    if (!hasEnded(req)) {
      // What follows is the rest of this body, not the next request.
      this.#settledBytes = Math.max(end, bytesRead);
    } else if (bytesRead <= end + BLANKS_BYTES) {
      this.#settledBytes = bytesRead;
    } else {
      // The read brought more. How much is unknown after a chunked body: this assumes up to a whole head.
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

/** True if the request has been read. One without a body ends before node sets `complete`. */
export function hasEnded(req: IncomingMessage): boolean {
  return req.complete || req.readableEnded;
}

/** Returns the length of a request as clients write it, without the framing of a chunked body. */
function requestBytes(req: IncomingMessage): number {
  const frameBytes = `${req.method} ${req.url} HTTP/1.1\r\n\r\n`.length;
  return frameBytes + headerBytes(req) + Number(req.headers['content-length'] ?? 0);
}

/**
 * Returns the value of `socket.bytesRead` after exactly this request, or NaN if it is unknown. Any other
 * value means that bytes followed. Call it during the event `request`. The result can only be too small,
 * which closes the connection and loses nothing: only CR LF CR LF ends a head, so the first one in the read
 * is at or before the end of this head, unless the read began inside that end.
 */
export function endOfOffer(req: IncomingMessage): number {
  const read = (req.socket as ParsedSocket).parser?.getCurrentBuffer?.();
  if (read === undefined || read[0] === CR || read[0] === LF) return Number.NaN;
  const at = read.indexOf(HEAD_END);
  if (at === -1 || req.headers['transfer-encoding'] !== undefined) return Number.NaN;
  // A socket that waited for its turn has read more than the parser.
  const { bytesRead, readableLength } = req.socket;
  const headEnd = bytesRead - readableLength - read.length + at + HEAD_END.length;
  return headEnd + Number(req.headers['content-length'] ?? 0);
}
