// Rules 4.1, 4.2 and 4.14 of the contract: lists of many users. Short ones are in users.test.ts.
// Large ones are inserted directly into the database, because requests would take too long.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { before, describe, test } from 'node:test';
import { type Client, open } from '../support/bytes.ts';
import { responsesIn, send, statusesOf } from '../support/client.ts';
import { newDatabase, type Program, STORES } from '../support/program.ts';
import { create, execute, insertUsers, list, serve, type User } from '../support/service.ts';

const ROWS = 200_000;
const MEMORY_LIMIT_BYTES = 64 * 2 ** 20;
const ON_LINUX = { skip: process.platform !== 'linux' && 'needs /proc, which Linux has' };
const NAME = 'x'.repeat(100); // makes the list larger than all buffers between the two processes

const row = (id: number): User => ({
  id,
  name: (NAME + id).slice(-100),
  email: `${id}@many.example`,
});
/** Without the fields that a fork adds. */
const known = ({ id, name, email }: User): User => ({ id, name, email });

for (const store of STORES) {
  describe(`4.1 and 4.14 a list of ${ROWS} users (${store})`, () => {
    let program: Program;
    let database: string;
    before(async () => {
      database = await newDatabase(store);
      const env = { DATABASE_POOL_SIZE: '1', DATABASE_TIMEOUT_MS: '2000' };
      program = await serve({ DATABASE_URL: database, ...env });
      await insertUsers(database, ROWS, `substr('${NAME}' || i, length('' || i) + 1)`);
    });

    test('4.1 memory stays within 64 MB of idle, and the list is complete', ON_LINUX, async () => {
      const proc = `/proc/${program.process.pid}`;
      const memory = async (field: string) => {
        const status = await readFile(`${proc}/status`, 'utf8');
        const [, kilobytes] = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)!;
        return Number(kilobytes) * 1024;
      };
      await list(program, '?limit=1000');
      const idle = await memory('VmRSS');
      // Takes the lowest of several peaks, because V8's background compiler also takes memory.
      let peak = Number.POSITIVE_INFINITY;
      for (let i = 0; i < 4 && peak - idle >= MEMORY_LIMIT_BYTES; i++) {
        await writeFile(`${proc}/clear_refs`, '5');
        const response = await fetch(`${program.url}/users`);
        const users = (await response.json()) as User[];
        peak = Math.min(peak, await memory('VmHWM'));
        assert.equal(users.length, ROWS);
        assert.ok(users.every(({ id }, i) => id === i + 1));
        assert.deepEqual([users[0]!, users.at(-1)!].map(known), [row(1), row(ROWS)]);
      }
      assert.ok(peak - idle < MEMORY_LIMIT_BYTES, `from ${idle} to ${peak} bytes`);
    });

    test('4.1 4.2 a list of 500 users or more has no Content-Length', async () => {
      for (const [query, from, count, isLast = false] of [
        ['limit=499', 1, 499],
        ['limit=500', 1, 500],
        [`after=${ROWS - 499}&limit=1000`, ROWS - 498, 499, true],
        [`after=${ROWS - 500}`, ROWS - 499, 500, true],
      ] as const) {
        const users = Array.from({ length: count }, (_, i) => row(from + i));
        const link = isLast ? null : `</users?limit=${count}&after=${count}>; rel="next"`;
        for (const method of ['GET', 'HEAD']) {
          const { headers, body } = await send(`${program.url}/users?${query}`, { method });
          const found = [headers.get('link'), headers.has('content-length')];
          assert.deepEqual(found, [link, count < 500], query);
          if (method === 'GET') assert.deepEqual(JSON.parse(body).map(known), users);
        }
      }
    });

    test('4.1 a slow reader holds no store connection, and others are served between its pages', async () => {
      const reader = await openReader(program, 'slow');
      const { id } = await create(program);
      const user = `${program.url}/users/${id}`;
      const responses = [
        await send(user),
        await send(`${program.url}/users?limit=3`),
        await send(user, { method: 'DELETE' }),
      ];
      assert.deepEqual(statusesOf(responses), [200, 200, 200]);
      assert.deepEqual(finished(program, 'slow'), [], 'the list is still being sent');
      reader.socket.resume();
      assert.equal((await send(program.url)).status, 200);
      const atGreeting = reader.text().length;
      await reader.closed;
      const all = reader.text().length;
      assert.ok(atGreeting < all / 2, `after ${atGreeting} of ${all} bytes`);
      assert.equal(JSON.parse(responsesIn(reader.text())[0]!.body).length, ROWS);
      await program.until(() => finished(program, 'slow').length > 0);
      assert.deepEqual(finished(program, 'slow'), [200]);
    });

    test('4.1 a list ends when its client disconnects, and a pipelined one never starts', async () => {
      const { socket } = await openReader(program, 'gone-1', 'gone-2');
      socket.resetAndDestroy();
      await program.until(() => finished(program, 'gone-1').length > 0);
      await send(program.url, { headers: { 'x-request-id': 'later' } });
      await program.until(() => finished(program, 'later').length > 0);
      const requests = program.log.filter(({ message }) => message === 'request');
      const last = requests.slice(-2).map(({ requestId }) => requestId);
      assert.deepEqual(last, ['gone-1', 'later']);
    });

    // This test is last, because it renames the table.
    test('2.9, 4.14 a store failure in the middle of a list resets the connection and is logged', async () => {
      const reader = await openReader(program, 'fails');
      // Before the table is away: on a busy machine the buffers between the two are not full yet.
      const failed = once(reader.socket, 'error');
      await execute(database, 'alter table users rename to users_away');
      reader.socket.resume();
      assert.equal((await failed)[0].code, 'ECONNRESET');
      assert.equal((await program.logged('request failed')).requestId, 'fails');
      await program.until(() => finished(program, 'fails').length > 0);
      assert.deepEqual(finished(program, 'fails'), [200]);
      await execute(database, 'alter table users_away rename to users');
      assert.equal((await send(`${program.url}/users?limit=1`)).status, 200);
    });
  });
}

/** Requests the whole list once for each id, and reads only the start of the first. */
async function openReader(program: Program, ...ids: string[]): Promise<Client> {
  const client = await open(program.url);
  const fields = ids.length > 1 ? '' : 'Connection: close\r\n';
  for (const id of ids) {
    client.socket.write(`GET /users HTTP/1.1\r\nHost: x\r\nX-Request-Id: ${id}\r\n${fields}\r\n`);
  }
  await once(client.socket, 'data');
  client.socket.pause();
  return client;
}

/** Returns the statuses of the log's lines for that request. */
function finished(program: Program, id: string): unknown[] {
  return program.log
    .filter(({ message, requestId }) => message === 'request' && requestId === id)
    .map(({ status }) => status);
}
