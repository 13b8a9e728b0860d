// Faults of the network between the service and Postgres, one of each kind that a real socket shows: a black
// hole, RST, and each step of connecting. The simulation has the rest (test/simulate).
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { until } from '../support/until.ts';
import { type Campaign, run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { Ledger } from './ledger.ts';
import { TcpProxy } from './proxy.ts';
import { secondsSince, TIMES } from './results.ts';
import { through } from './users.ts';
import { Writers } from './writers.ts';

type Fault = Pick<Campaign, 'fault' | 'times' | 'refuses' | 'inject'> & Partial<Campaign>;

/** The fault counts once this many connections have failed while connecting. */
const ENDED = 4;

/** Enough for the first attempts to connect: they take up to 0.5, 1 and 2 s, with short pauses. */
const START_SECONDS = 4;

/** The server's first responses: TLS or not, the password request, ready, the probe. */
const STARTING = [0, 1, 2, 3].flatMap((response) =>
  (['fin', 'rst', 'silence'] as const).map((how) => ({ how, response })),
);
/** Its next response at a first start: the schema. */
const SCHEMA = 4;
/** Then, for an empty database: creation of the version table and the schema. */
const MIGRATION = [5, 6] as const;

describe('the network to Postgres', { timeout: 900_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
  });
  after(() => server[Symbol.asyncDispose]());

  const faults: ((proxy: TcpProxy) => Fault)[] = [
    (proxy) => ({
      ...{ fault: 'black hole', times: TIMES.network, refuses: true },
      async inject(writers) {
        const held = proxy.counts.heldBytes;
        const refused = writers.count(500);
        proxy.stall();
        await writers.until(() => writers.count(500) >= refused + WRITERS);
        await pause(2 * TIMEOUT_MS);
        assert.ok(proxy.counts.heldBytes > held);
        proxy.resume();
      },
    }),
    (proxy) => ({
      ...{ fault: 'all connections cut with RST', times: TIMES.network * 10, refuses: true },
      async inject() {
        assert.ok(proxy.cut('rst') > 0);
      },
    }),
    (proxy) => ({
      fault: 'connections that end or hang while connecting',
      ...{ times: STARTING.length, refuses: true },
      // A connection attempt waits up to 2 s for a response.
      healSeconds: 4,
      async inject(writers, i) {
        const failed = () => proxy.counts.cut + proxy.counts.silenced;
        proxy.failure = STARTING[i];
        proxy.cut('fin');
        const before = failed();
        await writers.until(() => failed() >= before + ENDED);
        proxy.failure = undefined;
      },
    }),
  ];

  for (const fault of faults) {
    test(fault(undefined as never).fault, async (t) => {
      const directUrl = await createDatabase(server.url);
      await using proxy = await TcpProxy.listen(server.port);
      await run(t, { ...fault(proxy), directUrl, databaseUrl: through(proxy.port, directUrl) });
    });
  }

  for (const how of ['fin', 'rst', 'silence'] as const) {
    for (const response of [0, SCHEMA]) {
      test(`a start of the service while response ${response} of each connection is: ${how}`, async () => {
        const url = await createDatabase(server.url);
        await (await start({ DATABASE_URL: url }))[Symbol.asyncDispose]();
        await using proxy = await TcpProxy.listen(server.port);
        proxy.failure = { how, response };
        await using program = await start({
          DATABASE_URL: through(proxy.port, url),
          DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
        });
        const create = () =>
          send(`${program.url}/users`, { method: 'POST', body: { name: 'A', email: 'a@b' } });
        assert.equal((await create()).status, 500);
        await program.logged('store unavailable');
        assert.ok(proxy.counts.cut + proxy.counts.silenced > 1);
        proxy.failure = undefined;
        const began = performance.now();
        await program.logged('store available');
        assert.ok(secondsSince(began) < START_SECONDS);
        assert.equal((await create()).status, 201);
      });
    }
  }

  for (const response of MIGRATION) {
    test(`a first start whose connection hangs at response ${response}, during the migration`, async () => {
      await using proxy = await TcpProxy.listen(server.port);
      proxy.failure = { how: 'silence', response };
      await using program = await start({
        DATABASE_URL: through(proxy.port, await createDatabase(server.url)),
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      });
      await until(() => proxy.counts.silenced > 0);
      proxy.failure = undefined;
      const began = performance.now();
      const writers = new Writers(new Ledger(), program.url, 1);
      await writers.progress(1);
      assert.ok(secondsSince(began) < START_SECONDS, `served after ${secondsSince(began)} s`);
      await writers.stop();
      assert.equal(proxy.counts.silenced, 1);
    });
  }
});
