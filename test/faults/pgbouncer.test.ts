// Runs contract and fault tests through PgBouncer in transaction mode. Excludes suites that cut,
// count or configure connections to the server (5.1, 6.1, settings of the store), because those
// are the pooler's here.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { send } from '../support/client.ts';
import { find } from '../support/daemon.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { startBouncer } from './bouncer.ts';
import { run, WRITERS } from './campaign.ts';
import { TIMES } from './results.ts';
import { through } from './users.ts';

const PATH = find('pgbouncer');
const SKIP = PATH === undefined && 'PgBouncer is not installed: apt-get install pgbouncer';

const CONTRACT = globSync('test/contract/*.test.ts', {
  cwd: join(import.meta.dirname, '../..'),
});

/** Contract suites name their store: `users (postgres)`, `paths, postgres`. */
const ON_POSTGRES = '([(]|, )postgres([)]|$)';

// With this setting PgBouncer accepts and ignores all startup parameters that the service sends.
const IGNORED = 'statement_timeout,plan_cache_mode,enable_seqscan,enable_hashjoin,enable_mergejoin';

const SETTINGS: Record<string, Record<string, string>> = {
  'with its defaults': {},
  'with ignore_startup_parameters': { ignore_startup_parameters: IGNORED },
};

describe('PgBouncer in transaction mode', { skip: SKIP, timeout: 1_800_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
  });
  after(() => server?.[Symbol.asyncDispose]());

  test('the service detects it even if the server has a statement_timeout like ours', async () => {
    const settings = SETTINGS['with ignore_startup_parameters']!;
    await using bouncer = await startBouncer(PATH!, server, settings);
    const directUrl = await createDatabase(server.url);
    const database = new URL(directUrl).pathname.slice(1);
    await server.query(`alter database ${database} set statement_timeout = 5000`);
    await using program = await start({
      DATABASE_URL: through(bouncer.port, directUrl),
      DATABASE_POOL_SIZE: '1',
      DATABASE_TIMEOUT_MS: '5000',
    });
    assert.equal((await send(`${program.url}/users/1`)).status, 404);
    // The service prepares nothing; each message sets its own limit.
    const ours = `datname = '${database}' and pid <> pg_backend_pid()`;
    const rows = await server.query(`select query from pg_stat_activity where ${ours}`);
    assert.match(
      rows.map(({ query }) => query).join(),
      /set local statement_timeout = 5000; set local .*; select id/,
    );
  });

  for (const [why, settings] of Object.entries(SETTINGS)) {
    test(`the contract holds, ${why}`, { timeout: 900_000 }, async (t) => {
      await using bouncer = await startBouncer(PATH!, server, settings);
      assert.ok(CONTRACT.length >= 20);
      const { NODE_TEST_CONTEXT: _, ...env } = process.env;
      const child = spawn(
        process.execPath,
        ['--test', '--test-timeout=300000', `--test-name-pattern=${ON_POSTGRES}`, ...CONTRACT],
        {
          cwd: join(import.meta.dirname, '../..'),
          env: { ...env, TEST_DATABASE_URL: through(bouncer.port, server.url) },
          stdio: ['ignore', 'pipe', 'inherit'],
          signal: t.signal,
        },
      );
      let output = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        output += text;
      });
      // If the run hangs, this shows its output.
      const show = () => process.stderr.write(output);
      t.signal.addEventListener('abort', show);
      const [code] = await once(child, 'close');
      t.signal.removeEventListener('abort', show);
      assert.equal(code, 0, output);
      // Checks that the suite really ran, and through PgBouncer.
      const passed = Number(/pass (\d+)/.exec(output)?.[1]);
      assert.ok(passed > 30, output);
      assert.match(bouncer.log, /test_/);
      t.diagnostic(`${passed} tests passed through PgBouncer`);
    });

    test(`a restart of PgBouncer loses no write, ${why}`, async (t) => {
      let bouncer = await startBouncer(PATH!, server, settings);
      const directUrl = await createDatabase(server.url);
      const { port } = bouncer;
      try {
        await run(t, {
          fault: `PgBouncer ${why}: kill -9`,
          ...{ times: TIMES.network, refuses: true, directUrl, isPooled: true },
          databaseUrl: through(port, directUrl),
          async inject(writers) {
            const refused = writers.count(500);
            await bouncer[Symbol.asyncDispose]();
            await writers.until(() => writers.count(500) >= refused + WRITERS);
            bouncer = await startBouncer(PATH!, server, settings, port);
          },
        });
      } finally {
        await bouncer[Symbol.asyncDispose]();
      }
    });
  }
});
