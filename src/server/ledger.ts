// Bounds what the clients of a listener make the process hold. Each connection is charged for the worst that it
// can hold, before it holds it. If the charges of all exceed the budget, or there are too many connections, the
// ledger closes some. One rule chooses them: those with the greatest product of what their network holds, what
// they hold themselves, and the time for which we have waited for them.
import { now, queueMicrotask } from '../clock.ts';

/** One connection, as the ledger sees it. */
export interface Holder {
  readonly network: Network;
  readonly waitingSinceMs: number | undefined; // the start of our wait for the client; undefined: it waits for us
  heldBytes: number;
  close(reason: 'room'): void; // calls `remove` before it returns
}

/** An IPv4 address or the /64 of an IPv6 address, or a /48 of these. */
export interface Network {
  readonly key: string;
  readonly site: Network | undefined; // the /48 of a /64
  heldBytes: number; // 0 once it has no connections
}

export interface LedgerLimits {
  readonly budgetBytes: number;
  readonly maxConnections: number;
  readonly connectionBytes: number; // charged for each connection while it exists; more than 0
  readonly modestBytes: number; // what a connection at least counts as when the ledger chooses
}

// Choosing visits all connections, so it frees this part of both limits: 1 ms for each 50 of 3,000 connections.
const SPARE = 1 / 64;
// Added to the time for which we have waited for a client: a network with many new connections counts too.
const FRESH_MS = 1_000;
// The least time, also of a client that waits for us, however long. Of equals, the ledger closes those that came first.
// Otherwise requests that wait for a slow store displace every client with a round trip of 50 ms before its request
// arrives, and connections that send a request every 100 ms displace half of those with 150 ms.
const LEAST_MS = 1_200;
// A network at least counts as so many modest connections: browsers open six to a host. Otherwise clients with several
// are closed before many networks with one.
const MODEST_CONNECTIONS = 6;
// The part of the charges of a /48 that each of its networks at least has. With 240 idle connections over TLS it is
// modest.
const SITE_SHARE = 1 / 20;

export class Ledger<T extends Holder> {
  readonly limits: LedgerLimits;
  readonly holders = new Set<T>(); // in the order of their arrival
  heldBytes = 0; // the charges of all
  readonly #networks = new Map<string, Network>(); // those that have connections
  #isScheduled = false;

  constructor(limits: LedgerLimits) {
    this.limits = limits;
  }

  /** Returns the network of a connection to add. `site` is the key of an IPv6 address's /48. */
  networkOf(key: string, site?: string): Network {
    const known = this.#networks.get(key);
    if (known !== undefined) return known;
    const parent = site === undefined ? undefined : this.networkOf(site);
    const network = { key, site: parent, heldBytes: 0 };
    this.#networks.set(key, network);
    return network;
  }

  add(holder: T): void {
    this.holders.add(holder);
    this.charge(holder, this.limits.connectionBytes);
  }

  /** Removes a connection with all that it holds. */
  remove(holder: T): void {
    if (!this.holders.delete(holder)) return;
    this.charge(holder, -holder.heldBytes);
    for (let at: Network | undefined = holder.network; at; at = at.site) {
      if (at.heldBytes === 0) this.#networks.delete(at.key);
    }
  }

  /**
   * Charges bytes to a connection, or refunds -bytes. If they don't fit, closes connections in a microtask. Node also
   * runs microtasks in the middle of a read.
   */
  charge(holder: T, bytes: number): void {
    holder.heldBytes += bytes;
    for (let at: Network | undefined = holder.network; at; at = at.site) at.heldBytes += bytes;
    this.heldBytes += bytes;
    if (this.#isScheduled || this.#fits(1)) return;
    this.#isScheduled = true;
    queueMicrotask(() => this.#makeRoom());
  }

  #fits(share: number): boolean {
    const { budgetBytes, maxConnections } = this.limits;
    return this.heldBytes <= share * budgetBytes && this.holders.size <= share * maxConnections;
  }

  #makeRoom(): void {
    this.#isScheduled = false;
    if (this.#fits(1)) return;
    const nowMs = now();
    const ranked = Array.from(this.holders, (holder) => {
      return { holder, rank: this.#rankOf(holder, nowMs) };
    });
    ranked.sort((a, b) => b.rank - a.rank);
    for (const { holder } of ranked) {
      if (this.#fits(1 - SPARE)) return;
      holder.close('room');
    }
  }

  #rankOf({ network, heldBytes, waitingSinceMs }: Holder, nowMs: number): number {
    const { modestBytes } = this.limits;
    const siteBytes = SITE_SHARE * (network.site?.heldBytes ?? 0);
    const networkBytes = Math.max(network.heldBytes, siteBytes, MODEST_CONNECTIONS * modestBytes);
    const ownBytes = Math.max(heldBytes, modestBytes);
    const waitedMs = nowMs - (waitingSinceMs ?? nowMs);
    return networkBytes * ownBytes * Math.max(LEAST_MS, FRESH_MS + waitedMs);
  }
}
