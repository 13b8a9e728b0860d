// Types of the route table.
import type { Access, AuthServices } from './auth/access.ts';
import type { Exchange } from './http/exchange.ts';
import type { Reply } from './http/reply.ts';
import type { StaticDocument } from './http/static.ts';
import type { UserStore } from './user.ts';

/** Everything that handlers use besides the request. All requests share it. */
export interface Services extends AuthServices {
  readonly store: UserStore;
  readonly trustProxy: number;
  readonly note: string; // as JSON
  readonly openapi: StaticDocument;
  readonly docs: StaticDocument;
}

/** The part of a request that a handler sees. */
export type Context = Pick<
  Exchange,
  'headers' | 'parameters' | 'query' | 'body' | 'client' | 'network' | 'hasLeft'
>;

/**
 * Returns the response to a request. A synchronous handler saves a microtask. An asynchronous one must
 * read the body before its first `await`: the pipeline drops the body when it gets a promise.
 */
export type RouteHandler = (context: Context, services: Services) => Reply | Promise<Reply>;

export interface Route {
  readonly access: Access;
  readonly accepts: readonly string[]; // media types of the body; empty if the route takes none
  readonly handle: RouteHandler;
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'; // HEAD and OPTIONS follow from them
export type RouteTable = { readonly [key: `${Method} /${string}`]: Route };
