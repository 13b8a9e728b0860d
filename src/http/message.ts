// Checks that node's parser does not make (RFC 9112), and the statuses of its errors.
import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';

// uri-host [ ":" port ]: a name, an address, or nothing (RFC 9112 §3.2, RFC 3986 §3.2.2)
const HOST = /^(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?$/;

export const MAX_HEADER_BYTES = 16 * 1024; // limit of the header section (RFC 6585 §5)

/** @throws HttpError 505, 431 or 400 (RFC 9112 §2.3, §6.1, §3.2) */
export function checkMessage(req: IncomingMessage): void {
  if (req.httpVersionMajor !== 1) throw new HttpError(505); // 2.4
  if (headerBytes(req) > MAX_HEADER_BYTES) throw new HttpError(431); // 6.3
  const coding = req.headers['transfer-encoding'];
  // 2.10: we decode no other coding. In HTTP/1.0, any coding is a sign of request smuggling.
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || req.httpVersionMinor === 0)) {
    throw new HttpError(400, 'Transfer-Encoding must be chunked, and is not allowed in HTTP/1.0.');
  }
  if (req.httpVersionMinor === 0 && req.headers.host === undefined) return; // 2.4
  const host = singleHeader(req, 'host');
  if (host === undefined || !HOST.test(host)) {
    throw new HttpError(400, 'The request must have exactly one Host header with a valid host.'); // 2.4
  }
}

/** Node counts only names and values. With `: ` and CR LF, many short fields are twice as large. */
export function headerBytes({ rawHeaders }: IncomingMessage): number {
  let bytes = 2 * rawHeaders.length;
  for (const text of rawHeaders) bytes += text.length;
  return bytes;
}

/** The header's value if it was sent exactly once. Of several, node keeps only the first. */
export function singleHeader(req: IncomingMessage, name: 'host' | 'authorization') {
  const isNamed = (text: string, i: number) =>
    i % 2 === 0 && text.length === name.length && text.toLowerCase() === name;
  return req.rawHeaders.filter(isNamed).length === 1 ? req.headers[name] : undefined;
}

/** An error of node's parser, with the reason from llhttp. */
export type ParseError = Error & { readonly code?: string; readonly reason?: string };

export function statusOfParseError({ code, reason }: ParseError): number {
  if (code === 'HPE_HEADER_OVERFLOW') return 431;
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW') return 413;
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 408;
  // 2.4: llhttp reports garbage after a supported version with the same code.
  if (code === 'HPE_INVALID_VERSION') return reason === 'Expected CRLF after version' ? 400 : 505;
  if (code === 'HPE_PAUSED_H2_UPGRADE') return 505; // the preface of HTTP/2, "PRI * HTTP/2.0"
  return 400;
}
