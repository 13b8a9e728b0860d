// Runs the contract tests through PgBouncer in transaction mode. Excludes suites that cut,
// count or configure connections to the server (5.1, 6.1, settings of the store), because those
// are the pooler's here.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { find } from '../support/daemon.ts';
import { Server } from '../support/server.ts';
import { startBouncer } from './bouncer.ts';
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
  }
});
