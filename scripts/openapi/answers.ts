// The answers of the OpenAPI document (contract sections 2 to 4), but for each route's success.
import { COMMON, header } from './headers.ts';
import { type Part, ref } from './schemas.ts';

/** Names in `RESPONSES` by status, where the routes that have it answer alike. */
export const ANSWERS = {
  304: 'NotModified',
  400: 'BadRequest',
  404: 'NoSuchUser',
  408: 'RequestTimeout',
  412: 'PreconditionFailed',
  413: 'ContentTooLarge',
  429: 'TooManyRequests',
  431: 'HeadersTooLarge',
  500: 'InternalServerError',
  505: 'VersionNotSupported',
} as const;

const LENGTH = { 'Content-Length': ref('headers', 'ContentLength') };
const CLOSE = { Connection: ref('headers', 'Close') };

/** Answers that several routes give. */
export const RESPONSES = {
  NotModified: {
    description: '`If-None-Match` names the user’s entity tag.',
    headers: { ...COMMON, ETag: ref('headers', 'ETag') },
  },
  BadRequest: textAnswer(
    'The request is malformed, or a value in it is refused. The body says what is wrong, in one sentence.',
    'The body is not valid JSON.',
  ),
  NoSuchUser: textAnswer('No user has this id.', 'No user has this id.'),
  RequestTimeout: textAnswer('The request did not come in time.', 'Request Timeout', CLOSE),
  PreconditionFailed: textAnswer(
    '`If-Match` or `If-None-Match` rules out the user’s version. Nothing was changed.',
    "If-Match or If-None-Match rules out the user's version.",
  ),
  ContentTooLarge: textAnswer(
    'The body is larger than `BODY_LIMIT_BYTES`, or a form has more than 1,000 parameters.',
    'The body is larger than 102400 bytes.',
    CLOSE,
  ),
  TooManyRequests: textAnswer(
    'The client’s address has made `AUTH_FAILURES_PER_MINUTE` failed attempts within a minute. Right credentials are refused too.',
    'Too Many Requests',
    { 'Retry-After': ref('headers', 'RetryAfter') },
  ),
  HeadersTooLarge: textAnswer(
    'The header section is larger than 16 KiB.',
    'Request Header Fields Too Large',
    CLOSE,
  ),
  InternalServerError: textAnswer(
    'The store failed or did not answer in time. For a write that means *unknown*: it was done once or not at all.',
    'Internal Server Error',
  ),
  VersionNotSupported: textAnswer(
    'The request is in a version of HTTP other than 1.0 and 1.1.',
    'HTTP Version Not Supported',
    CLOSE,
  ),
} as const;

/** What OpenAPI has no place for: answers to requests that no operation takes. */
export const UNMATCHED = {
  404: textAnswer('The path names nothing.', 'Not Found'),
  405: textAnswer('The path does not have this method.', 'Method Not Allowed', {
    Allow: header('The methods that the path has.', { type: 'string' }),
  }),
  503: textAnswer(
    'Too many requests wait behind others of their connections.',
    'Service Unavailable',
    CLOSE,
  ),
};

/** 401 with one of these challenges (RFC 9110 §11.6.1). */
export function unauthorized(challenges: readonly string[]): Part {
  return textAnswer('The credentials are missing or wrong.', 'Unauthorized', {
    'WWW-Authenticate': header('What the route asks for.', { type: 'string', enum: challenges }),
  });
}

/** 415 of a route that takes these media types (RFC 9110 §15.5.16). */
export function unsupported(accepted: string, isPatch: boolean): Part {
  const takes = { description: 'What the route takes.', schema: { const: accepted } };
  return textAnswer(
    'The body is in another media type, charset or content coding, or has no `Content-Type`.',
    `The body must be ${accepted.replace(', ', ' or ')}, in UTF-8.`,
    {
      Accept: takes,
      ...(isPatch && { 'Accept-Patch': takes }),
      'Accept-Encoding': {
        description: 'Instead, where the body has a content coding.',
        schema: { const: 'identity' },
      },
    },
  );
}

/** A JSON answer. */
export function jsonAnswer(
  description: string,
  schema: Part,
  example: unknown,
  headers: Part = {},
): Part {
  return answer(description, 'application/json', schema, example, headers);
}

/** A plain-text answer. */
export function textAnswer(description: string, example: string, headers: Part = {}): Part {
  return answer(description, 'text/plain; charset=utf-8', { type: 'string' }, example, headers);
}

/** A page. */
export function htmlAnswer(description: string, headers: Part): Part {
  const page = '<!doctype html>';
  return answer(description, 'text/html; charset=utf-8', { type: 'string' }, page, headers);
}

function answer(
  description: string,
  type: string,
  schema: Part,
  example: unknown,
  headers: Part,
): Part {
  const content = { [type]: { schema, example } };
  return { description, headers: { ...COMMON, ...LENGTH, ...headers }, content };
}
