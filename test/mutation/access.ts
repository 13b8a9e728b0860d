// Logins against a service in this process, as in users.ts. In `npm test` they go to the program
// (test/contract/access.test.ts).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { start } from '../../src/start.ts';
import { checkAuthorization } from '../support/authorization.ts';
import { basic, send } from '../support/client.ts';
import { PASSWORD, USER } from '../support/program.ts';
import { INCOMPLETE, WRONG } from '../vectors/logins.ts';

const RIGHT = { id: USER, pw: PASSWORD };
const post = (url: string, body: object) => send(`${url}/token`, { method: 'POST', body });

test('the right pair gets a token, and each route its body', async () => {
  await using service = await start({ AUTH_PASSWORD: PASSWORD, AUTH_NAME: 'Ada' });
  const { status, headers, body } = await post(service.url, RIGHT);
  assert.deepEqual([status, headers.get('cache-control')], [200, 'no-store']);
  assert.match(JSON.parse(body).token, /^[\w-]+\.[\w-]+\.[\w-]+$/);
  const bearer = `Bearer ${JSON.parse(body).token}`;
  for (const [path, authorization, expected] of [
    ['/', '', /^Hello/],
    ['/protected', basic(USER, PASSWORD), /^Welcome, Ada\.\n$/],
    ['/notes', bearer, /^\{"title":"Welcome"/],
    ['/openapi.json', '', /^\{\s*"openapi"/],
    ['/docs', '', /^<!doctype html>/i],
  ] as const) {
    assert.match((await send(service.url + path, { headers: { authorization } })).body, expected);
  }
});

for (const [bodies, later] of [
  [INCOMPLETE, 200],
  [WRONG, 429],
] as const) {
  test(`other pairs are refused, and then the right one returns ${later}`, async () => {
    for (const body of bodies) {
      await using service = await start({ AUTH_PASSWORD: PASSWORD, AUTH_FAILURES_PER_MINUTE: 1 });
      const { status, headers } = await post(service.url, body);
      assert.deepEqual([status, headers.get('www-authenticate')], [401, 'Bearer realm="token"']);
      assert.equal((await post(service.url, RIGHT)).status, later);
    }
  });
}

test('only one header with right credentials is accepted', async () => {
  await using service = await start({ AUTH_PASSWORD: PASSWORD, AUTH_FAILURES_PER_MINUTE: 1 });
  await checkAuthorization(service.url);
});
