// The real store and pool on a simulated server, in simulated time: random stories of calls and faults, and
// what the contract promises for each. FAST_CHECK_SEED repeats a run, SIMULATE is the number of stories.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import '../support/seed.ts';
import { stories } from './events.ts';
import { World } from './world.ts';

const COUNT = Number(process.env.SIMULATE ?? 2000);

Error.stackTraceLimit = 0; // The store makes an error for each call that fails.
const seed = fc.noShrink(fc.integer({ min: 1 }));
const surroundings = fc.record({
  seed,
  poolSize: fc.integer({ min: 1, max: 4 }),
  replicas: fc.constantFrom(1, 1, 2),
  poolerSize: fc.constantFrom(0, 0, 1, 2, 5), // 0 is none
  attributes: fc.constantFrom('read-write', 'any'), // target_session_attrs
  isHealed: fc.boolean(), // all faults end, and the pool must be whole soon
});
const property = fc.asyncProperty(surroundings, stories, async ({ isHealed, ...around }, story) => {
  const world = new World(around);
  for (const letter of 'abcdef') world.call({ kind: 'create', email: `${letter}@x` });
  await world.pass(200);
  for (const { run } of story) await run(world);
  if (isHealed) await world.heal();
  await world.end();
});
// Before there is a test: node:test tracks each promise of a test, which takes half of the time.
const result = await fc.check(property, { numRuns: COUNT });

const AROUND = { seed: 1, poolSize: 4, replicas: 1, poolerSize: 0, attributes: 'any' };
test('5.1 a pool stays at a host that has no room for another connection', async () => {
  const { server, time } = new World(AROUND);
  server.condition.maxBackends = 2;
  await time.pass(1_000);
  const sessions = [...server.clients.keys()];
  await time.pass(60_000);
  assert.deepEqual([sessions.length, server.clients.size], [2, 2]);
  assert.ok(sessions.every((session) => server.clients.has(session)));
});

test('5.9 reads work while writes look for a primary whose machine is gone', async () => {
  const world = new World(AROUND);
  world.server.hosts[0]!.frozenUntil = 1e9;
  await world.time.pass(5_000);
  for (let n = 0; n < 200; n++) {
    world.call({ kind: 'update', id: 1 });
    world.call({ kind: 'find', id: 1 }, 'b');
    await world.time.pass(50);
  }
  const reads = world.calls.filter(({ call }) => call.kind === 'find');
  assert.ok(!reads.some(({ result }) => result instanceof Error));
});

test(`5.1 5.6 5.7 5.9 5.11 ${COUNT} simulated stories keep the promises of the contract`, () => {
  const cause = result.errorInstance instanceof Error ? result.errorInstance.message : '';
  assert.ok(!result.failed, `${cause}\n${fc.defaultReportMessage(result)}`);
});
