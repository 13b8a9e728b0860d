// What a request's head says (RFC 9112), checks that node's parser does not make, and the statuses of its errors.
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import { HttpError } from './errors.ts';

// uri-host [ ":" port ]: a name, an address without IPvFuture, or nothing (RFC 9112 §3.2, RFC 3986 §3.2.2). Node joins
// repeated headers by `, `, and no host has a blank.
const HOST = /^(?:(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?$/;

export const MAX_HEAD_BYTES = 16 * 1024; // of the request line and the fields (RFC 6585 §5)
export const MAX_FIELDS = 100;
export const LARGE_BYTES = 8 * 1024; // of a buffer that is freed at once

/** @throws HttpError 505, 431 or 400 (RFC 9112 §2.3, §6.1, §3.2) */
export function checkMessage(req: IncomingMessage, headBytes: number): void {
  if (req.httpVersionMajor !== 1) throw new HttpError(505); // 2.4
  const { length } = req.rawHeaders; // of names and values
  if (length > 2 * MAX_FIELDS || headBytes > MAX_HEAD_BYTES) throw new HttpError(431); // 6.3
  const coding = req.headers['transfer-encoding'];
  // 2.10: we decode no other coding. In HTTP/1.0, any coding is a sign of request smuggling.
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || req.httpVersionMinor === 0)) {
    throw new HttpError(400, 'Transfer-Encoding must be chunked, and is not allowed in HTTP/1.0.');
  }
  const { host } = req.headers;
  if (req.httpVersionMinor === 0 && host === undefined) return; // 2.4
  if (host === undefined || !isHost(host)) {
    throw new HttpError(400, 'The request must have exactly one Host header with a valid host.'); // 2.4
  }
}

function isHost(text: string): boolean {
  if (!HOST.test(text)) return false;
  return !text.startsWith('[') || isIPv6(text.slice(1, text.indexOf(']')));
}

/** Copies a part of a head. For the part itself, V8 keeps the whole text of up to 16 KiB. */
export function copyOf(part: string): string {
  return part.split('').join('');
}

const LINES_BYTES = '  HTTP/1.1\r\n\r\n'.length;

/**
 * Returns the length of a request's head as clients write it, without further blanks. Node counts only the
 * target, names and values; with `: ` and CR LF, many short fields are twice as large.
 */
export function headBytesOf({ method, url, rawHeaders }: IncomingMessage): number {
  let bytes = LINES_BYTES + method!.length + url!.length + 2 * rawHeaders.length;
  for (const text of rawHeaders) bytes += text.length;
  return bytes;
}

/** True if a request announces a body; without one it needs no media type (2.8, RFC 9112 §6.3). */
export function hasBody(req: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding } = req.headers;
  return coding !== undefined || (length !== undefined && Number(length) !== 0);
}

/** Drops a body as it arrives. Otherwise node would keep 64 KiB and more of it until the client has the response. */
export function dropBody(req: IncomingMessage): void {
  if (!req.complete && hasBody(req)) req.on('data', free);
}

/** Node's own pattern, by which node decides whether the connection closes. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** True if the client waits for 100 before it sends the body; only HTTP/1.1 has this (RFC 9110 §10.1.1). */
export function expectsContinue({ headers, httpVersionMinor }: IncomingMessage): boolean {
  return httpVersionMinor === 1 && CONTINUE.test(headers.expect ?? ''); // 2.14
}

/** An error of node's parser, with the reason from llhttp, or of a TLS handshake. */
export type ParseError = Error & { readonly code?: string; readonly reason?: string };

export function statusOfParseError({ code, reason }: ParseError): number {
  if (code === 'HPE_HEADER_OVERFLOW') return 431;
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW') return 413;
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT' || code === 'ERR_TLS_HANDSHAKE_TIMEOUT') return 408;
  // 2.4: llhttp reports garbage after a supported version with the same code.
  if (code === 'HPE_INVALID_VERSION') return reason === 'Expected CRLF after version' ? 400 : 505;
  if (code === 'HPE_PAUSED_H2_UPGRADE') return 505; // the preface of HTTP/2, "PRI * HTTP/2.0"
  return 400;
}

/** Frees a large buffer at once, if it is no part of a pool. V8 lets 50 MB of such memory pile up before it collects. */
export function free({ buffer, length }: Buffer): void {
  if (length >= LARGE_BYTES && length === buffer.byteLength) (buffer as ArrayBuffer).transfer(0);
}
