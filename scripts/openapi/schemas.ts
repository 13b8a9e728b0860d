// Schemas of the request and response bodies (contract sections 3 and 4). Validation uses the same
// schemas for a user's fields.
import { FIELDS } from '../../src/user.ts';

/** A JSON object of the document. */
export type JsonObject = { readonly [name: string]: unknown };

type ComponentType = 'schemas' | 'parameters' | 'headers' | 'responses';

export function ref(type: ComponentType, name: string): JsonObject {
  return { $ref: `#/components/${type}/${name}` };
}

/** The user of the examples: the first user that the example of `POST /users` creates. */
export const ADA = { id: 1, name: 'Ada Lovelace', email: 'ada@example.com' };

/** Entity tag of a user that has never changed. */
export const FIRST_TAG = '"1"';

/** Schema of an id. Without the format, generators for Go and Java produce a 32-bit number. */
export const INT64 = { type: 'integer', format: 'int64', maximum: Number.MAX_SAFE_INTEGER };

/** Schemas by component name. `NewUser` would collide with the constructor of `User` in Go. */
export const SCHEMAS = {
  Name: FIELDS.name,
  Email: FIELDS.email,
  UserId: {
    description: 'Assigned by the service, ascending, never reused.',
    ...INT64,
    minimum: 1,
  },
  User: {
    ...object({
      id: ref('schemas', 'UserId'),
      name: ref('schemas', 'Name'),
      email: ref('schemas', 'Email'),
    }),
    additionalProperties: false,
  },
  UserFields: {
    description: 'Other members, `id` included, are ignored.',
    ...object({ name: ref('schemas', 'Name'), email: ref('schemas', 'Email') }),
  },
  UserChange: {
    description:
      'A JSON Merge Patch (RFC 7396). Absent fields keep their values. `null` is refused, because neither field can be removed. Other members are ignored.',
    type: 'object',
    properties: { name: ref('schemas', 'Name'), email: ref('schemas', 'Email') },
  },
  Credentials: object({
    id: { description: '`AUTH_USER`.', type: 'string' },
    pw: { description: '`AUTH_PASSWORD`.', type: 'string', format: 'password' },
  }),
  Token: {
    ...object({
      token: {
        description:
          'JWS compact, HS256, with the claims `id`, `name`, `iat` and `exp` = `iat` + 3600.',
        type: 'string',
        pattern: '^[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+$',
      },
    }),
    additionalProperties: false,
  },
  Note: {
    ...object({ title: { type: 'string' }, contents: { type: 'string' } }),
    additionalProperties: false,
  },
  Description: {
    description: 'An OpenAPI 3.1 document.',
    ...object({
      openapi: { type: 'string', pattern: '^3\\.1\\.[0-9]+$' },
      info: { type: 'object' },
      paths: { type: 'object' },
      components: { type: 'object' },
    }),
    additionalProperties: true,
  },
} as const;

function object(properties: JsonObject): JsonObject {
  return { type: 'object', required: Object.keys(properties), properties };
}
