// What HTTP asks of a message and node's parser lets through.
import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';

// uri-host [ ":" port ]: a name, an address, or nothing (RFC 9112 §3.2, RFC 3986 §3.2.2)
const HOST = /^(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?$/;

/** The header section at most (RFC 6585 §5). */
export const MAX_HEADER_BYTES = 16 * 1024;

/** Names and values in a list that is too short to hide a large section from node's own limit. */
const FEW_HEADERS = 100;

/**
 * Checks the version, the size of the header section, the transfer coding and the host (RFC 9112
 * §2.3, §6.1, §3.2).
 * @throws HttpError 505, 431 or 400
 */
export function checkMessage(req: IncomingMessage): void {
  if (req.httpVersionMajor !== 1) throw new HttpError(505); // 2.4
  // 6.3
  if (req.rawHeaders.length > FEW_HEADERS && headerBytes(req) > MAX_HEADER_BYTES) {
    throw new HttpError(431);
  }
  const coding = req.headers['transfer-encoding'];
  // RFC 9112 §6.1: no other coding is understood, and in HTTP/1.0 any is a sign of smuggling.
  // 2.10
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || req.httpVersionMinor === 0)) {
    throw new HttpError(400, 'Transfer-Encoding must be chunked, and is not allowed in HTTP/1.0.');
  }
  if (req.httpVersionMinor === 0) return; // 2.4
  const host = singleHeader(req, 'host');
  if (host === undefined || !HOST.test(host)) {
    // 2.4
    throw new HttpError(400, 'The request must have exactly one Host header with a valid host.');
  }
}

/** Node counts names and values alone: many short fields could be twice the limit and more. */
function headerBytes({ rawHeaders }: IncomingMessage): number {
  const separators = ': \r\n'.length * (rawHeaders.length / 2);
  return rawHeaders.reduce((sum, text) => sum + text.length, separators);
}

/** The header's value when it was sent exactly once; node keeps only the first of several. */
export function singleHeader(
  // 2.4
  req: IncomingMessage,
  name: 'host' | 'authorization',
): string | undefined {
  const { rawHeaders } = req;
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const header = rawHeaders[i]!;
    if (header.length === name.length && header.toLowerCase() === name) count++;
  }
  return count === 1 ? req.headers[name] : undefined;
}

/** What node's parser reports, with llhttp's reason. */
export type ParseError = Error & { readonly code?: string; readonly reason?: string };

/** The status that refuses it. */
export function statusOfParseError({ code, reason }: ParseError): number {
  if (code === 'HPE_HEADER_OVERFLOW') return 431;
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW') return 413;
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 408;
  // A good version with something behind it is reported alike (contract 2.4).
  // 2.4
  if (code === 'HPE_INVALID_VERSION') return reason === 'Expected CRLF after version' ? 400 : 505;
  // The preface of HTTP/2, "PRI * HTTP/2.0".
  if (code === 'HPE_PAUSED_H2_UPGRADE') return 505;
  return 400;
}
