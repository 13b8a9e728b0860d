// Response headers of single routes (contract sections 2 to 4, 8). The document's introduction
// describes those of every response.
import { FIRST_TAG, type JsonObject } from './schemas.ts';

const USER_PATH = { type: 'string', pattern: '/users/[1-9][0-9]*$' };
const TAG = { type: 'string', pattern: '^"[!#-~]+"$', examples: [FIRST_TAG] };

/** Headers by component name. */
export const HEADERS = {
  ETag: header('Strong entity tag, for `If-None-Match` and, with users, `If-Match`.', TAG),
  Location: header('Path of the new user, with the prefix of a trusted proxy.', USER_PATH),
  ContentLocation: header(
    'Path of the user in the body, with the prefix of a trusted proxy.',
    USER_PATH,
  ),
  Link: optional('Next page, if more users follow (RFC 8288).', {
    type: 'string',
    pattern: '^<[^>]*/users\\?limit=[0-9]+&after=[0-9]+>; rel="next"$',
    examples: ['</users?limit=100&after=100>; rel="next"'],
  }),
  Policy: header("Allows only the page's own script.", { type: 'string' }),
  NoReferrer: header('Links on the page send no `Referer`.', only('no-referrer')),
  AcceptEncoding: optional('Sent instead if the body has a content coding.', only('identity')),
  ContentEncoding: optional('Coding of the body.', { type: 'string', enum: ['br', 'gzip'] }),
  Vary: header('The request header that selects the body and the tag.', only('Accept-Encoding')),
  RetryAfter: header('Seconds until the next attempt.', { type: 'integer', minimum: 1 }),
} as const;

export function header(description: string, schema: JsonObject): JsonObject {
  return { description, required: true, schema };
}

export function optional(description: string, schema: JsonObject): JsonObject {
  return { description, schema };
}

/** Returns the schema of one string. With only `const`, Go generators produce `interface{}`. */
export function only(value: string): JsonObject {
  return { type: 'string', const: value };
}
