// Two replicas behind the page's HAProxy: responses to clients while Postgres is down, when a replica closes a
// connection before its response, and while one stops.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { basic, send, sendUnchecked, statusesOf } from '../support/client.ts';
import { token } from '../support/login.ts';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/postgres-server.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';
import { until } from '../support/until.ts';
import { startBalancer } from './balancer.ts';
import { settings } from './page.ts';
import { HAPROXY } from './programs.ts';

const skip = HAPROXY === '' && 'not installed: apt-get install haproxy';
const STATUS_TIMEOUT_MS = 60_000;

describe('two replicas behind HAProxy', { skip }, () => {
  const stack = new AsyncDisposableStack();
  let postgres: Server;
  let replicas: readonly [Program, Program];
  before(async () => {
    postgres = stack.use(await Server.create());
    const env = settings(await createDatabase(postgres.url));
    replicas = [stack.use(await start(env)), stack.use(await start(env))];
  });
  after(() => stack.disposeAsync());

  test('3.1 7.1 7.2 without Postgres, the routes that need no store work behind two backends', async () => {
    await using balancer = await startBalancer(replicas);
    const { url } = balancer;
    await becomes(`${url}/users`, 200);
    // 2.18: a client can't forge the prefix.
    const body = { name: 'Ada', email: 'ada@example.com' };
    const headers = { 'X-Forwarded-Prefix': '/forged' };
    const created = await send(`${url}/users`, { method: 'POST', headers, body });
    assert.match(created.headers.get('location')!, /^\/users\//);
    await postgres.kill();
    // HAProxy's own 503: no replica is ready.
    await becomes(`${url}/users`, 503);
    assert.deepEqual(await statusesWithoutStore(url), [200, 200, 200]);
    await postgres.start();
    await becomes(`${url}/users`, 200);
  });

  test('a request whose connection closes before its response is retried if its route needs no store', async () => {
    let closed = 0;
    const closing = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => {
        closed++;
        socket.resetAndDestroy();
      });
    });
    await once(closing.listen(0, '127.0.0.1'), 'listening');
    const { port } = closing.address() as AddressInfo;
    const first = { url: `http://127.0.0.1:${port}`, adminUrl: replicas[0].adminUrl };
    await using balancer = await startBalancer([first, replicas[1]]);
    const { url } = balancer;
    await becomes(url, 200);
    for (let i = 0; i < 4; i++) {
      assert.deepEqual(await statusesWithoutStore(url), [200, 200, 200]);
    }
    assert.ok(closed > 0);
    closed = 0;
    // 4.13: a write is not sent twice. Instead of a 502, HAProxy closes a connection that served a request.
    const writes = [1, 2, 3, 4].map(async (n) => {
      const body = { name: 'Ada', email: `ada${n}@example.org` };
      assert.equal((await sendUnchecked(`${url}/users`, { method: 'POST', body })).status, 201);
    });
    const failed = (await Promise.allSettled(writes)).filter(({ status }) => status === 'rejected');
    assert.ok(closed > 0);
    assert.equal(failed.length, closed);
    closing.close();
  });

  test('6.2 when a replica stops, no request to either backend fails', async () => {
    await using balancer = await startBalancer(replicas);
    const { url } = balancer;
    await becomes(`${url}/users`, 200);
    let isDone = false;
    let responded = 0;
    const failures: string[] = [];
    const clients = ['/', '/openapi.json', '/users?limit=1', '/users'].map(async (path) => {
      for (; !isDone; responded++) {
        const { status } = await send(url + path);
        if (status !== 200) failures.push(`${path}: ${status}`);
      }
    });
    assert.deepEqual(await replicas[0].stop(), { code: 0, signal: null });
    const goal = responded + 100;
    assert.ok(responded > 0);
    await until(() => responded >= goal || failures.length > 0);
    isDone = true;
    await Promise.all(clients);
    assert.deepEqual(failures, []);
  });
});

async function statusesWithoutStore(url: string): Promise<number[]> {
  const bearer = `Bearer ${await token({ url })}`;
  const responses = await Promise.all([
    send(url),
    send(`${url}/notes`, { headers: { Authorization: bearer } }),
    send(`${url}/protected`, { headers: { Authorization: basic(USER, PASSWORD) } }),
  ]);
  return statusesOf(responses);
}

function becomes(url: string, status: number): Promise<void> {
  return until(async () => (await sendUnchecked(url)).status === status, STATUS_TIMEOUT_MS);
}
