// The network between the service and Postgres fails: black hole, RST, FIN, refusals, connections
// that end while they start, answers that never come, and a delay of two seconds.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { raw, send } from '../support/client.ts';
import { createDatabase } from '../support/postgres.ts';
import { start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { type Campaign, run, TIMEOUT_MS, WRITERS } from './campaign.ts';
import { type Cut, TcpProxy } from './proxy.ts';
import { TIMES } from './results.ts';
import { through } from './users.ts';

type Fault = Pick<Campaign, 'fault' | 'times' | 'refuses' | 'inject'> & Partial<Campaign>;

/** Connections that end while they start, before a fault of that kind has landed. */
const ENDED = 12;

/** A delay of 2 s there and back. */
const DELAY_MS = 1000;

/** What the server answers first: TLS or not, the request for the password, ready, the probe. */
const STARTING = [0, 1, 2, 3].flatMap((answer) => [
  { cut: 'fin' as Cut, answer },
  { cut: 'rst' as Cut, answer },
]);

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
      fault: 'connections that end while they start',
      ...{ times: STARTING.length, refuses: true },
      async inject(writers, i) {
        proxy.cutAtAnswer = STARTING[i];
        proxy.cut('fin');
        const { cut } = proxy.counts;
        await writers.until(() => proxy.counts.cut >= cut + ENDED);
        proxy.cutAtAnswer = undefined;
      },
    }),
    (proxy) => ({
      ...{ fault: 'answers dropped', times: TIMES.network, refuses: true },
      // A connection that was being made waits its 2 s for the answer that was thrown away.
      healSeconds: 4,
      async inject(writers) {
        const dropped = proxy.counts.droppedBytes;
        const refused = writers.count(500);
        proxy.dropsAnswers = true;
        await writers.until(() => writers.count(500) >= refused + WRITERS);
        assert.ok(proxy.counts.droppedBytes > dropped);
        proxy.dropsAnswers = false;
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

  for (const cut of ['fin', 'rst'] as const) {
    test(`a start of the service while connections end with ${cut.toUpperCase()}`, async () => {
      const url = await createDatabase(server.url);
      await using proxy = await TcpProxy.listen(server.port);
      proxy.cutAtAnswer = { cut, answer: 0 };
      await using program = await start({
        DATABASE_URL: through(proxy.port, url),
        DATABASE_TIMEOUT_MS: String(TIMEOUT_MS),
      });
      const create = () =>
        send(`${program.url}/users`, { method: 'POST', body: { name: 'A', email: 'a@b' } });
      assert.equal((await create()).status, 500);
      assert.ok(proxy.counts.cut > 1);
      proxy.cutAtAnswer = undefined;
      await program.logged('store available');
      assert.equal((await create()).status, 201);
    });
  }
});
