// Parameters and credentials of requests (contract sections 2 to 4). Only required parameters have
// examples, because viewers send every example.
import { ADA, INT64, ref } from './schemas.ts';

/** Parameters by component name. */
export const PARAMETERS = {
  UserId: {
    name: 'id',
    in: 'path',
    required: true,
    description: 'Returns 404 if no user has this id.',
    schema: ref('schemas', 'UserId'),
    example: ADA.id,
  },
  Limit: {
    name: 'limit',
    in: 'query',
    description: 'At most this many users. If more follow, `Link` has the next page.',
    schema: { type: 'integer', minimum: 1, maximum: 1000 },
  },
  After: {
    name: 'after',
    in: 'query',
    description: 'Only users with a greater `id`.',
    schema: { ...INT64, minimum: 0 },
  },
  Email: {
    name: 'email',
    in: 'query',
    description: 'Only the user with exactly this email.',
    schema: ref('schemas', 'Email'),
  },
  IfMatch: {
    name: 'If-Match',
    in: 'header',
    description:
      'Entity tags (RFC 9110 section 13.1.1). Returns 412 unless one matches the user. `*` matches any.',
    schema: { type: 'string' },
  },
  IfNoneMatch: {
    name: 'If-None-Match',
    in: 'header',
    description:
      'Entity tags (RFC 9110 section 13.1.2). If one matches the user, GET returns 304 and a change returns 412. `*` matches any.',
    schema: { type: 'string' },
  },
  RequestId: {
    name: 'X-Request-Id',
    in: 'header',
    description: 'The response and the log have the same value.',
    schema: { type: 'string' },
  },
} as const;

/** Credentials by scheme. */
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
