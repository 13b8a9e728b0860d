// Faults of the network between the service and Postgres: black hole, RST, FIN, refusals, aborts
// and hangs while connecting, dropped responses, a delay, an unreachable host.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { raw, send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { until } from '../support/until.ts';
import { type Campaign, POOL_SIZE, run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { Ledger } from './ledger.ts';
import { TcpProxy } from './proxy.ts';
import { secondsSince, TIMES } from './results.ts';
import { connectionsOf, query, through } from './users.ts';
import { Writers } from './writers.ts';

type Fault = Pick<Campaign, 'fault' | 'times' | 'refuses' | 'inject'> & Partial<Campaign>;

/** The fault counts once this many connections have failed while connecting. */
const ENDED = 4;

/** Enough for the first attempts to connect: they take up to 0.5, 1 and 2 s, with short pauses. */
const START_SECONDS = 4;

/** Duration of a read-only server, and maximum number of connections to it meanwhile. */
const READ_ONLY_MS = 3000;
const MOST_CONNECTIONS = 60;

/** One-way delay to a distant Postgres. */
const SLOW_MS = 170;
/** Maximum number of writes that fail while the pool connects, which can take several attempts. */
const MOST_REFUSED = 20;

/** Connecting to this machine takes less unless the accept queue is full. */
const SILENCE_MS = 300;

/** One-way delay, so a round trip takes 2 s. */
const DELAY_MS = 1000;

/** The server's first responses: TLS or not, the password request, ready, the probe. */
const STARTING = [0, 1, 2, 3].flatMap((response) =>
  (['fin', 'rst', 'silence'] as const).map((how) => ({ how, response })),
);
/** Its next response at a first start: the schema. */
const SCHEMA = 4;
/** Then, for an empty database: creation of the version table and the schema. */
const MIGRATION = [5, 6] as const;

describe('the network to Postgres', { timeout: 900_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
  });
  after(() => server[Symbol.asyncDispose]());

  const faults: ((proxy: TcpProxy) => Fault)[] = [
    (proxy) => ({
      ...{ fault: 'black hole', times: TIMES.network, refuses: true },
      async inject(writers) {
        const held = proxy.counts.heldBytes;
        const refused = writers.count(500);
        proxy.stall();
        await writers.until(() => writers.count(500) >= refused + WRITERS);
        await pause(2 * TIMEOUT_MS);
        assert.ok(proxy.counts.heldBytes > held);
        proxy.resume();
      },
    }),
    ...(['rst', 'fin'] as const).map((cut) => (proxy: TcpProxy) => ({
      ...{ fault: `all connections cut with ${cut.toUpperCase()}`, refuses: true },
      times: TIMES.network * 10,
      async inject() {
        assert.ok(proxy.cut(cut) > 0);
      },
    })),
    (proxy) => ({
      ...{ fault: 'connections refused', times: TIMES.network, refuses: true },
      async inject(writers) {
        const refused = writers.count(500);
        await proxy.refuse();
        await assert.rejects(raw(`http://127.0.0.1:${proxy.port}`), /ECONNREFUSED/);
        assert.ok(proxy.cut('rst') > 0);
        await writers.until(() => writers.count(500) >= refused + 2 * WRITERS);
        await proxy.accept();
      },
    }),
    (proxy) => ({
      ...{ fault: 'one connection hangs', times: TIMES.network, refuses: true },
      async inject(writers) {
        const { silenced } = proxy.counts;
        const { acknowledged } = writers;
        const refused = writers.count(500);
        proxy.silencesNext = true;
        await writers.until(() => writers.count(500) > refused);
        assert.equal(proxy.counts.silenced, silenced + 1);
        // The other writes kept working.
        assert.ok(writers.acknowledged >= acknowledged + WRITERS);
      },
    }),
    (proxy) => ({
      fault: 'connections that end or hang while connecting',
      ...{ times: STARTING.length, refuses: true },
      // A connection attempt waits up to 2 s for a response.
      healSeconds: 4,
      async inject(writers, i) {
        const failed = () => proxy.counts.cut + proxy.counts.silenced;
        proxy.failure = STARTING[i];
        proxy.cut('fin');
        const before = failed();
        await writers.until(() => failed() >= before + ENDED);
        proxy.failure = undefined;
      },
    }),
    (proxy) => ({
      ...{ fault: 'responses dropped', times: TIMES.network, refuses: true },
      // A connection attempt waits its 2 s for the dropped response.
      healSeconds: 4,
      async inject(writers) {
        const dropped = proxy.counts.droppedBytes;
        const refused = writers.count(500);
        proxy.dropsResponses = true;
        await writers.until(() => writers.count(500) >= refused + WRITERS);
        assert.ok(proxy.counts.droppedBytes > dropped);
        proxy.dropsResponses = false;
      },
    }),
    (proxy) => ({
      ...{ fault: 'delay of 2 s', times: TIMES.network, refuses: false },
      env: { DATABASE_TIMEOUT_MS: '10000' },
      async inject(writers) {
        proxy.delayMs = DELAY_MS;
        const { delayedBytes } = proxy.counts;
        await writers.progress(2 * WRITERS);
        assert.ok(proxy.counts.delayedBytes > delayedBytes);
        assert.ok(writers.slowestMs >= 2 * DELAY_MS);
        proxy.delayMs = 0;
      },
    }),
  ];

  for (const fault of faults) {
    test(fault(undefined as never).fault, async (t) => {
      const directUrl = await createDatabase(server.url);
      await using proxy = await TcpProxy.listen(server.port);
      await run(t, { ...fault(proxy), directUrl, databaseUrl: through(proxy.port, directUrl) });
    });
  }

  for (const how of ['fin', 'rst', 'silence'] as const) {
    for (const response of [0, SCHEMA]) {
      test(`a start of the service while response ${response} of each connection is: ${how}`, async () => {
        const url = await createDatabase(server.url);
        await (await start({ DATABASE_URL: url }))[Symbol.asyncDispose]();
        await using proxy = await TcpProxy.listen(server.port);
        proxy.failure = { how, response };
        await using program = await start({
          DATABASE_URL: through(proxy.port, url),
          DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
        });
        const create = () =>
          send(`${program.url}/users`, { method: 'POST', body: { name: 'A', email: 'a@b' } });
        assert.equal((await create()).status, 500);
        await program.logged('store unavailable');
        assert.ok(proxy.counts.cut + proxy.counts.silenced > 1);
        proxy.failure = undefined;
        const began = performance.now();
        await program.logged('store available');
        assert.ok(secondsSince(began) < START_SECONDS);
        assert.equal((await create()).status, 201);
      });
    }
  }

  for (const response of MIGRATION) {
    test(`a first start whose connection hangs at response ${response}, during the migration`, async () => {
      await using proxy = await TcpProxy.listen(server.port);
      proxy.failure = { how: 'silence', response };
      await using program = await start({
        DATABASE_URL: through(proxy.port, await createDatabase(server.url)),
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      });
      await until(() => proxy.counts.silenced > 0);
      proxy.failure = undefined;
      const began = performance.now();
      const writers = new Writers(new Ledger(), program.url, 1);
      await writers.progress(1);
      assert.ok(secondsSince(began) < START_SECONDS, `served after ${secondsSince(began)} s`);
      await writers.stop();
      assert.equal(proxy.counts.silenced, 1);
    });
  }

  test('the pool connects to a read-only server less and less often', async () => {
    const url = await createDatabase(server.url);
    await using proxy = await TcpProxy.listen(server.port);
    await using program = await start({
      DATABASE_URL: through(proxy.port, url),
      DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
    });
    const writers = new Writers(new Ledger(), program.url, WRITERS);
    await writers.progress(WRITERS);
    const set = `alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only`;
    const { accepted } = proxy.counts;
    await query(url, `${set} = on`);
    // Open sessions keep the old setting, so close them.
    proxy.cut('fin');
    await pause(READ_ONLY_MS);
    assert.ok(writers.count(500) > WRITERS);
    const connections = proxy.counts.accepted - accepted;
    assert.ok(connections < MOST_CONNECTIONS, `${connections} connections`);
    await query(url, `begin read write; ${set} = off; commit`);
    const began = performance.now();
    await writers.progress(1);
    assert.ok(secondsSince(began) < START_SECONDS);
    await writers.stop();
  });

  test('when a primary becomes read-only, the pool switches to the next host', async () => {
    await using primary = await Server.create();
    const url = await createDatabase(primary.url);
    const { pathname } = new URL(url);
    await server.query(`create database ${pathname.slice(1)}`);
    const next = through(server.port, url);
    {
      await using first = await start({ DATABASE_URL: next });
      assert.equal((await send(`${first.url}/users`)).status, 200);
    }
    const hosts = `127.0.0.1:${primary.port},127.0.0.1:${server.port}`;
    await using program = await start({
      DATABASE_URL: `postgres://postgres:test@${hosts}${pathname}`,
      DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      DATABASE_POOL_SIZE: String(POOL_SIZE),
    });
    const writers = new Writers(new Ledger(), program.url, WRITERS);
    await writers.progress(WRITERS);
    // Open sessions become read-only too, and stay open.
    await primary.query('alter system set default_transaction_read_only = on');
    await primary.query('select pg_reload_conf()');
    const began = performance.now();
    await writers.until(() => writers.count(500) > 0);
    await writers.progress(1);
    assert.ok(secondsSince(began) < START_SECONDS);
    await writers.progress(20 * WRITERS);
    assert.ok((await connectionsOf(next)).length > 0);
    await writers.stop();
    // The pool detects that a connection is read-only when it uses the connection.
    assert.ok(writers.count(500) <= POOL_SIZE * WRITERS);
    const causes = program.log.map(({ cause }) => String(cause));
    assert.ok(causes.some((cause) => cause.includes('read-only transaction')));
  });

  test('a write on a slow new connection is not done late', async () => {
    const url = await createDatabase(server.url);
    await using proxy = await TcpProxy.listen(server.port);
    proxy.delayMs = SLOW_MS;
    await using program = await start({
      DATABASE_URL: through(proxy.port, url),
      DATABASE_POOL_SIZE: '1',
      DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
    });
    const create = (email: string) =>
      send(`${program.url}/users`, { method: 'POST', body: { name: 'A', email } });
    let refused = 0;
    while ((await create(`first-${refused}@b`)).status === 500) refused++;
    // The connection is kept although its first response was too late.
    assert.ok(refused < MOST_REFUSED, `${refused} writes refused`);
    proxy.delayMs = 0;
    assert.ok(server.suspend() > 1);
    assert.equal((await create('late@b')).status, 500);
    // Waits until a write that got 500 can no longer be done.
    await pause(TIMEOUT_MS + SLOW_MS);
    server.resume();
    await until(async () => (await create('last@b')).status !== 500);
    assert.deepEqual(await query(url, `select email from users where email = 'late@b'`), []);
  });

  test('when a host drops packets, the pool switches to the next', async () => {
    const url = await createDatabase(server.url);
    await using silent = await silentHost();
    const { pathname } = new URL(url);
    const hosts = `127.0.0.1:${silent.port},127.0.0.1:${server.port}`;
    await using program = await start({
      DATABASE_URL: `postgres://postgres:test@${hosts}${pathname}`,
      DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
    });
    const began = performance.now();
    await program.logged('store unavailable');
    await program.logged('store available');
    assert.ok(secondsSince(began) < START_SECONDS);
    const response = await send(`${program.url}/users`);
    assert.deepEqual([response.status, response.body], [200, '[]']);
  });
});

/** Opens a port that drops each SYN, as a firewall does: its accept queue is full. */
async function silentHost() {
  const script = `require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 },
    function () { process.stdout.write(String(this.address().port)); })`;
  const host = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [text] = await once(host.stdout, 'data');
  const port = Number(text);
  host.kill('SIGSTOP');
  const sockets: Socket[] = [];
  for (let isTaken = true; isTaken; ) {
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    sockets.push(socket);
    isTaken = await Promise.race([
      once(socket, 'connect').then(() => true),
      pause(SILENCE_MS).then(() => false),
    ]);
  }
  return {
    port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      host.kill('SIGKILL');
      await once(host, 'exit');
    },
  };
}
