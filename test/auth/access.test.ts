// Who is let in, and the challenges of refusals. The tokens are in jwt.test.ts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Access, authenticate } from '../../src/auth/access.ts';
import { Credential } from '../../src/auth/credential.ts';
import { Tokens } from '../../src/auth/jwt.ts';
import { FailureLimiter } from '../../src/auth/limiter.ts';
import { HttpError } from '../../src/http/errors.ts';
import type { Exchange } from '../../src/http/exchange.ts';

const tokens = new Tokens({ id: 'admin', name: 'Ada' }, ['x'.repeat(32)], () => 1_800_000_000);
const TOKEN = tokens.issue();
const PAIR = Buffer.from('admin:password').toString('base64');

const credential = new Credential({ user: 'admin', password: 'password', name: 'Ada' });
const limiter = new FailureLimiter(0, () => 0);
const AUTH = { credential, tokens, limiter, protectUsers: false };

/** Returns the status and the last header of the refusal; undefined if the request is let in. */
function refusal(access: Access, route: string, sent: readonly string[], auth = AUTH) {
  const req = {
    headers: { authorization: sent[0] },
    rawHeaders: sent.flatMap((value) => ['Authorization', value]),
  };
  try {
    authenticate(access, { req, route, client: '192.0.2.1' } as unknown as Exchange, auth);
    return undefined;
  } catch (err) {
    assert.ok(err instanceof HttpError);
    const { status, message, headers } = err;
    return [status, message, ...headers].join(' ');
  }
}

const BASIC = '401 Unauthorized WWW-Authenticate Basic realm="protected", charset="UTF-8"';
const BEARER = '401 Unauthorized WWW-Authenticate Bearer realm="notes"';
const INVALID = `${BEARER}, error="invalid_token"`;

// 3.6: two parts with one space between them, and the scheme in any case.
const FORMS: readonly ((scheme: string, value: string) => readonly string[])[] = [
  () => [],
  () => [''],
  () => [' '],
  (scheme) => [scheme],
  (scheme) => [`${scheme} `],
  (_, value) => [` ${value}`],
  (_, value) => [value],
  (scheme, value) => [`${scheme}  ${value}`],
  (scheme, value) => [`${scheme} ${value} `],
  (scheme, value) => [` ${scheme} ${value}`],
  (scheme, value) => [`${scheme} ${value} more`],
  (scheme, value) => [`${scheme}\t${value}`],
  (scheme, value) => [`${scheme}\u00a0${value}`],
  (scheme, value) => [`${scheme},${value}`],
  (scheme, value) => [`X${scheme} ${value}`],
  (scheme, value) => [`${scheme} ${value}`, `${scheme} ${value}`],
];

for (const { access, route, scheme, value, challenge } of [
  { access: 'basic', route: '/protected', scheme: 'Basic', value: PAIR, challenge: BASIC },
  { access: 'bearer', route: '/notes', scheme: 'Bearer', value: TOKEN, challenge: BEARER },
] as const) {
  describe(`3.6 ${access}`, () => {
    for (const form of FORMS) {
      const sent = form(scheme, value);
      test(`3.6 ${JSON.stringify(sent)} is refused, with the challenge alone`, () =>
        assert.equal(refusal(access, route, sent), challenge));
    }

    test('3.6 the scheme is accepted in any case, with the right credentials', () => {
      for (const name of [scheme, scheme.toUpperCase()]) {
        assert.equal(refusal(access, route, [`${name} ${value}`]), undefined);
      }
    });
  });
}

test('3.13 only Basic credentials in two parts count as a failed check', () => {
  for (const [sent, isCounted] of [
    ...FORMS.map((form) => [form('Basic', 'wrong'), false] as const),
    [['Bearer wrong'], false],
    [['Basic wrong'], true],
  ] as const) {
    const auth = { ...AUTH, limiter: new FailureLimiter(1, () => 0) };
    refusal('basic', '/protected', sent, auth);
    const later = refusal('basic', '/protected', [`Basic ${PAIR}`], auth);
    assert.equal(later?.startsWith('429'), isCounted || undefined, JSON.stringify(sent));
  }
});

test('4.15 only a protected route needs credentials', () => {
  const isProtected = { ...AUTH, protectUsers: true };
  const challenge = '401 Unauthorized WWW-Authenticate Bearer realm="users"';
  for (const auth of [AUTH, isProtected]) {
    assert.equal(refusal('none', '/users', [], auth), undefined);
    const expected = auth.protectUsers ? challenge : undefined;
    assert.equal(refusal('bearerIfProtected', '/users', [], auth), expected);
  }
  assert.equal(refusal('bearerIfProtected', '/users', [`Bearer ${TOKEN}`], isProtected), undefined);
});

describe('the challenge', () => {
  for (const [access, route, sent, challenge] of [
    ['basic', '/protected', `Basic ${PAIR}x`, BASIC],
    ['basic', '/protected', `Bearer ${TOKEN}`, BASIC],
    ['bearer', '/notes', `Basic ${PAIR}`, BEARER],
    ['bearer', '/notes', 'Bearer a"b', BEARER],
    ['bearer', '/notes', 'Bearer é', BEARER],
    ['bearer', '/notes', 'Bearer =', BEARER],
    ['bearer', '/notes', 'Bearer a=b', BEARER],
    ['bearer', '/notes', 'Bearer aZ09-._~+/==', INVALID],
    ['bearer', '/notes', `Bearer ${TOKEN}x`, INVALID],
    ['bearer', '/notes/{id}/versions', '', BEARER],
  ] as const) {
    test(`3.8 3.19 of ${route} to "${sent}" is ${challenge}`, () =>
      assert.equal(refusal(access, route, [sent]), challenge));
  }
});
