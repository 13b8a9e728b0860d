// 2,000 clients change users in a Postgres 10 ms away. One more sends a taken email every
// 100 ms. Only its own change fails. HOSTILE=full runs it at 256 MiB, too.
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { after, test } from 'node:test';
import { request } from '../faults/http.ts';
import { TcpProxy } from '../faults/proxy.ts';
import { through } from '../faults/users.ts';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/server.ts';
import { HonestClient } from './honest.ts';
import { IS_FULL, report, reported, table } from './results.ts';
import { peakDuring, Service } from './service.ts';
import { aftermath, assertNone, faultsOf } from './siege.ts';
import { addUsers } from './users.ts';

const MIB = 2 ** 20;
const LIMITS = IS_FULL ? [128 * MIB, 256 * MIB] : [128 * MIB];
const POOL_SIZE = 4;
const WRITERS = 2_000;
const WRITES = IS_FULL ? 20_000 : 5_000;
const ROUNDS = IS_FULL ? 3 : 1;
const TAKEN_EVERY_MS = 100;
/** Share of the writes per second without the attack. */
const MIN_THROUGHPUT = 0.8;

after(() => {
  process.stdout.write(`\n${table(reported())}\n`);
});

for (const limitBytes of LIMITS) {
  const name = `a taken email costs other writers nothing (${limitBytes / MIB} MiB)`;
  test(name, { timeout: 300_000 }, async (t) => {
    await using server = await Server.create('-c', 'fsync=off');
    const directUrl = await createDatabase(server.url);
    await using proxy = await TcpProxy.listen(server.port);
    await using service = await Service.start({
      limitBytes,
      settings: { DATABASE_URL: through(proxy.port, directUrl) },
    });
    await addUsers(directUrl, WRITERS, 'listed');
    const rest = service.usage();
    proxy.delayMs = 5;
    const writers = new Writers(`http://127.0.0.1:${service.port}`);
    // The first round opens the connections.
    await writers.write();
    const honest = new HonestClient(service, [{ path: '/' }]);
    const seconds = { normal: 0, attacked: 0 };
    const peakBytes = await peakDuring(service.group, async () => {
      for (let round = 0; round < ROUNDS; round++) {
        seconds.normal += await writers.write();
        const attack = setInterval(() => writers.takeEmail(), TAKEN_EVERY_MS);
        seconds.attacked += await writers.write();
        clearInterval(attack);
      }
      await honest.stop();
      await writers.stop();
    });
    const { afterBytes, faults } = await aftermath(service, rest, limitBytes, POOL_SIZE);
    const { successRate, p99Ms, total: requests } = honest;
    const attack = 'a taken email every 100 ms with 2,000 writers';
    report({
      ...{ attack, form: 'image', transport: 'plain', store: 'postgres', limitBytes },
      ...{ restBytes: rest.usedBytes, peakBytes, afterBytes, requests, successRate, p99Ms },
      isAlive: service.end === undefined,
    });
    const throughput = seconds.normal / seconds.attacked;
    const statuses = JSON.stringify(writers.statuses);
    t.diagnostic(
      `throughput ${throughput.toFixed(2)} of normal; ${statuses}; taken ${writers.taken}`,
    );
    assert.equal(service.end, undefined);
    assert.deepEqual(Object.keys(writers.statuses), ['200']);
    assert.ok(writers.taken.length > 0, 'no taken email was sent');
    assert.deepEqual(new Set(writers.taken), new Set([400]));
    assertNone({
      ...faultsOf(honest),
      ...faults,
      [`throughput of ${throughput}`]: IS_FULL && throughput < MIN_THROUGHPUT,
    });
  });
}

/** Clients that each change their own user, one change after another. */
class Writers {
  readonly statuses: Record<number, number> = {};
  /** Statuses of the taken emails. */
  readonly taken: number[] = [];
  readonly #url: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: WRITERS + 10 });
  readonly #pending: Promise<unknown>[] = [];

  constructor(url: string) {
    this.#url = url;
  }

  /** Writes until enough is written; returns the seconds that it took. */
  async write(): Promise<number> {
    const began = performance.now();
    let left = WRITES;
    const writer = async (_: unknown, i: number) => {
      while (left-- > 0) {
        const url = `${this.#url}/users/${i + 1}`;
        const { status } = await request(this.#agent, url, 'PATCH', { name: `name ${left}` });
        this.statuses[status] = (this.statuses[status] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: WRITERS }, writer));
    return (performance.now() - began) / 1000;
  }

  /** Sends the email of another user. */
  takeEmail(): void {
    const body = { email: 'listed-2@example.com' };
    const pending = request(this.#agent, `${this.#url}/users/1`, 'PATCH', body);
    this.#pending.push(pending.then(({ status }) => this.taken.push(status)));
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pending);
    this.#agent.destroy();
  }
}
