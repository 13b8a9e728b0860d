// Sends a request over a connection that the caller keeps.
import { type Agent, request as httpRequest } from 'node:http';

export interface HttpResponse {
  readonly status: number;
  readonly body: string;
  readonly ms: number;
}

/** The connection failed before the response was complete. */
export class Broken extends Error {
  /** True if the connection delivered a response before. */
  readonly isReused: boolean;

  constructor(message: string, isReused: boolean) {
    super(message);
    this.isReused = isReused;
  }
}

/**
 * Sends one request.
 * @throws Broken
 */
export function request(
  agent: Agent,
  url: string,
  method = 'GET',
  body?: object,
): Promise<HttpResponse> {
  const began = performance.now();
  const text = body === undefined ? undefined : JSON.stringify(body);
  const headers = text === undefined ? {} : { 'Content-Type': 'application/json' };
  return new Promise((resolve, reject) => {
    const req = httpRequest(url, { agent, method, headers }, (res) => {
      let response = '';
      res.setEncoding('utf8').on('data', (part) => {
        response += part;
      });
      res.on('error', (err) => reject(new Broken(err.message, true)));
      res.on('end', () =>
        resolve({ status: res.statusCode!, body: response, ms: performance.now() - began }),
      );
    });
    req.on('error', (err) => reject(new Broken(err.message, req.reusedSocket)));
    req.end(text);
  });
}
