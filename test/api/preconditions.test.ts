// Conditions of requests on users (contract 4.8, 4.16). Those of one representation are in the model of section 4.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { condition, entityTag } from '../../src/api/preconditions.ts';
import { ALWAYS, REPRESENTATION } from '../../src/user.ts';
import { storedUser } from '../support/users.ts';

test('4.8 a request without conditions has the one that every user meets', () => {
  assert.equal(condition({}), ALWAYS);
  assert.equal(condition({ 'if-match': '*' }), ALWAYS);
});

test('4.16 If-Match compares versions of any representation, If-None-Match of this one', () => {
  const tags = ['"12"', '"7-34"', '"10-5"', `"${REPRESENTATION}-678"`, '"0-9"', '"7-"', '"x"'];
  const header = tags.join(', ');
  assert.deepEqual(condition({ 'if-match': header, 'if-none-match': header }), {
    oneOf: [12, 34, 5, 678],
    noneOf: [678],
  });
  const one = entityTag(storedUser({ version: 9 }));
  assert.deepEqual(condition({ 'if-match': one }), { oneOf: [9], noneOf: [] });
  assert.deepEqual(condition({ 'if-none-match': one }), { oneOf: 'any', noneOf: [9] });
  assert.deepEqual(condition({ 'if-none-match': '*' }), { oneOf: 'any', noneOf: 'any' });
  const weak = `W/"${REPRESENTATION}-1"`;
  const none = { oneOf: [], noneOf: [1] };
  assert.deepEqual(condition({ 'if-match': weak, 'if-none-match': weak }), none);
});
