// Section 4, and both stores' responses (5.0), by the model of test/support/users-model.ts: every edge value,
// then random requests. A failure prints the step, and for random requests the shortest list of steps and its
// seed. Calls at once are in test/store/together.test.ts, many users in users-list.test.ts, failures in stores.test.ts.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import { send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';
import { create, newEmail, serve } from '../support/service.ts';
import { EDGES, LONGEST, Model, randomSteps } from '../support/users-model.ts';

const RUNS = 60;

test('2.18 4.2 4.4 4.8 behind two proxies the paths have the prefix that one removed', async () => {
  await using program = await start({ TRUST_PROXY: '2' });
  const headers = { 'x-forwarded-prefix': '/a/b.c/' };
  const body = { name: 'Ada', email: newEmail() };
  for (const [method, path, header] of [
    ['POST', '/users', 'location'],
    ['PATCH', '/users/1', 'content-location'],
    ['PUT', '/users/1', 'content-location'],
  ] as const) {
    const response = await send(program.url + path, { method, headers, body });
    assert.equal(response.headers.get(header), '/a/b.c/users/1', method);
  }
  await create(program);
  const page = await send(`${program.url}/users?limit=1`, { headers });
  assert.equal(page.headers.get('link'), '</a/b.c/users?limit=1&after=1>; rel="next"');
});

for (const store of STORES) {
  describe(`4 users (${store})`, () => {
    let program: Program;
    before(async () => {
      const env = { BODY_LIMIT_BYTES: String(LONGEST) };
      program = await serve({ ...env, DATABASE_URL: await newDatabase(store) });
    });

    for (const [what, steps] of Object.entries(EDGES)) {
      test(`4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7, 4.8, 4.9, 4.10, 4.11, 4.12 every edge of ${what}`, () =>
        Model.run(program.url, steps));
    }

    test('4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7, 4.8, 4.9, 4.10, 4.11, 4.12, 4.15, 4.16, 5.0 random requests', () => {
      const property = fc.asyncProperty(randomSteps, (steps) => Model.run(program.url, steps));
      return fc.assert(property, { numRuns: RUNS });
    });
  });
}
