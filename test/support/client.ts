// HTTP client: `fetch`, and raw sockets for requests that `fetch` refuses to send. Every response
// must be declared in openapi.json (contract 8.1).
import { connect } from 'node:net';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { type Exchange, seen } from './openapi.ts';
import { DEADLINE_MS } from './until.ts';

/** A complete response: status, headers in lower case, body as text. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

/** Sends one request and reads the whole response. A plain object as `body` is sent as JSON. */
export async function send(
  url: string,
  init: Omit<RequestInit, 'body'> & { body?: unknown } = {},
): Promise<HttpResponse> {
  const headers = new Headers(init.headers);
  const isJson = typeof init.body === 'object' && init.body?.constructor === Object;
  if (isJson && !headers.has('content-type')) headers.set('content-type', 'application/json');
  const body = isJson ? JSON.stringify(init.body) : init.body;
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const options = { redirect: 'manual', signal, ...init, headers, body };
  const res = await fetch(url, options as RequestInit);
  const response = { status: res.status, headers: res.headers, body: await res.text() };
  const { pathname, search } = new URL(url);
  seen({ method: init.method ?? 'GET', target: pathname + search, ...response });
  return response;
}

/** Writes raw bytes to the server of `url`. Resolves with everything it sends until it closes. */
export async function raw(url: string, ...parts: (string | Uint8Array)[]): Promise<string> {
  const { hostname, port } = new URL(url);
  const text = await new Promise<string>((resolve, reject) => {
    let response = '';
    const socket = connect(Number(port), hostname, () => {
      for (const part of parts) socket.write(part);
    });
    socket.setEncoding('latin1');
    socket.setTimeout(DEADLINE_MS, () => socket.destroy(new Error('no byte before the deadline')));
    socket.on('data', (text) => {
      response += text;
    });
    socket.on('close', () => resolve(response));
    socket.on('error', (err) => (response ? resolve(response) : reject(err)));
  });
  const first = firstExchange(Buffer.concat(parts.map((part) => Buffer.from(part))), text);
  if (first !== undefined) seen(first);
  return text;
}

/**
 * Returns the first request of a connection, with its response.
 * @returns undefined unless the response is complete
 */
export function firstExchange(sent: Buffer, received: string): Exchange | undefined {
  const [, method = '', target = ''] = /^(\S+) (\S+) HTTP\//.exec(sent.toString('latin1')) ?? [];
  const [head = '', rest] = received.replace(CONTINUE, '').split(/\r\n\r\n(.*)/s);
  const [line = '', ...fields] = head.split('\r\n');
  const headers = new Headers(
    fields.map((field) => field.split(/: (.*)/s).slice(0, 2) as [string, string]),
  );
  const status = Number(line.split(' ')[1]);
  const hasBody = method !== 'HEAD' && headers.has('content-type');
  const content = hasBody ? contentOf(headers, rest ?? '') : '';
  if (rest === undefined || content === undefined) return undefined;
  const body = decode(Buffer.from(content, 'latin1'), headers.get('content-encoding'));
  return { method, target, status, headers, body: body.toString() };
}

function decode(bytes: Buffer, coding: string | null): Buffer {
  if (bytes.length === 0) return bytes;
  if (coding === 'br') return brotliDecompressSync(bytes);
  return coding === 'gzip' ? gunzipSync(bytes) : bytes;
}

/** Returns the body at the start of `rest`; undefined if it is incomplete. */
function contentOf(headers: Headers, rest: string): string | undefined {
  const length = headers.get('content-length');
  if (length !== null)
    return rest.length < Number(length) ? undefined : rest.slice(0, Number(length));
  if (!headers.has('transfer-encoding')) return rest;
  let content = '';
  let at = 0;
  for (;;) {
    const [line, hex] = /^([0-9a-f]+)\r\n/i.exec(rest.slice(at, at + 10)) ?? [];
    if (line === undefined || hex === undefined) return undefined;
    const size = Number.parseInt(hex, 16);
    if (size === 0) return content;
    at += line.length;
    content += rest.slice(at, at + size);
    at += size + '\r\n'.length;
  }
}

const CONTINUE = /^(?:HTTP\/1\.1 100 Continue\r\n\r\n)+/;

/** Returns `Authorization` of the Basic scheme (RFC 7617). */
export function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
}
