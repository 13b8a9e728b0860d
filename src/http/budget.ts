// Bounds the memory that clients make the process hold, over all connections of all listeners. A connection
// costs a fixed amount, and is charged for requests in progress, bodies and unsent responses. Two checks
// close the connections that hold the most first, so that clients that hold little keep working. `hold`
// checks the sum of all charges. A timer checks the memory of the process, which includes unfinished heads,
// and V8's heap, whose own limit ends the process. It also closes connections without progress.
import { readFileSync } from 'node:fs';
import { memoryUsage } from 'node:process';
import { getHeapStatistics } from 'node:v8';
import { clearInterval, setImmediate, setInterval } from '../clock.ts';
import { TURN_MS, type Turns } from '../turns.ts';
import type { Connection } from './connection.ts';

const MEBIBYTE = 1024 * 1024;
const DEFAULT_LIMIT_BYTES = 512 * MEBIBYTE; // without a control group and without a setting
// Reserve for the service itself: this, or its memory at startup plus GARBAGE_BYTES if that is more (6.17).
const RESERVED_BYTES = 32 * MEBIBYTE;
const GARBAGE_BYTES = 16 * MEBIBYTE;

const MAX_CONNECTIONS = 10_000; // 6.3
const PLAIN_BYTES = 16 * 1024; // of an idle connection, with a margin
const TLS_BYTES = 208 * 1024; // the same, or of a handshake that stops half way
const OVERHEAD = 4; // memory per byte charged: fragmentation, and garbage that is not collected yet

// Memory is short once the process has grown by TIGHT of the budget, or V8's heap fills TIGHT_HEAP of its limit.
const TIGHT = 0.85;
const TIGHT_HEAP = 0.75;
// Then a connection is closed that holds LARGE_BYTES, or SMALL_BYTES once its request is LONG_MS old.
const LARGE_BYTES = 32 * 1024;
const SMALL_BYTES = 8 * 1024;
const LONG_MS = 1_000;
const AFTER_EVICTION = 0.9; // Above the budget, the rest must need only this part of it: evicting is rare.
const RECHECK_SHARE = 1 / 16; // `hold` checks again after growth by this part of the budget, or a tick.
const EVICTION_BATCH_SIZE = 100; // connections evicted for new ones; choosing them visits all

const TICK_MS = 100; // One timer serves all connections.
const LINGER_MS = 2_000; // time that a closing connection is still read, so its client gets the response
// Minimum pause between forced garbage collections. While memory is short, it is ten times as long as a
// collection, which took up to 1.5 ms per MiB of V8's heap, and at most TIGHT_COLLECTION_PAUSE_MS.
const COLLECTION_PAUSE_MS = 5_000;
const TIGHT_COLLECTION_PAUSE_MS = 1_000;
const PAUSE_MS_PER_MEBIBYTE = 15;

const MESSAGES_PER_TURN = 1_000; // pipelined requests or chunks, each MESSAGE_MS of work
const MESSAGE_MS = 0.01;
const NEW_PER_TURN = 16; // new connections that are read in one turn
const BURST_MS = 1_000; // For this long after a turn with too many messages, only one is read.

export type MemoryLimits = Readonly<ReturnType<typeof memoryLimits>>;

/**
 * Derives the limits from the memory that the process may use. `constrained` is the control group's limit as
 * node reports it: without one, 0 or more than the machine has. `ownBytes` is the memory used at the start.
 */
export function memoryLimits(
  setting: number | undefined,
  constrained: number,
  total: number,
  isTls: boolean,
  ownBytes = anonymousBytes(),
) {
  const isConstrained = constrained > 0 && constrained < total;
  const limit = setting ?? (isConstrained ? constrained : DEFAULT_LIMIT_BYTES);
  const reservedBytes = Math.max(RESERVED_BYTES, ownBytes + GARBAGE_BYTES);
  const budgetBytes = Math.max(limit - reservedBytes, limit / 4);
  const connectionBytes = isTls ? TLS_BYTES : PLAIN_BYTES; // of an idle connection of the API
  const maxConnections = Math.min(MAX_CONNECTIONS, Math.floor(budgetBytes / connectionBytes));
  return { budgetBytes, maxConnections, connectionBytes };
}

/** Returns the memory of the process without mapped files, such as its program; 0 if unknown. */
function anonymousBytes(): number {
  try {
    const status = readFileSync('/proc/self/status', 'latin1');
    return 1024 * Number(/RssAnon:\s+(\d+) kB/.exec(status)?.[1] ?? 0);
  } catch {
    return 0; // Not Linux, or not permitted, as in the image.
  }
}

export class Budget {
  readonly turns: Turns;
  readonly #limits: MemoryLimits;
  readonly #inactivityMs: number;
  readonly #connections = new Set<Connection>(); // in the order of their arrival
  readonly #evicted = new Set<Connection>(); // until they have closed
  readonly #lingering = new Map<Connection, number>(); // times to destroy them, the earliest first
  readonly #timer: NodeJS.Timeout;
  #nextSweepMs = 0; // next check of every connection's progress
  #messages = 0; // pipelined requests and chunks in this turn
  #burstUntilMs = 0; // Until then a first read is charged TURN_MS, because it may bring a pipeline.
  #heldBytes = 0; // fixed costs and charges of all connections
  #recheckAboveBytes: number; // the sum from which on `hold` checks all connections
  readonly #ownRssBytes = memoryUsage.rss(); // before the first client
  // Time of the last forced garbage collection. Since then: the most held, and the least grown.
  #collectedAtMs = 0;
  #mostHeldBytes = 0;
  #leastGrownBytes = 0;

  /** Closes connections whose client reads nothing of a response for `inactivityMs` milliseconds. */
  constructor(limits: MemoryLimits, inactivityMs: number, turns: Turns) {
    this.#limits = limits;
    this.#recheckAboveBytes = limits.budgetBytes;
    this.#inactivityMs = inactivityMs;
    this.turns = turns;
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Adds a connection, and evicts others if no slot is free. Returns false if none can be evicted. */
  add(connection: Connection): boolean {
    const remaining = this.#connections.size - this.#evicted.size;
    if (remaining >= this.#limits.maxConnections && !this.#makeRoom()) return false;
    this.#connections.add(connection);
    this.#heldBytes += this.#limits.connectionBytes;
    return true;
  }

  /** Removes a closed connection and all that it held. */
  delete(connection: Connection): void {
    this.#lingering.delete(connection);
    this.#evicted.delete(connection);
    if (!this.#connections.delete(connection)) return;
    this.#heldBytes -= this.#limits.connectionBytes + OVERHEAD * connection.heldBytes;
  }

  /** Adds to the charges of connections; a negative number gives back. */
  hold(bytes: number): void {
    this.#heldBytes += OVERHEAD * bytes;
    if (this.#heldBytes > this.#recheckAboveBytes) this.#closeLargest();
  }

  /**
   * Counts a pipelined request or a chunk, or work like that of several. After too many of them, the other
   * connections take turns too. Otherwise one turn of the event loop would read them all (6.18).
   */
  countMessage(network: string, weight = 1): void {
    this.turns.charge(network, weight * MESSAGE_MS);
    if (this.#messages === 0) {
      setImmediate(() => {
        this.#messages = 0;
      });
    }
    const before = this.#messages;
    this.#messages += weight;
    if (before >= MESSAGES_PER_TURN || this.#messages < MESSAGES_PER_TURN) return;
    this.#burstUntilMs = this.turns.now() + BURST_MS;
    for (const connection of this.#connections) connection.pauseForTurn();
  }

  /** Charges this turn for a read. The first of a connection usually brings one request, others many. */
  countRead(isNew: boolean): void {
    const isShort = isNew && this.turns.now() >= this.#burstUntilMs;
    this.turns.spend(isShort ? TURN_MS / NEW_PER_TURN : TURN_MS);
  }

  /** Destroys the connection after LINGER_MS. */
  linger(connection: Connection): void {
    if (!this.#connections.has(connection)) return;
    this.#lingering.set(connection, this.turns.now() + LINGER_MS);
  }

  #tick(): void {
    const now = this.turns.now();
    for (const [connection, deadlineMs] of this.#lingering) {
      if (deadlineMs > now) break;
      connection.destroy();
    }
    this.#checkMemory(now);
    if (now < this.#nextSweepMs) return;
    this.#nextSweepMs = now + this.#inactivityMs / 4;
    for (const connection of this.#connections) connection.checkProgress(now, this.#inactivityMs);
  }

  /** If the process has grown, collects garbage, and closes connections if that is not enough. */
  #checkMemory(now: number): void {
    const { budgetBytes } = this.#limits;
    this.#recheckAboveBytes = budgetBytes;
    this.#mostHeldBytes = Math.max(this.#mostHeldBytes, this.#heldBytes);
    const grownBytes = memoryUsage.rss() - this.#ownRssBytes;
    this.#leastGrownBytes = Math.min(this.#leastGrownBytes, grownBytes);
    if (grownBytes < budgetBytes / 4) return;
    const heap = getHeapStatistics();
    const heapExcessBytes = heap.used_heap_size - TIGHT_HEAP * heap.heap_size_limit;
    const excessBytes = Math.max(grownBytes - TIGHT * budgetBytes, heapExcessBytes);
    const isTight = excessBytes > 0;
    // Upper bound of the garbage. V8 collects only when something allocates; after an attack nothing does.
    let garbageBytes = this.#mostHeldBytes - this.#heldBytes;
    if (isTight) garbageBytes = Math.max(garbageBytes, grownBytes - this.#leastGrownBytes);
    if (heapExcessBytes > 0) garbageBytes = heap.used_heap_size;
    const collectionPauseMs = (PAUSE_MS_PER_MEBIBYTE * heap.used_heap_size) / MEBIBYTE;
    const tightPauseMs = Math.min(collectionPauseMs, TIGHT_COLLECTION_PAUSE_MS);
    const pauseMs = isTight ? tightPauseMs : COLLECTION_PAUSE_MS;
    if (garbageBytes > RECHECK_SHARE * budgetBytes && now - this.#collectedAtMs >= pauseMs) {
      this.#collectedAtMs = now;
      this.#mostHeldBytes = this.#heldBytes;
      this.#leastGrownBytes = grownBytes;
      // Idle connections drop their last request.
      for (const connection of this.#connections) connection.measure();
      // Asynchronous, because V8 keeps what the current stack can reach. `last-resort` frees empty pages too.
      globalThis.gc?.({ type: 'major', execution: 'async', flavor: 'last-resort' });
    } else if (isTight) {
      this.#closeLargest(excessBytes);
    }
  }

  /** Closes those that hold the most until the others fit (6.17). `excessBytes`: over TIGHT or TIGHT_HEAP. */
  #closeLargest(excessBytes = 0): void {
    const { budgetBytes, connectionBytes } = this.#limits;
    const latestStartMs = this.turns.now() - LONG_MS;
    const fixedBytes = this.#connections.size * connectionBytes;
    let total = fixedBytes;
    const holders = Array.from(this.#connections, (connection) => {
      const bytes = OVERHEAD * connection.measure();
      total += bytes;
      return { connection, bytes };
    });
    // The process must shrink by `excess`. Closing a connection may free only its bytes without OVERHEAD.
    const keptBytes = total > budgetBytes ? AFTER_EVICTION * budgetBytes : total;
    let excess = excessBytes;
    // Closing the few that hold much would not help if many that hold little fill the budget.
    if (total > budgetBytes && total - fixedBytes < fixedBytes / 8 && this.#makeRoom()) {
      this.#recheckAboveBytes = total + RECHECK_SHARE * budgetBytes;
      return;
    }
    holders.sort((a, b) => b.bytes - a.bytes);
    for (const { connection, bytes } of holders) {
      if ((total <= keptBytes && excess <= 0) || bytes < SMALL_BYTES) break;
      if (bytes < LARGE_BYTES && connection.busySinceMs > latestStartMs) continue;
      excess -= (connectionBytes + bytes) / OVERHEAD;
      total -= connectionBytes + bytes;
      connection.destroy();
    }
    this.#recheckAboveBytes = Math.max(budgetBytes, total + RECHECK_SHARE * budgetBytes);
  }

  /** Evicts connections of one kind, those of the network with the most first, oldest first (6.3). */
  #makeRoom(): boolean {
    const counts = new Map<string, number>();
    for (const { network } of this.#connections)
      counts.set(network, 1 + (counts.get(network) ?? 0));
    const countOf = ({ network }: Connection) => counts.get(network)!;
    const half = this.#connections.size / 2;
    const isShared = Math.max(...counts.values()) <= half;
    const candidates = [...this.#connections].filter(
      (one) => !this.#evicted.has(one) && (isShared || countOf(one) > half),
    );
    const kinds: readonly ((one: Connection) => boolean)[] = [
      (one) => one.isUnfinished,
      (one) => this.#lingering.has(one),
      (one) => one.isIdle,
      (one) => one.isUnread,
    ];
    const kind = kinds.find((isOfKind) => candidates.some(isOfKind));
    const chosen = kind === undefined ? [] : candidates.filter(kind);
    chosen.sort((a, b) => countOf(b) - countOf(a));
    for (const connection of chosen.slice(0, EVICTION_BATCH_SIZE)) {
      this.#evicted.add(connection);
      connection.close();
    }
    return chosen.length > 0;
  }
}
