// Errors and their plain-text responses.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { errorReply } from '../../src/api/failures.ts';
import { HttpError } from '../../src/http/errors.ts';
import { CallerLeft, EmailTaken, InvalidUser, StoreUnavailable } from '../../src/user.ts';

const type = 'text/plain; charset=utf-8';

describe('the reply for a thrown error', () => {
  for (const { why, thrown, reply } of [
    {
      why: 'only a status',
      thrown: new HttpError(404),
      reply: { status: 404, type, body: 'Not Found', headers: [] },
    },
    {
      why: 'a status, a sentence and headers',
      thrown: new HttpError(405, 'No.', ['Allow', 'GET']),
      reply: { status: 405, type, body: 'No.', headers: ['Allow', 'GET'] },
    },
    {
      why: 'an invalid user',
      thrown: new InvalidUser('name is wrong.'),
      reply: { status: 400, type, body: 'name is wrong.', headers: [] },
    },
    {
      why: 'a taken email',
      thrown: new EmailTaken('secret'),
      reply: { status: 400, type, body: 'Another user has this email.', headers: [] },
    },
    {
      why: 'a client that has left',
      thrown: new CallerLeft(),
      reply: { status: 400, type, body: 'The client has left.', headers: [] },
    },
    ...[
      { why: 'an unavailable store', thrown: new StoreUnavailable('at 10.0.0.1') },
      { why: 'an internal error', thrown: new TypeError('x is not a function') },
      {
        why: 'an error that carries a status',
        thrown: Object.assign(new Error('select 1'), { status: 200 }),
      },
      { why: 'a text', thrown: 'secret' },
      { why: 'undefined', thrown: undefined },
      { why: 'null', thrown: null },
    ].map((row) => ({
      ...row,
      reply: { status: 500, type, body: 'Internal Server Error', headers: [] },
    })),
  ]) {
    test(`${why}: ${reply.status} ${reply.body}`, () =>
      assert.deepEqual(errorReply(thrown), reply));
  }

  for (const { status, body } of [
    { status: 400, body: 'Bad Request' },
    { status: 401, body: 'Unauthorized' },
    { status: 408, body: 'Request Timeout' },
    { status: 413, body: 'Payload Too Large' },
    { status: 415, body: 'Unsupported Media Type' },
    { status: 429, body: 'Too Many Requests' },
    { status: 431, body: 'Request Header Fields Too Large' },
    { status: 505, body: 'HTTP Version Not Supported' },
  ]) {
    test(`the default of ${status} is its status text`, () =>
      assert.equal(errorReply(new HttpError(status)).body, body));
  }
});
