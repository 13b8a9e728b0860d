// The pipeline, a straight line: find the route, authenticate, read the body, handle, respond, record.
import { randomBytes } from 'node:crypto';
import { failureReply } from './api/failures.ts';
import { authenticate } from './auth/access.ts';
import { now } from './clock.ts';
import { clientAddress } from './http/address.ts';
import { readBody } from './http/body.ts';
import { HttpError } from './http/errors.ts';
import type { Exchange } from './http/exchange.ts';
import { dropBody, hasBody } from './http/message.ts';
import { percentDecode } from './http/query.ts';
import { empty, isWhole, type Reply, rawReply, send } from './http/reply.ts';
import { type Resource, Router } from './http/router.ts';
import type { RequestLine } from './ops/log.ts';
import type { Route, RouteTable, Services } from './route.ts';
import type { Handler } from './server/connection.ts';

interface PipelineOptions {
  readonly routes: RouteTable;
  readonly services: Services;
  readonly bodyLimitBytes: number;
  readonly corsOrigin: string | undefined; // undefined: no CORS headers
  readonly stopping: () => Promise<void> | undefined; // while set, a response waits for it and ends its connection
  readonly begin: (method: string) => void; // called for every request, before it is processed
  readonly record: (exchange: CompletedExchange) => void; // called for every response
}

/** A request and its response, as the log and the metrics see them. */
type CompletedExchange = RequestLine & Pick<Exchange, 'startMs' | 'fault'>;

const NO_REQUEST = { method: '', route: '', traceId: undefined, fault: undefined }; // input that is not a request

const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/; // 2.2: harmless in a log line

// 6.8, W3C Trace Context §3.2: a later version may append fields; neither id is zero. Node joins several
// headers with a comma.
const TRACEPARENT =
  /^(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[^,]*)?$/;

const CORS_EXPOSED = 'ETag, Link, Location, Retry-After, X-Request-Id';
// OpenTelemetry sends the last three together (W3C Trace Context, W3C Baggage).
const CORS_ALLOWED =
  'Authorization, Content-Type, If-Match, If-None-Match, X-Request-Id, traceparent, tracestate, baggage';
const CORS_MAX_AGE_SECONDS = 7200;

export class Pipeline implements Handler {
  readonly allow: string; // every method of the table (RFC 9110 §9.3.7)
  readonly #options: PipelineOptions;
  readonly #router: Router<Route>;
  readonly #cors: string[] = []; // headers of every response
  // Unique across processes and restarts. A UUID per request would cost 3 % of a short request.
  readonly #requestIdPrefix = randomBytes(12).toString('base64url');
  #requests = 0;

  constructor(options: PipelineOptions) {
    this.#options = options;
    this.#router = new Router(options.routes);
    this.allow = this.#router.allow;
    if (options.corsOrigin !== undefined) {
      this.#cors.push('Access-Control-Allow-Origin', options.corsOrigin);
      this.#cors.push('Access-Control-Expose-Headers', CORS_EXPOSED);
    }
  }

  handle(exchange: Exchange): void {
    const { headers, connection, method } = exchange;
    const { services, begin } = this.#options;
    const id = headers['x-request-id'];
    const isKept = typeof id === 'string' && REQUEST_ID.test(id);
    exchange.requestId = isKept ? id : this.#newRequestId(); // 2.2
    exchange.traceId = TRACEPARENT.exec(String(headers.traceparent))?.[1];
    const forwardedFor = headers['x-forwarded-for'] as string | undefined;
    exchange.client = clientAddress(connection.address, forwardedFor, services.trustProxy);
    begin(method);
    try {
      const reply = this.#process(exchange);
      if (reply !== undefined) this.#respond(exchange, reply);
    } catch (err) {
      this.#fail(exchange, err);
    }
  }

  refusal(err: HttpError, address: string): string {
    const { begin, record } = this.#options;
    const requestId = this.#newRequestId();
    const reply = failureReply(err);
    const bytes = Buffer.byteLength(String(reply.body));
    const { status } = reply;
    begin('');
    record({ ...NO_REQUEST, requestId, client: address, startMs: now(), status, bytes });
    return rawReply(reply, [...this.#cors, 'X-Request-Id', requestId]); // 2.2
  }

  #newRequestId(): string {
    return `${this.#requestIdPrefix}-${++this.#requests}`;
  }

  /** Runs the checks in their fixed order (2.5), then the handler. Undefined: it waits for the body. */
  #process(exchange: Exchange): Reply | Promise<Reply> | undefined {
    const { req } = exchange;
    exchange.check();
    if (req.url === '*' && req.method === 'OPTIONS') {
      return this.#options204(this.allow); // 2.6
    }
    const match = this.#router.find(req.url!);
    if (match === undefined) throw new HttpError(404); // 2.6
    exchange.route = match.resource.pattern;
    exchange.parameters = match.parameters;
    exchange.query = match.query;
    const route = match.resource.routes.get(req.method!);
    if (route === undefined) return this.#withoutRoute(exchange, match.resource);
    const { services, bodyLimitBytes } = this.#options;
    authenticate(route.access, exchange, services);
    if (!hasBody(req)) return this.#call(exchange, route);
    const proceed = (body: unknown) => {
      exchange.body = body;
      this.#respond(exchange, this.#call(exchange, route));
    };
    const fail = (err: unknown) => this.#fail(exchange, err);
    readBody(exchange, route.accepts, bodyLimitBytes, proceed, fail);
    return undefined;
  }

  #call(exchange: Exchange, route: Route): Reply | Promise<Reply> {
    percentDecode(exchange.query, 'query'); // 2.7: also in parameters that no handler reads
    try {
      return route.handle(exchange, this.#options.services);
    } finally {
      // The handler has read it. Don't keep it while the store works, or the connection is idle.
      exchange.body = undefined;
    }
  }

  /** Responds to OPTIONS; refuses any other method with 405 (RFC 9110 §9.3.7, §15.5.6). */
  #withoutRoute({ req }: Exchange, resource: Resource<Route>): Reply {
    if (req.method !== 'OPTIONS') throw new HttpError(405, undefined, ['Allow', resource.allow]); // 2.6
    const patch = resource.routes.get('PATCH');
    const accepted = patch?.accepts.join(', ');
    return this.#options204(resource.allow, accepted ? ['Accept-Patch', accepted] : []);
  }

  #options204(allow: string, headers: readonly string[] = []): Reply {
    const all = ['Allow', allow, ...headers];
    if (this.#options.corsOrigin !== undefined) {
      all.push('Access-Control-Allow-Methods', allow, 'Access-Control-Allow-Headers', CORS_ALLOWED);
      all.push('Access-Control-Max-Age', String(CORS_MAX_AGE_SECONDS));
    }
    return empty(204, all);
  }

  /** Turns any error into a response. The log gets the cause of a 500 (2.9). */
  #fail(exchange: Exchange, err: unknown): void {
    const reply = failureReply(err);
    if (reply.status === 500) exchange.fault = err;
    this.#respond(exchange, reply);
  }

  #respond(exchange: Exchange, reply: Reply | Promise<Reply>): void {
    // Not `instanceof`: libraries such as zone.js replace the global Promise.
    if ('then' in reply) {
      const respond = (settled: Reply) => this.#respond(exchange, settled);
      reply.then(respond, (err) => this.#fail(exchange, err));
      return;
    }
    const { stopping, record } = this.#options;
    const { connection, requestId } = exchange;
    const headers = [...this.#cors, 'X-Request-Id', requestId];
    const ready = stopping();
    if (ready === undefined) {
      send(exchange, reply, headers, record);
      return;
    }
    // 6.2: the last response of a connection closes it. Requests that arrived in the same read get
    // responses too, but are known only in the next turn of the event loop.
    const held = isWhole(reply.body) ? Buffer.byteLength(reply.body) : 0;
    exchange.hold(held); // 6.17
    dropBody(exchange.req); // node would keep each chunk of one that nobody reads
    ready.then(() => {
      exchange.hold(-held);
      connection.endAfterReceived();
      send(exchange, reply, headers, record);
    });
  }
}
