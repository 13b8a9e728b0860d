// Offers of another protocol (RFC 9110 §7.8). We ignore them all, as we may. Node drops the bytes
// that follow such a request in the same read, because it expects them to be of the new protocol.
import type { IncomingMessage } from 'node:http';

const HEAD_END = '\r\n\r\n';
const CR = 0x0d;
const LF = 0x0a;

/** Undocumented: the parser of a connection. During the event `request` it has the latest read. */
interface Parsed {
  readonly parser?: { getCurrentBuffer?(): Buffer | undefined };
}

/**
 * The value of `socket.bytesRead` once exactly this request has been read; NaN if it is unknown.
 * Any other value means that something followed the request. Call it during the event `request`.
 *
 * An error could only make the result too small, which closes the connection and loses nothing: the
 * parser takes CR LF CR LF alone as the end of a head, so the first one in the read is at the end
 * of this head or before it. It could be behind it only if the last read cut the end itself.
 */
export function endOfOffer(req: IncomingMessage): number {
  // 2.12
  const read = (req.socket as Parsed).parser?.getCurrentBuffer?.();
  if (read === undefined || read[0] === CR || read[0] === LF) return Number.NaN;
  const at = read.indexOf(HEAD_END);
  if (at === -1 || req.headers['transfer-encoding'] !== undefined) return Number.NaN;
  const headEnd = req.socket.bytesRead - read.length + at + HEAD_END.length;
  return headEnd + Number(req.headers['content-length'] ?? 0);
}
