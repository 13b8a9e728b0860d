// The pipeline, a straight line: find the route, authenticate, read the body, handle, send, record.
// Whatever is thrown on the way becomes a reply in one place.
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { authenticate } from './auth/access.ts';
import { clientAddress } from './http/address.ts';
import { hasBody, MEDIA_TYPES, readBody } from './http/body.ts';
import { errorReply, HttpError } from './http/errors.ts';
import { checkMessage, singleHeader } from './http/message.ts';
import { checkQuery } from './http/query.ts';
import { empty, endsConnection, type Reply, rawReply, send } from './http/reply.ts';
import { type Match, Router } from './http/router.ts';
import type { Context, Route, RouteTable, Services } from './route.ts';

/** What the pipeline needs besides the routes. */
export interface AppOptions {
  readonly routes: RouteTable;
  readonly services: Services;
  readonly bodyLimitBytes: number;
  readonly trustProxy: number;
  /** The value of Access-Control-Allow-Origin; absent: no CORS headers. */
  readonly corsOrigin: string | undefined;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
  /** Whether connections are to end with their last answer. */
  readonly isStopping: () => boolean;
  /** Called once for every request, before anything is done for it. */
  readonly begin: (exchange: Exchange) => void;
  /** Called once for every answer. */
  readonly record: (exchange: Exchange) => void;
}

/** A request and what became of it: a line of the log. */
export interface Exchange {
  readonly requestId: string;
  readonly method: string;
  readonly client: string;
  readonly startMs: number;
  /** The route's pattern, empty where no route was found. */
  route: string;
  status: number;
  /** Length of the answer's body. */
  bytes: number;
  /** What failed on our side. */
  fault?: unknown;
}

/** A connection of the server, as far as the pipeline knows it. */
export interface Connection {
  /** The response to the latest request; all earlier ones are sent before it. */
  latest: ServerResponse | undefined;
  /** An answer that ends the connection has been given: nothing more is taken from it. */
  isClosing: boolean;
  /** What came after the latest request cannot be read. */
  readonly isBroken: boolean;
}

// A caller's own request id is taken when it can do no harm in a log line.
const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/; // 2.2

const CORS_EXPOSED = 'ETag, Link, Location, Retry-After, X-Request-Id';
const CORS_ALLOWED = 'Authorization, Content-Type, If-Match, If-None-Match, X-Request-Id';
const CORS_MAX_AGE_SECONDS = 7200;

/** Answers requests. */
export class App {
  readonly #options: AppOptions;
  readonly #router: Router<Route>;
  readonly #common: readonly string[];
  // Unique among all processes and restarts; a UUID a request would cost 3 % of a short one.
  readonly #requestIdPrefix = randomBytes(12).toString('base64url');
  #requests = 0;

  constructor(options: AppOptions) {
    this.#options = options;
    this.#router = new Router(options.routes);
    this.#common = ['X-Content-Type-Options', 'nosniff']; // 2.2
    if (options.corsOrigin !== undefined) {
      this.#common = [
        ...this.#common,
        'Access-Control-Allow-Origin',
        options.corsOrigin,
        'Access-Control-Expose-Headers',
        CORS_EXPOSED,
      ];
    }
  }

  /** Answers one request; never throws. */
  handle(req: IncomingMessage, res: ServerResponse, connection: Connection): void {
    const exchange = this.#begin(req);
    this.#options.begin(exchange);
    let reply: Reply | Promise<Reply>;
    try {
      reply = this.#reply(req, res, exchange);
    } catch (err) {
      reply = this.#failed(err, exchange);
    }
    if (reply instanceof Promise) {
      reply
        .catch((err: unknown) => this.#failed(err, exchange))
        .then((settled) => this.#answer(req, res, settled, exchange, connection));
    } else {
      this.#answer(req, res, reply, exchange, connection);
    }
  }

  /**
   * The bytes that refuse a request which node's parser could not read. They carry the headers of
   * every answer.
   */
  refusal(err: HttpError, socketAddress: string | undefined): string {
    const client = clientAddress(socketAddress, undefined, 0);
    const requestId = this.#newRequestId();
    const startMs = this.#options.now();
    const reply = errorReply(err);
    const bytes = Buffer.byteLength(String(reply.body));
    const { status } = reply;
    const exchange = { requestId, method: '', client, startMs, route: '', status, bytes };
    this.#options.begin(exchange);
    this.#options.record(exchange);
    return rawReply(reply, this.#headers(requestId)); // 2.2
  }

  /** Every method of the API, for `Allow`. */
  get allow(): string {
    return this.#router.allow;
  }

  #begin(req: IncomingMessage): Exchange {
    const sent = req.headers['x-request-id'];
    const forwardedFor = req.headers['x-forwarded-for'];
    return {
      // 2.2
      requestId: typeof sent === 'string' && REQUEST_ID.test(sent) ? sent : this.#newRequestId(),
      method: req.method!,
      client: clientAddress(
        req.socket.remoteAddress,
        forwardedFor as string | undefined,
        this.#options.trustProxy,
      ),
      startMs: this.#options.now(),
      route: '',
      status: 0,
      bytes: 0,
    };
  }

  #newRequestId(): string {
    this.#requests++;
    return `${this.#requestIdPrefix}-${this.#requests}`;
  }

  // 2.5
  #reply(req: IncomingMessage, res: ServerResponse, exchange: Exchange): Reply | Promise<Reply> {
    try {
      checkMessage(req);
    } catch (err) {
      // Nobody knows what stands behind it (RFC 9112 §6.3).
      res.shouldKeepAlive = false; // 2.10
      throw err;
    }
    // 2.6
    if (req.url === '*' && req.method === 'OPTIONS') return this.#options204(this.#router.allow);
    const match = this.#router.find(req.url!);
    if (match === undefined) throw new HttpError(404); // 2.6
    exchange.route = match.resource.pattern;
    const route = match.resource.routes.get(req.method!);
    if (route === undefined) return this.#withoutRoute(req, match);
    const { services, bodyLimitBytes } = this.#options;
    // 3.6
    authenticate(route.access, singleHeader(req, 'authorization'), exchange.client, services);
    if (!hasBody(req)) return route.handle(contextOf(req, match, exchange, undefined, services));
    const proceed = () => res.writeContinue();
    return readBody(req, route.accepts, bodyLimitBytes, proceed).then((body) =>
      route.handle(contextOf(req, match, exchange, body, services)),
    );
  }

  /** OPTIONS, or 405 (RFC 9110 §9.3.7, §15.5.6). */
  #withoutRoute(req: IncomingMessage, { resource, query }: Match<Route>): Reply {
    // 2.6
    // 2.6
    if (req.method !== 'OPTIONS') throw new HttpError(405, undefined, ['Allow', resource.allow]);
    checkQuery(query); // 2.7
    const patch = resource.routes.get('PATCH');
    const accepted = patch?.accepts.map((type) => MEDIA_TYPES[type]).join(', ');
    return this.#options204(resource.allow, accepted ? ['Accept-Patch', accepted] : []);
  }

  #options204(allow: string, headers: readonly string[] = []): Reply {
    const cors = ['Access-Control-Allow-Methods', allow];
    cors.push('Access-Control-Allow-Headers', CORS_ALLOWED);
    cors.push('Access-Control-Max-Age', String(CORS_MAX_AGE_SECONDS));
    const preflight = this.#options.corsOrigin === undefined ? [] : cors;
    return empty(204, ['Allow', allow, ...headers, ...preflight]);
  }

  #failed(err: unknown, exchange: Exchange): Reply {
    const reply = errorReply(err);
    if (reply.status >= 500 && !(err instanceof HttpError)) exchange.fault = err;
    return reply;
  }

  #answer(
    req: IncomingMessage,
    res: ServerResponse,
    reply: Reply,
    exchange: Exchange,
    connection: Connection,
  ): void {
    // While stopping, the last answer of a connection says that it is the last. Requests that came
    // in the same packet are answered too, and they are known only after this turn.
    if (this.#options.isStopping()) {
      // 6.2
      setImmediate(() =>
        this.#write(req, res, reply, exchange, connection, res === connection.latest),
      );
    } else {
      this.#write(req, res, reply, exchange, connection, false);
    }
  }

  #write(
    req: IncomingMessage,
    res: ServerResponse,
    reply: Reply,
    exchange: Exchange,
    connection: Connection,
    isLast: boolean,
  ): void {
    exchange.status = reply.status;
    const ends = isLast || connection.isBroken || endsConnection(req, res, reply);
    connection.isClosing ||= ends;
    const sent = send(req, res, reply, this.#headers(exchange.requestId), ends);
    if (typeof sent === 'number') {
      exchange.bytes = sent;
      this.#options.record(exchange);
      return;
    }
    sent
      .catch((err: unknown) => {
        exchange.fault = err;
        return 0;
      })
      .then((bytes) => {
        exchange.bytes = bytes;
        this.#options.record(exchange);
      });
  }

  #headers(requestId: string): string[] {
    return [...this.#common, 'X-Request-Id', requestId];
  }
}

function contextOf(
  // 2.7
  req: IncomingMessage,
  { parameter, query }: Match<Route>,
  { client }: Exchange,
  body: unknown,
  services: Services,
): Context {
  checkQuery(query);
  return { headers: req.headers, parameter, query, body, client, services };
}
