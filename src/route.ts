// The vocabulary of the route table.
import type { Access, AuthServices } from './auth/access.ts';
import type { MediaType } from './http/body.ts';
import type { Exchange } from './http/exchange.ts';
import type { Reply } from './http/reply.ts';
import type { StaticDocument } from './http/static.ts';
import type { UserStore } from './user.ts';

/** What handlers work with; the same for all requests. */
export interface Services extends AuthServices {
  readonly store: UserStore;
  /** The one note, as JSON. */
  readonly note: string;
  /** The document of GET /openapi.json. */
  readonly openapi: StaticDocument;
  /** The page of GET /docs. */
  readonly page: StaticDocument;
}

/** What a handler sees of a request. */
export type Context = Pick<Exchange, 'headers' | 'parameters' | 'query' | 'body' | 'client'>;

/**
 * Turns a request into a reply: at once where possible, as a promise costs a microtask. An
 * asynchronous handler reads the body before it waits, so that the body is not kept meanwhile.
 */
export type Handler = (context: Context, services: Services) => Reply | Promise<Reply>;

/** One row of the table. */
export interface Route {
  readonly access: Access;
  /** Media types of the body; empty if a body has no meaning here. */
  readonly accepts: readonly MediaType[];
  /** Statuses that the handler returns; for those of the pipeline see scripts/openapi.ts. */
  readonly answers: readonly number[];
  readonly handle: Handler;
  /** What the route is for, in a few words of Markdown. */
  readonly summary: string;
}

/** Methods of the table; `HEAD` and `OPTIONS` follow from them. */
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Routes by `METHOD /path`. */
export type RouteTable = { readonly [key: `${Method} /${string}`]: Route };
