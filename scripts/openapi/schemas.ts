// The schemas of the OpenAPI document: what bodies hold (contract sections 3 and 4). The rules of a
// user's fields are the ones that validation uses.
import { FIELDS } from '../../src/user.ts';

/** A JSON object of the document. */
export type Part = { readonly [name: string]: unknown };

type Kind = 'schemas' | 'parameters' | 'headers' | 'responses';

/** A reference to a component. */
export function ref(kind: Kind, name: string): Part {
  return { $ref: `#/components/${kind}/${name}` };
}

/** The user of the examples: the service's first one when it is created as the example does. */
export const ADA = { id: 1, name: 'Ada Lovelace', email: 'ada@example.com' };

/** Entity tag of a user that has not been changed. */
export const FIRST_TAG = '"1"';

/** Schemas of bodies and values. */
export const SCHEMAS = {
  Name: { ...FIELDS.name, examples: [ADA.name] },
  Email: { ...FIELDS.email, examples: [ADA.email] },
  UserId: {
    description: 'Given by the service, ascending, never reused.',
    type: 'integer',
    minimum: 1,
    maximum: Number.MAX_SAFE_INTEGER,
    examples: [ADA.id],
  },
  User: {
    ...object({
      id: ref('schemas', 'UserId'),
      name: ref('schemas', 'Name'),
      email: ref('schemas', 'Email'),
    }),
    additionalProperties: false,
  },
  NewUser: {
    description: 'Other members, `id` included, are ignored.',
    ...object({ name: ref('schemas', 'Name'), email: ref('schemas', 'Email') }),
  },
  UserChange: {
    description:
      'A JSON Merge Patch (RFC 7396): what is absent stays as it is. `null` is refused, as neither field can be removed. Other members are ignored.',
    type: 'object',
    properties: { name: ref('schemas', 'Name'), email: ref('schemas', 'Email') },
  },
  RequestId: { type: 'string', pattern: '^[A-Za-z0-9._-]{1,128}$' },
  Credentials: object({
    id: { description: "The credential user's `AUTH_USER`.", type: 'string' },
    pw: { description: 'Its `AUTH_PASSWORD`.', type: 'string', format: 'password' },
  }),
  Token: {
    ...object({
      token: {
        description:
          'JWS compact, HS256, with the claims `id`, `name`, `iat` and `exp` = `iat` + 3600.',
        type: 'string',
        pattern: '^[\\w-]+\\.[\\w-]+\\.[\\w-]+$',
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
  },
} as const;

function object(properties: Part): Part {
  return { type: 'object', required: Object.keys(properties), properties };
}
