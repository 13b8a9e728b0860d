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

test(`5.1 5.6 5.7 5.9 5.11 ${COUNT} simulated stories keep the promises of the contract`, () => {
  const cause = result.errorInstance instanceof Error ? result.errorInstance.message : '';
  assert.ok(!result.failed, `${cause}\n${fc.defaultReportMessage(result)}`);
});
