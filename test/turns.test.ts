// Expensive work is split over turns of the event loop.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Turns } from '../src/turns.ts';

test('6.18 tasks run in order, as many per turn as fit into 2 ms', async () => {
  let now = 0;
  const turns = new Turns(() => now);
  const order: number[] = [];
  const done = () => order.length;
  for (let i = 0; i < 5; i++) {
    turns.add('', () => {
      now += 1;
      order.push(i);
    });
  }
  assert.equal(done(), 0);
  await turn();
  assert.deepEqual(order, [0, 1]);
  await turn();
  assert.deepEqual(order, [0, 1, 2, 3]);
  await turn();
  assert.deepEqual(order, [0, 1, 2, 3, 4]);
  turns.add('', () => order.push(5));
  await turn();
  assert.equal(done(), 6);
});

test('6.18 a task that takes longer has its own turn', async () => {
  let now = 0;
  const turns = new Turns(() => now);
  let done = 0;
  for (let i = 0; i < 3; i++) {
    turns.add('', () => {
      now += 50;
      done++;
    });
  }
  for (const count of [1, 2, 3]) {
    await turn();
    assert.equal(done, count);
  }
});

for (const { why, turnMs, accepts } of [
  { why: 'short turns: for 10 ms', turnMs: 0.1, accepts: 100 },
  // With a wait of only 10 ms, work would alternate with only a few connections.
  { why: 'long turns: until 32 are accepted', turnMs: 2, accepts: 32 },
  { why: 'very long turns: for 100 ms', turnMs: 25, accepts: 5 },
]) {
  test(`6.18 while connections are accepted, work waits (${why})`, async () => {
    let now = 0;
    const turns = new Turns(() => now);
    let isDone = false;
    turns.add('', () => {
      isDone = true;
    });
    let accepted = 0;
    do {
      turns.recordAccept();
      accepted++;
      await turn();
      now = accepted * turnMs;
    } while (!isDone);
    // The wait begins with the first connection.
    assert.ok(Math.abs(accepted - accepts) <= 1, `after ${accepted}`);
  });
}

for (const { waitedMs, expected } of [
  { waitedMs: 10, expected: 5 },
  // A long wait must not make the next turn as long.
  { waitedMs: 900, expected: 5 },
]) {
  test(`6.18 work that has waited for ${waitedMs} ms for connections gets 10 ms`, async () => {
    let now = 0;
    const turns = new Turns(() => now);
    let done = 0;
    for (let i = 0; i < 20; i++) {
      turns.add('', () => {
        done++;
        turns.spend(2);
      });
    }
    for (let i = 0; i < 31; i++) turns.recordAccept();
    await turn();
    now += waitedMs;
    turns.recordAccept();
    await turn();
    assert.equal(done, expected);
  });
}

test('6.18 connections are accepted before work, also after a long read', async () => {
  let now = 0;
  const turns = new Turns(() => now);
  let done = 0;
  for (let i = 0; i < 2; i++) {
    turns.add('', () => {
      done++;
      turns.spend(2);
    });
  }
  await turn();
  now += 50;
  turns.recordAccept();
  await turn();
  assert.equal(done, 1);
  await turn();
  assert.equal(done, 2);
});

test('6.18 clients take turns, regardless of how many tasks they have', async () => {
  const turns = new Turns(() => 0);
  const order: string[] = [];
  for (const name of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) {
    turns.add(name[0]!, () => order.push(name));
  }
  await turn();
  assert.equal(order.join(' '), 'a1 b1 c1 a2 c2 a3');
});

test('6.18 a client that has caused a lot of work waits for the others, but not forever', async () => {
  let now = 0;
  const turns = new Turns(() => now);
  const order: string[] = [];
  const add = (client: string) => turns.add(client, () => order.push(client));
  turns.charge('heavy', 9);
  turns.charge('heavy', 9);
  turns.charge('light', 9);
  for (let i = 0; i < 4; i++) add('heavy');
  for (let i = 0; i < 16; i++) add('light');
  await turn();
  assert.equal(order.indexOf('heavy'), 7);
  assert.equal(order.lastIndexOf('light'), 17);
  assert.equal(order.length, 20);
  // After a second, the earlier work no longer counts.
  now += 1000;
  add('light');
  await turn();
  order.length = 0;
  add('heavy');
  add('light');
  await turn();
  assert.deepEqual(order, ['heavy', 'light']);
  // The client can also cancel its tasks.
  turns.charge('light', 20);
  const task = () => order.push('never');
  turns.add('light', task);
  turns.delete('light', task);
  await turn();
  assert.deepEqual(order, ['heavy', 'light']);
});

test('6.18 a task that adds another waits its turn again', async () => {
  const turns = new Turns(() => 0);
  const order: string[] = [];
  turns.add('a', () => {
    order.push('a1');
    turns.add('a', () => order.push('a2'));
  });
  turns.add('b', () => order.push('b1'));
  await turn();
  assert.equal(order.join(' '), 'a1 b1 a2');
});

test('6.18 a turn has time for the reads that its tasks cause', async () => {
  const turns = new Turns(() => 0);
  let done = 0;
  for (const ms of [0.5, 1.5, 0.5, 1, 2]) {
    turns.add('', () => {
      done++;
      turns.spend(ms);
    });
  }
  for (const expected of [2, 5]) {
    await turn();
    assert.equal(done, expected);
  }
});

test('6.18 a task that is cancelled does not run', async () => {
  const turns = new Turns(() => 0);
  const ran: string[] = [];
  const task = () => ran.push('taken back');
  turns.add('a', task);
  turns.delete('a', task);
  turns.delete('a', task);
  turns.add('b', () => ran.push('b'));
  await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(ran, ['b']);
});
