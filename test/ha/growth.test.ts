// Growth: reads from a standby, and the cost of requests on large tables.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { execute, serve } from '../support/service.ts';
import { until } from '../support/until.ts';
import { IS_FULL } from './programs.ts';

const ROWS = IS_FULL ? [10_000, 1_000_000, 10_000_000] : [1_000, 100_000];
const REQUESTS = 100;
/** Maximum time for the standby to apply a commit. */
const APPLY_TIMEOUT_MS = 60_000;

/** Maximum number of blocks that a request may touch on average, for a table of any size. */
const MOST_BLOCKS = 32;

test('5.1 7.2 a replica that prefers a standby reads from it, is ready, and refuses writes', async () => {
  await using primary = await Server.create();
  const direct = await createDatabase(primary.url);
  await using standby = await primary.synchronousStandby();
  await using writer = await start({ DATABASE_URL: direct });
  const body = { name: 'Ann', email: 'ann@x' };
  const created = await send(`${writer.url}/users`, { method: 'POST', body });
  assert.equal(created.status, 201);

  const { pathname } = new URL(direct);
  const hosts = [primary, standby].map(({ port }) => `127.0.0.1:${port}`).join(',');
  const attributes = 'target_session_attrs=prefer-standby';
  await using reader = await start({
    DATABASE_URL: `postgres://postgres:test@${hosts}${pathname}?${attributes}`,
    LOG_LEVEL: 'debug',
  });
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

test('4.2 a request touches few blocks of a table of any size', async (t) => {
  await using server = await Server.create();
  const DATABASE_URL = await createDatabase(server.url);
  await (await serve({ DATABASE_URL })).stop();
  let filled = 0;
  for (const rows of ROWS) {
    await execute(
      DATABASE_URL,
      `insert into users (name, email)
       select 'listed', 'listed-' || i || '@example.com' from generate_series(${filled + 1}, ${rows}) i`,
    );
    filled = rows;
    await execute(DATABASE_URL, 'vacuum analyze users');
    const [table] = await execute(DATABASE_URL, 'select min(id)::int as first from users');
    const idOf = (n: number) => Number(table!.first) + n;
    const requests: Record<string, (n: number, i: number) => readonly [string, object?]> = {
      'find by id': (n) => [`/${idOf(n)}`],
      'find by email': (n) => [`?email=listed-${1 + n}%40example.com`],
      'page of 100': (n) => [`?limit=100&after=${n}`],
      create: (_n, i) => ['', { method: 'POST', body: { name: 'N', email: `${rows}-${i}@new` } }],
      change: (n, i) => [`/${idOf(n)}`, { method: 'PATCH', body: { name: `changed ${i}` } }],
    };
    const figures: string[] = [];
    for (const [name, request] of Object.entries(requests)) {
      const before = await blocksTouched(DATABASE_URL);
      const program = await start({ DATABASE_URL, DATABASE_POOL_SIZE: '1' });
      for (let i = 0; i < REQUESTS; i++) {
        // Spreads the requests over the whole table.
        const [path, options] = request((i * 7919) % (rows - 200), i);
        const { status } = await send(`${program.url}/users${path}`, options);
        assert.ok(status === 200 || status === 201, `status ${status}`);
      }
      // Postgres reports the counts of a session at the latest when it ends.
      await program.stop();
      const sessions = `select from pg_stat_activity where application_name = 'notes-users'`;
      await until(async () => (await execute(DATABASE_URL, sessions)).length === 0);
      const blocks = ((await blocksTouched(DATABASE_URL)) - before) / REQUESTS;
      figures.push(`${name} ${blocks.toFixed(1)} blocks`);
      assert.ok(blocks > 0 && blocks < MOST_BLOCKS, `${name}: ${blocks} blocks of ${rows} rows`);
    }
    t.diagnostic(`${rows.toLocaleString('en')} users: ${figures.join('; ')}`);
  }
});

async function blocksTouched(databaseUrl: string): Promise<number> {
  const [row] = await execute(
    databaseUrl,
    `select (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::int as blocks
     from pg_statio_user_tables where relname = 'users'`,
  );
  return Number(row?.blocks);
}
