// A list of a million users streams in 128 MiB: to one client, and to ten slow ones at once.
// HOSTILE=full runs it at 256 MiB and on both stores, too.
import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { createDatabase } from '../support/postgres.ts';
import { newDatabase, STORES } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { HonestClient } from './honest.ts';
import { IS_FULL, report, reported, table } from './results.ts';
import { peakDuring, Service } from './service.ts';
import { aftermath, assertNone, faultsOf } from './siege.ts';
import { addUsers } from './users.ts';

const MIB = 2 ** 20;
const LIMITS = IS_FULL ? [128 * MIB, 256 * MIB] : [128 * MIB];
const POOL_SIZE = 4;
const USERS = 1_000_000;

/** A slow client reads a piece of up to 64 KiB this often: at most 3.2 MB per second. */
const SLOW_MS = 20;

const stores = IS_FULL ? STORES : (['sqlite'] as const);
const postgres = IS_FULL ? await Server.create('-c', 'fsync=off') : undefined;

after(async () => {
  process.stdout.write(`\n${table(reported())}\n`);
  await postgres?.[Symbol.asyncDispose]();
});

const cases = stores.flatMap((store) => LIMITS.map((limitBytes) => ({ store, limitBytes })));

for (const { store, limitBytes } of cases) {
  const place = `${store}, ${limitBytes / MIB} MiB`;
  test(`a list of a million users streams (${place})`, { timeout: 600_000 }, async (t) => {
    const url =
      store === 'postgres' ? await createDatabase(postgres!.url) : await newDatabase(store);
    await using service = await Service.start({
      limitBytes,
      settings: { DATABASE_URL: url },
    });
    await addUsers(url, USERS, 'listed');
    for (const { name, count, everyMs } of [
      { name: 'a client that reads a million users', count: 1, everyMs: 0 },
      { name: 'ten slow clients that read a million users', count: 10, everyMs: SLOW_MS },
    ]) {
      await t.test(name, async () => {
        const rest = service.usage();
        const honest = new HonestClient(service, [{ path: '/' }, { path: '/users/1' }]);
        let read: number[] = [];
        const peakBytes = await peakDuring(service.group, async () => {
          const readers = Array.from({ length: count }, () => usersRead(service.port, everyMs));
          read = await Promise.all(readers);
          await honest.stop();
        });
        const spareDescriptors = store === 'postgres' ? POOL_SIZE : 0;
        const { afterBytes, faults } = await aftermath(service, rest, limitBytes, spareDescriptors);
        const { successRate, p99Ms, total: requests } = honest;
        report({
          ...{ attack: name, form: 'image', transport: 'plain', store, limitBytes },
          ...{ restBytes: rest.usedBytes, peakBytes, afterBytes, requests, successRate, p99Ms },
          ...{ isAlive: service.end === undefined },
        });
        assert.equal(service.end, undefined);
        assert.deepEqual(
          read,
          Array.from({ length: count }, () => USERS),
        );
        assertNone({ ...faultsOf(honest), ...faults });
      });
    }
  });
}

/** Reads the whole list, one piece per interval; resolves with the number of users. */
async function usersRead(port: number, everyMs: number): Promise<number> {
  const socket: Socket = connect({ host: '127.0.0.1', port, localAddress: '127.0.0.3' });
  socket.write('GET /users HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  let count = 0;
  let rest = '';
  for await (const chunk of socket) {
    const text = rest + chunk.toString('latin1');
    // Each user has one. A part that is split is joined with the next piece.
    const parts = text.split('"id":');
    count += parts.length - 1;
    rest = parts.at(-1)!.slice(-4);
    if (everyMs > 0) await pause(everyMs);
  }
  // Without the last chunk the list is incomplete.
  assert.ok(rest.endsWith('\r\n'), 'the list was cut');
  return count;
}
