// Another Postgres session holds a lock for longer than DATABASE_TIMEOUT_MS. A write that waited
// for it and got 500 is not done after the lock is released.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { send } from '../support/client.ts';
import { find } from '../support/daemon.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { startBouncer } from './bouncer.ts';
import { run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { TIMES } from './results.ts';
import { through, usersIn, whileLocked } from './users.ts';

const BOUNCER = find('pgbouncer');
const SKIP = BOUNCER === undefined && 'PgBouncer is not installed: apt-get install pgbouncer';

describe('locks of another session', { timeout: 300_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
  });
  after(() => server?.[Symbol.asyncDispose]());

  for (const { via, skip } of [
    { via: 'directly', skip: false },
    { via: 'through PgBouncer', skip: SKIP },
  ] as const) {
    const bouncer = () => (skip === false && via !== 'directly' ? startBouncer : undefined);

    test(`the whole table locked, ${via}`, { skip }, async (t) => {
      await using pooler = await bouncer()?.(BOUNCER!, server, {});
      const directUrl = await createDatabase(server.url);
      await run(t, {
        fault: `lock on the table (${via})`,
        ...{ times: TIMES.network, refuses: true, directUrl, isPooled: pooler !== undefined },
        databaseUrl: pooler ? through(pooler.port, directUrl) : directUrl,
        inject: (writers) =>
          whileLocked(directUrl, 'lock table users in share mode', async () => {
            const before = writers.count(500);
            await writers.until(() => writers.count(500) >= before + WRITERS);
            await pause(2 * TIMEOUT_MS);
          }),
      });
    });

    test(`one user locked, ${via}`, { skip }, async () => {
      await using pooler = await bouncer()?.(BOUNCER!, server, {});
      const directUrl = await createDatabase(server.url);
      await using program = await start({
        DATABASE_URL: pooler ? through(pooler.port, directUrl) : directUrl,
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      });
      const write = (method: string, path: string, body: object) =>
        send(program.url + path, { method, body });
      const user = { name: 'before', email: 'a@example.com' };
      assert.equal((await write('POST', '/users', user)).status, 201);
      await whileLocked(directUrl, 'select from users where id = 1 for update', async () => {
        const { status } = await write('PATCH', '/users/1', { name: 'too late' });
        assert.equal(status, 500);
        await pause(2 * TIMEOUT_MS);
      });
      // This update is last in the queue for the lock, so all earlier writes have run.
      await server.query('update users set email = email where id = 1', nameOf(directUrl));
      assert.deepEqual({ ...(await usersIn(directUrl))[0] }, { id: 1, ...user, version: 1 });
      assert.equal((await write('PATCH', '/users/1', { name: 'after' })).status, 200);
    });
  }
});

function nameOf(databaseUrl: string): string {
  return new URL(databaseUrl).pathname.slice(1);
}
