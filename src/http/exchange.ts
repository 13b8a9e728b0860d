// One request and its response, from the head of the request to the line in the log.
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { counterKeys } from './address.ts';
import type { Connection } from './connection.ts';

export class Exchange {
  readonly connection: Connection;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  heldBytes = 0; // charged to the connection until the socket has the response
  requestId = '';
  offerEnd = 0; // the socket's `bytesRead` at the end of a request that offers an upgrade (input.ts)
  client = ''; // the client's address; behind trusted proxies, from X-Forwarded-For
  startMs = 0;
  route = ''; // the route's pattern; empty if no route matched
  parameters: Readonly<Record<string, string>> = NONE; // values of its `{name}` segments, decoded
  query = ''; // raw, without its `?`
  body: unknown = undefined; // parsed; undefined if there is none
  status = 0;
  bytes = 0; // of the response body
  fault: unknown = undefined; // the error behind a 500

  constructor(connection: Connection, req: IncomingMessage, res: ServerResponse) {
    this.connection = connection;
    this.req = req;
    this.res = res;
    this.method = req.method!;
    this.headers = req.headers;
  }

  /** The client's IPv4 address, or the /64 of its IPv6 address. */
  get network(): string {
    return counterKeys(this.client).network;
  }

  /** True once the connection has closed. */
  get hasLeft(): boolean {
    return this.req.socket.destroyed;
  }
}

const NONE: Readonly<Record<string, string>> = {};
