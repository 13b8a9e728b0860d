// HTTP/1.1 as bytes: requests, and connections that collect what they receive.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type NetConnectOpts } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { type HttpResponse, responsesIn } from './client.ts';
import { seen } from './openapi.ts';
import { DEADLINE_MS } from './until.ts';

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
  const chunks = [body.slice(0, half), body.slice(half), ''].map(
    (chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`,
  );
  const [line, framed] = {
    length: [`Content-Length: ${body.length}`, body],
    chunks: ['Transfer-Encoding: chunked', chunks.join('')],
  }[framing] as [string, string];
  const content = type && `Content-Type: ${type}\r\n`;
  return `${route} HTTP/${version}\r\nHost: x\r\n${fields}${content}${line}\r\n\r\n${framed}`;
}

export type Client = Awaited<ReturnType<typeof open>>;

/** Each response's status and Connection. */
export const outcomes = (responses: readonly HttpResponse[]) =>
  responses.map(({ status, headers }) => `${status} ${headers.get('connection')}`);

/** Opens a connection that collects the bytes it receives, with TLS only on request. */
export async function open(
  url: string,
  options: Partial<NetConnectOpts & ConnectionOptions> = {},
  isTls = false,
) {
  const { hostname: host, port } = new URL(url);
  const all = { noDelay: true, ...options, host, port: Number(port) };
  const socket = (isTls ? connectTls({ ...all, rejectUnauthorized: false }) : connect(all))
    .setEncoding('latin1')
    .on('error', () => {});
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  let text = '';
  socket.on('data', (part) => {
    text += part;
  });
  await Promise.race([once(socket, isTls ? 'secureConnect' : 'connect'), closed]);
  return {
    socket,
    closed,
    text: () => text,
    /** Sends the bytes; resolves once the kernel has them. */
    write: (bytes: string) => new Promise((resolve) => socket.write(bytes, 'latin1', resolve)),
    /** Sends the bytes; resolves with the response, whose body is not empty. */
    async ask(bytes = GET): Promise<HttpResponse> {
      const from = text.length;
      await this.write(bytes);
      await this.received(/^HTTP.*\r\n\r\n./s, from);
      return responsesIn(text.slice(from))[0]!;
    },
    /** Resolves once the text received from there on matches; rejects if the connection closes first. */
    async received(pattern: RegExp, from = 0): Promise<void> {
      const isHere = () => pattern.test(text.slice(from));
      const ended = closed.then(() => isHere() || assert.fail(`closed after: ${text}`));
      while (!isHere()) await Promise.race([once(socket, 'data'), ended]);
    },
    [Symbol.asyncDispose]: async () => void socket.destroy(),
  };
}

/** Sends the bytes, each character one byte; returns the responses until the service closes. */
export async function exchange(url: string, bytes: string): Promise<HttpResponse[]> {
  const { socket, closed, text } = await open(url);
  socket.setTimeout(DEADLINE_MS, () => socket.destroy());
  socket.write(bytes, 'latin1');
  await closed;
  const [, method = '', target = ''] = /^(\S+) (\S+) HTTP\//.exec(bytes) ?? [];
  const responses = responsesIn(text(), method);
  const first = responses.find(({ status }) => status >= 200);
  if (first !== undefined) seen({ method, target, ...first });
  return responses;
}

/** Sends `POST /users` without the end of its body, so it stays in flight until `finish`. */
export async function halfSent(url: string) {
  const client = await open(url);
  const body = '{"name":"Ann","email":"held@example.com"}';
  const whole = request('POST /users', body, { fields: 'Expect: 100-continue\r\n' });
  client.socket.write(whole.slice(0, -body.length));
  await client.received(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
  client.socket.write(body.slice(0, -5));
  return { ...client, finish: () => client.socket.write(body.slice(-5)) };
}
