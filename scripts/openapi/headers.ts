// Response headers of some routes. The introduction of the document describes the headers of every
// response.
import { FIRST_TAG, type JsonObject } from './schemas.ts';

const USER_PATH = { type: 'string', pattern: '^/users/[1-9][0-9]*$' };
const TAG = { type: 'string', pattern: '^"[!#-~]+"$', examples: [FIRST_TAG] };

export const HEADERS = {
  ETag: header('Strong entity tag, for `If-None-Match` and, of users, `If-Match`.', TAG),
  Location: header('Path of the new user.', USER_PATH),
  ContentLocation: header('Path of the user in the body.', USER_PATH),
  Link: optional('Next page, if more users follow (RFC 8288).', {
    type: 'string',
    pattern: '^</users\\?limit=[0-9]+&after=[0-9]+>; rel="next"$',
    examples: ['</users?limit=100&after=100>; rel="next"'],
  }),
  Policy: header('Allows the page its own script and nothing else.', { type: 'string' }),
  NoReferrer: header('Links on the page send no `Referer`.', only('no-referrer')),
  AcceptEncoding: optional('Sent if the body has a content coding.', only('identity')),
  ContentEncoding: optional('Coding of the body.', { type: 'string', enum: ['br', 'gzip'] }),
  Vary: header('Request header that selects the body and the tag.', only('Accept-Encoding')),
  RetryAfter: header('Seconds until the next attempt is allowed.', { type: 'integer', minimum: 1 }),
} as const;

/** A header that is always present. */
export function header(description: string, schema: JsonObject): JsonObject {
  return { description, required: true, schema };
}

/** A header that may be absent. */
export function optional(description: string, schema: JsonObject): JsonObject {
  return { description, schema };
}

/** The schema of one string. With `const` alone, generators for Go use `interface{}`. */
export function only(value: string): JsonObject {
  return { type: 'string', const: value };
}
