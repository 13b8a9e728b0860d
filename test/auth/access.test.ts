// Authentication: accepted credentials, and the challenges of refusals.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Access, authenticate } from '../../src/auth/access.ts';
import { Credential } from '../../src/auth/credential.ts';
import { Tokens } from '../../src/auth/jwt.ts';
import { FailureLimiter } from '../../src/auth/limiter.ts';
import { HttpError } from '../../src/http/errors.ts';
import type { Exchange } from '../../src/http/exchange.ts';

const CLIENT = '192.0.2.1';
const tokens = new Tokens({ id: 'admin', name: 'Ada' }, ['x'.repeat(32)], () => 1_800_000_000);
const bearer = `Bearer ${tokens.issue()}`;
const basic = `Basic ${Buffer.from('admin:password').toString('base64')}`;
const wrongBasic = `Basic ${Buffer.from('admin:passw0rd').toString('base64')}`;

const ROUTES = {
  public: ['none', '/'],
  basic: ['basic', '/protected'],
  bearer: ['bearer', '/notes'],
  users: ['bearerIfProtected', '/users/{id}'],
} as const satisfies Record<string, readonly [Access, string]>;

function services({ protectUsers = false, limit = 0 } = {}) {
  const credential = new Credential({ user: 'admin', password: 'password', name: 'Ada' });
  return { credential, tokens, limiter: new FailureLimiter(limit, () => 0), protectUsers };
}

/** Returns what authentication reads of a request. */
function exchangeOf(route: string, authorization: string | undefined): Exchange {
  const rawHeaders = authorization === undefined ? [] : ['Authorization', authorization];
  const req = { headers: { authorization }, rawHeaders };
  return { req, route, client: CLIENT } as unknown as Exchange;
}

/** Returns the refusal, or undefined if the request is accepted. */
function refusal(route: keyof typeof ROUTES, header: string | undefined, auth = services()) {
  try {
    const [access, pattern] = ROUTES[route];
    authenticate(access, exchangeOf(pattern, header), auth);
    return undefined;
  } catch (err) {
    assert.ok(err instanceof HttpError);
    return [err.status, err.message, ...err.headers];
  }
}

const BASIC = [401, 'Unauthorized', 'WWW-Authenticate', 'Basic realm="protected", charset="UTF-8"'];
const NOTES = [401, 'Unauthorized', 'WWW-Authenticate', 'Bearer realm="notes"'];
const USERS = [401, 'Unauthorized', 'WWW-Authenticate', 'Bearer realm="users"'];
const invalid = ([...parts]: (string | number)[]) => [
  ...parts.slice(0, -1),
  `${parts.at(-1)}, error="invalid_token"`,
];

describe('access', () => {
  for (const { why, access, header, protectUsers, response } of [
    {
      why: 'public, without credentials',
      access: 'public',
      header: undefined,
      response: undefined,
    },
    {
      why: 'public, with wrong credentials',
      access: 'public',
      header: wrongBasic,
      response: undefined,
    },
    { why: 'users, open', access: 'users', header: undefined, response: undefined },
    {
      why: 'users, open, with a wrong token',
      access: 'users',
      header: 'Bearer x',
      response: undefined,
    },
    {
      why: 'users, protected, without credentials',
      access: 'users',
      header: undefined,
      protectUsers: true,
      response: USERS,
    },
    {
      why: 'users, protected, with a token',
      access: 'users',
      header: bearer,
      protectUsers: true,
      response: undefined,
    },
    {
      why: 'users, protected, with a wrong token',
      access: 'users',
      header: 'Bearer x',
      protectUsers: true,
      response: invalid(USERS),
    },
    {
      why: 'users, protected, with Basic',
      access: 'users',
      header: basic,
      protectUsers: true,
      response: USERS,
    },
    { why: 'basic, right', access: 'basic', header: basic, response: undefined },
    {
      why: 'basic, scheme in capitals',
      access: 'basic',
      header: basic.replace('Basic', 'BASIC'),
      response: undefined,
    },
    { why: 'basic, wrong', access: 'basic', header: wrongBasic, response: BASIC },
    { why: 'basic, without credentials', access: 'basic', header: undefined, response: BASIC },
    { why: 'basic, with a token', access: 'basic', header: bearer, response: BASIC },
    {
      why: 'basic, with two spaces',
      access: 'basic',
      header: basic.replace(' ', '  '),
      response: BASIC,
    },
    { why: 'bearer, right', access: 'bearer', header: bearer, response: undefined },
    {
      why: 'bearer, scheme in capitals',
      access: 'bearer',
      header: bearer.replace('Bearer', 'BEARER'),
      response: undefined,
    },
    { why: 'bearer, wrong', access: 'bearer', header: `${bearer}x`, response: invalid(NOTES) },
    { why: 'bearer, without credentials', access: 'bearer', header: undefined, response: NOTES },
    { why: 'bearer, with Basic', access: 'bearer', header: basic, response: NOTES },
    { why: 'bearer, malformed', access: 'bearer', header: 'Bearer a"b', response: NOTES },
    {
      why: 'bearer, with a trailing space',
      access: 'bearer',
      header: `${bearer} `,
      response: NOTES,
    },
  ] as const) {
    test(`${why}: ${response === undefined ? 'let in' : response.at(-1)}`, () => {
      const auth = services({ protectUsers: protectUsers ?? false });
      assert.deepEqual(refusal(access, header, auth), response);
    });
  }
});

describe('failed credentials', () => {
  const LOCKED = [429, 'Too Many Requests', 'Retry-After', '60'];

  test('wrong Basic credentials count, and lock out correct ones too', () => {
    const auth = services({ limit: 2 });
    assert.deepEqual(refusal('basic', wrongBasic, auth), BASIC);
    assert.deepEqual(refusal('basic', wrongBasic, auth), BASIC);
    assert.deepEqual(refusal('basic', basic, auth), LOCKED);
  });

  test('requests without Basic credentials neither count nor are refused with 429', () => {
    const auth = services({ limit: 1 });
    assert.deepEqual(refusal('basic', undefined, auth), BASIC);
    assert.deepEqual(refusal('basic', bearer, auth), BASIC);
    assert.deepEqual(refusal('basic', basic, auth), undefined);
    assert.deepEqual(refusal('basic', wrongBasic, auth), BASIC);
    assert.deepEqual(refusal('basic', undefined, auth), BASIC);
    assert.deepEqual(refusal('basic', basic, auth), LOCKED);
  });

  test('wrong tokens do not count', () => {
    const auth = services({ limit: 1 });
    assert.deepEqual(refusal('bearer', 'Bearer x', auth), invalid(NOTES));
    assert.deepEqual(refusal('bearer', 'Bearer x', auth), invalid(NOTES));
    assert.deepEqual(refusal('basic', basic, auth), undefined);
  });
});
