// The real store and pool on a simulated server, in simulated time: random stories of calls and faults, and
// what the contract promises for each. FAST_CHECK_SEED repeats a run, SIMULATE is the number of stories.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { stories } from './events.ts';
import { World } from './world.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);
const COUNT = Number(process.env.SIMULATE ?? 2000);

test(`${COUNT} simulated stories keep the promises of the contract`, async (t) => {
  t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
  const seed = fc.noShrink(fc.integer({ min: 1 }));
  const property = fc.asyncProperty(
    ...([seed, fc.integer({ min: 1, max: 4 }), fc.boolean(), stories] as const),
    async (random, poolSize, isHealed, story) => {
      const setup = async () => {
        const real = new World(random, poolSize);
        for (let n = 0; n < 6; n++) real.call({ kind: 'create', email: n });
        await real.pass(200);
        world = real;
        return { model: {}, real };
      };
      let world: World | undefined;
      await fc.asyncModelRun(setup, story);
      if (isHealed) await world!.heal();
      await world!.end();
    },
  );
  const result = await fc.check(property, { seed: SEED, numRuns: COUNT });
  const cause = result.errorInstance instanceof Error ? result.errorInstance.message : '';
  assert.ok(!result.failed, `${cause}\n${fc.defaultReportMessage(result)}`);
});
