// One request and its response, from the head of the request to the line in the log.
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { counterKeys } from './address.ts';
import type { Connection } from './connection.ts';

export class Exchange {
  readonly connection: Connection;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** Bytes charged to the connection until the socket has the response. */
  heldBytes = 0;
  requestId = '';
  /** The socket's `bytesRead` at the end of a request that offers an upgrade; see input.ts. */
  offerEnd = 0;
  /** The client's address; behind trusted proxies, from X-Forwarded-For. */
  client = '';
  /** Start of its processing, in milliseconds of the clock. */
  startMs = 0;
  /** The route's pattern; empty if no route matched. */
  route = '';
  /** Values of the pattern's `{name}` segments, percent-decoded. */
  parameters: Readonly<Record<string, string>> = NONE;
  /** The raw query without its `?`. */
  query = '';
  /** The parsed body; undefined if there is none. */
  body: unknown = undefined;
  status = 0;
  /** Length of the response body. */
  bytes = 0;
  /** The error behind a 500. */
  fault: unknown = undefined;

  constructor(connection: Connection, req: IncomingMessage, res: ServerResponse) {
    this.connection = connection;
    this.req = req;
    this.res = res;
  }

  get method(): string {
    return this.req.method!;
  }

  get headers(): IncomingHttpHeaders {
    return this.req.headers;
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
