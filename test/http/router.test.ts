// Routing of request targets.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Router } from '../../src/http/router.ts';

const router = new Router({
  'GET /': 'root',
  'POST /token': 'token',
  'GET /users': 'list',
  'POST /users': 'create',
  'GET /users/{id}': 'read',
  'PUT /users/{id}': 'replace',
  'PATCH /users/{id}': 'patch',
  'DELETE /users/{id}': 'remove',
});

function found(target: string) {
  const match = router.find(target);
  return match && [match.resource.pattern, match.parameters.id ?? '', match.query];
}

describe('a target that matches a path of the table', () => {
  for (const { why, target, match } of [
    { why: 'the root', target: '/', match: ['/', '', ''] },
    { why: 'a path', target: '/users', match: ['/users', '', ''] },
    { why: 'a parameter', target: '/users/7', match: ['/users/{id}', '7', ''] },
    { why: 'one trailing slash', target: '/users/', match: ['/users', '', ''] },
    {
      why: 'one trailing slash after a parameter',
      target: '/users/7/',
      match: ['/users/{id}', '7', ''],
    },
    { why: 'a query', target: '/users?limit=1', match: ['/users', '', 'limit=1'] },
    { why: 'a query of the root', target: '/?a=b', match: ['/', '', 'a=b'] },
    { why: 'an empty query', target: '/users?', match: ['/users', '', ''] },
    { why: 'a query with a question mark', target: '/users?a?b', match: ['/users', '', 'a?b'] },
    { why: 'a query with slashes', target: '/users?/users/7', match: ['/users', '', '/users/7'] },
    {
      why: 'a query that stays encoded',
      target: '/users?a=%20%zz',
      match: ['/users', '', 'a=%20%zz'],
    },
    { why: 'a trailing slash and a query', target: '/users/?a', match: ['/users', '', 'a'] },
    { why: 'an encoded letter', target: '/%75sers', match: ['/users', '', ''] },
    { why: 'a parameter decoded once', target: '/users/%2537', match: ['/users/{id}', '%37', ''] },
    {
      why: 'an encoded slash in a parameter',
      target: '/users/7%2F8',
      match: ['/users/{id}', '7/8', ''],
    },
    {
      why: 'an encoded question mark in a parameter',
      target: '/users/%3Fa',
      match: ['/users/{id}', '?a', ''],
    },
    { why: 'UTF-8 in a parameter', target: '/users/%C3%A5', match: ['/users/{id}', 'å', ''] },
    {
      why: 'dot segments as ordinary segments',
      target: '/users/..',
      match: ['/users/{id}', '..', ''],
    },
    { why: 'an encoded dot segment', target: '/users/%2e%2E', match: ['/users/{id}', '..', ''] },
    { why: 'a plus as itself', target: '/users/a+b', match: ['/users/{id}', 'a+b', ''] },
    { why: 'a semicolon as itself', target: '/users/7;v=1', match: ['/users/{id}', '7;v=1', ''] },
    {
      why: 'a parameter that is a name of Object.prototype',
      target: '/users/__proto__',
      match: ['/users/{id}', '__proto__', ''],
    },
    {
      why: 'RFC 9112 3.2.2: absolute form',
      target: 'http://host/users/7?a',
      match: ['/users/{id}', '7', 'a'],
    },
    {
      why: 'absolute form with a port',
      target: 'https://host:81/users',
      match: ['/users', '', ''],
    },
    { why: 'absolute form in capitals', target: 'HTTP://HOST/users', match: ['/users', '', ''] },
    { why: 'absolute form without a path', target: 'http://host', match: ['/', '', ''] },
    {
      why: 'absolute form without a path, with a query',
      target: 'http://host?a=/users',
      match: ['/', '', 'a=/users'],
    },
  ]) {
    test(`${why}: ${target}`, () => assert.deepEqual(found(target), match));
  }
});

describe('a target that matches no path', () => {
  for (const { why, target } of [
    { why: 'an unknown path', target: '/user' },
    { why: 'a path in another case', target: '/Users' },
    { why: 'one segment too many', target: '/users/7/8' },
    { why: 'a slash too many in front', target: '//users' },
    { why: 'a slash too many between', target: '/users//7' },
    { why: 'two trailing slashes', target: '/users//' },
    { why: 'two slashes', target: '//' },
    { why: 'an encoded slash as separator', target: '/users%2F7' },
    { why: 'a leading encoded slash', target: '%2Fusers' },
    { why: 'a leading dot segment', target: '/./users' },
    { why: 'a dot segment that would lead back', target: '/x/../users' },
    { why: 'an encoded trailing slash', target: '/users%2F' },
    { why: 'an encoded question mark', target: '/users%3Flimit=1' },
    { why: 'a trailing space', target: '/users%20' },
    { why: 'a trailing zero byte', target: '/users%00' },
    { why: 'no leading slash', target: 'users' },
    { why: 'nothing', target: '' },
    { why: 'an asterisk', target: '*' },
    { why: 'the pattern’s own text as a path', target: '/{id}' },
    { why: 'a fragment', target: '/users#x' },
    { why: 'another scheme', target: 'ftp://host/users' },
    { why: 'a name of Object.prototype', target: '/constructor' },
    { why: 'a name of Object.prototype without a slash', target: '__proto__' },
  ]) {
    test(`${why}: ${target || '(empty)'}`, () => assert.equal(router.find(target), undefined));
  }
});

describe('malformed percent-encoding in a path returns 400', () => {
  for (const target of [
    '/%',
    '/users/%',
    '/users/%7',
    '/users/%zz',
    '/users/%FF',
    '/users/%C0%AF',
    '/users/%ED%A0%80',
    '/x%/y',
    '/users/%u0037',
    `/${'x/'.repeat(20)}%`,
  ]) {
    test(target, () => {
      assert.throws(() => router.find(target), {
        name: 'HttpError',
        status: 400,
        message: 'The path has malformed percent-encoding.',
      });
    });
  }
});

describe('methods', () => {
  const resource = (target: string) => router.find(target)!.resource;

  test('a route is found by its method', () => {
    const { routes } = resource('/users/7');
    assert.deepEqual(
      ['GET', 'PUT', 'PATCH', 'DELETE'].map((method) => routes.get(method)),
      ['read', 'replace', 'patch', 'remove'],
    );
  });

  test('HEAD exists wherever GET does, and nowhere else', () => {
    assert.equal(resource('/users/7').routes.get('HEAD'), 'read');
    assert.equal(resource('/token').routes.get('HEAD'), undefined);
  });

  for (const method of ['OPTIONS', 'TRACE', 'get', 'constructor', '__proto__', '']) {
    test(`${method || '(empty)'} has no route`, () =>
      assert.equal(resource('/users').routes.get(method), undefined));
  }

  test('Allow names every method of a path and OPTIONS', () => {
    assert.equal(resource('/').allow, 'GET, HEAD, OPTIONS');
    assert.equal(resource('/token').allow, 'POST, OPTIONS');
    assert.equal(resource('/users').allow, 'GET, HEAD, POST, OPTIONS');
    assert.equal(resource('/users/7').allow, 'GET, HEAD, PUT, PATCH, DELETE, OPTIONS');
  });

  test('the Allow of the whole service names every method once', () => {
    const methods = router.allow.split(', ');
    assert.deepEqual(methods.toSorted(), [
      'DELETE',
      'GET',
      'HEAD',
      'OPTIONS',
      'PATCH',
      'POST',
      'PUT',
    ]);
  });

  test('the literal path has no parameter, after any other request', () => {
    assert.deepEqual(found('/users/7'), ['/users/{id}', '7', '']);
    assert.deepEqual(found('/users'), ['/users', '', '']);
  });
});

describe('a table in which a path can match two patterns is refused', () => {
  for (const [one, two] of [
    ['/users/{id}', '/users/{name}'],
    ['/users/{id}', '/users/me'],
    ['/users/me', '/users/{id}'],
    ['/{a}/x', '/y/{b}'],
  ]) {
    test(`${one} and ${two}`, () =>
      assert.throws(() => new Router({ [`GET ${one}`]: 1, [`POST ${two}`]: 2 }), {
        message: `a path can match both ${one} and ${two}`,
      }));
  }

  test('paths that differ in a fixed part or in length are accepted', () => {
    const table = new Router({ 'GET /{a}/x': 1, 'GET /{a}/y': 2, 'GET /{a}': 3, 'PUT /{a}': 4 });
    assert.equal(table.find('/1/y')?.resource.routes.get('GET'), 2);
  });
});

test('a target of 16 KiB is looked up in less than 100 ms of CPU', () => {
  const start = process.cpuUsage();
  for (const target of [
    '/'.repeat(16_384),
    `/${'%20'.repeat(5000)}`,
    `http://${'h'.repeat(16_000)}`,
  ]) {
    assert.equal(router.find(target)?.parameters.id ?? '', '');
  }
  const { user, system } = process.cpuUsage(start);
  assert.ok(user + system < 100_000, `${user + system} microseconds`);
});
