// Section 4, and both stores' responses (5.0), by the model of test/support/users-model.ts: every edge value,
// then random requests. A failure prints the step, and for random requests the shortest list of steps and its
// seed. Then rules that need other settings, or requests that `fetch` can't send. Calls at once are in
// test/store/together.test.ts, many users in users-list.test.ts, failures in stores.test.ts.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import { raw, send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';
import { create, newEmail, serve } from '../support/service.ts';
import { EDGES, LONGEST, Model, randomSteps } from '../support/users-model.ts';

const RUNS = 60;

test('2.18 4.2 4.4 4.8 behind two proxies the paths have the prefix that one removed', async () => {
  await using program = await start({ TRUST_PROXY: '2' });
  const headers = { 'x-forwarded-prefix': '/a/b.c/' };
  const linkOf = async (header: string, method: string, path: string, body?: object) => {
    const response = await send(program.url + path, { method, headers, body });
    return response.headers.get(header);
  };
  const ada = { name: 'Ada', email: newEmail() };
  const links = [
    await linkOf('location', 'POST', '/users', ada),
    await linkOf('content-location', 'PATCH', '/users/1', { name: 'Ada King' }),
    await linkOf('content-location', 'PUT', '/users/1', ada),
  ];
  assert.deepEqual(links, Array(3).fill('/a/b.c/users/1'));
  await create(program);
  const next = await linkOf('link', 'GET', '/users?limit=1');
  assert.equal(next, '</a/b.c/users?limit=1&after=1>; rel="next"');
});

for (const store of STORES) {
  describe(`4 users (${store})`, () => {
    let program: Program;
    before(async () => {
      const env = { BODY_LIMIT_BYTES: String(LONGEST) };
      program = await serve({ ...env, DATABASE_URL: await newDatabase(store) });
    });

    test('4.5, 4.6, 4.11 every edge of a field without a key', () =>
      Model.run(program.url, EDGES.fields));
    test('4.5, 4.6, 4.10, 4.11 every edge of an email', () => Model.run(program.url, EDGES.emails));
    test('2.9, 4.4, 4.5, 4.6, 4.12 every kind of body', () => Model.run(program.url, EDGES.bodies));
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

test('4.8 two lines of If-Match are one list', async () => {
  await using program = await start();
  await create(program);
  const head = ['DELETE /users/1 HTTP/1.1', 'Host: x', 'If-Match: "x"', 'If-Match: "1-1"'];
  const text = await raw(program.url, `${head.join('\r\n')}\r\nConnection: close\r\n\r\n`);
  assert.match(text, /^HTTP\/1\.1 200 /);
});
