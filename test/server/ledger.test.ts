// The ledger: whom it closes, and that its sums hold.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Holder, Ledger, type Network } from '../../src/server/ledger.ts';
import { adminLimits, apiLimits } from '../../src/server/limits.ts';

const MEBIBYTE = 1024 * 1024;
const LIMITS = { budgetBytes: 1_000_000, maxConnections: 64, connectionBytes: 1_000 };
const NOW_MS = 100_000;

interface Row {
  readonly name: string;
  readonly network: string;
  readonly site?: string;
  readonly waitsMs?: number; // for this client; undefined: the client waits for us
  readonly holds?: number; // bytes in addition to the connection
}

/** Returns the names of the clients that the ledger closes once all are there, in order. */
async function closedOf(rows: readonly Row[], limits = LIMITS): Promise<string[]> {
  const ledger = new Ledger<Holder>(limits, () => NOW_MS);
  const closed: string[] = [];
  for (const { name, network, site, waitsMs, holds = 0 } of rows) {
    const client = {
      network: ledger.networkOf(network, site) satisfies Network,
      waitingSinceMs: waitsMs === undefined ? undefined : NOW_MS - waitsMs,
      heldBytes: 0,
      close() {
        closed.push(name);
        ledger.remove(client);
      },
    };
    ledger.add(client);
    ledger.charge(client, holds);
  }
  assert.deepEqual(closed, [], 'nothing is closed inside the stack of the caller');
  await null;
  assert.ok(ledger.heldBytes <= limits.budgetBytes);
  assert.ok(ledger.holders.size <= limits.maxConnections);
  for (const client of [...ledger.holders]) {
    ledger.refund(client, client.heldBytes - limits.connectionBytes);
    ledger.remove(client);
  }
  assert.equal(ledger.heldBytes, 0);
  return closed;
}

const times = (count: number, row: (i: number) => Row) =>
  Array.from({ length: count }, (_, i) => row(i));

describe('6.17 whom the ledger closes', () => {
  test('6.17 nobody while everything fits', async () => {
    assert.deepEqual(await closedOf(times(64, (i) => ({ name: `${i}`, network: 'a' }))), []);
  });

  test('6.17 the many connections of one network before the one of another, however old', async () => {
    const rows = times(64, () => ({ name: 'many', network: 'a', waitsMs: 0 }));
    const closed = await closedOf([{ name: 'one', network: 'b', waitsMs: 30_000 }, ...rows]);
    assert.deepEqual(closed, ['many', 'many']);
  });

  test('6.17 an older idle connection of the network before a newcomer', async () => {
    const rows = times(64, (i) => ({ name: `${i}`, network: 'a', waitsMs: 64 - i }));
    const closed = await closedOf([...rows, { name: 'new', network: 'a', waitsMs: 0 }]);
    assert.deepEqual(closed, ['0', '1']);
  });

  test('6.17 a newcomer, if it has itself the greatest product', async () => {
    const rows = times(64, (i) => ({ name: `${i}`, network: `${i}`, waitsMs: 0 }));
    const closed = await closedOf([...rows, { name: 'new', network: '0', waitsMs: 100 }]);
    assert.deepEqual(closed, ['new', '0']);
  });

  test('6.17 of one network, those that hold most', async () => {
    const small = times(20, () => ({ name: 'small', network: 'a', waitsMs: 0, holds: 10_000 }));
    const large = times(4, () => ({ name: 'large', network: 'a', waitsMs: 0, holds: 200_000 }));
    assert.deepEqual(await closedOf([...small, ...large]), ['large']);
  });

  test('6.17 a client that waits for us does not age', async () => {
    const waiting = { name: 'honest', network: 'a', holds: 30_000 };
    const fresh = times(40, (i) => ({
      name: 'fresh',
      network: `n${i}`,
      waitsMs: 500,
      holds: 30_000,
    }));
    assert.ok(!(await closedOf([waiting, ...fresh])).includes('honest'));
  });

  test('6.17 the networks decide while everything waits for us', async () => {
    const one = times(8, (i) => ({ name: 'one', network: `n${i}`, holds: 50_000 }));
    const many = times(16, () => ({ name: 'many', network: 'a', holds: 50_000 }));
    assert.deepEqual(new Set(await closedOf([...one, ...many])), new Set(['many']));
  });

  test('6.17 many networks of one /48 count together, like 64 times a network', async () => {
    const site = '2001:db8:0::/48';
    const rows = times(32, (i) => ({ name: 'site', network: `s${i}`, site, waitsMs: 0 }));
    const others = times(32, (i) => ({ name: 'other', network: `n${i}`, waitsMs: 0 }));
    const last = { name: 'site', network: 's32', site, waitsMs: 0 };
    assert.equal((await closedOf([...others, ...rows, last])).length, 2);
    const limits = { ...LIMITS, maxConnections: 512 };
    const large = times(500, (i) => ({ name: 'site', network: `s${i}`, site, waitsMs: 0 }));
    const closed = await closedOf([...others, ...large], limits);
    assert.deepEqual(new Set(closed), new Set(['site']));
  });

  test('6.17 until 1/64 of the maximum is free', async () => {
    const limits = { ...LIMITS, maxConnections: 640, budgetBytes: 10 ** 9 };
    const closed = await closedOf(
      times(641, () => ({ name: 'x', network: 'a' })),
      limits,
    );
    assert.equal(closed.length, 11);
  });
});

test('6.17 the sums of networks return to 0, so no network is kept without connections', () => {
  const ledger = new Ledger<Holder>(LIMITS, () => NOW_MS);
  const make = () => {
    const network = ledger.networkOf('2001:db8:0:1', '2001:db8:0::/48');
    return { network, waitingSinceMs: 0, heldBytes: 0, close() {} };
  };
  const [a, b] = [make(), make()];
  ledger.add(a);
  const c = make();
  ledger.add(c);
  ledger.remove(a);
  ledger.remove(a);
  assert.equal(c.network.heldBytes, LIMITS.connectionBytes);
  assert.equal(c.network.site?.heldBytes, LIMITS.connectionBytes);
  ledger.remove(c);
  assert.equal(c.network.heldBytes, 0);
  assert.notEqual(ledger.networkOf('2001:db8:0:1'), b.network);
});

describe('6.17 the memory limit', () => {
  for (const { why, setting, constrained, heap, expected } of [
    {
      why: '128 MiB with half of it for V8',
      setting: undefined,
      constrained: 128,
      heap: 76,
      expected: 28,
    },
    {
      why: '256 MiB with half of it for V8',
      setting: undefined,
      constrained: 256,
      heap: 140,
      expected: 92,
    },
    {
      why: 'a setting below the control group',
      setting: 128,
      constrained: 256,
      heap: 140,
      expected: 26,
    },
    { why: '64 MiB', setting: undefined, constrained: 64, heap: 44, expected: 10 },
    { why: 'no control group', setting: undefined, constrained: 0, heap: 4096, expected: 122 },
    {
      why: 'a control group without limit',
      setting: undefined,
      constrained: 2 ** 44,
      heap: 4096,
      expected: 122,
    },
  ]) {
    test(`6.17 ${why} leaves ${expected} MiB`, () => {
      const bytes = setting === undefined ? undefined : setting * MEBIBYTE;
      const limits = apiLimits(bytes, constrained * MEBIBYTE, 2 ** 34, heap * MEBIBYTE, false);
      assert.equal(limits.budgetBytes, expected * MEBIBYTE);
    });
  }

  test('6.3 a connection over TLS costs more, and the admin listener has its own slots', () => {
    const [plain, tls] = [false, true].map((isTls) => apiLimits(undefined, 0, 1, 1, isTls));
    assert.ok(tls!.connectionBytes > plain!.connectionBytes);
    assert.equal(adminLimits.maxConnections, 64);
  });
});
