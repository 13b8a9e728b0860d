// Many misbehaving clients abort in the middle of a response, send slowly, or only connect. Other
// requests work meanwhile, and afterwards the service has released all resources.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { after, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Program, STORES, start } from '../support/program.ts';
import { POOL_SIZE } from './campaign.ts';
import { Ledger } from './ledger.ts';
import { report } from './results.ts';
import { addUsers, connectionsOf, databaseOf, releaseServer, usersIn } from './users.ts';
import { Writers } from './writers.ts';

const USERS = 20_000;
const ABORTING = 1000;
/** Concurrent aborting clients. */
const CROWD = 50;
const SLOW = 250;
const IDLE = 2000;
const WRITERS = 4;
const LEAK_BYTES = 48 * 2 ** 20;
const SETTLE_MS = 15_000;

const POST = 'POST /users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
const SLOW_HEADERS = 'GET /users HTTP/1.1\r\nHost: x\r\nX-Slow: ';
const SLOW_BODY = `${POST}Content-Length: 50\r\n\r\n{"name":`;
const LIST = 'GET /users HTTP/1.1\r\nHost: x\r\n\r\n';

after(releaseServer);

describe('misbehaving clients', { concurrency: true, timeout: 300_000 }, () => {
  for (const store of STORES) {
    test(`aborting, slow and idle clients (${store})`, async (t) => {
      const DATABASE_URL = await databaseOf(store);
      await using program = await start({ DATABASE_URL });
      const ledger = new Ledger();
      const writers = new Writers(ledger, program.url, WRITERS);
      // Postgres has its schema by then.
      await writers.progress(200);
      await addUsers(DATABASE_URL, USERS);
      const { descriptors } = usage(program);
      // Memory of the first wave can be reused. Growth in the second wave is a leak.
      const first = await wave(program, writers, true);
      await settled(() => usage(program).descriptors <= descriptors);
      const { bytes } = usage(program);
      const second = await wave(program, writers, false);
      await settled(() => usage(program).descriptors <= descriptors);
      const grown = usage(program).bytes - bytes;
      assert.ok(grown < LEAK_BYTES, `memory grew by ${grown} bytes`);
      const aborted = first + second;
      t.diagnostic(`${aborted} aborted in mid-response, memory grew by ${grown} bytes`);
      await writers.stop();
      assert.deepEqual([writers.surprises, writers.broken, writers.count(500)], [[], 0, 0]);
      if (store === 'postgres') await settled(() => areIdle(DATABASE_URL));
      const rows = await usersIn(DATABASE_URL);
      const written = rows.filter(({ email }) => !email.startsWith('listed'));
      assert.deepEqual(ledger.check(written), { lost: [], duplicated: [] });
      const { acknowledged } = ledger;
      const fault = 'clients that abort, read slowly or idle';
      const injected = aborted + 2 * (2 * SLOW + IDLE);
      report(t, { fault, store, injected, acknowledged, lost: 0, duplicated: 0 });
    });
  }
});

/**
 * Aborts responses, then opens slow and idle connections, while the writers continue. A patient
 * wave waits for the 408 of the slow ones; others abort them.
 * @returns the number of aborted responses
 */
async function wave(program: Program, writers: Writers, isPatient: boolean): Promise<number> {
  const aborted = await crowd(program, ABORTING);
  const idle = await Promise.all(Array.from({ length: IDLE }, () => open(program, '')));
  const slow = await Promise.all(
    Array.from({ length: 2 * SLOW }, (_, i) => open(program, i % 2 ? SLOW_HEADERS : SLOW_BODY)),
  );
  await settled(() => usage(program).descriptors >= IDLE + 2 * SLOW);
  const responses = Promise.all(slow.map(({ socket, text }) => closed(socket).then(text)));
  await writers.progress(200);
  if (isPatient) {
    const refused = (await responses).filter((text) => text.startsWith('HTTP/1.1 408 '));
    assert.equal(refused.length, 2 * SLOW);
  }
  for (const { socket } of [...idle, ...slow]) socket.destroy();
  return aborted;
}

/** Runs clients that request the whole list and disconnect at its first bytes, `count` times. */
async function crowd(program: Program, count: number): Promise<number> {
  let aborted = 0;
  const client = async () => {
    while (aborted < count) {
      const { socket, text } = await open(program, LIST);
      await once(socket, 'data');
      assert.match(text(), /^HTTP\/1\.1 200 /);
      if (!text().endsWith('0\r\n\r\n')) aborted++;
      socket.resetAndDestroy();
    }
  };
  await Promise.all(Array.from({ length: CROWD }, client));
  return aborted;
}

async function open({ url }: Program, bytes: string) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).setEncoding('latin1');
  let text = '';
  socket.on('error', () => {});
  socket.on('data', (part) => {
    text += part;
  });
  await once(socket, 'connect');
  socket.write(bytes);
  return { socket, text: () => text };
}

async function closed(socket: Socket): Promise<void> {
  if (!socket.closed) await once(socket, 'close');
}

function usage({ process: { pid } }: Program) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const bytes = Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
  return { bytes, descriptors: readdirSync(`/proc/${pid}/fd`).length };
}

/** Resolves once the condition holds. With a leak, it never does. */
async function settled(condition: () => boolean | Promise<boolean>): Promise<void> {
  const ends = performance.now() + SETTLE_MS;
  while (!(await condition())) {
    assert.ok(performance.now() < ends, `still not: ${condition}`);
    await pause(50);
  }
}

/** True if the service has all its connections and all are idle. */
async function areIdle(databaseUrl: string): Promise<boolean> {
  const states = await connectionsOf(databaseUrl);
  return states.length === POOL_SIZE && states.every((state) => state === 'idle');
}
