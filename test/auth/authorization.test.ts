// The Authorization header, and the challenges of a refusal.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { challenge, parseAuthorization, realmOf, unauthorized } from '../../src/auth/access.ts';

describe('an Authorization header with two parts and one space between them', () => {
  for (const { why, header, parts } of [
    { why: 'Basic', header: 'Basic QWxh==', parts: { scheme: 'basic', credentials: 'QWxh==' } },
    { why: 'Bearer', header: 'Bearer a.b.c', parts: { scheme: 'bearer', credentials: 'a.b.c' } },
    {
      why: 'RFC 9110 11.1: any case',
      header: 'bEaReR X',
      parts: { scheme: 'bearer', credentials: 'X' },
    },
    { why: 'another scheme', header: 'Digest x', parts: { scheme: 'digest', credentials: 'x' } },
    {
      why: 'credentials in any characters',
      header: 'Bearer é,="',
      parts: { scheme: 'bearer', credentials: 'é,="' },
    },
  ]) {
    test(`${why}: both parts`, () => assert.deepEqual(parseAuthorization(header), parts));
  }

  for (const { why, header } of [
    { why: 'nothing', header: '' },
    { why: 'a space', header: ' ' },
    { why: 'only the scheme', header: 'Bearer' },
    { why: 'the scheme and a space', header: 'Bearer ' },
    { why: 'no scheme', header: ' token' },
    { why: 'two spaces between', header: 'Bearer  token' },
    { why: 'a trailing space', header: 'Bearer token ' },
    { why: 'a leading space', header: ' Bearer token' },
    { why: 'three parts', header: 'Bearer token more' },
    { why: 'a tab between', header: 'Bearer\ttoken' },
    { why: 'a no-break space between', header: 'Bearer\u00a0token' },
    { why: 'a comma between', header: 'Bearer,token' },
  ]) {
    test(`${why}: refused`, () => assert.equal(parseAuthorization(header), undefined));
  }
});

describe('the Bearer challenge', () => {
  const token = (credentials: string) => ({ scheme: 'bearer', credentials });
  for (const { why, sent, expected } of [
    { why: 'nothing was sent', sent: undefined, expected: 'Bearer realm="notes"' },
    {
      why: 'another scheme was sent',
      sent: { scheme: 'basic', credentials: 'x' },
      expected: 'Bearer realm="notes"',
    },
    {
      why: 'a credential of wrong form was sent',
      sent: token('a"b'),
      expected: 'Bearer realm="notes"',
    },
    { why: 'padding alone was sent', sent: token('='), expected: 'Bearer realm="notes"' },
    { why: 'padding in the middle', sent: token('a=b'), expected: 'Bearer realm="notes"' },
    {
      why: 'a token68 was refused',
      sent: token('aZ09-._~+/=='),
      expected: 'Bearer realm="notes", error="invalid_token"',
    },
  ]) {
    test(`${why}: ${expected}`, () => assert.equal(challenge('bearer', 'notes', sent), expected));
  }

  test("the realm is the route's", () =>
    assert.equal(challenge('bearerIfProtected', 'users', undefined), 'Bearer realm="users"'));
});

test('RFC 7617 2.1: the Basic challenge names its realm and UTF-8', () =>
  assert.equal(
    challenge('basic', 'protected', undefined),
    'Basic realm="protected", charset="UTF-8"',
  ));

describe('the realm of a pattern is its last fixed part', () => {
  for (const [pattern, realm] of [
    ['/users', 'users'],
    ['/users/{id}', 'users'],
    ['/users/{id}/audit', 'audit'],
    ['/users/{id}/{version}', 'users'],
  ] as const) {
    test(`3.19 ${pattern}: ${realm}`, () => assert.equal(realmOf(pattern), realm));
  }
});

test('a refusal is 401 Unauthorized with the challenge', () => {
  const { status, message, headers } = unauthorized('Bearer realm="x"');
  assert.deepEqual(
    { status, message, headers },
    {
      status: 401,
      message: 'Unauthorized',
      headers: ['WWW-Authenticate', 'Bearer realm="x"'],
    },
  );
});
