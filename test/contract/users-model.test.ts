// Section 4, and both stores' responses (5.0), by the model of test/support/users-model.ts: every edge value, then random requests. A failure
// prints the step, and for random requests the shortest list of steps and its seed. What needs concurrency
// or many users is in users.test.ts and users-list.test.ts.
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';
import { EDGES, Model, randomSteps } from '../support/users-model.ts';

const RUNS = 60;

for (const store of STORES) {
  describe(`4 users by the model (${store})`, () => {
    let program: Program;
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
    });

    test('4.5, 4.6, 4.11 every edge of a field without a key', () =>
      Model.run(program.url, EDGES.fields));
    test('4.5, 4.6, 4.10, 4.11 every edge of an email', () => Model.run(program.url, EDGES.emails));
    test('4.4, 4.5, 4.6, 4.12 every kind of body', () => Model.run(program.url, EDGES.bodies));
    test('4.3, 4.7, 4.9 every spelling of an id', () => Model.run(program.url, EDGES.ids));
    test('4.3, 4.8 every form of a list of tags', () => Model.run(program.url, EDGES.tags));
    test('4.1, 4.2 every edge of a query', () => Model.run(program.url, EDGES.queries));

    test('4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7, 4.8, 4.9, 4.10, 4.11, 4.12, 4.15, 4.16, 5.0 random requests', () =>
      fc.assert(
        fc.asyncProperty(randomSteps, (steps) => Model.run(program.url, steps)),
        { numRuns: RUNS },
      ));
  });
}
