// The query of a request target.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseQuery } from '../../src/http/query.ts';

const KNOWN = ['limit', 'after', 'email'] as const;

describe('the known parameters of a query', () => {
  for (const { why, query, values } of [
    { why: 'nothing', query: '', values: {} },
    { why: 'one', query: 'limit=1', values: { limit: '1' } },
    { why: 'two', query: 'limit=1&after=2', values: { limit: '1', after: '2' } },
    { why: 'only a name', query: 'limit', values: { limit: '' } },
    { why: 'an empty value', query: 'limit=', values: { limit: '' } },
    { why: 'an equals sign in the value', query: 'limit=a=b', values: { limit: 'a=b' } },
    { why: 'an encoded name', query: '%6cimit=1', values: { limit: '1' } },
    { why: 'an encoded value', query: 'email=a%40b%26c', values: { email: 'a@b&c' } },
    { why: 'UTF-8', query: 'email=%C3%A5@%F0%9F%98%80', values: { email: 'å@😀' } },
    { why: 'a value decoded once', query: 'email=%2540', values: { email: '%40' } },
    { why: 'RFC 3986: a plus is itself', query: 'email=a+b@c', values: { email: 'a+b@c' } },
    { why: 'empty parts', query: '&&limit=1&&', values: { limit: '1' } },
    { why: 'an unknown one', query: 'x=1&limit=1', values: { limit: '1' } },
    { why: 'an unknown one twice', query: 'x=1&x=2', values: {} },
    { why: 'an unknown one with malformed encoding in its value', query: 'x=%zz', values: {} },
    { why: 'a name in another case', query: 'Limit=1', values: {} },
    { why: 'brackets, which have no meaning here', query: 'limit[]=1', values: {} },
    {
      why: 'a semicolon, which separates nothing',
      query: 'limit=1;after=2',
      values: { limit: '1;after=2' },
    },
    { why: 'names of Object.prototype', query: '__proto__=1&constructor=2&toString=3', values: {} },
    { why: 'a question mark', query: '?limit=1', values: {} },
  ]) {
    test(`${why}: ${query || '(empty)'}`, () =>
      assert.deepEqual({ ...parseQuery(query, KNOWN) }, values));
  }
});

describe('a query that returns 400', () => {
  for (const { why, query, message } of [
    {
      why: 'a known parameter twice',
      query: 'limit=1&limit=1',
      message: 'The query parameter limit must appear only once.',
    },
    {
      why: 'a known parameter twice, empty',
      query: 'limit&limit',
      message: 'The query parameter limit must appear only once.',
    },
    {
      why: 'a known parameter twice, once encoded',
      query: 'after=1&%61fter=2',
      message: 'The query parameter after must appear only once.',
    },
    ...[
      'limit=%',
      'limit=%4',
      'limit=%zz',
      'limit=%FF',
      'email=%C0%80',
      'email=%ED%A0%80',
      '%=1',
      '%zz',
    ].map((query) => ({
      why: 'malformed encoding',
      query,
      message: 'The query has malformed percent-encoding.',
    })),
  ]) {
    test(`${why}: ${query}`, () => {
      assert.throws(() => parseQuery(query, KNOWN), { name: 'HttpError', status: 400, message });
    });
  }
});
