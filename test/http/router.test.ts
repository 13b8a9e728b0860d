// Routing of request targets (contract 2.6, 2.7).
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Router } from '../../src/http/router.ts';
import { routes } from '../../src/routes.ts';

const router = new Router<unknown>(routes);

const ID = '/users/{id}';

describe('2.7 a target that matches a path of the table', () => {
  for (const [target, pattern, id = '', query = ''] of [
    ['/', '/'],
    ['/users/{id}', ID, '{id}'],
    ['/users/', '/users'],
    ['/?a=b', '/', '', 'a=b'],
    ['/users?/users/7?%zz', '/users', '', '/users/7?%zz'],
    ['/%75sers', '/users'],
    ['/users/%2537', ID, '%37'], // decoded once
    ['/users/7%2F8', ID, '7/8'],
    ['/users/%C3%A5+', ID, 'å+'],
    ['/users/%2e%2E', ID, '..'],
    ['http://host/users/7?a', ID, '7', 'a'], // RFC 9112 3.2.2
    ['https://host:81/users/', '/users'],
    ['HTTP://HOST/users', '/users'],
    ['http://host?a=/users', '/', '', 'a=/users'],
  ] as const) {
    test(`2.7 ${target}: ${pattern} ${id} ${query}`, () => {
      const match = router.find(target)!;
      const found = [match.resource.pattern, { ...match.parameters }, match.query];
      assert.deepEqual(found, [pattern, id === '' ? {} : { id }, query]);
    });
  }
});

describe('2.6 2.7 a target that matches no path', () => {
  for (const target of [
    ...['/Users', '/users/7/8', '//users', '/users//7', '/users//', '/users%2F7', '%2Fusers'],
    ...['/x/../users', '/users%3Flimit=1', '/users%00', 'users', '', '*', '/{id}', '/users#x'],
    ...['ftp://host/users', 'x/http://h/users', '/constructor', '__proto__'],
    ...['http:///users', 'http://:80/users', 'http://user@host/users'], // RFC 9110 §4.2
  ]) {
    test(`2.6 ${target || '(empty)'}`, () => assert.equal(router.find(target), undefined));
  }
});

describe('2.7 malformed percent-encoding in a path', () => {
  for (const target of ['/users/%', '/%zz', '/users/%FF', '/users/%ED%A0%80', '/x%/y']) {
    test(`2.7 ${target} returns 400`, () => {
      const message = 'The path has malformed percent-encoding.';
      assert.throws(() => router.find(target), { name: 'HttpError', status: 400, message });
    });
  }
});

test('no path can match two patterns of the table, in whatever order', () => {
  const canMeet = (one: string, two: string) => {
    const [a, b] = [one.split('/'), two.split('/')];
    const isParameter = (segment?: string) => segment?.startsWith('{');
    return (
      a.length === b.length &&
      a.every((segment, i) => segment === b[i] || isParameter(segment) || isParameter(b[i]))
    );
  };
  assert.ok(canMeet('/users/me', '/users/{id}') && canMeet('/{a}/x', '/y/{b}'));
  const patterns = [...new Set(Object.keys(routes).map((key) => key.split(' ')[1]!))];
  for (const [i, one] of patterns.entries()) {
    for (const two of patterns.slice(i + 1)) assert.ok(!canMeet(one, two), `${one} and ${two}`);
  }
});

test('paths that differ in a fixed part or in length have their own routes', () => {
  const table = new Router({ 'GET /{a}/x': 1, 'GET /{a}/y': 2, 'GET /{a}': 3, 'PUT /{a}': 4 });
  assert.equal(table.find('/1/y')?.resource.routes.get('GET'), 2);
  assert.equal(table.find('//y'), undefined); // 2.7: a parameter is not empty
});
