// Speaks HTTP to a URL: `fetch` for what it can send, raw sockets for what it refuses to send.
import { connect } from 'node:net';

/** An answer read whole: status, headers in lower case, body as text. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

/** Sends one request and reads the answer whole. A plain object as `body` goes as JSON. */
export async function send(
  url: string,
  init: Omit<RequestInit, 'body'> & { body?: unknown } = {},
): Promise<Answer> {
  const headers = new Headers(init.headers);
  const isJson = typeof init.body === 'object' && init.body?.constructor === Object;
  if (isJson && !headers.has('content-type')) headers.set('content-type', 'application/json');
  const body = isJson ? JSON.stringify(init.body) : init.body;
  const res = await fetch(url, { redirect: 'manual', ...init, headers, body } as RequestInit);
  return { status: res.status, headers: res.headers, body: await res.text() };
}

/** Writes raw bytes to the server of `url` and resolves with all it answers until it closes. */
export function raw(url: string, ...parts: (string | Uint8Array)[]): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = connect(Number(port), hostname, () => {
      for (const part of parts) socket.write(part);
    });
    socket.setEncoding('latin1');
    socket.on('data', (text) => {
      answer += text;
    });
    socket.on('close', () => resolve(answer));
    socket.on('error', (err) => (answer ? resolve(answer) : reject(err)));
  });
}

/** `Authorization` of the Basic scheme (RFC 7617). */
export function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
}
