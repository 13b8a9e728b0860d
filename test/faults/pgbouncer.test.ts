// Runs the contract tests through PgBouncer in transaction mode. Excludes suites that cut,
// count or configure connections to the server (5.1, 6.1, settings of the store), because those
// are the pooler's here.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { contractTests } from '../support/contract-tests.ts';
import { Daemon, find, freePort } from '../support/daemon.ts';
import { Server } from '../support/postgres-server.ts';
import { newFolder } from '../support/program.ts';
import { through } from '../support/tcp-proxy.ts';

const PATH = find('pgbouncer') ?? '';

/** Contract suites that run on both stores name theirs: `4 users (postgres)`. */
const ON_POSTGRES = '[(]postgres[)]';

test('the contract holds through PgBouncer in transaction mode', {
  skip: PATH === '' && 'PgBouncer is not installed: apt-get install pgbouncer',
  timeout: 900_000,
}, async (t) => {
  await using server = await Server.create();
  await using bouncer = await startBouncer(server.port);
  const env = { TEST_DATABASE_URL: through(server.url, bouncer.port) };
  const flags = ['--test-timeout=300000', `--test-name-pattern=${ON_POSTGRES}`];
  const output = await contractTests(t, env, ...flags);
  // Checks that the suite really ran, and through PgBouncer.
  const passed = Number(/pass (\d+)/.exec(output)?.[1]);
  assert.ok(passed > 20, output);
  assert.match(bouncer.log, /test_/);
});

async function startBouncer(serverPort: number): Promise<Daemon> {
  const port = await freePort();
  const folder = newFolder();
  chmodSync(folder, 0o755);
  const file = join(folder, 'pgbouncer.ini');
  // Every suite has its own database. Ten kept connections to each would use up all of the server's.
  const settings = `[databases]
* = host=127.0.0.1 port=${serverPort} user=postgres password=test
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
server_idle_timeout = 2
max_client_conn = 500
`;
  writeFileSync(file, settings);
  return new Daemon(port, PATH, [file]).listening();
}
