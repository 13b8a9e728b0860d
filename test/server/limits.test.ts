// The limits that follow from the memory of the process.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as limits from '../../src/server/limits.ts';

const MEBIBYTE = 1024 * 1024;
const MACHINE = 16 * 1024; // MiB

for (const { why, setting, constrained, heap, budget } of [
  { why: '128 MiB', constrained: 128, heap: 76, budget: 28 },
  { why: '64 MiB, a quarter of the rest', constrained: 64, heap: 44, budget: 10 },
  { why: 'a setting below the group', setting: 128, constrained: 256, heap: 140, budget: 26 },
  { why: 'no control group, all memory', constrained: 0, heap: MACHINE, budget: 4090 },
  { why: 'a control group of all memory', constrained: MACHINE, heap: 4096, budget: 1146 },
]) {
  test(`6.17 the budget of ${why}: ${budget} MiB`, () => {
    const may = {
      settingBytes: setting && setting * MEBIBYTE,
      groupBytes: constrained * MEBIBYTE,
      machineBytes: MACHINE * MEBIBYTE,
      heapLimitBytes: heap * MEBIBYTE,
      maxFiles: 2 ** 20,
    };
    assert.equal(limits.apiLimits(may, false).budgetBytes, budget * MEBIBYTE);
  });
}

const ANY = { settingBytes: undefined, groupBytes: 0, machineBytes: 1, heapLimitBytes: 1 };

test('6.3 a connection over TLS costs more, and the admin listener has slots of its own', () => {
  const [plain, tls] = [false, true].map((isTls) =>
    limits.apiLimits({ ...ANY, maxFiles: 1 }, isTls),
  );
  assert.ok(tls!.connectionBytes > plain!.connectionBytes);
  const requestBytes = limits.REQUEST_BYTES + 100;
  assert.ok(plain!.modestBytes > plain!.connectionBytes + 3 * requestBytes); // pipelined
  assert.ok(tls!.modestBytes >= 2 * tls!.connectionBytes); // a handshake
  for (const { connectionBytes, modestBytes } of [plain!, tls!]) {
    assert.ok(connectionBytes + requestBytes + 8 * 16_000 > modestBytes); // a body
  }
  const sockets = [plain!, tls!, limits.adminLimits].map((one) => one.sockets);
  assert.deepEqual(sockets, process.platform === 'linux' ? [16, 4, 1] : [1, 1, 1]);
  const { budgetBytes, maxConnections } = limits.adminLimits;
  assert.deepEqual([budgetBytes, maxConnections], [4 * MEBIBYTE, 64]);
});

// Node looks at the interval, so a client has up to a second more. connections.test.ts has what it gets then.
test('6.3, 6.13 a head may take 10 s, a request 30 s, a handshake 10 s', () => {
  const { HTTP_OPTIONS: http, TLS_OPTIONS: tls } = limits;
  const times = [http.headersTimeout, http.requestTimeout, http.connectionsCheckingInterval];
  assert.deepEqual([...times, tls.handshakeTimeout], [10_000, 30_000, 1_000, 10_000]);
});

test('6.3 connections leave descriptors to the rest of the process', () => {
  const files = [60, 1024, 10_256, Number.POSITIVE_INFINITY];
  const found = files.map(
    (maxFiles) => limits.apiLimits({ ...ANY, maxFiles }, false).maxConnections,
  );
  assert.deepEqual(found, [15, 768, 10_000, 10_000]);
});
