// The memory budget: limits derived from the process's memory, and the choice of connections to
// close when connection slots or memory run out.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import { connect, Socket } from 'node:net';
import process from 'node:process';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import v8, { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Budget, type MemoryLimits, memoryLimits } from '../../src/http/budget.ts';
import { Connection } from '../../src/http/connection.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import { send } from '../../src/http/reply.ts';
import { Server } from '../../src/http/server.ts';
import { Turns } from '../../src/turns.ts';
import { until } from '../support/until.ts';

const MIB = 1024 * 1024;

describe('limits', () => {
  for (const { why, setting, constrained, isTls = false, own = 0, budget, connections } of [
    { why: 'a control group of 128 MiB', constrained: 128 * MIB, budget: 96, connections: 6144 },
    {
      why: 'a control group of 128 MiB, with TLS',
      constrained: 128 * MIB,
      isTls: true,
      budget: 96,
      connections: 472,
    },
    { why: 'no control group', constrained: 0, budget: 480, connections: 10_000 },
    {
      why: 'a control group without a limit',
      constrained: 2 ** 63,
      budget: 480,
      connections: 10_000,
    },
    {
      why: 'a setting, with any control group',
      setting: 256 * MIB,
      constrained: 128 * MIB,
      budget: 224,
      connections: 10_000,
    },
    {
      why: 'a process that starts with 48 MiB',
      constrained: 128 * MIB,
      own: 48 * MIB,
      budget: 64,
      connections: 4096,
    },
    { why: 'a control group of 40 MiB', constrained: 40 * MIB, budget: 10, connections: 640 },
  ]) {
    test(why, () => {
      const limits = memoryLimits(setting, constrained, 8192 * MIB, isTls, own);
      assert.equal(limits.budgetBytes, budget * MIB);
      assert.equal(limits.maxConnections, connections);
    });
  }
});

/** Turns that run no task while `isWaiting` is set. */
class EndlessTurns extends Turns {
  readonly tasks = new Set<() => void>();
  isWaiting = false;

  constructor() {
    super(() => performance.now());
  }

  override add(client: string, task: () => void): void {
    if (this.isWaiting) this.tasks.add(task);
    else super.add(client, task);
  }

  override delete(client: string, task: () => void): void {
    this.tasks.delete(task);
    super.delete(client, task);
  }
}

const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

function reply(exchange: Exchange, isLast = false): void {
  send(exchange, { status: 200, type: 'text/plain', body: 'x' }, [], isLast, () => {});
}

/** Starts a service with one-word responses, and clients that report when they are closed. */
async function serve(
  limits: Partial<MemoryLimits>,
  respond: (exchange: Exchange) => void = reply,
  turns = new Turns(() => performance.now()),
) {
  const all = { budgetBytes: 100 * MIB, maxConnections: 1000, connectionBytes: 16 * 1024 };
  const budget = new Budget({ ...all, ...limits }, 60_000, turns);
  const server = new Server({ handle: respond, refusal: () => '', allow: '' }, budget, 65_000);
  const port = await server.listen(0, '127.0.0.1');
  const clients: Socket[] = [];
  const open = async (localAddress: string, text: string) => {
    const client = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => {});
    clients.push(client);
    await once(client, 'connect');
    if (text !== '') client.write(text);
    if (text === GET && respond === reply) await once(client, 'data');
    return client.resume();
  };
  const dispose = async () => {
    for (const client of clients) client.destroy();
    server.destroy();
    budget.close();
  };
  return { open, [Symbol.asyncDispose]: dispose };
}

const HALF = 'GET / HTTP/1.1\r\nHost';

const CHUNKED =
  'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n';

/** Node's header limit counts only names and values, so it accepts 15,000 such fields. */
const FIELDS = 'a:\r\n'.repeat(15_000);

describe('6.3 slots for connections', () => {
  for (const { why, others, evicted } of [
    {
      why: 'unfinished requests are closed before idle connections that have been served',
      others: [
        ['127.0.0.2', GET],
        ['127.0.0.3', HALF],
        ['127.0.0.4', GET],
      ],
      evicted: [1],
    },
    {
      why: 'silent connections are closed before idle ones that have been served',
      others: [
        ['127.0.0.2', GET],
        ['127.0.0.3', ''],
        ['127.0.0.4', GET],
      ],
      evicted: [1],
    },
    {
      why: 'a second request that stops half-way counts as unfinished',
      others: [
        ['127.0.0.2', GET],
        ['127.0.0.3', GET, HALF],
        ['127.0.0.4', GET],
      ],
      evicted: [1],
    },
    {
      why: 'an address with more than half of all connections loses only its own',
      others: [
        ['127.0.0.2', HALF],
        ['127.0.0.3', GET],
        ['127.0.0.3', GET],
      ],
      evicted: [1, 2],
    },
  ] as { why: string; others: string[][]; evicted: number[] }[]) {
    test(`6.3 ${why}`, async () => {
      await using service = await serve({ maxConnections: others.length });
      const clients: Socket[] = [];
      for (const [address, ...texts] of others) {
        const [first = '', second = ''] = texts;
        const client = await service.open(address!, first);
        client.write(second);
        clients.push(client);
      }
      // The server has read all of it.
      await pause(50);
      const late = await service.open('127.0.0.9', GET);
      const closed = evicted.map((i) => clients[i]!);
      await Promise.all(closed.map((client) => client.closed || once(client, 'close')));
      const open = [...clients, late].filter((client) => !closed.includes(client));
      for (const client of open) assert.equal(client.closed, false);
    });
  }
});

describe('6.3 connections that linger after a refusal', () => {
  for (const { what, maxConnections } of [
    { what: 'make room for new ones', maxConnections: 2 },
    { what: 'are closed before idle ones', maxConnections: 3 },
  ]) {
    test(`6.3 they ${what}`, async () => {
      await using service = await serve({ maxConnections });
      const idle = maxConnections === 3 ? await service.open('127.0.0.2', GET) : undefined;
      for (const address of ['127.0.0.3', '127.0.0.4']) {
        const client = await service.open(address, 'not a request\r\n\r\n');
        client.allowHalfOpen = true;
        await once(client, 'end');
      }
      const late = await service.open('127.0.0.5', '');
      for (const client of [late, idle]) {
        if (client === undefined) continue;
        let hasResponse = false;
        client.once('data', () => {
          hasResponse = true;
        });
        client.write(GET);
        await until(() => hasResponse || client.closed);
        assert.ok(hasResponse);
      }
    });
  }
});

test('6.3 a complete first request is not closed before idle connections', async () => {
  const asked = Promise.withResolvers<Exchange>();
  await using service = await serve({ maxConnections: 3 }, (exchange) => {
    if (exchange.req.url === '/') reply(exchange);
    else asked.resolve(exchange);
  });
  for (const address of ['127.0.0.2', '127.0.0.2']) {
    await once(await service.open(address, GET), 'data');
  }
  const busy = await service.open('127.0.0.2', GET.replace('/', '/slow'));
  const exchange = await asked.promise;
  await once(await service.open('127.0.0.3', GET), 'data');
  reply(exchange);
  await once(busy, 'data');
});

test('6.17 a queued request can make the budget close its own connection', async () => {
  await using service = await serve({ budgetBytes: MIB }, () => {});
  const chunked = 'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
  const client = await service.open('127.0.0.2', GET + chunked);
  await until(() => client.closed);
});

test('6.3 clients that do not read their first response make room for new connections', async () => {
  const piece = Buffer.alloc(2 ** 16, 'x');
  const pieces = { next: () => piece };
  const streams: Exchange[] = [];
  await using service = await serve({ maxConnections: 20 }, (exchange) => {
    const isEndless = exchange.req.url !== '/';
    if (isEndless) streams.push(exchange);
    const body = isEndless ? pieces : 'x';
    send(exchange, { status: 200, type: 'text/plain', body }, [], false, () => {});
  });
  const unread: Socket[] = [];
  for (let i = 0; i < 20; i++) {
    const client = await service.open('127.0.0.2', GET.replace('/', '/endless'));
    unread.push(client.pause());
  }
  // Each stream stops once the kernel's buffers are full. Until then its next slice can wait for a turn.
  let writtenBytes = 0;
  let turnsAtRest = 0;
  await until(() => {
    const before = writtenBytes;
    writtenBytes = streams.reduce((sum, { req }) => sum + req.socket.bytesWritten, 0);
    const isAtRest =
      before === writtenBytes && streams.every(({ connection }) => connection.isUnread);
    turnsAtRest = isAtRest ? turnsAtRest + 1 : 0;
    return streams.length === 20 && turnsAtRest === 100;
  });
  const others: Socket[] = [];
  for (let i = 0; i < 30; i++) {
    const client = await service.open('127.0.0.2', GET);
    others.push(client);
    await Promise.race([once(client, 'data'), once(client, 'close')]);
  }
  for (const client of unread) client.resume();
  await until(() => unread.every(({ closed }) => closed));
  assert.ok(others.filter(({ closed }) => !closed).length <= 20);
});

test('6.17 unfinished heads count: the connections with the longest are closed', async () => {
  await using service = await serve({ budgetBytes: 2 * MIB });
  const small = await service.open('127.0.0.2', GET);
  // No event reports an unfinished head, so a body triggers the check.
  const heads: Awaited<ReturnType<typeof service.open>>[] = [];
  for (let i = 0; i < 100; i++) {
    heads.push(await service.open('127.0.0.3', `${HALF}: x\r\nX: ${'y'.repeat(12_000)}`));
  }
  await pause(50);
  for (let i = 0; i < 60; i++) heads.push(await service.open('127.0.0.3', HALF));
  await until(() => heads.some(({ closed }) => closed));
  assert.equal(small.closed, false);
  small.write(GET);
  await once(small, 'data');
});

describe('6.17 connections without sockets', () => {
  const KIB = 1024;

  /** Returns a budget for 100 connections of 16 KiB, and connections that hold `heldBytes`. */
  function account(count: number, heldBytes: number) {
    let now = 10_000;
    const limits = { budgetBytes: 1600 * KIB, maxConnections: 1000, connectionBytes: 16 * KIB };
    const budget = new Budget(limits, 60_000, new Turns(() => now));
    budget.close(); // Stops the timer.
    const closed = new Set<number>();
    let looks = 0;
    let paused = 0;
    for (let i = 0; i < count; i++) {
      const connection = {
        network: '127.0.0.2',
        heldBytes,
        busySinceMs: now,
        measure: () => {
          looks++;
          return heldBytes;
        },
        ...{ isUnfinished: false, isIdle: true, isUnread: false },
        close: () => closed.add(i),
        destroy: () => closed.add(i),
        pauseForTurn: () => {
          paused++;
        },
      };
      budget.add(connection as unknown as Connection);
      budget.hold(heldBytes);
    }
    return {
      ...{ budget, closed, looks: () => looks, paused: () => paused },
      wait: (ms: number) => {
        now += ms;
      },
    };
  }

  test('a request that holds little memory is closed once it has lasted for a second', () => {
    const { budget, closed, wait } = account(90, 3 * KIB);
    assert.equal(closed.size, 0);
    wait(1001);
    budget.hold(200 * KIB);
    assert.ok(closed.size > 20, `${closed.size} are closed`);
  });

  test('a request that holds much memory is kept if idle connections fill the budget', () => {
    const { budget, closed } = account(99, 0);
    let isClosed = false;
    const large = {
      ...{ network: '127.0.0.3', heldBytes: 20 * KIB, busySinceMs: 0 },
      measure: () => 20 * KIB,
      destroy: () => {
        isClosed = true;
      },
    };
    budget.add(large as unknown as Connection);
    assert.equal(closed.size, 0);
    budget.hold(20 * KIB);
    assert.ok(closed.size > 0);
    assert.equal(isClosed, false);
  });

  test('6.3 connections with an unread response are closed if no others can be', () => {
    const limits = { budgetBytes: 1600 * KIB, maxConnections: 10, connectionBytes: 16 * KIB };
    const budget = new Budget(limits, 60_000, new Turns(() => 0));
    budget.close();
    const closed: string[] = [];
    const add = (network: string, isUnread: boolean) =>
      budget.add({
        ...{ network, isUnread, isUnfinished: false, isIdle: false },
        close: () => closed.push(network),
      } as unknown as Connection);
    for (let i = 0; i < 7; i++) add('unread', true);
    for (let i = 0; i < 3; i++) add('busy', false);
    assert.equal(add('new', false), true);
    assert.deepEqual(closed, Array(7).fill('unread'));
  });

  test('a request that holds much memory is closed at once', () => {
    const { closed } = account(90, 9 * KIB);
    assert.ok(closed.size > 20, `${closed.size} are closed`);
  });

  test('6.18 after 1,000 messages in one turn, all connections wait for their turn', async () => {
    const { budget, paused } = account(3, 0);
    const read = (count: number) => {
      for (let i = 0; i < count; i++) budget.countMessage('127.0.0.2');
    };
    read(999);
    assert.equal(paused(), 0);
    read(1);
    assert.equal(paused(), 3);
    read(5000);
    assert.equal(paused(), 3);
    await new Promise((resolve) => setImmediate(resolve));
    read(1000);
    assert.equal(paused(), 6);
  });

  test('6.18 sixteen new connections are read per turn, and one per turn after many messages', async () => {
    const { budget, wait } = account(3, 0);
    /** Queues twenty reads; returns the number of reads in each of the next turns. */
    const perTurn = async (isNew: boolean) => {
      let reads = 0;
      for (let i = 0; i < 20; i++) {
        budget.turns.add('', () => {
          reads++;
          budget.countRead(isNew);
        });
      }
      const counts: number[] = [];
      while (reads < 20) {
        const before = reads;
        await new Promise((resolve) => setImmediate(resolve));
        counts.push(reads - before);
      }
      return counts;
    };
    assert.deepEqual(await perTurn(true), [16, 4]);
    assert.deepEqual(await perTurn(false), Array(20).fill(1));
    for (let i = 0; i < 1000; i++) budget.countMessage('127.0.0.2');
    assert.deepEqual(await perTurn(true), Array(20).fill(1));
    wait(1001);
    assert.deepEqual(await perTurn(true), [16, 4]);
  });

  test('the largest are closed if V8 has little heap left', async (t) => {
    t.mock.method(v8, 'getHeapStatistics', () => ({ used_heap_size: 80, heap_size_limit: 100 }));
    syncBuiltinESMExports();
    t.after(() => {
      t.mock.restoreAll();
      syncBuiltinESMExports();
    });
    const limits = { budgetBytes: 1600 * KIB, maxConnections: 10, connectionBytes: 16 * KIB };
    const budget = new Budget(limits, 60_000, new Turns(() => performance.now()));
    t.after(() => budget.close());
    const rss = process.memoryUsage.rss() + 800 * KIB;
    t.mock.method(process.memoryUsage, 'rss', () => rss);
    const closed: number[] = [];
    for (const heldBytes of [0, 9 * KIB]) {
      const measure = () => heldBytes;
      const destroy = () => closed.push(heldBytes);
      const connection = {
        ...{ network: 'a', heldBytes, busySinceMs: 0, measure, destroy },
        checkProgress: () => {},
      };
      budget.add(connection as unknown as Connection);
    }
    await until(() => closed.length > 0);
    assert.deepEqual([...new Set(closed)], [9 * KIB]);
  });

  test('the smaller the heap, the more often garbage is collected', async (t) => {
    let heapBytes = 0;
    let collections = 0;
    t.mock.method(v8, 'getHeapStatistics', () => {
      return { used_heap_size: heapBytes, heap_size_limit: 1024 * MIB };
    });
    syncBuiltinESMExports();
    let nowMs = 0;
    let rss = process.memoryUsage.rss();
    t.mock.method(process.memoryUsage, 'rss', () => rss);
    const { gc } = globalThis;
    globalThis.gc = (() => void collections++) as typeof gc;
    t.mock.timers.enable({ apis: ['setInterval'] });
    t.after(() => {
      t.mock.restoreAll();
      globalThis.gc = gc;
      syncBuiltinESMExports();
    });
    const limits = { budgetBytes: 100 * MIB, maxConnections: 10, connectionBytes: 16 * KIB };
    const budget = new Budget(limits, 60_000, new Turns(() => nowMs));
    t.after(() => budget.close());
    for (const [mebibytes, expected] of [
      [10, 10],
      [60, 2],
    ] as const) {
      heapBytes = mebibytes * MIB;
      collections = 0;
      // The process grows by more than 85 % of the budget, and keeps growing.
      rss += 90 * MIB;
      for (let tick = 0; tick < 20; tick++) {
        nowMs += 100;
        rss += 10 * MIB;
        t.mock.timers.tick(100);
      }
      assert.equal(collections, expected, `${mebibytes} MiB`);
    }
    // Then clients give back what they held. Without a collection the process would not shrink.
    for (const bytes of [10 * MIB, -10 * MIB]) {
      budget.hold(bytes);
      collections = 0;
      for (let tick = 0; tick < 20; tick++) {
        nowMs += 100;
        t.mock.timers.tick(100);
      }
    }
    assert.equal(collections, 1);
  });

  test('6.18 an IPv6 client has a /64', () => {
    const { budget } = account(0, 0);
    const handler = { handle: () => {}, refusal: () => '', allow: '' };
    const networkOf = (address: string) =>
      new Connection(new Socket(), address, handler, budget).network;
    assert.equal(networkOf('2001:db8::1'), networkOf('2001:db8:0:0:9::2'));
    assert.notEqual(networkOf('2001:db8::1'), networkOf('2001:db8:0:1::1'));
    assert.equal(networkOf('192.0.2.1'), '192.0.2.1');
  });

  test('6.2 a connection whose TLS handshake waits for its turn is not idle', async () => {
    const { budget } = account(0, 0);
    const handler = { handle: () => {}, refusal: () => '', allow: '' };
    const connection = new Connection(new Socket(), '127.0.0.1', handler, budget);
    assert.equal(connection.isIdle, true);
    const begun = new Promise<void>((resolve) => connection.later(resolve));
    assert.equal(connection.isIdle, false);
    await begun;
    assert.equal(connection.isIdle, true);
  });

  /** Returns idle connections whose close takes longer than this turn. */
  function idle(count: number, limits: { budgetBytes: number; maxConnections: number }) {
    const turns = new Turns(() => 0);
    const budget = new Budget({ ...limits, connectionBytes: 16 * KIB }, 60_000, turns);
    budget.close();
    const closed = new Set<number>();
    let heldBytes = 0;
    const hold = (bytes: number) => {
      heldBytes += bytes;
      budget.hold(bytes);
    };
    const add = (i: number) =>
      budget.add({
        ...{ network: `127.0.0.${i % 2}`, heldBytes: 0, isUnfinished: false, isUnread: false },
        get isIdle() {
          return !closed.has(i);
        },
        measure: () => (i === 0 ? heldBytes : 0),
        close: () => closed.add(i),
      } as unknown as Connection);
    for (let i = 0; i < count; i++) add(i);
    return { hold, closed, add };
  }

  test('a burst of requests evicts idle connections once', () => {
    const limits = { budgetBytes: 301 * 16 * KIB, maxConnections: 1000 };
    const { hold, closed } = idle(300, limits);
    for (let i = 0; i < 20; i++) hold(3 * KIB);
    assert.equal(closed.size, 100);
  });

  test('6.3 a burst of connections evicts as many as it needs', () => {
    const limits = { budgetBytes: 1000 * 16 * KIB, maxConnections: 300 };
    const { closed, add } = idle(300, limits);
    for (let i = 300; i < 400; i++) assert.equal(add(i), true);
    assert.equal(closed.size, 100);
    add(400);
    assert.equal(closed.size, 200);
  });

  test('above the budget, a further request does not scan all connections', () => {
    const { budget, looks } = account(100, 0);
    for (let i = 0; i < 1000; i++) {
      budget.hold(3 * KIB);
      budget.hold(-3 * KIB);
    }
    assert.ok(looks() <= 200, `${looks()} looks`);
  });
});

describe('6.17 charges of connections', () => {
  const REQUEST = 'GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n';

  /** Counts the charges of all connections, and sums their bytes. */
  function chargesOf(t: TestContext) {
    const { hold } = Budget.prototype;
    let sum = 0;
    let calls = 0;
    t.mock.method(Budget.prototype, 'hold', function (this: Budget, bytes: number) {
      sum += bytes;
      calls++;
      hold.call(this, bytes);
    });
    return { sum: () => sum, calls: () => calls };
  }

  test('a request that already has its response is charged until its body has been read', async (t) => {
    await using service = await serve({});
    const charges = chargesOf(t);
    const client = await service.open('127.0.0.2', GET);
    assert.equal(charges.sum(), 0);
    client.write(REQUEST);
    await once(client, 'data');
    assert.ok(charges.sum() > 0);
    client.write('12345');
    await until(() => charges.sum() === 0);
  });

  test('the names and values of a header are charged', async (t) => {
    await using service = await serve({}, () => {});
    const charges = chargesOf(t);
    const client = await service.open('127.0.0.2', '');
    client.write(`${HALF}: x\r\nX: ${'x'.repeat(15_000)}\r\n\r\n`);
    await until(() => charges.sum() > 15_000);
  });

  for (const { why, text, least, most } of [
    { why: 'nothing after a request', text: GET, least: 0, most: 0 },
    {
      why: 'a head in the read of a request',
      text: `${GET}${HALF}: x\r\n${FIELDS}`,
      least: 100_000,
    },
    {
      why: 'one long field in the read of a request',
      text: `${GET}${HALF}: ${'x'.repeat(15_000)}`,
      least: 50_000,
    },
    {
      why: 'a head in the read of a chunked request',
      text: `${CHUNKED}${HALF}: ${'x'.repeat(15_000)}`,
      least: 50_000,
    },
    { why: 'trailers without an end', text: `${CHUNKED.slice(0, -2)}${FIELDS}`, least: 50_000 },
    {
      why: 'a long trailer without an end',
      text: `${CHUNKED.slice(0, -2)}X: ${'x'.repeat(15_000)}`,
      least: 15_000,
    },
    { why: 'a small chunked request', text: CHUNKED, least: 0, most: 0 },
    {
      why: 'a body that the service does not read',
      text: `${REQUEST.replace('5', '90000')}${'x'.repeat(60_000)}`,
      least: 0,
      most: 4096,
    },
    {
      why: 'a request with blanks',
      text: GET.replace('Host:', 'Host:          '),
      least: 0,
      most: 0,
    },
  ]) {
    test(`measured: ${why}`, async () => {
      let connection: Connection | undefined;
      let bytesRead = () => 0;
      await using service = await serve({}, (exchange) => {
        connection = exchange.connection;
        bytesRead = () => exchange.req.socket.bytesRead;
        if (exchange.headers['transfer-encoding'] === undefined) reply(exchange);
        else exchange.req.on('data', () => {}).on('end', () => reply(exchange));
      });
      await service.open('127.0.0.2', text);
      await until(() => bytesRead() === text.length);
      await pause(20);
      const bytes = connection!.measure();
      assert.ok(bytes >= least && bytes <= (most ?? 2 ** 20), `${bytes} bytes`);
    });
  }

  test('a request whose body never ends gets no second response', async () => {
    let connection: Connection | undefined;
    await using service = await serve({}, (exchange) => {
      connection = exchange.connection;
      reply(exchange);
    });
    let received = '';
    const client = await service.open('127.0.0.2', '');
    client.on('data', (text) => {
      received += String(text);
    });
    client.write(`${REQUEST}123`);
    await until(() => received !== '');
    connection!.measure();
    // Node emits this error 30 s after the start of a request.
    connection!.reject(Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }));
    await once(client, 'close');
    assert.equal(received.match(/HTTP\/1\.1 /g)?.length, 1);
  });

  test('the rest of a response is charged while it waits for its turn', async (t) => {
    const hold = t.mock.method(Budget.prototype, 'hold');
    const body = Buffer.alloc(100 * 1024);
    await using service = await serve({}, (exchange) => {
      send(exchange, { status: 200, type: 'text/plain', body }, [], false, () => {});
    });
    await service.open('127.0.0.2', GET);
    const rest = 68 * 1024;
    const held = () => hold.mock.calls.map(({ arguments: [bytes] }) => bytes);
    await until(() => held().includes(-rest));
    assert.ok(held().indexOf(rest) < held().indexOf(-rest));
    assert.ok(held().includes(rest));
  });

  test('the chunks of a queued request are charged', async (t) => {
    const charges = chargesOf(t);
    await using service = await serve({}, () => {});
    await service.open('127.0.0.2', GET);
    await until(() => charges.calls() > 0);
    const before = charges.sum();
    const chunks = '1\r\nx\r\n'.repeat(5000);
    await service.open(
      '127.0.0.3',
      `${GET}POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
    );
    await until(() => charges.sum() - before > 500_000);
  });

  test('6.18 everything that node parses in one read counts', async (t) => {
    for (const { text, least } of [
      { text: GET.repeat(2000), least: 1999 },
      { text: `${GET.replace('/', '/last')}${GET.repeat(2000)}`, least: 2000 },
      {
        text: `${CHUNKED.slice(0, -'2\r\n{}\r\n0\r\n\r\n'.length)}${'1\r\nx\r\n'.repeat(9000)}`,
        least: 9000,
      },
      { text: `${HALF}: x\r\n${FIELDS}\r\n`, least: 300 },
      // 4,000 entity tags take about a millisecond.
      { text: `${HALF}: x\r\nIf-Match: ${'"1",'.repeat(4000)}\r\n\r\n`, least: 100 },
    ]) {
      let weight = 0;
      const counted = t.mock.method(Budget.prototype, 'countMessage', (_: string, one = 1) => {
        weight += one;
      });
      await using service = await serve({}, (exchange) =>
        reply(exchange, exchange.req.url === '/last' || exchange.req.method === 'POST'),
      );
      await service.open('127.0.0.2', text);
      await until(() => weight >= least);
      counted.mock.restore();
    }
  });

  test('6.18 loading a piece of a response counts against its turn', async (t) => {
    const spent: number[] = [];
    t.mock.method(Turns.prototype, 'spend', (ms: number) => void spent.push(ms));
    const parts = [Buffer.from('x'), Promise.resolve(), Buffer.from('y')];
    const body = { next: () => parts.shift() };
    await using service = await serve({}, (exchange) => {
      send(exchange, { status: 200, type: 'text/plain', body }, [], false, () => {});
    });
    await service.open('127.0.0.2', GET);
    await until(() => parts.length === 0);
    assert.ok(spent.includes(0.5), `${spent} ms`);
  });

  test('the start of a request is recorded before it is handled', async () => {
    const before = performance.now();
    const started = Promise.withResolvers<number>();
    await using service = await serve({}, ({ startMs }) => started.resolve(startMs));
    await service.open('127.0.0.2', GET);
    assert.ok((await started.promise) >= before);
  });

  test('a destroyed connection stops counting in the same turn', async (t) => {
    await using service = await serve({ budgetBytes: 2 * MIB }, () => {});
    const measure = t.mock.method(Connection.prototype, 'measure');
    await service.open('127.0.0.2', GET.repeat(10));
    const client = await service.open('127.0.0.3', GET.repeat(1000));
    await new Promise((resolve) => client.once('close', resolve));
    const looks = measure.mock.callCount();
    assert.ok(looks > 0 && looks <= 40, `${looks} looks`);
  });

  test('the duration of an earlier request does not count for a new one', async () => {
    await using service = await serve({ budgetBytes: MIB, connectionBytes: 64 * 1024 });
    const old = await service.open('127.0.0.2', GET);
    await pause(1_100);
    for (let i = 0; i < 15; i++) await service.open('127.0.0.3', '');
    // This charge exceeds the budget.
    old.write(GET);
    await once(old, 'data');
  });

  test('a response to a client that has disconnected refunds nothing', async (t) => {
    const asked = Promise.withResolvers<Exchange>();
    await using service = await serve({}, asked.resolve);
    const charges = chargesOf(t);
    const client = await service.open(
      '127.0.0.2',
      GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'),
    );
    const exchange = await asked.promise;
    const closed = new Promise((resolve) => exchange.req.socket.once('close', resolve));
    client.resetAndDestroy();
    await closed;
    const calls = charges.calls();
    reply(exchange, true);
    assert.equal(charges.calls(), calls);
  });

  /** Collects garbage until the object is freed, for 1.5 s at most. */
  async function collected(reference: WeakRef<object>): Promise<boolean> {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const deadline = performance.now() + 1500;
    while (reference.deref() !== undefined && performance.now() < deadline) {
      await pause(20);
      collect();
    }
    return reference.deref() === undefined;
  }

  test('a connection that closes while it lingers is not kept', async () => {
    let connection: WeakRef<Connection> | undefined;
    await using service = await serve({}, (exchange) => {
      connection = new WeakRef(exchange.connection);
      reply(exchange, true);
    });
    const client = await service.open('127.0.0.2', GET);
    await once(client, 'data');
    client.destroy();
    assert.ok(await collected(connection!));
  });

  test('a connection that closes while it waits for its turn is not kept', async () => {
    const turns = new EndlessTurns();
    let request: WeakRef<object> | undefined;
    const respond = ({ connection, req }: Exchange) => {
      request = new WeakRef(req);
      turns.isWaiting = true;
      connection.pauseForTurn();
      assert.equal(turns.tasks.size, 1);
      connection.destroy();
    };
    await using service = await serve({}, respond, turns);
    const client = await service.open('127.0.0.2', GET);
    await new Promise((resolve) => client.once('close', resolve));
    assert.ok(await collected(request!));
  });

  test('6.18 a closed connection takes no time of a turn', async (t) => {
    const received = Promise.withResolvers<Connection>();
    await using service = await serve({}, ({ connection }) => received.resolve(connection));
    await service.open('127.0.0.2', GET);
    const connection = await received.promise;
    const spend = t.mock.method(Turns.prototype, 'spend');
    connection.pauseForTurn();
    connection.destroy();
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(spend.mock.callCount(), 0);
  });

  test('work that waits for its turn runs once the connection has closed', async () => {
    const turns = new EndlessTurns();
    const ran: string[] = [];
    const respond = ({ connection }: Exchange) => {
      turns.isWaiting = true;
      connection.later(() => ran.push('before'));
      connection.destroy();
      connection.later(() => ran.push('after'));
    };
    await using service = await serve({}, respond, turns);
    await service.open('127.0.0.2', GET);
    await until(() => ran.length === 2);
    assert.deepEqual(ran.sort(), ['after', 'before']);
  });
});

test('2.11 many long pipelines add no listeners to their connection', async () => {
  let socket: Socket | undefined;
  await using service = await serve({}, (exchange) => {
    socket = exchange.req.socket;
    reply(exchange);
  });
  const client = await service.open('127.0.0.2', GET);
  const listeners: number[] = [];
  for (let round = 0; round < 3; round++) {
    let bytes = 0;
    const all = new Promise<void>((resolve) => {
      client.on('data', (chunk) => {
        bytes += String(chunk).split('HTTP/1.1 ').length - 1;
        if (bytes >= 100) resolve();
      });
    });
    client.write(GET.repeat(100));
    await all;
    client.removeAllListeners('data').resume();
    listeners.push(socket!.listenerCount('close'));
  }
  assert.equal(listeners[2], listeners[0]);
});
