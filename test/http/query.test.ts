// The query of a request target.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseQuery } from '../../src/http/query.ts';

const KNOWN = ['limit', 'after', 'email'] as const;

describe('the known parameters of a query', () => {
  for (const [query, values] of [
    ['', {}],
    ['limit=1', { limit: '1' }],
    ['limit=1&after=2', { limit: '1', after: '2' }],
    ['limit', { limit: '' }],
    ['limit=', { limit: '' }],
    ['limit=a=b', { limit: 'a=b' }],
    ['limit=a\nb', { limit: 'a\nb' }],
    ['%6cimit=1', { limit: '1' }],
    ['email=a%40b%26c', { email: 'a@b&c' }],
    ['email=%C3%A5@%F0%9F%98%80', { email: 'å@😀' }],
    ['email=%2540', { email: '%40' }], // decoded once
    ['email=a+b@c', { email: 'a+b@c' }], // RFC 3986: a plus is itself
    ['&&limit=1&&', { limit: '1' }],
    ['x=1&limit=1', { limit: '1' }],
    ['x=1&x=2&x=%zz', {}],
    ['Limit=1', {}],
    ['limit[]=1', {}],
    ['limit=1;after=2', { limit: '1;after=2' }],
    ['__proto__=1&constructor=2&toString=3', {}],
    ['?limit=1', {}],
  ] as const) {
    test(`${JSON.stringify(query)}: ${JSON.stringify(values)}`, () =>
      assert.deepEqual({ ...parseQuery(query, KNOWN) }, values));
  }
});

describe('a query that returns 400', () => {
  const encodings = 'limit=% limit=%4 limit=%zz limit=%FF email=%C0%80 email=%ED%A0%80 %=1 %zz';
  for (const [query, message] of [
    ['limit=1&limit=1', 'The query parameter limit must appear only once.'],
    ['limit&limit', 'The query parameter limit must appear only once.'],
    ['after=1&%61fter=2', 'The query parameter after must appear only once.'],
    ...encodings
      .split(' ')
      .map((text) => [text, 'The query has malformed percent-encoding.'] as const),
  ] as const) {
    test(`${query}: ${message}`, () => {
      assert.throws(() => parseQuery(query, KNOWN), { name: 'HttpError', status: 400, message });
    });
  }
});
