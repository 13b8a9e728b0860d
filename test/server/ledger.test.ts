// The ledger as a model: random clients come, hold, wait and leave, and an independent statement of rule 6.17
// says whom the ledger may close. EVENTS sets the number of commands, and FAST_CHECK_SEED repeats a run.
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import fc from 'fast-check';
import { counterKeys } from '../../src/http/address.ts';
import type { Holder, LedgerLimits, Network } from '../../src/server/ledger.ts';

// clock.ts takes the function when it is loaded, so the ledger is loaded with this one.
let microtasks: (() => void)[] = [];
mock.method(globalThis, 'queueMicrotask', (run: () => void) => microtasks.push(run));
const { Ledger } = await import('../../src/server/ledger.ts');
mock.restoreAll();
type Ledger<T extends Holder> = InstanceType<typeof Ledger<T>>;

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);
const EVENTS = Number(process.env.EVENTS ?? 20_000);
const COMMANDS = 200; // of one run at most; fast-check makes half as many on average
const FREE = 1 - 1 / 64; // Closing stops when charges and connections are below this part of their limits.

// Few addresses, so that they share networks: three of IPv4, three of one /48 in two /64s, and one of another.
const ADDRESSES = [
  ...['192.0.2.1', '192.0.2.2', '192.0.2.3'],
  ...['2001:db8:1:1::1', '2001:db8:1:1::2', '2001:db8:1:2::1', '2001:db8:2::1'],
];

/** A client as the model knows it. */
class Client implements Holder {
  readonly address: string;
  readonly network: Network;
  readonly #ledger: Ledger<Client>;
  heldBytes = 0; // set by the ledger
  ownBytes = 0; // what the model says
  waitingSinceMs: number | undefined;
  isOpen = true;

  constructor(ledger: Ledger<Client>, address: string, nowMs: number) {
    const { network, site } = counterKeys(address);
    this.address = address;
    this.network = ledger.networkOf(network, site);
    this.#ledger = ledger;
    this.waitingSinceMs = nowMs;
  }

  close(): void {
    assert.ok(this.isOpen, 'a client is closed once');
    this.isOpen = false;
    this.#ledger.remove(this);
  }
}

interface Model {
  readonly limits: LedgerLimits;
  nowMs: number;
  heldBytes: number;
  clients: Client[]; // in the order of their arrival
}

interface Real {
  readonly ledger: Ledger<Client>;
  readonly microtasks: (() => void)[]; // that the ledger has queued
}

type Command = fc.Command<Model, Real>;

/** A command on one of the clients. Fast-check shows it as `toString` says. */
class OnClient implements Command {
  readonly #name: string;
  readonly #index: number;
  readonly #act: (client: Client, model: Model, real: Real) => void;

  constructor(
    name: string,
    index: number,
    act: (client: Client, model: Model, real: Real) => void,
  ) {
    this.#name = name;
    this.#index = index;
    this.#act = act;
  }

  check({ clients }: Readonly<Model>): boolean {
    return clients.length > 0;
  }

  run(model: Model, real: Real): void {
    this.#act(model.clients[this.#index % model.clients.length]!, model, real);
    checkSums(model, real);
  }

  toString(): string {
    return `${this.#name} #${this.#index}`;
  }
}

class Accept implements Command {
  readonly #address: string;
  constructor(address: string) {
    this.#address = address;
  }

  check(): boolean {
    return true;
  }

  run(model: Model, real: Real): void {
    const client = new Client(real.ledger, this.#address, model.nowMs);
    real.ledger.add(client);
    add(model, client, model.limits.connectionBytes);
    model.clients.push(client);
    checkSums(model, real);
  }

  toString(): string {
    return `accept ${this.#address}`;
  }
}

/** Time passes, and the microtasks run: the only moment at which the ledger may close connections. */
class Turn implements Command {
  readonly #ms: number;
  constructor(ms: number) {
    this.#ms = ms;
  }

  check(): boolean {
    return true;
  }

  run(model: Model, real: Real): void {
    const ranks = new Map(model.clients.map((client) => [client, rankOf(client, model)]));
    const wasFull = !fits(model, 1);
    for (const run of real.microtasks.splice(0)) run();
    const closed = model.clients.filter(({ isOpen }) => !isOpen);
    model.clients = model.clients.filter(({ isOpen }) => isOpen);
    for (const client of closed) model.heldBytes -= client.ownBytes;
    checkSums(model, real);
    assert.ok(fits(model, 1), 'the sum is at most the budget, and there are at most the maximum');
    if (wasFull) checkChoice(closed, model, ranks);
    else assert.deepEqual(closed, [], 'nothing is closed while all fit');
    model.nowMs += this.#ms;
  }

  toString(): string {
    return `turn, ${this.#ms} ms`;
  }
}

function add(model: Model, client: Client, bytes: number): void {
  client.ownBytes += bytes;
  model.heldBytes += bytes;
}

function fits({ limits, heldBytes, clients }: Model, share: number): boolean {
  const { budgetBytes, maxConnections } = limits;
  return heldBytes <= share * budgetBytes && clients.length <= share * maxConnections;
}

/** 6.17, from the addresses and by adding up everything anew. */
function rankOf(client: Client, { clients, nowMs, limits }: Model): number {
  const least = 2 * limits.connectionBytes;
  const bytesOf = (isIncluded: (address: string) => boolean) =>
    clients.reduce((sum, { address, ownBytes }) => sum + (isIncluded(address) ? ownBytes : 0), 0);
  const { network, site } = counterKeys(client.address);
  const networkBytes = bytesOf((address) => counterKeys(address).network === network);
  const siteBytes = bytesOf((address) => site !== undefined && counterKeys(address).site === site);
  const ms = client.waitingSinceMs === undefined ? 500 : 1_000 + nowMs - client.waitingSinceMs;
  return Math.max(networkBytes, siteBytes / 64, least) * Math.max(client.ownBytes, least) * ms;
}

/** Those with the greatest ranks were closed, and not one more than necessary. */
function checkChoice(closed: readonly Client[], model: Model, ranks: Map<Client, number>): void {
  assert.ok(fits(model, FREE), 'a part of both limits is free');
  const least = closed.reduce((a, b) => (ranks.get(b)! <= ranks.get(a)! ? b : a));
  for (const client of model.clients) {
    assert.ok(
      ranks.get(client)! <= ranks.get(least)!,
      `${client.address} stays before ${least.address}`,
    );
  }
  const withLeast = {
    ...model,
    heldBytes: model.heldBytes + least.ownBytes,
    clients: [...model.clients, least],
  };
  assert.ok(!fits(withLeast, FREE), 'not one is closed more than necessary');
}

/** The ledger's sums are the model's, and those of the networks are never negative. */
function checkSums({ heldBytes, clients }: Model, { ledger }: Real): void {
  assert.equal(ledger.heldBytes, heldBytes);
  assert.equal(ledger.holders.size, clients.length);
  for (const { heldBytes: bytes, ownBytes, network, address } of clients) {
    assert.equal(bytes, ownBytes, address);
    assert.ok(bytes >= 0 && network.heldBytes >= bytes, address);
    const { site } = network;
    assert.ok(!site || site.heldBytes >= network.heldBytes, address);
  }
}

const index = fc.nat(1_000);
const commands: fc.Arbitrary<Command>[] = [
  fc.constantFrom(...ADDRESSES).map((address) => new Accept(address)),
  fc.constantFrom(...ADDRESSES).map((address) => new Accept(address)),
  fc.tuple(index, fc.nat(300)).map(
    ([i, bytes]) =>
      new OnClient(`charge ${bytes}`, i, (client, model, { ledger }) => {
        ledger.charge(client, bytes);
        add(model, client, bytes);
      }),
  ),
  fc.tuple(index, fc.nat(300)).map(
    ([i, most]) =>
      new OnClient(`refund ${most}`, i, (client, model, { ledger }) => {
        const bytes = Math.min(most, client.ownBytes - model.limits.connectionBytes);
        ledger.refund(client, bytes);
        add(model, client, -bytes);
      }),
  ),
  index.map(
    (i) =>
      new OnClient('progress', i, (client, { nowMs }) => {
        client.waitingSinceMs = nowMs;
      }),
  ),
  index.map(
    (i) =>
      new OnClient('waits for us', i, (client) => {
        client.waitingSinceMs = undefined;
      }),
  ),
  index.map(
    (i) =>
      new OnClient('leave', i, (client, model) => {
        client.close();
        model.heldBytes -= client.ownBytes;
        model.clients = model.clients.filter((other) => other !== client);
      }),
  ),
  fc.nat(5_000).map((ms) => new Turn(ms)),
];

/** A ledger whose microtasks run when the test says so. */
function realOf(limits: LedgerLimits, model: { nowMs: number }): Real {
  microtasks = [];
  return { ledger: new Ledger<Client>(limits, () => model.nowMs), microtasks };
}

const limits = fc.record({
  budgetBytes: fc.integer({ min: 500, max: 10_000 }),
  maxConnections: fc.integer({ min: 2, max: 100 }),
  connectionBytes: fc.integer({ min: 1, max: 200 }),
});

test('6.17 the ledger keeps its sums, and closes the greatest products only', () => {
  const all = fc.commands(commands, { maxCommands: COMMANDS, size: 'max' });
  let events = 0;
  const property = fc.property(limits, all, (given, run) => {
    const model: Model = { limits: given, nowMs: 0, heldBytes: 0, clients: [] };
    const real = realOf(given, model);
    fc.modelRun(() => ({ model, real }), run);
    new Turn(0).run(model, real);
    for (const client of model.clients.splice(0)) client.close();
    assert.equal(real.ledger.heldBytes, 0, 'charges return to 0');
    events += [...run].length;
  });
  fc.assert(property, { seed: SEED, numRuns: Math.ceil(EVENTS / (COMMANDS / 2)) });
  console.log(`# ledger: ${events} events, seed ${SEED}`);
});

/** A ledger of one run, for the claim below. */
function ledgerOf(maxConnections: number, budgetBytes = Number.MAX_SAFE_INTEGER) {
  const clock = { nowMs: 0 };
  const { ledger, microtasks } = realOf(
    { budgetBytes, maxConnections, connectionBytes: 100 },
    clock,
  );
  const accept = (address: string) => {
    const client = new Client(ledger, address, clock.nowMs);
    ledger.add(client);
    return client;
  };
  const turn = (ms = 0) => {
    for (const run of microtasks.splice(0)) run();
    clock.nowMs += ms;
  };
  return { ledger, clock, accept, turn };
}

const full = fc.record({
  size: fc.integer({ min: 64, max: 200 }), // connections that fill the ledger
  isBytes: fc.boolean(), // whether the budget or the maximum is the limit
  ms: fc.integer({ min: 1, max: 200 }),
});

// Few random runs of the model have enough networks of a /48 to notice.
test('6.17 a /48 gains nothing by its many networks', () => {
  const property = fc.property(full, ({ size, isBytes, ms }) => {
    const { accept, turn } = isBytes ? ledgerOf(size * 2, size * 100) : ledgerOf(size);
    const other = accept('2001:db8:2:1::1');
    turn();
    for (let i = 0; i < 5 * size; i++) accept(`2001:db8:1:${i.toString(16)}::1`);
    turn(ms);
    assert.ok(other.isOpen);
  });
  fc.assert(property, { seed: SEED, numRuns: Math.ceil(EVENTS / 200) });
});
