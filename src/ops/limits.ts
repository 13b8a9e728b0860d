// The limits of a listener: connections, what waits on them, and times.
import type { ServerOptions } from 'node:http';
import type { ServerOptions as TlsOptions } from 'node:https';
import { MAX_HEADER_BYTES } from '../http/message.ts';

/** Connections at the same time; beyond, idle ones give way. */
export const MAX_CONNECTIONS = 10_000;

/** Idle connections closed at once when room is needed, so that looking for them stays rare. */
export const EVICTION_BATCH_SIZE = 100;

/** Requests that wait behind others of their connections, of all connections together. */
export const MAX_QUEUED = 10_000;

/** Requests behind last answers, of all connections together: node keeps them until theirs ends. */
export const MAX_DROPPED = 10_000;

/** Connections that the kernel takes before we do. */
export const BACKLOG = 4096;

/** How long idle connections of a stopping server may bring one more request. */
export const STOP_GRACE_MS = 500; // 6.15

/** Every limit of node:http(s), written out. */
export const HTTP_OPTIONS: ServerOptions = {
  insecureHTTPParser: false, // 2.10
  maxHeaderSize: MAX_HEADER_BYTES, // 6.3
  headersTimeout: 10_000, // 6.3
  requestTimeout: 30_000, // 6.3
  connectionsCheckingInterval: 1_000,
  // Longer than the 60 s after which load balancers commonly drop an idle connection: the side that
  // sends the next request should be the one that closes.
  keepAliveTimeout: 65_000, // 6.14
  // We refuse it ourselves, with the headers of every answer.
  requireHostHeader: false,
  joinDuplicateHeaders: false,
  noDelay: true,
  // A request without a body gets no stream.
  optimizeEmptyRequests: true,
};

/** What TLS adds; HTTP/1.0 is offered by its name too (RFC 7301). */
export const TLS_OPTIONS: TlsOptions = {
  handshakeTimeout: 10_000, // 6.13
  // TLS 1.3, and of TLS 1.2 only forward-secret AEAD ciphers (contract 1 TLS_CERT_FILE).
  ciphers:
    'TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:ECDHE+AESGCM:ECDHE+CHACHA20',
  ALPNProtocols: ['http/1.1', 'http/1.0'],
};
