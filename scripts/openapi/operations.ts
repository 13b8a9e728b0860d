// The parts of each operation that the route table lacks: name in generated clients, parameters,
// schema of the body, and successful response.
import type { routes } from '../../src/routes.ts';
import { VERSION } from '../../src/version.js';
import type { PARAMETERS } from './parameters.ts';
import { htmlResponse, jsonResponse, textResponse, unauthorized } from './responses.ts';
import { ADA, type JsonObject, ref, type SCHEMAS } from './schemas.ts';

export interface Operation {
  /** `operationId`, the method name in generated clients. */
  readonly id: string;
  readonly tag: keyof typeof TAGS;
  readonly parameters?: readonly (keyof typeof PARAMETERS)[];
  /** Schema of the request's body, and an example that a new service accepts. */
  readonly body?: { readonly schema: keyof typeof SCHEMAS; readonly example: JsonObject };
  /** The response with status 200 or 201. */
  readonly success: JsonObject;
  /** The response with status 304, if it is not the one for users. */
  readonly notModified?: JsonObject;
  /** The response with status 401, if the handler returns it. */
  readonly unauthorized?: JsonObject;
}

export const TAGS = {
  service: 'The service itself.',
  access: 'Tokens and Basic credentials.',
  notes: 'The note.',
  users: 'Users, with pages and conditional requests.',
} as const;

const CONDITIONS = ['IfMatch', 'IfNoneMatch'] as const;

const TAGGED = { ETag: ref('headers', 'ETag') };
const CHANGED = { ...TAGGED, 'Content-Location': ref('headers', 'ContentLocation') };
const NEW_ADA = { name: ADA.name, email: ADA.email };
const PAGE = {
  'Content-Security-Policy': ref('headers', 'Policy'),
  'Referrer-Policy': ref('headers', 'NoReferrer'),
};
const ENCODED = {
  ETag: ref('headers', 'ETag'),
  Vary: ref('headers', 'Vary'),
  'Content-Encoding': ref('headers', 'ContentEncoding'),
};
const DOCUMENT_NOT_MODIFIED = ref('responses', 'DocumentNotModified');
const TOKEN =
  'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpZCI6ImFkbWluIiwibmFtZSI6IkFkbWluaXN0cmF0b3IiLCJpYXQiOjE3OTUyMjc2NzYsImV4cCI6MTc5NTIzMTI3Nn0.R-6cYmQRHu3fKUgmpTPQflAgjF6_jD2YS9aNkoK3Rco';

/** Operations by route. A missing route is a compile error. */
export const OPERATIONS: { readonly [key in keyof typeof routes]: Operation } = {
  'GET /': {
    id: 'greet',
    tag: 'service',
    success: textResponse('A greeting.', 'Hello! This is the Notes and Users API.\n'),
  },
  'POST /token': {
    id: 'issueToken',
    tag: 'access',
    body: { schema: 'Credentials', example: { id: 'admin', pw: 'correct horse battery staple' } },
    success: jsonResponse('The token.', ref('schemas', 'Token'), { token: TOKEN }),
    unauthorized: unauthorized('Bearer realm="token"'),
  },
  'GET /notes': {
    id: 'readNote',
    tag: 'notes',
    success: jsonResponse('The note.', ref('schemas', 'Note'), {
      title: 'Welcome',
      contents: 'This note is kept by the service and read with a token.',
    }),
  },
  'GET /protected': {
    id: 'greetCaller',
    tag: 'access',
    success: textResponse('A greeting for the credential user.', 'Welcome, Administrator.\n'),
  },
  'GET /users': {
    id: 'listUsers',
    tag: 'users',
    parameters: ['Limit', 'After', 'Email'],
    success: jsonResponse(
      'Users by ascending `id`. If the store fails while a long list is streamed, the connection is reset.',
      { type: 'array', items: ref('schemas', 'User') },
      [ADA],
      { Link: ref('headers', 'Link') },
    ),
  },
  'POST /users': {
    id: 'createUser',
    tag: 'users',
    body: { schema: 'UserFields', example: NEW_ADA },
    success: jsonResponse('The new user.', ref('schemas', 'User'), ADA, {
      ...TAGGED,
      Location: ref('headers', 'Location'),
    }),
  },
  'GET /users/{id}': {
    id: 'readUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    success: jsonResponse('The user.', ref('schemas', 'User'), ADA, TAGGED),
  },
  'PUT /users/{id}': {
    id: 'replaceUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    body: { schema: 'UserFields', example: { ...NEW_ADA, name: 'Ada King' } },
    success: jsonResponse(
      'The changed user.',
      ref('schemas', 'User'),
      { ...ADA, name: 'Ada King' },
      CHANGED,
    ),
  },
  'PATCH /users/{id}': {
    id: 'patchUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    body: { schema: 'UserChange', example: { name: 'Ada' } },
    success: jsonResponse(
      'The changed user.',
      ref('schemas', 'User'),
      { ...ADA, name: 'Ada' },
      CHANGED,
    ),
  },
  'DELETE /users/{id}': {
    id: 'deleteUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    success: jsonResponse('The user before its deletion.', ref('schemas', 'User'), ADA),
  },
  'GET /openapi.json': {
    id: 'describeApi',
    tag: 'service',
    success: jsonResponse(
      'This document.',
      ref('schemas', 'Description'),
      {
        openapi: '3.1.0',
        info: { title: 'Notes and Users', version: VERSION },
        paths: {},
        components: {},
      },
      ENCODED,
    ),
    notModified: DOCUMENT_NOT_MODIFIED,
  },
  'GET /docs': {
    id: 'showDocs',
    tag: 'service',
    success: htmlResponse('The page.', { ...PAGE, ...ENCODED }),
    notModified: DOCUMENT_NOT_MODIFIED,
  },
};
