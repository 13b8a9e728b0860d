// Rules 4.3 and 4.8 of the contract: entity tags and the conditions of RFC 9110 section 13.1.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const WRITES = ['PUT', 'PATCH', 'DELETE'] as const;

// Field values that match the current tag, by strong and by weak comparison (RFC 9110 8.8.3.2).
const STRONG_MATCHES = [
  { why: 'the tag', value: (tag: string) => tag },
  { why: 'a list that ends with the tag', value: (tag: string) => `"x", ${tag}` },
  { why: 'a list that begins with the tag', value: (tag: string) => `${tag},"x"` },
  { why: 'a list with a comma inside another tag', value: (tag: string) => `"x,y", ${tag}` },
  { why: 'a list with empty elements', value: (tag: string) => `, ,${tag},` },
  { why: 'a list with a weak tag before it', value: (tag: string) => `W/"x", ${tag}` },
];
const WEAK_MATCHES = [
  { why: 'the tag marked weak', value: (tag: string) => `W/${tag}` },
  { why: 'a list with the tag marked weak', value: (tag: string) => `"x", W/${tag}` },
];
const ANY = [{ why: '*', value: () => '*' }];
const NO_MATCHES = [
  { why: 'another tag', value: () => '"x"' },
  { why: 'the empty tag', value: () => '""' },
  { why: 'a list of other tags', value: () => '"x", "y", W/"z"' },
  { why: 'a longer tag', value: (tag: string) => `${tag.slice(0, -1)}0"` },
  { why: 'the tag inside another', value: (tag: string) => `"x${tag.slice(1)}` },
];
const MALFORMED = [
  { why: 'the tag without quotes', value: (tag: string) => tag.slice(1, -1) },
  { why: 'the tag without its last quote', value: (tag: string) => tag.slice(0, -1) },
  { why: 'the tag in single quotes', value: (tag: string) => tag.replaceAll('"', "'") },
  { why: 'the tag with a lower-case weak mark', value: (tag: string) => `w/${tag}` },
  { why: 'the tag in a tag with a space', value: (tag: string) => `"${tag.slice(1, -1)} "` },
  { why: 'text', value: () => 'latest' },
  { why: 'a quoted star', value: () => '"*"' },
];

let emails = 0;

for (const store of STORES) {
  describe(`4.3 and 4.8 conditions (${store})`, () => {
    let program: Program;
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
    });
    after(() => program?.[Symbol.asyncDispose]());

    for (const { why, value } of [...STRONG_MATCHES, ...WEAK_MATCHES, ...ANY]) {
      test(`4.3 GET with If-None-Match of ${why} returns 304 with the ETag and no body`, async () => {
        const { url, tag } = await newUser(program);
        const headers = { 'if-none-match': value(tag) };
        for (const method of ['GET', 'HEAD']) {
          const response = await send(url, { method, headers, cache: 'no-store' });
          assert.deepEqual(
            [response.status, response.headers.get('etag'), response.body],
            [304, tag, ''],
          );
          assert.equal(response.headers.get('content-type'), null);
          assert.equal(response.headers.get('content-length'), null);
        }
      });
    }

    for (const { why, value } of [...NO_MATCHES, ...MALFORMED]) {
      test(`4.3 GET with If-None-Match of ${why} returns 200`, async () => {
        const { url, tag, body } = await newUser(program);
        const headers = { 'if-none-match': value(tag) };
        const response = await send(url, { headers, cache: 'no-store' });
        assert.deepEqual(
          [response.status, response.headers.get('etag'), response.body],
          [200, tag, body],
        );
      });
    }

    for (const { why, value } of [...STRONG_MATCHES, ...ANY]) {
      test(`4.3 GET with If-Match of ${why} returns 200`, async () => {
        const { url, tag, body } = await newUser(program);
        const response = await send(url, { headers: { 'if-match': value(tag) } });
        assert.deepEqual([response.status, response.body], [200, body]);
      });
    }

    for (const { why, value } of [...WEAK_MATCHES, ...NO_MATCHES, ...MALFORMED]) {
      test(`4.3 GET with If-Match of ${why} returns 412`, async () => {
        const { url, tag } = await newUser(program);
        const headers = { 'if-match': value(tag), 'if-none-match': tag };
        const response = await send(url, { headers, cache: 'no-store' });
        assert.deepEqual([response.status, response.headers.get('content-type')], [412, TEXT]);
      });
    }

    test('4.3 after a change, the old tag no longer returns 304', async () => {
      const { url, tag } = await newUser(program);
      await write('PATCH', url);
      const headers = { 'if-none-match': tag };
      const response = await send(url, { headers, cache: 'no-store' });
      assert.equal(response.status, 200);
      assert.notEqual(response.headers.get('etag'), tag);
    });

    test('4.3 If-None-Match on no user returns 404', async () => {
      const headers = { 'if-none-match': '*' };
      const response = await send(`${program.url}/users/999999`, { headers, cache: 'no-store' });
      assert.deepEqual([response.status, response.headers.get('content-type')], [404, TEXT]);
    });

    for (const method of WRITES) {
      for (const { why, value } of [...STRONG_MATCHES, ...ANY]) {
        test(`4.8 ${method} with If-Match of ${why} returns 200`, async () => {
          const { url, tag } = await newUser(program);
          const response = await write(method, url, { 'if-match': value(tag) });
          assert.equal(response.status, 200, response.body);
        });
      }

      for (const { why, value } of [...WEAK_MATCHES, ...NO_MATCHES, ...MALFORMED]) {
        test(`4.8 ${method} with If-Match of ${why} returns 412 and changes nothing`, async () => {
          const { url, tag, body } = await newUser(program);
          const response = await write(method, url, { 'if-match': value(tag) });
          assert.deepEqual(await outcome(response, url), {
            response: [412, TEXT],
            now: [200, tag, body],
          });
        });
      }

      for (const { why, value } of [...STRONG_MATCHES, ...WEAK_MATCHES, ...ANY]) {
        test(`4.8 ${method} with If-None-Match of ${why} returns 412 and changes nothing`, async () => {
          const { url, tag, body } = await newUser(program);
          const response = await write(method, url, { 'if-none-match': value(tag) });
          assert.deepEqual(await outcome(response, url), {
            response: [412, TEXT],
            now: [200, tag, body],
          });
        });
      }

      for (const { why, value } of [...NO_MATCHES, ...MALFORMED]) {
        test(`4.8 ${method} with If-None-Match of ${why} returns 200`, async () => {
          const { url, tag } = await newUser(program);
          const response = await write(method, url, { 'if-none-match': value(tag) });
          assert.equal(response.status, 200, response.body);
        });
      }

      for (const { why, headers, status } of [
        {
          why: 'If-Match matches and If-None-Match does not',
          headers: (tag: string) => ({ 'if-match': tag, 'if-none-match': '"x"' }),
          status: 200,
        },
        {
          why: 'both match',
          headers: (tag: string) => ({ 'if-match': tag, 'if-none-match': tag }),
          status: 412,
        },
        {
          why: 'neither matches',
          headers: () => ({ 'if-match': '"x"', 'if-none-match': '"x"' }),
          status: 412,
        },
      ]) {
        test(`4.8 ${method}: ${why} returns ${status}`, async () => {
          const { url, tag } = await newUser(program);
          assert.equal((await write(method, url, headers(tag))).status, status);
        });
      }

      test(`4.8 ${method} with the tag from before another change returns 412`, async () => {
        const { url, tag } = await newUser(program);
        const changed = await write('PATCH', url);
        const response = await write(method, url, { 'if-match': tag });
        assert.deepEqual(await outcome(response, url), {
          response: [412, TEXT],
          now: [200, changed.headers.get('etag'), changed.body],
        });
      });

      test(`4.8 of ten concurrent ${method}s with one tag, one returns 200`, async () => {
        const { url, tag } = await newUser(program);
        const responses = await Promise.all(
          Array.from({ length: 10 }, () => write(method, url, { 'if-match': tag })),
        );
        const statuses = responses.map((response) => response.status).sort();
        const lost = method === 'DELETE' ? 404 : 412;
        assert.deepEqual(statuses, [200, ...Array(9).fill(lost)]);
      });

      test(`4.8 ${method} with If-Match in two lines reads them as one list`, async () => {
        const { url, tag } = await newUser(program);
        const { pathname } = new URL(url);
        const body = JSON.stringify({ name: 'Grace', email: newEmail() });
        const head = [
          `${method} ${pathname} HTTP/1.1`,
          'Host: x',
          'Connection: close',
          'Content-Type: application/json',
          `Content-Length: ${body.length}`,
          'If-Match: "x"',
          `If-Match: ${tag}`,
        ];
        const response = await raw(program.url, `${head.join('\r\n')}\r\n\r\n${body}`);
        assert.match(response, /^HTTP\/1\.1 200 /);
      });
    }

    for (const method of ['PUT', 'PATCH'] as const) {
      test(`4.8 ${method} returns the tag for the next If-Match`, async () => {
        const { url, id, tag } = await newUser(program);
        const tags = [tag];
        for (let i = 0; i < 3; i++) {
          const response = await write(method, url, { 'if-match': tags.at(-1)! });
          assert.equal(response.status, 200);
          assert.equal(response.headers.get('content-location'), `/users/${id}`);
          tags.push(response.headers.get('etag') ?? '');
        }
        assert.equal(new Set(tags).size, 4, 'every change has a tag of its own');
        assert.equal((await send(url)).headers.get('etag'), tags.at(-1));
      });

      test(`4.8 ${method} with a stale tag and a taken email returns 412, not 400`, async () => {
        const [taken, user] = [await newUser(program), await newUser(program)];
        const { email } = JSON.parse(taken.body);
        const headers = { 'if-match': '"x"' };
        const response = await send(user.url, { method, headers, body: { name: 'Eve', email } });
        assert.equal(response.status, 412);
      });

      test(`4.8 ${method} with a stale tag and wrong fields returns 400, not 412`, async () => {
        const { url } = await newUser(program);
        const headers = { 'if-match': '"x"' };
        const response = await send(url, { method, headers, body: { name: '', email: '' } });
        assert.equal(response.status, 400);
      });
    }

    test('4.8 PATCH of an empty object with a stale tag returns 412', async () => {
      const { url } = await newUser(program);
      const headers = { 'if-match': '"x"' };
      const response = await send(url, { method: 'PATCH', headers, body: {} });
      assert.deepEqual([response.status, response.headers.get('content-type')], [412, TEXT]);
    });

    test('4.8 a tag does not match again when the old values come back', async () => {
      const { url, tag, body } = await newUser(program);
      const { name, email } = JSON.parse(body);
      await send(url, { method: 'PUT', body: { name: 'Grace', email } });
      await send(url, { method: 'PUT', body: { name, email } });
      const response = await write('DELETE', url, { 'if-match': tag });
      assert.equal(response.status, 412);
    });
  });
}

interface Created {
  readonly id: number;
  readonly url: string;
  readonly tag: string;
  readonly body: string;
}

function newEmail(): string {
  emails++;
  return `user-${emails}@conditional.example`;
}

async function newUser(program: Program): Promise<Created> {
  const body = { name: 'Ada', email: newEmail() };
  const response = await send(`${program.url}/users`, { method: 'POST', body });
  const { id } = JSON.parse(response.body);
  const tag = response.headers.get('etag') ?? '';
  return { id, url: `${program.url}/users/${id}`, tag, body: response.body };
}

function write(
  method: (typeof WRITES)[number],
  url: string,
  headers: Record<string, string> = {},
): Promise<HttpResponse> {
  const email = newEmail();
  const body = { PUT: { name: 'Grace', email }, PATCH: { email }, DELETE: undefined }[method];
  return send(url, { method, headers, body });
}

async function outcome(response: HttpResponse, url: string) {
  const now = await send(url);
  return {
    response: [response.status, response.headers.get('content-type')],
    now: [now.status, now.headers.get('etag'), now.body],
  };
}
