// The headers of answers (contract sections 2 to 4).
import { FIRST_TAG, type Part, ref } from './schemas.ts';

const LENGTH = { type: 'integer', minimum: 0 };
const USER_PATH = { type: 'string', pattern: '^/users/[1-9][0-9]*$' };
const TAG = { type: 'string', pattern: '^"[!#-~]+"$', examples: [FIRST_TAG] };

/** What answers carry besides their body. */
export const HEADERS = {
  RequestId: header('Names the request in the log.', ref('schemas', 'RequestId')),
  ContentTypeOptions: header('Browsers must not guess another type than `Content-Type`.', {
    const: 'nosniff',
  }),
  ContentLength: header('Bytes of the body.', LENGTH),
  StreamedLength: optional('Bytes of the body; absent where the list is streamed.', LENGTH),
  AllowOrigin: optional('The service’s `CORS_ORIGIN`; absent without one.', { type: 'string' }),
  ExposeHeaders: optional('Headers that a page of that origin may read.', { type: 'string' }),
  ETag: header('Strong entity tag of the user, for `If-Match` and `If-None-Match`.', TAG),
  Location: header('The path of the new user.', USER_PATH),
  ContentLocation: header('The path of the user that the answer holds.', USER_PATH),
  Link: optional('The next page, where more users follow (RFC 8288).', {
    type: 'string',
    pattern: '^</users\\?limit=[0-9]+&after=[0-9]+>; rel="next"$',
    examples: ['</users?limit=100&after=100>; rel="next"'],
  }),
  NoStore: header('A token is not to be cached (RFC 6749 §5.1).', { const: 'no-store' }),
  Policy: header('Lets the page run its own script and nothing else.', { type: 'string' }),
  NoReferrer: header('Links on the page send no `Referer`.', { const: 'no-referrer' }),
  NoCache: header('The page is asked for again each time.', { const: 'no-cache' }),
  RetryAfter: header('Seconds until the next attempt.', { type: 'integer', minimum: 1 }),
  Close: header('The connection ends with this answer.', { const: 'close' }),
} as const;

/** Headers of every answer (contract 2.2). */
export const COMMON = {
  'X-Request-Id': ref('headers', 'RequestId'),
  'X-Content-Type-Options': ref('headers', 'ContentTypeOptions'),
  'Access-Control-Allow-Origin': ref('headers', 'AllowOrigin'),
  'Access-Control-Expose-Headers': ref('headers', 'ExposeHeaders'),
};

/** A header that every such answer has. */
export function header(description: string, schema: Part): Part {
  return { description, required: true, schema };
}

function optional(description: string, schema: Part): Part {
  return { description, schema };
}
