// Rules of section 4 that need concurrency or requests that `fetch` can't send. Everything else about
// one user is in users-model.test.ts, many users in users-list.test.ts, failures in stores.test.ts.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { raw, send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';

let emails = 0;

describe('2.18 behind a proxy that removes a prefix', () => {
  for (const { proxies, prefix, seen } of [
    { proxies: '1', prefix: '/api', seen: '/api' },
    { proxies: '2', prefix: '/a/b.c/', seen: '/a/b.c' },
    { proxies: '1', prefix: '/%C3%A4', seen: '/%C3%A4' },
    { proxies: '0', prefix: '/api', seen: '' },
    { proxies: '1', prefix: '//evil.example', seen: '' },
    { proxies: '1', prefix: '/a/../b', seen: '' },
    { proxies: '1', prefix: '/a>; rel="prev"', seen: '' },
    { proxies: '1', prefix: undefined, seen: '' },
  ]) {
    test(`2.18 4.2 4.4 4.8 TRUST_PROXY=${proxies}: ${prefix} gives paths with "${seen}"`, async () => {
      await using program = await start({ TRUST_PROXY: proxies });
      const headers = { ...(prefix && { 'x-forwarded-prefix': prefix }) };
      const ask = (path: string, method = 'GET', body?: object) =>
        send(`${program.url}${path}`, { method, headers, ...(body && { body }) });
      const created = await ask('/users', 'POST', { name: 'Ada', email: newEmail() });
      const { id } = JSON.parse(created.body);
      await ask('/users', 'POST', { name: 'Bob', email: newEmail() });
      const patched = await ask(`/users/${id}`, 'PATCH', { name: 'Ada King' });
      const put = await ask(`/users/${id}`, 'PUT', { name: 'Ada', email: newEmail() });
      const listed = await ask('/users?limit=1');
      assert.deepEqual(
        [
          created.headers.get('location'),
          patched.headers.get('content-location'),
          put.headers.get('content-location'),
          listed.headers.get('link'),
        ],
        [
          `${seen}/users/${id}`,
          `${seen}/users/${id}`,
          `${seen}/users/${id}`,
          `<${seen}/users?limit=1&after=${id}>; rel="next"`,
        ],
      );
    });
  }
});

for (const store of STORES) {
  describe(`4 users, concurrently (${store})`, () => {
    let program: Program;
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
    });
    after(() => program?.[Symbol.asyncDispose]());

    test('4.10 of ten concurrent POSTs with one email, one returns 201 and nine 400', async () => {
      const email = newEmail();
      const bodies = await race(201, 400, () => {
        return { path: '', method: 'POST', body: { name: 'Racer', email } };
      });
      assert.equal(await find(program, email), `[${bodies[0]}]`);
    });

    for (const method of ['PUT', 'PATCH']) {
      test(`4.10 of ten concurrent ${method}s with one email, one returns 200 and nine 400`, async () => {
        const paths = await Promise.all(
          Array.from({ length: 10 }, async () => (await newUser(program)).path),
        );
        const email = newEmail();
        const bodies = await race(200, 400, (i) => {
          return { path: paths[i]!, method, body: { name: 'Racer', email } };
        });
        assert.equal(await find(program, email), `[${bodies[0]}]`);
      });
    }

    for (const method of ['PUT', 'PATCH', 'DELETE']) {
      const lost = method === 'DELETE' ? 404 : 412;
      test(`4.8 of ten concurrent ${method}s with one tag, one returns 200 and nine ${lost}`, async () => {
        const { path, tag } = await newUser(program);
        await race(200, lost, () => {
          const body = method === 'DELETE' ? undefined : { name: 'Grace', email: newEmail() };
          return { path, method, body, headers: { 'if-match': tag } };
        });
      });
    }

    test('4.7 of ten concurrent DELETEs, one returns 200 and nine 404', async () => {
      const { path } = await newUser(program);
      await race(200, 404, () => ({ path, method: 'DELETE' }));
    });

    test('4.8 two lines of If-Match are one list', async () => {
      const { path, tag } = await newUser(program);
      const head = [
        `DELETE /users${path} HTTP/1.1`,
        ...['Host: x', 'Connection: close', 'If-Match: "x"', `If-Match: ${tag}`],
      ];
      assert.match(await raw(program.url, `${head.join('\r\n')}\r\n\r\n`), /^HTTP\/1\.1 200 /);
    });

    test('4.12 POST /users without a body and a type returns 400', async () => {
      const head = 'POST /users HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
      assert.match(await raw(program.url, head), /^HTTP\/1\.1 400 Bad Request\r\n/);
    });

    /** Sends ten requests at once. Returns the bodies of the responses, that of the winner first. */
    async function race(
      won: number,
      lost: number,
      request: (i: number) => { path: string } & NonNullable<Parameters<typeof send>[1]>,
    ): Promise<readonly string[]> {
      const requests = Array.from({ length: 10 }, (_, i) => request(i));
      const responses = await Promise.all(
        requests.map(({ path, ...init }) => send(`${program.url}/users${path}`, init)),
      );
      responses.sort((one, other) => one.status - other.status);
      assert.deepEqual(
        responses.map(({ status }) => status),
        [won, ...Array(9).fill(lost)],
      );
      return responses.map(({ body }) => body);
    }
  });
}

function newEmail(): string {
  emails++;
  return `user-${emails}@users.example`;
}

async function newUser(program: Program): Promise<{ path: string; tag: string }> {
  const body = { name: 'Ada', email: newEmail() };
  const { headers } = await send(`${program.url}/users`, { method: 'POST', body });
  return { path: headers.get('location')!.replace('/users', ''), tag: headers.get('etag')! };
}

async function find(program: Program, email: string): Promise<string> {
  return (await send(`${program.url}/users?email=${email}`)).body;
}
