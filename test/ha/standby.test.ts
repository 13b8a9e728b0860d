// A replica of the service that reads from a standby.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { through } from '../faults/users.ts';
import { send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { until } from '../support/until.ts';

/** Maximum time for the standby to apply a commit. */
const APPLY_TIMEOUT_MS = 60_000;

test('5.1 7.2 a replica that prefers a standby reads from it, is ready, and refuses writes', async () => {
  await using primary = await Server.create();
  const direct = await createDatabase(primary.url);
  await using standby = await primary.synchronousStandby();
  await using writer = await start({ DATABASE_URL: direct });
  const body = { name: 'Ann', email: 'ann@x' };
  const created = await send(`${writer.url}/users`, { method: 'POST', body });
  assert.equal(created.status, 201);

  const hosts = through(direct, primary.port, standby.port);
  const DATABASE_URL = `${hosts}?target_session_attrs=prefer-standby`;
  await using reader = await start({ DATABASE_URL, LOG_LEVEL: 'debug' });
  const connected = await reader.logged('connected');
  if (connected.host !== `127.0.0.1:${standby.port}`) throw new Error(`it reads ${connected.host}`);
  await until(
    async () => (await send(`${reader.url}/users/1`)).body === created.body,
    APPLY_TIMEOUT_MS,
  );
  assert.equal((await send(`${reader.adminUrl}/ready`)).status, 200);
  const refused = { name: 'Bob', email: 'bob@x' };
  assert.equal((await send(`${reader.url}/users`, { method: 'POST', body: refused })).status, 500);
  assert.equal((await send(`${reader.url}/users/1`)).status, 200);
});
