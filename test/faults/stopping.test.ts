// SIGTERM under load, of clients that keep their connections and of clients that pipeline requests.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';
import { type Entry, Ledger } from './ledger.ts';
import { report, TIMES } from './results.ts';
import { usersIn } from './users.ts';
import { Writers } from './writers.ts';

const WRITERS = 16;
const PIPELINES = 8;
/** Maximum time from the last response to the exit. */
const LAST_SECONDS = 1;

for (const store of STORES) {
  test(`6.2 SIGTERM under load of keep-alive and pipelining clients (${store})`, async (t) => {
    const DATABASE_URL = await newDatabase(store);
    const ledger = new Ledger();
    let lastSeconds = 0;
    let landed = 0;
    const untaken: Entry[] = [];
    for (let i = 0; i < TIMES.others * 3; i++) {
      await using program = await start({ DATABASE_URL });
      const writers = new Writers(ledger, program.url, WRITERS);
      const pipelines = Array.from({ length: PIPELINES }, () => pipeline(program));
      await writers.progress(2 * WRITERS);
      await pause(Math.random() * 50);
      if (writers.inFlight > 0) landed++;
      const exit = program.exited.then((status) => ({ ...status, endedMs: Date.now() }));
      program.process.kill('SIGTERM');
      // A client that gets `Connection: close` reconnects. It ends when it is refused.
      await writers.ended;
      const responses = await Promise.all(pipelines);
      // 0: within SHUTDOWN_TIMEOUT_MS.
      const { endedMs, ...status } = await exit;
      assert.deepEqual(status, { code: 0, signal: null });
      const respondedMs = program.log
        .filter(({ message }) => message === 'request')
        .map(({ time }) => Date.parse(String(time)));
      lastSeconds = Math.max(lastSeconds, (endedMs - Math.max(...respondedMs)) / 1000);
      assert.deepEqual([writers.surprises, writers.cutOff], [[], []]);
      untaken.push(...writers.untaken);
      for (const { taken, responded } of responses) assert.equal(responded, taken);
      const responded = responses.reduce((sum, response) => sum + response.responded, 0);
      assert.ok(responded > 0);
    }
    assert.equal(landed, TIMES.others * 3);
    assert.ok(lastSeconds < LAST_SECONDS, `ended ${lastSeconds} s after the last response`);
    const rows = await usersIn(DATABASE_URL);
    assert.deepEqual(ledger.check(rows), { lost: [], duplicated: [] });
    // Requests after the listener closed were not done, so a client can send them elsewhere.
    const versions = new Map(rows.map(({ email, version }) => [email, version]));
    assert.deepEqual(
      untaken.map(({ email }) => versions.get(email)),
      untaken.map(({ id, changes }) => (id === undefined ? undefined : changes + 1)),
    );
    const { acknowledged } = ledger;
    report(t, { injected: landed, acknowledged });
  });
}

/** Requests that a pipelining client sends in one packet. */
const DEPTH = 10;

/**
 * Reads users in packets of requests until the server closes the connection. Resolves with the
 * number of accepted requests and of responses.
 */
async function pipeline({ url }: Program) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).setEncoding('latin1');
  let text = '';
  let asked = 0;
  const responded = () => text.split('HTTP/1.1 200').length - 1;
  const send = () => {
    asked += DEPTH;
    socket.write('GET /users?limit=1 HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(DEPTH));
  };
  socket.on('error', () => {});
  socket.on('data', (part) => {
    text += part;
    if (responded() === asked && !/connection: close/i.test(text)) send();
  });
  socket.once('connect', send);
  await once(socket, 'close');
  // A last packet without any response was sent to a closed connection.
  const isTaken = responded() > asked - DEPTH;
  return { taken: isTaken ? asked : asked - DEPTH, responded: responded() };
}
