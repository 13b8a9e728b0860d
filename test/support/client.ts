// HTTP client: `fetch`, and responses in bytes. Every response must be declared in openapi.json (contract 8.1).
import assert from 'node:assert/strict';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { seen } from './openapi.ts';
import { DEADLINE_MS } from './until.ts';

/** A complete response: status, headers in lower case, body as text. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

type Init = Omit<RequestInit, 'body'> & { readonly body?: unknown };

/** Sends one request and reads the whole response. A plain object as `body` is sent as JSON. */
export async function send(url: string, init: Init = {}): Promise<HttpResponse> {
  const response = await sendUnchecked(url, init);
  const { pathname, search } = new URL(url);
  seen({ method: init.method ?? 'GET', target: pathname + search, ...response });
  return response;
}

/** The same for a response that openapi.json does not declare, such as one of a proxy. */
export async function sendUnchecked(url: string, init: Init = {}): Promise<HttpResponse> {
  const headers = new Headers(init.headers);
  const isJson = typeof init.body === 'object' && init.body?.constructor === Object;
  if (isJson && !headers.has('content-type')) headers.set('content-type', 'application/json');
  const body = isJson ? JSON.stringify(init.body) : init.body;
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const options = { redirect: 'manual', signal, ...init, headers, body };
  const res = await fetch(url, options as RequestInit);
  return { status: res.status, headers: res.headers, body: await res.text() };
}

/** Splits bytes into complete responses. The first one is to a request with this method. */
export function responsesIn(text: string, method = ''): HttpResponse[] {
  const isHead = (_: Headers, earlier: readonly HttpResponse[]) =>
    method === 'HEAD' && earlier.every(({ status }) => status < 200);
  return splitResponses(text, isHead).responses.filter(({ isComplete }) => isComplete);
}

/**
 * Splits bytes into responses, up to the first that is incomplete, and what follows that. `isHead` says which have
 * no body, and `hasEnded` that the connection has.
 */
export function splitResponses(
  text: string,
  isHead: (headers: Headers, earlier: readonly HttpResponse[]) => boolean,
  hasEnded = true,
) {
  const responses: (HttpResponse & { readonly isComplete: boolean })[] = [];
  let rest = text;
  while (rest !== '' && responses.at(-1)?.isComplete !== false) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) break;
    const [line = '', ...fields] = rest.slice(0, end).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(line)?.[1]);
    assert.ok(status, rest.slice(0, 200));
    const pairs = fields.map((field) => field.split(/: (.*)/s).slice(0, 2) as [string, string]);
    const headers = new Headers(pairs);
    rest = rest.slice(end + 4);
    const hasBody = headers.has('content-type') && !isHead(headers, responses);
    const [content, after] = hasBody ? bodyIn(rest, headers, hasEnded) : ['', rest];
    const body = decode(Buffer.from(content ?? '', 'latin1'), headers.get('content-encoding'));
    responses.push({ status, headers, body: body.toString(), isComplete: content !== undefined });
    rest = after;
  }
  return { responses, rest };
}

/** Returns the body at the start of the text, and what follows it. The body is undefined if it is incomplete. */
function bodyIn(
  text: string,
  headers: Headers,
  hasEnded: boolean,
): [body: string | undefined, after: string] {
  const length = headers.get('content-length');
  if (length !== null) {
    const end = Number(length);
    return [text.length < end ? undefined : text.slice(0, end), text.slice(end)];
  }
  if (!headers.has('transfer-encoding')) return [hasEnded ? text : undefined, ''];
  let body = '';
  for (let rest = text; ; ) {
    const [line = '', size = '0'] = /^([0-9a-f]+)\r\n/i.exec(rest.slice(0, 10)) ?? [];
    const end = line.length + Number.parseInt(size, 16);
    if (line === '' || rest.length < end + 2) return [undefined, ''];
    if (end === line.length) return [body, rest.slice(end + 2)];
    body += rest.slice(line.length, end);
    rest = rest.slice(end + 2);
  }
}

function decode(bytes: Buffer, coding: string | null): Buffer {
  if (bytes.length === 0) return bytes;
  if (coding === 'br') return brotliDecompressSync(bytes);
  return coding === 'gzip' ? gunzipSync(bytes) : bytes;
}

export const statusesOf = (responses: readonly HttpResponse[]) =>
  responses.map(({ status }) => status);

/** Returns `Authorization` of the Basic scheme (RFC 7617). */
export function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
}
