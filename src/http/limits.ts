// Limits of a listener. Each bounds one client or one connection; budget.ts bounds their sum.
import type { ServerOptions } from 'node:http';
import type { ServerOptions as TlsOptions } from 'node:https';
import { MAX_HEADER_BYTES } from './message.ts';

/** Connections that the kernel queues before we accept them. */
export const BACKLOG = 4096;

/** How long an idle connection of a stopping server may send one more request. */
export const STOP_GRACE_MS = 500;

/** Every limit of node:http(s), written out. */
export const HTTP_OPTIONS: ServerOptions = {
  insecureHTTPParser: false,
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: 10_000, // 6.3
  requestTimeout: 30_000, // 6.3
  connectionsCheckingInterval: 1_000,
  // Longer than the 60 s after which load balancers commonly drop an idle connection: the side that
  // sends the next request should be the one that closes.
  keepAliveTimeout: 65_000, // 6.14
  // The pipeline refuses it with the headers of every response.
  requireHostHeader: false,
  joinDuplicateHeaders: false,
  noDelay: true,
  // A request without a body gets no stream.
  optimizeEmptyRequests: true,
};

/** Added by TLS; HTTP/1.0 is offered by its name too (RFC 7301). */
export const TLS_OPTIONS: TlsOptions = {
  handshakeTimeout: 10_000, // 6.13
  ALPNProtocols: ['http/1.1', 'http/1.0'],
};
