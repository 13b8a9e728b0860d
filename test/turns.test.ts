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
    turns.add(() => {
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
  turns.add(() => order.push(5));
  await turn();
  assert.equal(done(), 6);
});

test('6.18 a task that takes longer has its own turn', async () => {
  let now = 0;
  const turns = new Turns(() => now);
  let done = 0;
  for (let i = 0; i < 3; i++) {
    turns.add(() => {
      now += 50;
      done++;
    });
  }
  for (const count of [1, 2, 3]) {
    await turn();
    assert.equal(done, count);
  }
});

test('6.18 while connections are accepted, work waits for at most 10 ms', async () => {
  let now = 100;
  const turns = new Turns(() => now);
  let done = 0;
  turns.add(() => done++);
  await turn();
  assert.equal(done, 1);
  turns.add(() => done++);
  turns.accepted();
  await turn();
  assert.equal(done, 1);
  turns.accepted();
  now += 10;
  await turn();
  assert.equal(done, 2);
});
