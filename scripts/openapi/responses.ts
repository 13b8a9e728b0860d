// Responses of the OpenAPI document (contract sections 2 to 4), except each route's success.
import { header, only, optional } from './headers.ts';
import { type JsonObject, ref } from './schemas.ts';

/** Component names of the statuses that have the same response on every route. */
export const SHARED = {
  304: 'NotModified',
  400: 'BadRequest',
  404: 'NoSuchUser',
  412: 'PreconditionFailed',
  413: 'ContentTooLarge',
  429: 'TooManyRequests',
  500: 'InternalServerError',
} as const;

/** Responses by component name. */
export const RESPONSES = {
  NotModified: {
    description: "`If-None-Match` lists the user's entity tag.",
    headers: { ETag: ref('headers', 'ETag') },
  },
  DocumentNotModified: {
    description: '`If-None-Match` lists the entity tag.',
    headers: { ETag: ref('headers', 'ETag'), Vary: ref('headers', 'Vary') },
  },
  BadRequest: textResponse(
    'The request is malformed or has an invalid value. The body says in one sentence what is wrong.',
    'The body is not valid JSON.',
  ),
  NoSuchUser: textResponse('No user has this id.', 'No user has this id.'),
  PreconditionFailed: textResponse(
    "The user's current version fails `If-Match` or `If-None-Match`. Nothing was changed.",
    "The user's current version fails If-Match or If-None-Match.",
  ),
  ContentTooLarge: textResponse(
    'The body is larger than `BODY_LIMIT_BYTES`, or a form has more than 1,000 parameters.',
    'The body is larger than 102400 bytes.',
  ),
  TooManyRequests: textResponse(
    'The client made `AUTH_FAILURES_PER_MINUTE` failed attempts within a minute, or its IPv6 /48 made 64 times as many. IPv6 clients count by /64. Valid credentials are rejected too, until `Retry-After`.',
    'Too Many Requests',
    { 'Retry-After': ref('headers', 'RetryAfter') },
  ),
  InternalServerError: textResponse(
    'The store failed or timed out. The outcome of a write is unknown: it was done, may still be done, or never is. It is never done twice.',
    'Internal Server Error',
  ),
} as const;

/** Returns a 401 with one of these challenges (RFC 9110 §11.6.1). */
export function unauthorized(...challenges: readonly string[]): JsonObject {
  return textResponse('The credentials are missing or invalid.', 'Unauthorized', {
    'WWW-Authenticate': header('The credentials that the route requires.', {
      type: 'string',
      enum: challenges,
    }),
  });
}

/** Returns the 415 of a route that accepts these media types (RFC 9110 §15.5.16). */
export function unsupported(accepted: string, isPatch: boolean): JsonObject {
  const types = optional('Media types that the route accepts.', only(accepted));
  return textResponse(
    'The route does not accept the media type, charset or content coding of the body, or `Content-Type` is missing.',
    `The body must be ${accepted.replace(', ', ' or ')}, in UTF-8.`,
    {
      Accept: types,
      ...(isPatch && { 'Accept-Patch': types }),
      'Accept-Encoding': ref('headers', 'AcceptEncoding'),
    },
  );
}

export function jsonResponse(
  description: string,
  schema: JsonObject,
  example: unknown,
  headers?: JsonObject,
): JsonObject {
  return response(description, 'application/json', schema, example, headers);
}

export function textResponse(
  description: string,
  example: string,
  headers?: JsonObject,
): JsonObject {
  const type = 'text/plain; charset=utf-8';
  return response(description, type, { type: 'string' }, example, headers);
}

export function htmlResponse(description: string, headers: JsonObject): JsonObject {
  const page = '<!doctype html>';
  return response(description, 'text/html; charset=utf-8', { type: 'string' }, page, headers);
}

function response(
  description: string,
  type: string,
  schema: JsonObject,
  example: unknown,
  headers: JsonObject | undefined,
): JsonObject {
  const content = { [type]: { schema, example } };
  return { description, ...(headers && { headers }), content };
}
