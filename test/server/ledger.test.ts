// The ledger as a model: random clients come, hold, wait and leave, and an independent statement of rule 6.17
// says whom the ledger may close. EVENTS sets the number of events, and FAST_CHECK_SEED repeats a run.
import assert from 'node:assert/strict';
import { after, mock, test } from 'node:test';
import fc from 'fast-check';
import { networksOf } from '../../src/http/address.ts';
import type { Holder, LedgerLimits, Network } from '../../src/server/ledger.ts';
import '../support/seed.ts';

// clock.ts takes both functions when it is loaded, so the ledger is loaded with these.
let nowMs = 0;
mock.method(performance, 'now', () => nowMs);
let microtasks: (() => void)[] = [];
const { queueMicrotask } = globalThis;
globalThis.queueMicrotask = (run) => void microtasks.push(run);
const { Ledger } = await import('../../src/server/ledger.ts');
globalThis.queueMicrotask = queueMicrotask;
after(() => mock.reset());
type Ledger<T extends Holder> = InstanceType<typeof Ledger<T>>;

const EVENTS = Number(process.env.EVENTS ?? 50_000);
const MAX_EVENTS = 200; // of one run; fast-check makes half as many on average
const FREE = 1 - 1 / 64; // Closing stops when charges and connections are below this part of their limits.

// Few addresses, so that they share networks: three of IPv4, two of one /64 and many of its /48, and one of another.
const ADDRESSES = [
  ...['192.0.2.1', '192.0.2.2', '192.0.2.3', '2001:db8:1:1::2', '2001:db8:2::1'],
  ...Array.from({ length: 30 }, (_, i) => `2001:db8:1:${i}::1`),
];

class Client implements Holder {
  readonly keys: ReturnType<typeof networksOf>;
  readonly network: Network;
  readonly #ledger: Ledger<Client>;
  heldBytes = 0; // set by the ledger
  ownBytes = 0; // what the model says
  waitingSinceMs: number | undefined;
  isOpen = true;

  constructor(ledger: Ledger<Client>, address: string) {
    this.keys = networksOf(address);
    this.network = ledger.networkOf(this.keys.network, this.keys.site);
    this.#ledger = ledger;
    this.waitingSinceMs = nowMs;
  }

  close(reason = 'room'): void {
    assert.equal(reason, 'room');
    assert.ok(this.isOpen, 'a client is closed once');
    this.isOpen = false;
    this.#ledger.remove(this);
  }
}

class Model {
  readonly limits: LedgerLimits;
  readonly ledger: Ledger<Client>;
  heldBytes = 0;
  clients: Client[] = []; // in the order of their arrival
  #wasFull = false; // since the last turn

  constructor(limits: LedgerLimits) {
    microtasks = [];
    this.limits = limits;
    this.ledger = new Ledger<Client>(limits);
  }

  accept(address: string): Client {
    const client = new Client(this.ledger, address);
    this.ledger.add(client);
    this.clients.push(client);
    this.#hold(client, this.limits.connectionBytes);
    return client;
  }

  charge(client: Client, bytes: number): void {
    this.ledger.charge(client, bytes);
    this.#hold(client, bytes);
  }

  refund(client: Client, most: number): void {
    this.charge(client, -Math.min(most, client.ownBytes - this.limits.connectionBytes));
  }

  #hold(client: Client, bytes: number): void {
    client.ownBytes += bytes;
    this.heldBytes += bytes;
    this.#wasFull ||= !this.#fits(1);
  }

  /** The client makes progress: our wait for it begins anew. */
  progress(client: Client): void {
    client.waitingSinceMs = nowMs;
  }

  waitForUs(client: Client): void {
    client.waitingSinceMs = undefined;
  }

  leave(client: Client): void {
    client.close();
    this.#remove([client]);
  }

  #remove(closed: readonly Client[]): void {
    this.clients = this.clients.filter((client) => !closed.includes(client));
    for (const { ownBytes } of closed) this.heldBytes -= ownBytes;
  }

  /** Time passes, and the microtasks run: the only moment at which the ledger may close connections. */
  turn(ms: number): void {
    const ranks = new Map(this.clients.map((client) => [client, this.#rankOf(client)]));
    const isFull = !this.#fits(1);
    assert.equal(microtasks.length, this.#wasFull ? 1 : 0, 'room is made once, and if not all fit');
    this.#wasFull = false;
    while (microtasks.length > 0) microtasks.shift()!();
    const closed = this.clients.filter(({ isOpen }) => !isOpen);
    this.#remove(closed);
    assert.ok(this.#fits(1), 'the sum is at most the budget, and there are at most the maximum');
    if (isFull) this.#checkChoice(closed, ranks);
    else assert.deepEqual(closed, [], 'nothing is closed while all fit');
    nowMs += ms;
  }

  /** 6.17, from the addresses and by adding up everything anew. */
  #rankOf(client: Client): number {
    const { modestBytes } = this.limits;
    const { network, site } = client.keys;
    const bytesOf = (isShared: (one: Client) => boolean) =>
      this.clients.reduce((sum, one) => sum + (isShared(one) ? one.ownBytes : 0), 0);
    const networkBytes = bytesOf(({ keys }) => keys.network === network);
    const siteBytes = site === undefined ? 0 : bytesOf(({ keys }) => keys.site === site);
    const bytes = Math.max(networkBytes, (1 / 20) * siteBytes, 6 * modestBytes);
    const since = client.waitingSinceMs;
    const ms = Math.max(1_200, 1_000 + nowMs - (since ?? nowMs));
    return bytes * Math.max(client.ownBytes, modestBytes) * ms;
  }

  #fits(share: number, heldBytes = this.heldBytes, count = this.clients.length): boolean {
    const { budgetBytes, maxConnections } = this.limits;
    return heldBytes <= share * budgetBytes && count <= share * maxConnections;
  }

  /** Those with the greatest ranks were closed, of equals the oldest, and not one more than necessary. */
  #checkChoice(closed: readonly Client[], ranks: ReadonlyMap<Client, number>): void {
    assert.ok(this.#fits(FREE), 'a part of both limits is free');
    const order = [...ranks.keys()].sort((a, b) => ranks.get(b)! - ranks.get(a)!);
    const expected = order.slice(0, closed.length);
    assert.deepEqual(new Set(closed), new Set(expected), 'the greatest ranks go first');
    const { ownBytes } = expected.at(-1)!;
    const isNeeded = !this.#fits(FREE, this.heldBytes + ownBytes, this.clients.length + 1);
    assert.ok(isNeeded, 'not one is closed more than necessary');
  }
}

const ON_CLIENT = ['charge', 'refund', 'progress', 'waitForUs', 'leave'] as const;
const event = fc.record({
  name: fc.constantFrom('accept', 'accept', 'turn', ...ON_CLIENT),
  index: fc.nat(1_000), // of an address, or of a client
  amount: fc.nat(5_000), // milliseconds or bytes
});
const limits = fc.record({
  budgetBytes: fc.integer({ min: 50, max: 1_000 }), // small, so that charges often fit exactly
  maxConnections: fc.integer({ min: 2, max: 100 }),
  connectionBytes: fc.integer({ min: 1, max: 20 }),
  modestBytes: fc.oneof(fc.nat(2), fc.nat(50)), // A small one lets the sum of a /48 count.
});

test('6.17 the ledger keeps its sums, and closes the greatest products only', () => {
  const all = fc.array(event, { maxLength: MAX_EVENTS, size: 'max' });
  const property = fc.property(limits, all, (given, events) => {
    const model = new Model(given);
    for (const { name, index, amount } of events) {
      const client = model.clients[index % model.clients.length];
      if (name === 'accept') {
        const last = index + (amount % 3);
        for (let i = index; i <= last; i++) model.accept(ADDRESSES[i % ADDRESSES.length]!);
      } else if (name === 'turn') model.turn(amount);
      else if (client !== undefined) model[name](client, amount % 30);
      assert.equal(model.ledger.heldBytes, model.heldBytes);
      assert.equal(model.ledger.holders.size, model.clients.length);
    }
    model.turn(0);
    for (const client of model.clients) client.close();
    assert.equal(model.ledger.heldBytes, 0, 'charges return to 0');
    for (const { network } of model.clients) {
      assert.notEqual(model.ledger.networkOf(network.key), network, 'networks are forgotten');
    }
  });
  fc.assert(property, { numRuns: Math.ceil(EVENTS / (MAX_EVENTS / 2)) });
});
