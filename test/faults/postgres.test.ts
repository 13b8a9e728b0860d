// Faults of Postgres and of the network to it, one of each kind that a real server and a real driver show: a
// kill, a freeze, and each step of connecting. The simulation has the rest (test/simulate).
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { until } from '../support/until.ts';
import { run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { Ledger } from './ledger.ts';
import { TcpProxy } from './proxy.ts';
import { secondsSince, TIMES } from './results.ts';
import { through } from './users.ts';
import { Writers } from './writers.ts';

/** The fault counts once this many connections have failed while connecting. */
const ENDED = 4;

/** Enough for the first attempts to connect: they take up to 0.5, 1 and 2 s, with short pauses. */
const START_SECONDS = 4;

/** The server's first responses: TLS or not, the password request, ready, the probe. */
const STARTING = [0, 1, 2, 3].flatMap((response) =>
  (['fin', 'rst', 'silence'] as const).map((how) => ({ how, response })),
);

/** Its next responses at a first start: the schema, the version table, the migration. */
const FIRST_START = [
  ...(['fin', 'rst', 'silence'] as const).flatMap((how) => [
    { how, response: 0 },
    { how, response: 4 },
  ]),
  ...[5, 6].map((response) => ({ how: 'silence' as const, response })),
];

describe('Postgres', { timeout: 900_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
  });
  after(() => server[Symbol.asyncDispose]());

  /** Resolves once each writer has been refused. */
  const refused = (writers: Writers, before: number) =>
    writers.until(() => writers.count(500) >= before + WRITERS);

  test('kill -9 of Postgres', async (t) => {
    await run(t, {
      times: TIMES.postgresKills,
      directUrl: await createDatabase(server.url),
      async inject(writers, i) {
        const before = writers.count(500);
        assert.ok((await server.kill()) > 1);
        // Every other time Postgres stays down until the writers have been refused.
        if (i % 2 === 0) await refused(writers, before);
        await server.start();
        await server.query('select 1'); // Now it accepts connections.
      },
    });
  });

  test('SIGSTOP of Postgres', async (t) => {
    await run(t, {
      times: TIMES.others,
      directUrl: await createDatabase(server.url),
      async inject(writers) {
        const before = writers.count(500);
        assert.ok(server.suspend() > 1);
        await refused(writers, before);
        // A write that got 500 can still be done until then, not later.
        await pause(2 * TIMEOUT_MS);
        server.resume();
      },
    });
  });

  test('connections that end or hang while connecting', async (t) => {
    await using proxy = await TcpProxy.listen(server.port);
    const directUrl = await createDatabase(server.url);
    await run(t, {
      ...{ times: STARTING.length, directUrl, databaseUrl: through(directUrl, proxy.port) },
      mostHealSeconds: 4, // A connection attempt waits up to 2 s for a response.
      async inject(writers, i) {
        const failed = () => proxy.counts.cut + proxy.counts.silenced;
        proxy.failure = STARTING[i];
        proxy.cut('fin');
        const before = failed();
        await writers.until(() => failed() >= before + ENDED);
        proxy.failure = undefined;
      },
    });
  });

  for (const { how, response } of FIRST_START) {
    test(`a first start whose connections get at response ${response}: ${how}`, async () => {
      await using proxy = await TcpProxy.listen(server.port);
      proxy.failure = { how, response };
      await using program = await start({
        DATABASE_URL: through(await createDatabase(server.url), proxy.port),
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      });
      await until(() => proxy.counts.cut + proxy.counts.silenced > 0);
      proxy.failure = undefined;
      const began = performance.now();
      const writers = new Writers(new Ledger(), program.url, 1);
      await writers.progress(1);
      assert.ok(secondsSince(began) < START_SECONDS, `served after ${secondsSince(began)} s`);
      await writers.stop();
    });
  }
});
