// The admin listener. The contract tests of section 7 cover the rest.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { adminHandler } from '../../src/ops/admin.ts';
import { adminLimits } from '../../src/server/limits.ts';
import { Listener } from '../../src/server/listener.ts';
import type { Caller, UserStore } from '../../src/user.ts';
import { until } from '../support/until.ts';

test('6.17 7.2 the store sees that a client of /ready has left', async (t) => {
  const { promise, resolve } = Promise.withResolvers<Caller | undefined>();
  const ping = (caller?: Caller) => {
    resolve(caller);
    return new Promise<void>(() => {}); // The store is stuck.
  };
  const handler = adminHandler(
    () => false,
    { ping } as UserStore,
    () => '',
  );
  const timeouts = { idleTimeoutMs: 65_000, unreadTimeoutMs: 60_000 };
  const admin = new Listener(handler, { limits: adminLimits, ...timeouts });
  t.after(() => admin[Symbol.dispose]());
  const client = connect(await admin.listen(0, '127.0.0.1'), '127.0.0.1');
  await once(client, 'connect');
  client.write('GET /ready HTTP/1.1\r\nHost: x\r\n\r\n');
  const caller = await promise;
  assert.equal(caller?.hasLeft, false);
  client.resetAndDestroy();
  await until(() => caller.hasLeft);
});
