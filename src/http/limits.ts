// Limits of a listener and its connections. budget.ts bounds their sum.
import type { ServerOptions } from 'node:http';
import type { ServerOptions as TlsOptions } from 'node:https';
import { MAX_HEADER_BYTES } from './message.ts';

// Parsers that node keeps for further connections, 1,000 by default. Each keeps up to 16 KiB of the last
// head that it did not finish, which no budget sees (6.17).
export const IDLE_PARSERS = 64;
export const BACKLOG = 4096; // connections that the kernel queues before we accept them
export const STOP_GRACE_MS = 500; // how long an idle connection may still send a request during a stop

/** Limits of node:http(s), written out. server.ts sets those that are not options. */
export const HTTP_OPTIONS: ServerOptions = {
  insecureHTTPParser: false,
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: 10_000, // 6.3
  requestTimeout: 30_000, // 6.3
  connectionsCheckingInterval: 1_000,
  requireHostHeader: false, // checkMessage() checks it, so that its 400 has the headers of every response
  joinDuplicateHeaders: false,
  optimizeEmptyRequests: true, // no stream for a request without a body
};

export const TLS_OPTIONS: TlsOptions = {
  handshakeTimeout: 10_000, // 6.13
  // TLS 1.3, and of TLS 1.2 only forward-secret AEAD ciphers (contract 1 TLS_CERT_FILE).
  ciphers:
    'TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:ECDHE+AESGCM:ECDHE+CHACHA20',
  // A callback, because node copies the option ALPNProtocols for each connection into a pooled
  // buffer, and keeps all 64 KiB of it. The names are in order of preference (RFC 7301).
  ALPNCallback: ({ protocols }) =>
    ['http/1.1', 'http/1.0'].find((name) => protocols.includes(name)),
};
