// The vocabulary of the route table.
import type { IncomingHttpHeaders } from 'node:http';
import type { Access, AuthServices } from './auth/access.ts';
import type { DocsPage } from './docs.ts';
import type { MediaType } from './http/body.ts';
import type { Reply } from './http/reply.ts';
import type { UserStore } from './user.ts';

/** What handlers work with; the same for all requests. */
export interface Services extends AuthServices {
  readonly store: UserStore;
  /** The one note, as JSON. */
  readonly note: string;
  /** The text of openapi.json. */
  readonly openapi: string;
  /** The page of GET /docs. */
  readonly page: DocsPage;
}

/** One request, as a handler sees it. */
export interface Context {
  readonly headers: IncomingHttpHeaders;
  /** The value of the path's `{…}`, percent-decoded. */
  readonly parameter: string;
  /** The raw query without its `?`. */
  readonly query: string;
  /** The parsed body; undefined when there is none. */
  readonly body: unknown;
  /** The client's address. */
  readonly client: string;
  readonly services: Services;
}

/** Turns a request into a reply, at once where it can, as a promise costs a microtask. */
export type Handler = (context: Context) => Reply | Promise<Reply>;

/** One row of the table. */
export interface Route {
  readonly access: Access;
  /** Media types of the body; empty: a body has no meaning here. */
  readonly accepts: readonly MediaType[];
  /** Statuses that the handler answers with; what precedes it answers too, see scripts/openapi.ts. */
  readonly answers: readonly number[];
  readonly handle: Handler;
  /** What the route is for, in a few words of Markdown. */
  readonly summary: string;
}

/** Methods of the table; `HEAD` and `OPTIONS` follow from them. */
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** Routes by `METHOD /path`. */
export type RouteTable = { readonly [key: `${Method} /${string}`]: Route };
