// One request and its response, from the head of the request to the line in the log.
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { networksOf } from './address.ts';
import { checkMessage, copyOf, expectsContinue, headBytesOf } from './message.ts';

/** What an exchange needs of its connection. */
export interface Carrier {
  readonly address: string; // the client's, IPv4 in its plain form
  readonly hasReadMore: boolean; // More than the requests so far may have arrived.
  charge(bytes: number): void; // negative: refunds
  enter(state: 'receiving' | 'working' | 'sending'): void; // records whom we wait for, and progress
  run(task: () => void): void; // at once, or in a later turn of the event loop if this one has taken its time
  endAfterCurrent(): void; // The response in progress is the last one.
  endAfterReceived(): void; // The response to the request that arrived last is the last one.
  close(reason: 'failed'): void; // at once, because the response can't be completed
}

export class Exchange {
  readonly connection: Carrier;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly method: string;
  headers: IncomingHttpHeaders;
  readonly headBytes: number; // as clients write it
  heldBytes = 0; // charged to the connection until the client has the response
  isLast: boolean; // The connection closes after this response.
  requestId = '';
  traceId: string | undefined; // from a valid `traceparent`
  client = ''; // the client's address; behind trusted proxies, from X-Forwarded-For
  startMs = 0;
  route = ''; // the route's pattern; empty if no route matched
  parameters!: Readonly<Record<string, string>>; // values of its `{name}` segments, decoded; once a route matched
  query = ''; // raw, without its `?`
  body: unknown = undefined; // parsed; undefined if there is none
  status = 0;
  bytes = 0; // of the response body
  fault: unknown = undefined; // the error behind a 500

  constructor(connection: Carrier, req: IncomingMessage, res: ServerResponse) {
    this.connection = connection;
    this.req = req;
    this.res = res;
    this.method = req.method!;
    this.headers = req.headers;
    this.headBytes = headBytesOf(req);
    // The client asked for it (RFC 9112 §9.3), or may never send the body because it waits for 100 (RFC 9110 §10.1.1).
    this.isLast = !res.shouldKeepAlive || expectsContinue(req);
  }

  /** @throws HttpError for a head that node's parser accepts and we don't; the connection then closes */
  check(): void {
    try {
      checkMessage(this.req, this.headBytes);
    } catch (err) {
      this.isLast = true; // 2.10: the start of the next request is unknown (RFC 9112 §6.3).
      throw err;
    }
  }

  /** The client's IPv4 address, or the /64 of its IPv6 address. */
  get network(): string {
    return networksOf(this.client).network;
  }

  /** True once the connection has closed. */
  get hasLeft(): boolean {
    return this.req.socket.destroyed;
  }

  /**
   * Frees the head (6.17). After the connection has closed, a running call keeps the exchange for seconds. After a
   * response that precedes the end of the body, node keeps the request until the body ends.
   */
  release(): void {
    this.headers = {};
    this.parameters = {};
    this.query = '';
    this.client = copyOf(this.client);
    this.traceId &&= copyOf(this.traceId);
    Object.assign(this.req, { headers: {}, rawHeaders: [], url: '' });
  }

  /** Charges bytes to the connection, until the response has been sent, or refunds -bytes. */
  hold(bytes: number): void {
    this.heldBytes += bytes;
    this.connection.charge(bytes);
  }
}
