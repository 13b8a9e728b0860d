// A fault that a real server and a real driver show. The simulation has the rest (test/simulate), and
// test/store/session.test.ts each step of connecting.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/server.ts';
import { run, WRITERS } from './campaign.ts';
import { TIMES } from './results.ts';

test('kill -9 of Postgres', { timeout: 900_000 }, async (t) => {
  await using server = await Server.create();
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
