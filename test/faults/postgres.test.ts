// Faults that a real server and a real driver show: a kill, and each step of connecting. The simulation has the
// rest (test/simulate).
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { until } from '../support/until.ts';
import { run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { Ledger } from './ledger.ts';
import { TcpProxy, through } from './proxy.ts';
import { secondsSince, TIMES } from './results.ts';
import { Writers } from './writers.ts';

/** Enough for the first attempts to connect: they take up to 0.5, 1 and 2 s, with short pauses. */
const START_SECONDS = 4;

/** The server's responses at a first start: TLS or not, the password request, ready, the probe, the schema. */
const STARTING = [0, 1, 2, 3, 4].flatMap((response) =>
  (['fin', 'rst', 'silence'] as const).map((how) => ({ how, response })),
);
/** Then the version table and the migration. */
STARTING.push({ how: 'silence', response: 5 }, { how: 'silence', response: 6 });

describe('Postgres', { timeout: 900_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
  });
  after(() => server[Symbol.asyncDispose]());

  test('kill -9 of Postgres', async (t) => {
    await run(t, {
      times: TIMES.postgresKills,
      databaseUrl: await createDatabase(server.url),
      async inject(writers, i) {
        const before = writers.refused;
        assert.ok((await server.kill()) > 1);
        // Every other time Postgres stays down until the writers have been refused.
        await writers.until(() => i % 2 > 0 || writers.refused >= before + WRITERS);
        await server.start();
        await server.query('select 1'); // Now it accepts connections.
      },
    });
  });

  for (const { how, response } of STARTING) {
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
