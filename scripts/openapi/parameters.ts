// What requests carry besides their body: parameters and credentials (contract sections 2 to 4).
import { ADA, FIRST_TAG, ref } from './schemas.ts';

/** What requests carry besides their body. */
export const PARAMETERS = {
  UserId: {
    name: 'id',
    in: 'path',
    required: true,
    description: 'What is not the id of a user answers 404.',
    schema: ref('schemas', 'UserId'),
    example: ADA.id,
  },
  Limit: {
    name: 'limit',
    in: 'query',
    description:
      'At most this many users; where more follow, `Link` names the next page. Default: all.',
    schema: { type: 'integer', minimum: 1, maximum: 1000 },
    example: 100,
  },
  After: {
    name: 'after',
    in: 'query',
    description: 'Only users with a greater `id`.',
    schema: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 },
    example: 0,
  },
  Email: {
    name: 'email',
    in: 'query',
    description: 'Only the user with exactly this email.',
    schema: ref('schemas', 'Email'),
    example: ADA.email,
  },
  IfMatch: {
    name: 'If-Match',
    in: 'header',
    description:
      'Entity tags (RFC 9110 §13.1.1): the request is done only to a user that has one of them, else 412. `*` stands for any.',
    schema: { type: 'string' },
    example: FIRST_TAG,
  },
  IfNoneMatch: {
    name: 'If-None-Match',
    in: 'header',
    description:
      'Entity tags (RFC 9110 §13.1.2): a user that has one of them answers 304 to GET and 412 to a change. `*` stands for any.',
    schema: { type: 'string' },
  },
  RequestId: {
    name: 'X-Request-Id',
    in: 'header',
    description:
      'Comes back in the answer and is in the log. One that does not match the pattern is replaced.',
    schema: ref('schemas', 'RequestId'),
  },
} as const;

/** How a request says who sends it. */
export const SECURITY_SCHEMES = {
  bearer: {
    description: 'A token of `POST /token`, valid for an hour.',
    type: 'http',
    scheme: 'bearer',
    bearerFormat: 'JWT',
  },
  basic: {
    description: '`AUTH_USER` and `AUTH_PASSWORD` (RFC 7617, UTF-8).',
    type: 'http',
    scheme: 'basic',
  },
};
