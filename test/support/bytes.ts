// HTTP/1.1 as bytes: requests, connections that collect what they receive, and the responses in it.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type NetConnectOpts } from 'node:net';
import { type HttpResponse, raw } from './client.ts';
import { seen } from './openapi.ts';

export const TEXT = 'text/plain; charset=utf-8';
export const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

export interface Message {
  readonly version?: string;
  readonly type?: string;
  /** More lines of the head, each with its CR LF. */
  readonly fields?: string;
  readonly framing?: 'length' | 'chunks';
}

/** Returns a request with a body, each character one byte. Of two chunks, the first is the longer one. */
export function request(
  route: string,
  body: string,
  { version = '1.1', type = 'application/json', fields = '', framing = 'length' }: Message = {},
): string {
  const half = Math.ceil(body.length / 2);
  const chunks = [body.slice(0, half), body.slice(half), ''];
  const [line, framed] = {
    length: [`Content-Length: ${body.length}`, body],
    chunks: [
      'Transfer-Encoding: chunked',
      chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join(''),
    ],
  }[framing] as [string, string];
  const content = type && `Content-Type: ${type}\r\n`;
  return `${route} HTTP/${version}\r\nHost: x\r\n${fields}${content}${line}\r\n\r\n${framed}`;
}

/** Splits bytes into responses. The body of one without Content-Length is the rest. */
export function responsesIn(text: string): HttpResponse[] {
  const responses: HttpResponse[] = [];
  for (let rest = text; rest !== ''; ) {
    const end = rest.indexOf('\r\n\r\n');
    const [line, ...fields] = rest.slice(0, end).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(String(line))?.[1]);
    assert.ok(status, rest.slice(0, 200));
    const headers = new Headers(
      fields.map((field) => field.split(/: (.*)/s).slice(0, 2) as [string, string]),
    );
    const isEmpty = status < 200 || status === 204 || status === 304;
    const length = isEmpty ? 0 : Number(headers.get('content-length') ?? Number.POSITIVE_INFINITY);
    responses.push({ status, headers, body: rest.slice(end + 4).slice(0, length) });
    rest = rest.slice(end + 4 + length);
  }
  return responses;
}

/** Sends the bytes, each character one byte; returns the responses until the service closes. */
export async function exchange(url: string, ...parts: string[]): Promise<HttpResponse[]> {
  return responsesIn(await raw(url, ...parts.map((part) => Buffer.from(part, 'latin1'))));
}

/** Checks the type, the sentence and the headers of a response to input that reached no route (2.1, 2.2). */
export function assertRefusal(response: HttpResponse): void {
  seen({ method: '', target: '*', ...response });
}

export const statusesOf = (responses: readonly HttpResponse[]) =>
  responses.map(({ status }) => status);

/** Opens a connection that collects the bytes it receives. */
export async function open(url: string, options: Partial<NetConnectOpts> = {}) {
  const { hostname: host, port } = new URL(url);
  const socket = connect({ ...options, host, port: Number(port) })
    .setEncoding('latin1')
    .on('error', () => {});
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  let text = '';
  socket.on('data', (part) => {
    text += part;
  });
  await Promise.race([once(socket, 'connect'), closed]);
  return {
    socket,
    closed,
    text: () => text,
    /** Sends the bytes; resolves once the kernel has them. */
    write: (bytes: string) => new Promise((resolve) => socket.write(bytes, 'latin1', resolve)),
    /** Resolves once the received text matches; rejects if the connection closes first. */
    async received(pattern: RegExp): Promise<void> {
      const ended = closed.then(() => pattern.test(text) || assert.fail(`closed after: ${text}`));
      while (!pattern.test(text)) await Promise.race([once(socket, 'data'), ended]);
    },
    [Symbol.asyncDispose]: async () => void socket.destroy(),
  };
}

/** Sends `POST /users` without the end of its body, so it stays in flight until `finish`. */
export async function halfSent(url: string) {
  const client = await open(url);
  const body = '{"name":"Ann","email":"held@example.com"}';
  const whole = request('POST /users', body, { fields: 'Expect: 100-continue\r\n' });
  client.socket.write(whole.slice(0, -body.length));
  await client.received(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
  client.socket.write(body.slice(0, -5));
  return {
    ...client,
    /** What was received since the 100. */
    text: () => client.text().slice('HTTP/1.1 100 Continue\r\n\r\n'.length),
    finish: () => client.socket.write(body.slice(-5)),
  };
}

/** True if the server of `url` accepts connections. */
export async function accepts(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const isOpen = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isOpen;
}

/** The elements of a header's list in lower case, sorted. */
export function items(value: string | null): string[] {
  return (value ?? '')
    .toLowerCase()
    .split(/\s*,\s*/)
    .sort();
}
