// The admin listener. The contract tests of section 7 cover the rest.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../src/http/exchange.ts';
import { adminHandler } from '../../src/ops/admin.ts';
import type { UserStore } from '../../src/user.ts';

// A store that sees that it has left doesn't make the call: test/store/stores.test.ts.
test('6.17 7.2 the store gets the client of /ready', async () => {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const ping = (caller: unknown) => {
    resolve(caller);
    return new Promise<void>(() => {}); // The store is stuck.
  };
  const handler = adminHandler(
    () => false,
    { ping } as UserStore,
    () => '',
  );
  const exchange = { req: { method: 'GET', url: '/ready' }, check: () => {} } as Exchange;
  handler.handle(exchange);
  assert.equal(await promise, exchange);
});
