// Queries (contract 2.7, 4.2). Those of GET /users are in test/vectors/users.ts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseQuery } from '../../src/http/query.ts';

const parse = (query: string) => parseQuery(query, ['a', 'b']);

describe('4.2 the values of known parameters', () => {
  for (const [query, values] of [
    ['', {}],
    ['&&', {}],
    ['=1', {}],
    ['a=1', { a: '1' }],
    ['b=1&a=2', { a: '2', b: '1' }],
    ['a', { a: '' }],
    ['&a=&', { a: '' }],
    ['a=b=c', { a: 'b=c' }],
    ['%61=%C3%A9%26+', { a: 'é&+' }],
    ['c=1&c=2&A=3&a=4', { a: '4' }],
    ['c=%zz', {}], // Its value is not read; the pipeline refuses it.
  ] as const) {
    test(`4.2 ${query}`, () => assert.deepEqual(parse(query), values));
  }
});

describe('2.7, 4.2 refused queries', () => {
  for (const query of ['%', 'a=%', '%zz=1', 'a=%FF']) {
    test(`2.7 ${query} returns 400`, () => {
      const message = 'The query has malformed percent-encoding.';
      assert.throws(() => parse(query), { name: 'HttpError', status: 400, message });
    });
  }
  for (const query of ['b=1&b=1', 'b&b', 'b=1&a=1&%62=2']) {
    test(`4.2 ${query} returns 400`, () => {
      const message = 'The query parameter b must appear only once.';
      assert.throws(() => parse(query), { name: 'HttpError', status: 400, message });
    });
  }
});
