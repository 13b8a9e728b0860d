// Synchronous replication: a frozen standby, reads from a standby, a cancelled wait for it. Both servers are in
// DATABASE_URL. test/ha kills and freezes primaries under load.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type HttpResponse, send } from '../support/client.ts';
import { signalAll } from '../support/daemon.ts';
import { createDatabase } from '../support/postgres.ts';
import { query, Server } from '../support/postgres-server.ts';
import { type Program, start } from '../support/program.ts';
import { execute, ready } from '../support/service.ts';
import { through } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

const TIMEOUT_MS = 1000;

describe('synchronous replication', { timeout: 900_000 }, () => {
  test('4.13 7.2 a frozen standby: a write that got 500 is done once, when the standby is back', async () => {
    await using servers = await replicated();
    const { standby, direct } = servers;
    // As where a login role acts as the owner of the tables.
    const roles = `create role owner in role pg_read_all_stats; grant create on schema public to owner;
      create role login login password 'test' in role owner; alter role login set role = owner`;
    await query(direct, roles);
    await using program = await startOn(servers, direct.replace('//postgres:', '//login:'));
    assert.equal((await create(program, 'before')).status, 201);
    signalAll(standby.dataDir, 'SIGSTOP');
    const beganMs = performance.now();
    assert.equal((await create(program, 'late')).status, 500);
    const { status } = await send(`${program.adminUrl}/ready`);
    assert.ok(status === 200 || performance.now() - beganMs > 2_000, 'not before 2 s');
    // 7.2: within a few seconds, because balancers wait for it.
    await until(async () => (await send(`${program.adminUrl}/ready`)).status === 503, 15_000);
    assert.equal((await send(`${program.url}/users/1`)).status, 200);
    assert.deepEqual(await emailsIn(direct), ['before@x']);
    signalAll(standby.dataDir, 'SIGCONT');
    await ready(program);
    assert.equal((await create(program, 'after')).status, 201);
    assert.deepEqual(await emailsIn(direct), ['before@x', 'late@x', 'after@x']);
  });

  test('5.1 7.2 a replica that prefers a standby reads from it, is ready, and refuses writes', async () => {
    await using servers = await replicated();
    await using writer = await start({ DATABASE_URL: servers.direct });
    const { status, body } = await create(writer, 'before');
    assert.equal(status, 201);
    const url = `${servers.direct}?target_session_attrs=prefer-standby`;
    await using reader = await startOn(servers, url);
    const { host } = await reader.logged('connected');
    assert.equal(host, `127.0.0.1:${servers.standby.port}`);
    const read = () => send(`${reader.url}/users/1`);
    await until(async () => (await read()).body === body);
    await ready(reader);
    assert.equal((await create(reader, 'refused')).status, 500);
    assert.equal((await read()).status, 200);
  });

  test('4.13 the server cancels the wait for its standby: 500, although the write is durable locally', async () => {
    await using server = await Server.create();
    const direct = await createDatabase(server.url);
    await using program = await start({ DATABASE_URL: direct, DATABASE_POOL_SIZE: '1' });
    assert.equal((await create(program, 'before')).status, 201);
    await server.query(`alter system set synchronous_standby_names = 'nobody'`);
    await server.query('select pg_reload_conf()');
    // Commits don't wait for the standby until the checkpointer has read the reloaded setting.
    const cancel = `select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`;
    let created: HttpResponse;
    let writes = 0;
    do {
      let isOver = false;
      const responds = create(program, `write${++writes}`).finally(() => (isOver = true));
      await until(async () => {
        await server.query(cancel);
        return isOver;
      });
      created = await responds;
    } while (created.status === 201);
    assert.equal(created.status, 500);
    const written = Array.from({ length: writes }, (_, i) => `write${i + 1}@x`);
    assert.deepEqual(await emailsIn(direct), ['before@x', ...written]);
    await program.until(() =>
      program.log.some(({ cause }) => /standby to confirm the commit/.test(String(cause))),
    );
  });
});

function startOn({ primary, standby }: Awaited<ReturnType<typeof replicated>>, url: string) {
  return start({
    DATABASE_URL: through(url, primary.port, standby.port),
    DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
    LOG_LEVEL: 'debug',
  });
}

function create(program: Program, name: string) {
  return send(`${program.url}/users`, { method: 'POST', body: { name, email: `${name}@x` } });
}

async function emailsIn(databaseUrl: string): Promise<string[]> {
  const users = await execute(databaseUrl, 'select email from users order by id');
  return users.map(({ email }) => String(email));
}

async function replicated() {
  const stack = new AsyncDisposableStack();
  const primary = stack.use(await Server.create());
  const direct = await createDatabase(primary.url);
  const standby = stack.use(await primary.synchronousStandby());
  return { primary, standby, direct, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}
