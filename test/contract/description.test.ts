// Section 8 of the contract: the API's own description. The client of most other tests checks that
// each response is declared. These tests provoke every declared response. The page in a browser is in
// test/docs.test.ts, the encodings and tags of both documents (8.3) are in test/http/static.test.ts.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import { exchange, type Message, request } from '../support/bytes.ts';
import { basic, send } from '../support/client.ts';
import { freePort } from '../support/daemon.ts';
import { token as newToken } from '../support/login.ts';
import * as openapi from '../support/openapi.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';
import { newEmail } from '../support/service.ts';

type Operation = (typeof openapi.OPERATIONS)[number];

const COMMITTED = readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8');

for (const { method, path, part } of openapi.OPERATIONS) {
  test(`8.1 the example of ${method} ${path} works on a fresh service`, async () => {
    const pair = exampleOf(openapi.DOCUMENT.paths!['/token']!.post!.requestBody!) as { pw: string };
    await using program = await start({ AUTH_PASSWORD: pair.pw });
    const { post } = openapi.DOCUMENT.paths!['/users'] as { post: openapi.JsonObject };
    const body = exampleOf(post.requestBody!);
    if (part !== post) await send(`${program.url}/users`, { method: 'POST', body });
    const isBasic = JSON.stringify(part.security).includes('basic');
    const bearer = `Bearer ${await newToken(program, pair.pw)}`;
    const authorization = isBasic ? basic(USER, pair.pw) : bearer;
    const { example: id } = openapi.DOCUMENT.components!.parameters!.UserId!;
    const response = await send(program.url + path.replace('{id}', String(id)), {
      method,
      headers: { authorization },
      ...(part.requestBody && { body: exampleOf(part.requestBody) }),
    });
    const [status, declared] = Object.entries(part.responses!)[0]!;
    assert.equal(String(response.status), status);
    if (path === '/openapi.json') assert.equal(response.body, COMMITTED);
    if (['/token', '/openapi.json', '/docs'].includes(path)) return; // These vary by service.
    const example = exampleOf(declared);
    const isText = typeof example === 'string';
    assert.deepEqual(isText ? response.body : JSON.parse(response.body), example);
  });
}

/** Returns the example of a body or a response. All its media types share it. */
function exampleOf({ content }: openapi.JsonObject): unknown {
  return Object.values(content!)[0]!.example;
}

test('8.2 its policy allows only its one script, its one style and its own origin', async () => {
  await using program = await start();
  const { headers, body } = await send(`${program.url}/docs`);
  const policy = [
    "default-src 'none'",
    "script-src 'sha256'",
    "style-src 'sha256'",
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ];
  // A browser compares the hashes (test/docs.test.ts).
  const found = headers.get('content-security-policy')?.replaceAll(/sha256-[\w+/]{43}=/g, 'sha256');
  assert.equal(found, policy.join('; '));
  assert.equal(headers.get('referrer-policy'), 'no-referrer');
  assert.deepEqual([body.match(/<script/g), body.match(/<style/g)], [['<script'], ['<style']]);
  assert.doesNotMatch(body, /https?:|\bsrc=|@import|url\(| on\w+=| style=/);
});

describe('8 every declared response', { concurrency: true }, () => {
  const ENCODED = ['br', 'gzip'].map((coding) => ({ fields: `Accept-Encoding: ${coding}\r\n` }));
  const AUTH_FAILURES = 2;
  const names = new Set<string>();
  let program: Program;
  let storeless: Program;
  let token: string;

  before(async () => {
    const env = {
      PROTECT_USERS: 'true',
      CORS_ORIGIN: '*',
      TRUST_PROXY: '1',
      AUTH_FAILURES_PER_MINUTE: String(AUTH_FAILURES),
    };
    program = await start(env);
    const nowhere = `postgres://nobody@127.0.0.1:${await freePort()}/none`;
    storeless = await start({ ...env, DATABASE_URL: nowhere, DATABASE_TIMEOUT_MS: '500' });
    token = await newToken(program);
    // Two users are enough for a second page.
    await newUser();
    await newUser();
  });

  /** Changes to a request that would succeed. */
  interface Change extends Message {
    readonly to?: Program;
    readonly target?: string;
    readonly authorization?: string;
    readonly body?: string;
    readonly isCut?: boolean; // in its head
  }

  /** Sends the request and records the declared parts that its response has. @returns the status */
  async function ask({ method, path, part }: Operation, change: Change = {}): Promise<number> {
    const target = change.target ?? path.replace('{id}', String(await newUser()));
    const schemes = JSON.stringify(part.security);
    const right = schemes.includes('basic') ? basic(USER, PASSWORD) : `Bearer ${token}`;
    const authorization = change.authorization ?? (schemes === '[]' ? '' : right);
    const body = change.body ?? (part.requestBody ? bodyOf(part.requestBody) : '');
    const bytes = request(`${method} ${target}`, body, {
      ...change,
      type: body && (change.type ?? 'application/json'),
      fields: `Connection: close\r\nAuthorization: ${authorization}\r\n${change.fields ?? ''}`,
    });
    const sent = change.isCut ? bytes.slice(0, bytes.indexOf('\r\n\r\n')) : bytes;
    const [response] = await exchange((change.to ?? program).url, sent);
    for (const name of openapi.seen({ method, target, ...response! })) names.add(name);
    return response!.status;
  }

  /** Returns a body that the route accepts: the right credentials, or a user with a new email. */
  function bodyOf(requestBody: openapi.JsonObject): string {
    const example = exampleOf(requestBody) as object;
    if ('pw' in example) return JSON.stringify({ id: USER, pw: PASSWORD });
    return JSON.stringify({ name: 'Ada', email: newEmail() });
  }

  async function newUser(): Promise<number> {
    const headers = { authorization: `Bearer ${token}` };
    const body = { name: 'Ada', email: newEmail() };
    const response = await send(`${program.url}/users`, { method: 'POST', headers, body });
    return JSON.parse(response.body).id;
  }

  /** Requests by status. Each gets another variant of the response; the last one gets the status. */
  const REQUESTS: Readonly<Record<string, (operation: Operation) => readonly Change[]>> = {
    200: ({ path }) => [
      {},
      ...(path === '/users' ? [{ target: '/users?limit=1' }] : []),
      ...(['/openapi.json', '/docs'].includes(path) ? ENCODED : []),
    ],
    201: () => [{}],
    304: () => [{ fields: 'If-None-Match: *\r\n' }],
    400: () => [{ fields: 'Host: y\r\n' }],
    401: () => [
      { authorization: 'none', body: '{}' },
      { authorization: 'Bearer wrong', body: '{}' },
    ],
    404: ({ path }) => [{ target: path.replace('{id}', '0') }],
    408: () => [{ isCut: true }],
    412: () => [{ fields: 'If-Match: "0"\r\n' }],
    413: () => [{ body: 'x'.repeat(20_000) }],
    415: () => [{ type: 'text/plain' }, { fields: 'Content-Encoding: gzip\r\n' }],
    429: ({ path }) => {
      const wrong = {
        fields: `X-Forwarded-For: 192.0.2.${path.length}\r\n`,
        authorization: basic(USER, 'wrong'),
        body: JSON.stringify({ id: USER, pw: 'wrong' }),
      };
      return Array(AUTH_FAILURES + 1).fill(wrong);
    },
    431: () => [{ fields: `Long: ${'a'.repeat(16_384)}\r\n` }],
    500: ({ path }) => [{ to: storeless, target: path.replace('{id}', '1') }],
    505: () => [{ version: '1.2' }],
  };

  for (const operation of openapi.OPERATIONS) {
    const { method, path, part } = operation;
    test(`8.1 ${method} ${path} returns its declared responses, those of any request, and no other`, async () => {
      const transport = openapi.TRANSPORT_STATUSES.map(String);
      for (const status of new Set([...Object.keys(part.responses!), ...transport])) {
        let given: number | undefined;
        for (const change of REQUESTS[status]!(operation)) given = await ask(operation, change);
        assert.equal(given, Number(status));
      }
      const key = `${method} ${path} `;
      const expected = new Set([...openapi.declared(), ...transport.map((status) => key + status)]);
      const [shown, all] = [names, expected].map((list) =>
        [...list].filter((name) => name.startsWith(key)).sort(),
      );
      assert.deepEqual(shown, all);
    });
  }
});
