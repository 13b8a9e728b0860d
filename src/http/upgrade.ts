// Offers to upgrade to another protocol (RFC 9110 §7.8), which we ignore. Node expects the bytes that
// follow an offer in the same read to be of the other protocol, and drops them.
import type { IncomingMessage } from 'node:http';

const HEAD_END = '\r\n\r\n';
const CR = 0x0d;
const LF = 0x0a;

/** Undocumented: the parser of a connection. During the event `request` it has the latest read. */
interface Parsed {
  readonly parser?: { getCurrentBuffer?(): Buffer | undefined };
}

/**
 * Returns the value that `socket.bytesRead` has after exactly this request, or NaN if it is unknown. Any
 * other value means that bytes followed the request (2.12). Call it during the event `request`.
 *
 * The result can only be too small, which closes the connection and loses nothing. The parser accepts
 * CR LF CR LF alone as the end of a head, so the first one in the read is at or before the end of this
 * head. It could be later only if the read began inside that end, which we exclude.
 */
export function endOfOffer(req: IncomingMessage): number {
  const read = (req.socket as Parsed).parser?.getCurrentBuffer?.();
  if (read === undefined || read[0] === CR || read[0] === LF) return Number.NaN;
  const at = read.indexOf(HEAD_END);
  if (at === -1 || req.headers['transfer-encoding'] !== undefined) return Number.NaN;
  // A socket that waited for its turn has read more than the parser.
  const { bytesRead, readableLength } = req.socket;
  const headEnd = bytesRead - readableLength - read.length + at + HEAD_END.length;
  return headEnd + Number(req.headers['content-length'] ?? 0);
}
