// Rules 4.3 to 4.7, 4.9 to 4.12 and 4.15 of the contract: one user.
// Lists are in users-list.test.ts, entity tags in users-conditional.test.ts, failures of the store
// in stores.test.ts.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const JSON_TYPE = 'application/json';
const MERGE_PATCH = 'application/merge-patch+json';
const STRONG_TAG = /^"[\x21\x23-\x7e]+"$/;

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
  describe(`4 users (${store})`, () => {
    let program: Program;
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
    });
    after(() => program?.[Symbol.asyncDispose]());

    test('4.4 POST /users returns 201, the user, its Location and its ETag', async () => {
      const email = newEmail();
      const response = await post(program, { name: 'Ada', email });
      const { id } = JSON.parse(response.body);
      assert.ok(Number.isInteger(id) && id >= 1);
      assert.deepEqual(summary(response), {
        status: 201,
        type: JSON_TYPE,
        body: JSON.stringify({ id, name: 'Ada', email }),
      });
      assert.equal(response.headers.get('location'), `/users/${id}`);
      assert.match(response.headers.get('etag') ?? '', STRONG_TAG);
      const read = await get(program, id);
      assert.equal(read.headers.get('etag'), response.headers.get('etag'));
      assert.equal(read.body, response.body);
    });

    test('4.4 ids ascend by creation', async () => {
      const ids = [];
      for (let i = 0; i < 5; i++) ids.push((await newUser(program)).id);
      assert.deepEqual(
        ids,
        ids.toSorted((a, b) => a - b),
      );
      assert.equal(new Set(ids).size, 5);
    });

    test('4.3 GET /users/{id} returns 200, the user and a strong ETag', async () => {
      const user = await newUser(program);
      const response = await get(program, user.id);
      assert.deepEqual(summary(response), {
        status: 200,
        type: JSON_TYPE,
        body: JSON.stringify(user),
      });
      assert.match(response.headers.get('etag') ?? '', STRONG_TAG);
    });

    test('4.3 HEAD /users/{id} returns the headers of GET and no body', async () => {
      const user = await newUser(program);
      const responses = await Promise.all(
        ['GET', 'HEAD'].map((method) => send(`${program.url}/users/${user.id}`, { method })),
      );
      const heads = responses.map(({ status, headers }) => [
        status,
        ...['content-type', 'content-length', 'etag'].map((name) => headers.get(name)),
      ]);
      assert.deepEqual(heads[1], heads[0]);
      assert.deepEqual([heads[0]?.[0], responses[1]?.body], [200, '']);
    });

    for (const { why, path } of [
      { why: 'a trailing slash', path: (id: number) => `/users/${id}/` },
      { why: 'percent-encoding', path: (id: number) => `/%75sers/${percent(String(id))}` },
      { why: 'a query', path: (id: number) => `/users/${id}?limit=0&email=x` },
    ]) {
      test(`4.3 ${why} does not change which user is returned`, async () => {
        const user = await newUser(program);
        const response = await send(program.url + path(user.id));
        assert.deepEqual([response.status, response.body], [200, JSON.stringify(user)]);
      });
    }

    test('4.5 PUT /users/{id} replaces both fields and returns 200, the user and the new ETag', async () => {
      const user = await newUser(program);
      const before = await get(program, user.id);
      const email = newEmail();
      const response = await put(program, user.id, { name: 'Grace', email });
      assert.deepEqual(summary(response), {
        status: 200,
        type: JSON_TYPE,
        body: JSON.stringify({ id: user.id, name: 'Grace', email }),
      });
      const after = await get(program, user.id);
      assert.equal(after.body, response.body);
      assert.equal(after.headers.get('etag'), response.headers.get('etag'));
      assert.notEqual(after.headers.get('etag'), before.headers.get('etag'));
      assert.equal(response.headers.get('content-location'), `/users/${user.id}`);
    });

    test('4.5 PUT of the same values returns 200 and the user', async () => {
      const { id, ...fields } = await newUser(program);
      const response = await put(program, id, fields);
      assert.deepEqual([response.status, response.body], [200, JSON.stringify({ id, ...fields })]);
    });

    test('4.16 the tag changes with every change, and with nothing else', async () => {
      const { id, ...fields } = await newUser(program);
      const tag = async () => (await get(program, id)).headers.get('etag');
      const first = await tag();
      assert.equal((await put(program, id, fields)).headers.get('etag'), first);
      for (const body of [{}, { name: fields.name }, fields, { other: 1 }]) {
        const response = await send(`${program.url}/users/${id}`, { method: 'PATCH', body });
        assert.deepEqual([response.status, response.headers.get('etag')], [200, first]);
      }
      const seen = [first];
      for (const body of [{ name: 'B' }, { email: newEmail() }, fields, { name: 'B' }]) {
        await send(`${program.url}/users/${id}`, { method: 'PATCH', body });
        seen.push(await tag());
      }
      assert.equal(new Set(seen).size, 5);
    });

    for (const field of ['name', 'email']) {
      test(`4.5 PUT without ${field} returns 400 and changes nothing`, async () => {
        const { id, ...fields } = await newUser(program);
        const response = await put(program, id, { ...fields, [field]: undefined });
        assert.deepEqual(heading(response), [400, TEXT]);
        assert.match(response.body, new RegExp(`\\b${field}\\b`));
        assert.deepEqual(JSON.parse((await get(program, id)).body), { id, ...fields });
      });
    }

    test('4.5 PUT never creates a user', async () => {
      const { id } = await newUser(program);
      const email = newEmail();
      const response = await put(program, id + 1000, { name: 'Eve', email });
      assert.deepEqual(heading(response), [404, TEXT]);
      const found = await send(`${program.url}/users?email=${email}`);
      assert.equal(found.body, '[]');
    });

    for (const type of [JSON_TYPE, MERGE_PATCH]) {
      for (const { why, change } of [
        { why: 'name', change: () => ({ name: 'Grace' }) },
        { why: 'email', change: () => ({ email: newEmail() }) },
        { why: 'both fields', change: () => ({ name: 'Grace', email: newEmail() }) },
      ]) {
        test(`4.6 PATCH of ${why} as ${type} keeps the other field and returns 200`, async () => {
          const user = await newUser(program);
          const before = await get(program, user.id);
          const changed = { ...user, ...change() };
          const { id: _, ...body } = Object.fromEntries(
            Object.entries(changed).filter(([key, value]) => user[key as keyof User] !== value),
          );
          const response = await patch(program, user.id, body, type);
          assert.deepEqual(summary(response), {
            status: 200,
            type: JSON_TYPE,
            body: JSON.stringify(changed),
          });
          const after = await get(program, user.id);
          assert.equal(after.body, response.body);
          assert.equal(after.headers.get('etag'), response.headers.get('etag'));
          assert.notEqual(after.headers.get('etag'), before.headers.get('etag'));
          assert.equal(response.headers.get('content-location'), `/users/${user.id}`);
        });
      }

      test(`4.6 PATCH of an empty object as ${type} changes nothing and returns 200`, async () => {
        const user = await newUser(program);
        const before = await get(program, user.id);
        const response = await patch(program, user.id, {}, type);
        assert.deepEqual([response.status, response.body], [200, JSON.stringify(user)]);
        assert.equal(response.headers.get('etag'), before.headers.get('etag'));
        assert.equal(response.headers.get('content-location'), `/users/${user.id}`);
      });

      for (const body of [{ name: null }, { email: null }, { name: null, email: null }]) {
        test(`4.6 PATCH of ${JSON.stringify(body)} as ${type} returns 400`, async () => {
          const user = await newUser(program);
          const response = await patch(program, user.id, body, type);
          assert.deepEqual(heading(response), [400, TEXT]);
          for (const field of Object.keys(body)) assert.match(response.body, new RegExp(field));
          assert.equal((await get(program, user.id)).body, JSON.stringify(user));
        });
      }
    }

    test('4.6 PATCH with one valid and one invalid field changes neither', async () => {
      const user = await newUser(program);
      const response = await patch(program, user.id, { name: 'Grace', email: 'nowhere' });
      assert.deepEqual(heading(response), [400, TEXT]);
      assert.equal((await get(program, user.id)).body, JSON.stringify(user));
    });

    test('4.6 PATCH ignores other members, null ones included', async () => {
      const user = await newUser(program);
      const body = { id: user.id + 1, version: null, role: 'admin', name: 'Grace' };
      const response = await patch(program, user.id, body);
      assert.deepEqual(
        [response.status, response.body],
        [200, JSON.stringify({ ...user, name: 'Grace' })],
      );
    });

    test('4.7 DELETE /users/{id} returns 200 and the user as it was before', async () => {
      const user = await newUser(program);
      await patch(program, user.id, { name: 'Grace' });
      const response = await send(`${program.url}/users/${user.id}`, { method: 'DELETE' });
      assert.deepEqual(summary(response), {
        status: 200,
        type: JSON_TYPE,
        body: JSON.stringify({ ...user, name: 'Grace' }),
      });
      assert.deepEqual(heading(await get(program, user.id)), [404, TEXT]);
    });

    test('4.7 a second DELETE returns 404', async () => {
      const { id } = await newUser(program);
      const url = `${program.url}/users/${id}`;
      const responses = [];
      for (let i = 0; i < 2; i++) responses.push(await send(url, { method: 'DELETE' }));
      assert.deepEqual(responses.map(heading), [
        [200, JSON_TYPE],
        [404, TEXT],
      ]);
    });

    test('4.7 of ten concurrent DELETEs, one returns 200 and nine 404', async () => {
      const { id } = await newUser(program);
      const url = `${program.url}/users/${id}`;
      const responses = await Promise.all(
        Array.from({ length: 10 }, () => send(url, { method: 'DELETE' })),
      );
      assert.deepEqual(statuses(responses).sort(), [200, ...Array(9).fill(404)]);
    });

    for (const { why, id } of [
      { why: 'that no user has', id: '999999' },
      { why: '0', id: '0' },
      { why: 'negative', id: '-1' },
      { why: 'with a plus', id: '+1' },
      { why: 'with a leading zero', id: '01' },
      { why: 'with a fraction', id: '1.0' },
      { why: 'with an exponent', id: '1e0' },
      { why: 'in hex', id: '0x1' },
      { why: 'of letters', id: 'me' },
      { why: 'with a space before it', id: '%201' },
      { why: 'with a space after it', id: '1%20' },
      { why: 'with a newline after it', id: '1%0A' },
      { why: 'with a NUL after it', id: '1%00' },
      { why: 'in other digits', id: '%EF%BC%91' },
      { why: 'in Arabic digits', id: '%D9%A1' },
      { why: 'with SQL after it', id: '1;drop%20table%20users' },
      { why: 'with a quote', id: "1'" },
      { why: 'two with a comma', id: '1,2' },
      { why: 'with an escaped slash', id: '1%2F' },
      { why: 'of 2^31 - 1', id: '2147483647' },
      { why: 'of 2^31', id: '2147483648' },
      { why: 'of 2^53 - 1', id: '9007199254740991' },
      { why: 'of 2^53', id: '9007199254740992' },
      { why: 'of 2^53 + 1', id: '9007199254740993' },
      { why: 'of 2^63 - 1', id: '9223372036854775807' },
      { why: 'of 2^63', id: '9223372036854775808' },
      { why: 'of 2^64 + 1, which wraps to 1', id: '18446744073709551617' },
      { why: 'of a thousand digits', id: '1'.repeat(1000) },
    ]) {
      test(`4.9 an id ${why} returns 404 on all four methods`, async () => {
        await newUser(program);
        const fields = () => ({ name: 'Ada', email: newEmail() });
        const url = `${program.url}/users/${id}`;
        const responses = [
          await send(url),
          await send(url, { method: 'PUT', body: fields() }),
          await send(url, { method: 'PATCH', body: fields() }),
          await send(url, { method: 'DELETE' }),
        ];
        assert.deepEqual(responses.map(heading), Array(4).fill([404, TEXT]));
        for (const { body } of responses) assert.match(body, /^\P{Cc}+$/u);
      });
    }

    test('4.9 If-Match: * without such a user returns 404', async () => {
      const headers = { 'if-match': '*' };
      const url = `${program.url}/users/999999`;
      const responses = await Promise.all([
        send(url, { method: 'PUT', headers, body: { name: 'Ada', email: newEmail() } }),
        send(url, { method: 'PATCH', headers, body: { name: 'Ada' } }),
        send(url, { method: 'DELETE', headers }),
      ]);
      assert.deepEqual(responses.map(heading), Array(3).fill([404, TEXT]));
    });

    test('4.9 PATCH of an empty object without such a user returns 404', async () => {
      assert.deepEqual(heading(await patch(program, 999999, {})), [404, TEXT]);
    });

    test('4.9 invalid fields are refused before the user is looked up', async () => {
      const responses = [
        await put(program, 999999, {}),
        await patch(program, 999999, { name: '' }),
      ];
      assert.deepEqual(responses.map(heading), Array(2).fill([400, TEXT]));
    });

    test('4.9 HEAD without such a user returns 404 and no body', async () => {
      const response = await send(`${program.url}/users/999999`, { method: 'HEAD' });
      assert.deepEqual([...heading(response), response.body], [404, TEXT, '']);
    });

    test('4.10 POST /users with a taken email returns 400', async () => {
      const user = await newUser(program);
      const response = await post(program, { name: 'Eve', email: user.email });
      assert.deepEqual(heading(response), [400, TEXT]);
      assert.match(response.body, /email/);
      const found = await send(`${program.url}/users?email=${user.email}`);
      assert.equal(found.body, JSON.stringify([user]));
    });

    for (const method of ['PUT', 'PATCH']) {
      test(`4.10 ${method} /users/{id} with a taken email returns 400 and changes nothing`, async () => {
        const [taken, user] = [await newUser(program), await newUser(program)];
        const body = { name: 'Eve', email: taken.email };
        const response = await send(`${program.url}/users/${user.id}`, { method, body });
        assert.deepEqual(heading(response), [400, TEXT]);
        assert.match(response.body, /email/);
        assert.equal((await get(program, user.id)).body, JSON.stringify(user));
        assert.equal((await get(program, taken.id)).body, JSON.stringify(taken));
      });
    }

    test('4.10 of ten concurrent POSTs with one email, one returns 201 and nine 400', async () => {
      const email = newEmail();
      const responses = await Promise.all(
        Array.from({ length: 10 }, (_, i) => post(program, { name: `Racer ${i}`, email })),
      );
      assert.deepEqual(statuses(responses).sort(), [201, ...Array(9).fill(400)]);
      const winner = responses.find((response) => response.status === 201);
      const found = await send(`${program.url}/users?email=${email}`);
      assert.equal(found.body, `[${winner?.body}]`);
    });

    for (const method of ['PUT', 'PATCH']) {
      test(`4.10 of ten concurrent ${method}s with one email, one returns 200 and nine 400`, async () => {
        const users = [];
        for (let i = 0; i < 10; i++) users.push(await newUser(program));
        const email = newEmail();
        const responses = await Promise.all(
          users.map(({ id }) =>
            send(`${program.url}/users/${id}`, { method, body: { name: 'Racer', email } }),
          ),
        );
        assert.deepEqual(statuses(responses).sort(), [200, ...Array(9).fill(400)]);
        const winner = responses.find((response) => response.status === 200);
        const found = await send(`${program.url}/users?email=${email}`);
        assert.equal(found.body, `[${winner?.body}]`);
      });
    }

    for (const { why, other } of [
      { why: 'case', other: (email: string) => email.toUpperCase() },
      { why: 'a composed letter', other: (email: string) => email.normalize('NFC') },
      { why: 'a dot at the end', other: (email: string) => `${email}.` },
      { why: 'an invisible character', other: (email: string) => `${email}\u200b` },
    ]) {
      test(`4.10 emails that differ in ${why} are different`, async () => {
        const email = `e\u0301-${newEmail()}`;
        const emails = [email, other(email)];
        for (const one of emails) {
          assert.equal((await post(program, { name: 'Ada', email: one })).status, 201);
        }
        for (const one of emails) {
          const found = await send(`${program.url}/users?email=${encodeURIComponent(one)}`);
          assert.deepEqual(
            JSON.parse(found.body).map((user: User) => user.email),
            [one],
          );
        }
      });
    }

    test('4.10 an email is free again after its user is deleted or changes it', async () => {
      const [deleted, moved] = [await newUser(program), await newUser(program)];
      await send(`${program.url}/users/${deleted.id}`, { method: 'DELETE' });
      await patch(program, moved.id, { email: newEmail() });
      const responses = [
        await post(program, { name: 'Ada', email: deleted.email }),
        await post(program, { name: 'Ada', email: moved.email }),
      ];
      assert.deepEqual(statuses(responses), [201, 201]);
    });

    for (const { why, fields } of acceptedFields()) {
      test(`4.11 ${why} is accepted on POST, PUT and PATCH, and stored as sent`, async () => {
        const expected = (response: HttpResponse) => ({
          id: JSON.parse(response.body).id,
          ...fields,
        });
        const created = await post(program, fields);
        assert.equal(created.status, 201, created.body);
        assert.deepEqual(JSON.parse(created.body), expected(created));
        const { id } = JSON.parse(created.body);
        const others = [await put(program, id, fields), await patch(program, id, fields)];
        others.push(await get(program, id));
        assert.deepEqual(statuses(others), [200, 200, 200]);
        for (const response of others) assert.equal(response.body, created.body);
      });
    }

    for (const { why, json, wrong } of refusedFields()) {
      test(`4.11 ${why} returns 400 on POST, PUT and PATCH, naming ${wrong}`, async () => {
        const user = await newUser(program);
        const url = `${program.url}/users`;
        const headers = { 'content-type': JSON_TYPE };
        const responses = [
          await send(url, { method: 'POST', headers, body: json }),
          await send(`${url}/${user.id}`, { method: 'PUT', headers, body: json }),
          await send(`${url}/${user.id}`, { method: 'PATCH', headers, body: json }),
        ];
        for (const response of responses) {
          assert.deepEqual(heading(response), [400, TEXT]);
          const named = ['name', 'email'].filter((field) =>
            new RegExp(`\\b${field}\\b`).test(response.body),
          );
          assert.deepEqual(named.join(' and '), wrong);
          assert.doesNotMatch(response.body, /\n|Error|varchar|sqlite|postgres|at .*\.ts/i);
        }
        assert.equal((await get(program, user.id)).body, JSON.stringify(user));
      });
    }

    for (const { why, body, wrong } of [
      { why: 'without name', body: { email: 'a@b' }, wrong: ['name'] },
      { why: 'without email', body: { name: 'Ada' }, wrong: ['email'] },
      { why: 'without both', body: {}, wrong: ['name', 'email'] },
      {
        why: 'with fields under __proto__',
        body: JSON.parse('{"__proto__":{"name":"A","email":"a@b"}}'),
        wrong: ['name', 'email'],
      },
    ]) {
      test(`4.11 POST /users ${why} returns 400, naming ${wrong.join(' and ')}`, async () => {
        const response = await post(program, body);
        assert.deepEqual(heading(response), [400, TEXT]);
        const named = ['name', 'email'].filter((field) => response.body.includes(field));
        assert.deepEqual(named, wrong);
      });
    }

    for (const { why, json } of [
      { why: 'an array', json: '[]' },
      { why: 'an array of a user', json: '[{"name":"Ada","email":"a@b.example"}]' },
      { why: 'a string', json: '"Ada"' },
      { why: 'a number', json: '1' },
      { why: 'null', json: 'null' },
      { why: 'true', json: 'true' },
      { why: 'false', json: 'false' },
      { why: 'nothing', json: '' },
    ]) {
      test(`4.12 a body of ${why} returns 400 on POST, PUT and PATCH`, async () => {
        const user = await newUser(program);
        const headers = { 'content-type': JSON_TYPE };
        const url = `${program.url}/users`;
        const responses = [
          await send(url, { method: 'POST', headers, body: json }),
          await send(`${url}/${user.id}`, { method: 'PUT', headers, body: json }),
          await send(`${url}/${user.id}`, { method: 'PATCH', headers, body: json }),
        ];
        assert.deepEqual(responses.map(heading), Array(3).fill([400, TEXT]));
        assert.equal((await get(program, user.id)).body, JSON.stringify(user));
      });
    }

    test('4.12 POST /users without a body and a type returns 400', async () => {
      const response = await raw(
        program.url,
        'POST /users HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
      );
      assert.match(response, /^HTTP\/1\.1 400 Bad Request\r\n/);
    });

    test('4.12 other members are ignored, id included', async () => {
      const email = newEmail();
      const other = await newUser(program);
      const body = { id: other.id, version: 7, admin: true, name: 'Ada', email };
      const created = await post(program, body);
      const { id } = JSON.parse(created.body);
      assert.equal(created.status, 201);
      assert.notEqual(id, other.id);
      assert.equal(created.body, JSON.stringify({ id, name: 'Ada', email }));
      const replaced = await put(program, id, { ...body, name: 'Grace' });
      assert.equal(replaced.body, JSON.stringify({ id, name: 'Grace', email }));
      assert.equal((await get(program, other.id)).body, JSON.stringify(other));
    });

    test('4.12 the last of two members with one name counts', async () => {
      const headers = { 'content-type': JSON_TYPE };
      const body = `{"name":"Ada","email":"${newEmail()}","name":"Grace"}`;
      const response = await send(`${program.url}/users`, { method: 'POST', headers, body });
      assert.deepEqual([response.status, JSON.parse(response.body).name], [201, 'Grace']);
    });

    test('4.15 the users routes need no credentials, and ignore wrong ones', async () => {
      const headers = { authorization: 'Bearer nonsense' };
      const response = await send(`${program.url}/users?limit=1`, { headers });
      assert.equal(response.status, 200);
    });
  });
}

interface User {
  readonly id: number;
  readonly name: string;
  readonly email: string;
}

function acceptedFields(): { why: string; fields: Omit<User, 'id'> }[] {
  const name = (why: string, value: string) => ({
    why: `a name of ${why}`,
    fields: { name: value, email: newEmail() },
  });
  const email = (why: string, value: string) => ({
    why: `an email ${why}`,
    fields: { name: 'Ada', email: value },
  });
  return [
    name('1 character', 'A'),
    name('100 characters', 'a'.repeat(100)),
    name('1 character of two UTF-16 units', '😀'),
    name('100 characters of two UTF-16 units', '😀'.repeat(100)),
    name('100 characters of three UTF-8 bytes', '字'.repeat(100)),
    name('100 combining marks', 'e\u0301'.repeat(50)),
    name('a space', ' '),
    name('spaces around', '  Ada  '),
    name('control characters but NUL', '\u0001\t\n\r\u001f\u007f\u0085'),
    name('quotes, SQL and HTML', `'; drop table users; --"<script>\\`),
    name('right-to-left and invisible letters', 'א\u202e\u200d\ufeff\u2028\u2029'),
    name('noncharacters', '\uffff\ufffe\u{10ffff}'),
    name('the replacement character', '\ufffd'),
    name('decomposed letters', 'Jo\u0308rg'),
    name('the word null', 'null'),
    name('JSON', '{"name":"x"}'),
    name('__proto__', '__proto__'),
    email('of 3 characters', 'a@b'),
    email('of 3 characters of two UTF-16 units', '😀@😀'),
    email('of 100 characters', `${'a'.repeat(98)}@c`),
    email('of 100 characters of two UTF-16 units', `${'😀'.repeat(98)}@d`),
    email('with letters beyond ASCII', 'jörg@müller.example'),
    email('with quotes, plus, dots and slashes', `"o'r"+x.y/z\\@..e`),
    email('with a zero-width space, which is no White_Space', 'zero\u200bwidth@a'),
    email('with a byte order mark, which is no White_Space', 'bom\ufeff@a'),
    email('with a Mongolian vowel separator, which is no White_Space', 'mvs\u180e@a'),
    email('with a word joiner, which is no White_Space', 'joiner\u2060@a'),
    email('with a soft hyphen, which is no control character', 'soft\u00ad@a'),
    email('with percent and underscore', '%_@like.example'),
  ];
}

function refusedFields(): { why: string; json: string; wrong: string }[] {
  const name = (why: string, value: unknown) => ({
    why: `a name ${why}`,
    json: JSON.stringify({ name: value, email: newEmail() }),
    wrong: 'name',
  });
  const email = (why: string, value: unknown) => ({
    why: `an email ${why}`,
    json: JSON.stringify({ name: 'Ada', email: value }),
    wrong: 'email',
  });
  const inEmail = (codePoint: string) =>
    email(
      `with U+${codePoint}`,
      `a${String.fromCodePoint(Number.parseInt(codePoint, 16))}b@c.example`,
    );
  const notStrings: unknown[] = [
    1,
    0,
    1.5,
    true,
    false,
    null,
    [],
    ['Ada'],
    {},
    { toString: 'Ada' },
  ];
  // The ends of each range of White_Space (PropList.txt) and of general category Cc.
  const forbidden = [
    ...['0000', '0001', '0009', '000A', '000B', '000C', '000D', '001F', '0020', '007F', '0080'],
    ...['0085', '009F', '00A0', '1680', '2000', '200A', '2028', '2029', '202F', '205F', '3000'],
  ];
  return [
    name('that is empty', ''),
    name('of 101 characters', 'a'.repeat(101)),
    name('of 101 characters of two UTF-16 units', '😀'.repeat(101)),
    name('of 10,000 characters', 'a'.repeat(10_000)),
    name('with U+0000', 'A\0da'),
    name('that is U+0000', '\0'),
    name('with a lone high surrogate', 'A\ud800'),
    name('with a lone low surrogate', '\udfffA'),
    name('with swapped surrogates', '\ude00\ud83d'),
    ...notStrings.map((value) => name(`that is ${JSON.stringify(value)}`, value)),
    email('that is empty', ''),
    email('of 2 characters', '@b'),
    email('of 101 characters', `${'a'.repeat(99)}@b`),
    email('of 101 characters of two UTF-16 units', `${'😀'.repeat(99)}@b`),
    email('without @', 'nobody.example'),
    email('with two @', 'a@b@c'),
    email('with two @ together', 'a@@b'),
    email('with nothing before @', '@b.example'),
    email('with nothing after @', 'nobody@'),
    email('with a space before it', ' a@b.example'),
    email('with a space after it', 'a@b.example '),
    email('with a newline after it', 'a@b.example\n'),
    email('with only a space before @', ' @b'),
    email('with a fullwidth @ alone', 'a\uff20b'),
    email('with a lone surrogate', 'a\ud83d@b'),
    ...forbidden.map(inEmail),
    ...notStrings.map((value) => email(`that is ${JSON.stringify(value)}`, value)),
    {
      why: 'both fields invalid',
      json: JSON.stringify({ name: '', email: 'nobody' }),
      wrong: 'name and email',
    },
  ];
}

function newEmail(): string {
  emails++;
  return `user-${emails}@users.example`;
}

async function newUser(program: Program): Promise<User> {
  const response = await post(program, { name: 'Ada', email: newEmail() });
  return JSON.parse(response.body);
}

function get(program: Program, id: number): Promise<HttpResponse> {
  return send(`${program.url}/users/${id}`);
}

function post(program: Program, body: object): Promise<HttpResponse> {
  return send(`${program.url}/users`, { method: 'POST', body });
}

function put(program: Program, id: number, body: object): Promise<HttpResponse> {
  return send(`${program.url}/users/${id}`, { method: 'PUT', body });
}

function patch(
  program: Program,
  id: number,
  body: object,
  type = JSON_TYPE,
): Promise<HttpResponse> {
  const headers = { 'content-type': type };
  return send(`${program.url}/users/${id}`, { method: 'PATCH', headers, body });
}

function heading({ status, headers }: HttpResponse): [number, string | null] {
  return [status, headers.get('content-type')];
}

function statuses(responses: readonly HttpResponse[]): number[] {
  return responses.map((response) => response.status);
}

function summary(response: HttpResponse) {
  const [status, type] = heading(response);
  return { status, type, body: response.body };
}

function percent(text: string): string {
  return Array.from(Buffer.from(text), (byte) => `%${byte.toString(16)}`).join('');
}
