// The limits of a listener and of a connection, and what a connection costs at most. docs/design.md adds them up.
import cluster from 'node:cluster';
import { constants } from 'node:crypto';
import type { ServerOptions } from 'node:http';
import type { ServerOptions as TlsOptions } from 'node:https';
import { platform } from 'node:process';
import { MAX_HEAD_BYTES } from '../http/message.ts';
import type { LedgerLimits } from './ledger.ts';

const UNLIMITED_BYTES = 512 * 2 ** 20; // outside V8's heap, without a control group and without a setting
const OWN_BYTES = 24 * 2 ** 20; // the process outside V8's heap, without mapped files: 8 MiB at rest (6.17)
// Only Linux spreads connections over sockets (SO_REUSEPORT). A worker of node:cluster listens in its primary.
const CAN_SHARE = platform === 'linux' && !cluster.isWorker;
// `connectionBytes`: an idle connection with an unfinished head, which causes no event, takes 39 KiB with 100 fields,
// 93 KiB over TLS. During its handshake a connection is charged twice, because OpenSSL keeps a ClientHello of up to
// 128 KiB.
// `modestBytes`: when the ledger chooses, a connection at least counts as one with three pipelined requests, or with a
// handshake. Otherwise clients that work are closed before idle ones that came at the same time. A body of 16 KiB
// counts as more.
// `sockets` listen on the API's port. Node accepts one connection of each in a turn of the event loop. With 4, clients
// wait 1.6 s instead of 0.1 (p99) while 100 networks read pages of users and reset. With 16 over TLS, so many handshakes
// are charged at once that clients with a round trip of 50 ms lose 5 % of their responses, instead of none, to 1,000
// connections a second that wait for a slow store.
const PLAIN = { connectionBytes: 40 * 1024, modestBytes: 100 * 1024, sockets: CAN_SHARE ? 16 : 1 };
const TLS = { connectionBytes: 112 * 1024, modestBytes: 224 * 1024, sockets: CAN_SHARE ? 4 : 1 };
// Node and OpenSSL keep parts of a ClientHello until the connection closes: of one with 64 KiB of ALPN names, 111 KiB.
// A usual handshake has 2 KiB.
export const HANDSHAKE_BYTES = 8 * 1024; // what `TLS` covers
export const HANDSHAKE_FACTOR = 2; // for each further byte
export const REQUEST_BYTES = 16 * 1024; // a request with 100 fields, without their bytes: 14 KiB measured
export const HEAD_FACTOR = 2; // Node keeps the name of a field as sent, and in lower case.

const MAX_CONNECTIONS = 10_000; // 6.3
const OWN_FILES = 256; // descriptors besides: 40 at rest, 64 admin connections, at most 100 to the store
export const MAX_WAITING = 32; // pipelined requests of a connection (2.11), at most 1.5 MiB of charges
export const BACKLOG = 4096; // connections of a listener that the kernel queues before we accept them
// Parsers that node keeps for further connections, 1,000 by default. Each keeps up to 16 KiB of the last
// head that it did not finish, which no ledger sees.
export const IDLE_PARSERS = 64;

// Of TLS records without data between two sweeps. An update of keys has 27 bytes and takes 10 µs, so a connection gets
// 5 % of a core with them. As many bytes may be unread at a sweep: a slice of a response with the longest head has 32 KiB.
export const MAX_RECORD_BYTES = 64 * 1024;
// Bytes of records that a byte of data allows: a record with one byte has 23, or 30 in TLS 1.2.
export const MAX_RECORD_FACTOR = 32;

export const SWEEP_MS = 500; // One timer checks all connections of a listener: 0.6 ms for 10,000.
export const LINGER_MS = 2_000; // A closing connection is read for so long, so its client gets the response.

export interface ListenerLimits extends LedgerLimits {
  readonly sockets: number; // that listen on the port
}

/** What the process may use. */
export interface ProcessLimits {
  readonly settingBytes: number | undefined; // MEMORY_LIMIT_BYTES
  readonly groupBytes: number; // the control group's limit as node reports it: without one, 0 or more than the machine's
  readonly machineBytes: number;
  readonly heapLimitBytes: number; // V8's
  readonly maxFiles: number; // descriptors
}

/**
 * Derives the limits of the API's connections. The process, V8's heap at its limit, and the budget fit the memory
 * together. If V8's limit leaves less than a quarter, as for a setting without a control group, the budget is a
 * quarter (6.17).
 */
export function apiLimits(limits: ProcessLimits, isTls: boolean): ListenerLimits {
  const { settingBytes, groupBytes, machineBytes, heapLimitBytes, maxFiles } = limits;
  const isConstrained = groupBytes > 0 && groupBytes < machineBytes;
  const unlimitedBytes = Math.min(machineBytes, heapLimitBytes + UNLIMITED_BYTES);
  const memory = (settingBytes ?? (isConstrained ? groupBytes : unlimitedBytes)) - OWN_BYTES;
  const files = Math.max(maxFiles - OWN_FILES, maxFiles / 4);
  return {
    budgetBytes: Math.max(memory - heapLimitBytes, memory / 4),
    // Without a free descriptor, the kernel would reset connections, also to `/live`, without a trace.
    maxConnections: Math.min(MAX_CONNECTIONS, Math.floor(files)),
    ...(isTls ? TLS : PLAIN),
  };
}

/** The admin listener has slots of its own, so its probes get responses while the API is full. */
export const adminLimits: ListenerLimits = {
  budgetBytes: 4 * 2 ** 20,
  maxConnections: 64,
  ...PLAIN,
  sockets: 1,
};

/** Limits of node:http(s), written out. listener.ts sets those that are not options. */
export const HTTP_OPTIONS: ServerOptions = {
  insecureHTTPParser: false,
  maxHeaderSize: MAX_HEAD_BYTES,
  headersTimeout: 10_000, // 6.3
  requestTimeout: 30_000, // 6.3
  connectionsCheckingInterval: 1_000,
  joinDuplicateHeaders: true, // Otherwise node would drop the second Host, Authorization or Content-Type.
  requireHostHeader: false, // checkMessage() checks it, so that its 400 has the headers of every response
  optimizeEmptyRequests: true, // no stream for a request without a body
};

export const TLS_OPTIONS: TlsOptions = {
  handshakeTimeout: 10_000, // 6.13
  // TLS 1.3, and of TLS 1.2 only forward-secret AEAD ciphers (contract 1 TLS_CERT_FILE).
  ciphers:
    'TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:ECDHE+AESGCM:ECDHE+CHACHA20',
  // OpenSSL would keep a second ClientHello, which nothing charges (6.17).
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
  // A callback, because node copies the option ALPNProtocols for each connection into a pooled
  // buffer, and keeps all 64 KiB of it. The names are in order of preference (RFC 7301).
  ALPNCallback: ({ protocols }) =>
    ['http/1.1', 'http/1.0'].find((name) => protocols.includes(name)),
};
