// Response headers of single routes (contract sections 2 to 4, 8). The introduction of the document
// describes the headers of every response.
import { FIRST_TAG, type JsonObject } from './schemas.ts';

const USER_PATH = { type: 'string', pattern: '^/users/[1-9][0-9]*$' };
const TAG = { type: 'string', pattern: '^"[!#-~]+"$', examples: [FIRST_TAG] };

/** Headers by component name. */
export const HEADERS = {
  ETag: header('Strong entity tag, for `If-None-Match` and, of users, `If-Match`.', TAG),
  Location: header('Path of the new user.', USER_PATH),
  ContentLocation: header('Path of the user in the body.', USER_PATH),
  Link: optional('Next page, if more users follow (RFC 8288).', {
    type: 'string',
    pattern: '^</users\\?limit=[0-9]+&after=[0-9]+>; rel="next"$',
    examples: ['</users?limit=100&after=100>; rel="next"'],
  }),
  Policy: header('Lets the page run its own script and nothing else.', { type: 'string' }),
  NoReferrer: header('Links on the page send no `Referer`.', only('no-referrer')),
  AcceptEncoding: optional('Sent instead if the body has a content coding.', only('identity')),
  ContentEncoding: optional('Coding of the body.', { type: 'string', enum: ['br', 'gzip'] }),
  Vary: header('What the body and the tag depend on.', only('Accept-Encoding')),
  RetryAfter: header('Seconds until the next attempt.', { type: 'integer', minimum: 1 }),
} as const;

/** A header that every such response has. */
export function header(description: string, schema: JsonObject): JsonObject {
  return { description, required: true, schema };
}

/** A header that some such responses have. */
export function optional(description: string, schema: JsonObject): JsonObject {
  return { description, schema };
}

/** The schema of one text. With `const` alone, generators for Go make the type `interface{}`. */
export function only(value: string): JsonObject {
  return { type: 'string', const: value };
}
