// Open-loop clients send on a schedule without waiting for responses. After an outage longer than
// DATABASE_TIMEOUT_MS the queue is full of calls, and the first ones are about to expire. They must
// not make later calls fail.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { Agent } from 'node:http';
import { test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { HEAL_SECONDS, TIMEOUT_MS } from './campaign.ts';
import { request } from './http.ts';
import { Ledger } from './ledger.ts';
import { TcpProxy } from './proxy.ts';
import { report, secondsSince, TIMES } from './results.ts';
import { through, usersIn } from './users.ts';

/** More than one connection could fail per second at 500 writes each. */
const WRITES_PER_SECOND = 1000;
const EVERY_MS = 10;

const FAULT = 'outage under open-loop clients';

test(FAULT, { timeout: 300_000 }, async (t) => {
  await using server = await Server.create();
  const directUrl = await createDatabase(server.url);
  await using proxy = await TcpProxy.listen(server.port);
  await using program = await start({
    DATABASE_URL: through(proxy.port, directUrl),
    DATABASE_POOL_SIZE: '1',
    DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
  });
  const clients = new Clients(program.url);
  await clients.until(() => clients.created > 0);
  let healSeconds = 0;
  for (let i = 0; i < TIMES.network; i++) {
    const { refused } = clients;
    await proxy.refuse();
    assert.equal(proxy.cut('rst'), 1);
    await clients.until(() => clients.refused >= refused + WRITES_PER_SECOND);
    await proxy.accept();
    const began = performance.now();
    const { created } = clients;
    await clients.until(() => clients.created > created);
    healSeconds = Math.max(healSeconds, secondsSince(began));
    await clients.until(() => clients.created > created + WRITES_PER_SECOND);
  }
  await clients.stop();
  assert.deepEqual(clients.surprises, []);
  assert.ok(healSeconds < HEAL_SECONDS, `healed after ${healSeconds} s`);
  const { ledger } = clients;
  assert.deepEqual(ledger.check(await usersIn(directUrl)), { lost: [], duplicated: [] });
  report(t, {
    ...{ fault: FAULT, store: 'postgres', injected: TIMES.network, lost: 0, duplicated: 0 },
    ...{ acknowledged: ledger.acknowledged, healSeconds },
  });
});

/** Creates users on a fixed schedule. */
class Clients {
  readonly ledger = new Ledger();
  readonly surprises: string[] = [];
  created = 0;
  refused = 0;
  readonly #url: string;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #timer = setInterval(() => this.#come(), EVERY_MS);
  readonly #events = new EventEmitter();
  #count = 0;
  #inFlight = 0;

  constructor(url: string) {
    this.#url = `${url}/users`;
  }

  /** Resolves once the condition holds. Checks it after every response. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await once(this.#events, 'response');
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.until(() => this.#inFlight === 0);
    this.#agent.destroy();
  }

  #come(): void {
    for (let i = 0; i < (WRITES_PER_SECOND * EVERY_MS) / 1000; i++) {
      this.#create(`${this.#count++}@example.com`);
    }
  }

  async #create(email: string): Promise<void> {
    const entry = this.ledger.asked(email, email);
    this.#inFlight++;
    const { status, body } = await request(this.#agent, this.#url, 'POST', { name: email, email });
    this.#inFlight--;
    if (status === 201) {
      this.ledger.created(entry, JSON.parse(body).id);
      this.created++;
    } else if (status === 500) this.refused++;
    else this.surprises.push(`${status} ${body}`);
    this.#events.emit('response');
  }
}
