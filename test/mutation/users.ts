// The model of section 4 against a service in this process, where `npm run mutate` changes the code. In
// `npm test` it runs against the program (test/contract/users.test.ts).
import { after, test } from 'node:test';
import fc from 'fast-check';
import { start } from '../../src/start.ts';
import { EDGES, LONGEST, Model, randomSteps } from '../support/users-model.ts';

const service = await start({ BODY_LIMIT_BYTES: LONGEST });
after(() => service.close());

for (const [what, steps] of Object.entries(EDGES)) {
  test(`every edge of ${what}`, () => Model.run(service.url, steps));
}

test('random requests', () => {
  const property = fc.asyncProperty(randomSteps, (steps) => Model.run(service.url, steps));
  return fc.assert(property, { numRuns: 30, endOnFailure: true });
});
