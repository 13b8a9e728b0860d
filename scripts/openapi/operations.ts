// What the route table does not say of a route: its name for generated clients, its parameters, the
// schema of its body and its success.
import type { routes } from '../../src/routes.ts';
import { VERSION } from '../../src/version.ts';
import { htmlAnswer, jsonAnswer, textAnswer } from './answers.ts';
import type { PARAMETERS } from './parameters.ts';
import { ADA, type Part, ref, type SCHEMAS } from './schemas.ts';

/** A route's own part of the document. */
export interface Operation {
  /** `operationId`: the name of a method in generated clients. */
  readonly id: string;
  readonly tag: keyof typeof TAGS;
  readonly parameters?: readonly (keyof typeof PARAMETERS)[];
  /** The schema of the request's body and a body that a fresh service takes. */
  readonly body?: { readonly schema: keyof typeof SCHEMAS; readonly example: Part };
  /** The one answer of 2xx. */
  readonly success: Part;
  /** Values of WWW-Authenticate with a 401. */
  readonly challenges?: readonly string[];
}

/** Groups of operations, with what they are about. */
export const TAGS = {
  service: 'The service itself.',
  access: 'Tokens and Basic credentials.',
  notes: 'The note.',
  users: 'Users, with pages and conditional requests.',
} as const;

const USERS_CHALLENGES = ['Bearer realm="users"', 'Bearer realm="users", error="invalid_token"'];
const CONDITIONS = ['IfMatch', 'IfNoneMatch'] as const;

const TAGGED = { ETag: ref('headers', 'ETag') };
const CHANGED = { ...TAGGED, 'Content-Location': ref('headers', 'ContentLocation') };
const NEW_ADA = { name: ADA.name, email: ADA.email };
const PAGE = {
  'Content-Security-Policy': ref('headers', 'Policy'),
  'Referrer-Policy': ref('headers', 'NoReferrer'),
  'Cache-Control': ref('headers', 'NoCache'),
};
const TOKEN =
  'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpZCI6ImFkbWluIiwibmFtZSI6IkFkbWluaXN0cmF0b3IiLCJpYXQiOjE3OTUyMjc2NzYsImV4cCI6MTc5NTIzMTI3Nn0.R-6cYmQRHu3fKUgmpTPQflAgjF6_jD2YS9aNkoK3Rco';

/** By the key of the route; a route without an entry does not compile. */
export const OPERATIONS: { readonly [key in keyof typeof routes]: Operation } = {
  'GET /': {
    id: 'greet',
    tag: 'service',
    success: textAnswer('The service is there.', 'Hello! This is the Notes and Users API.\n'),
  },
  'POST /token': {
    id: 'issueToken',
    tag: 'access',
    body: { schema: 'Credentials', example: { id: 'admin', pw: 'correct horse battery staple' } },
    success: jsonAnswer(
      'The token.',
      ref('schemas', 'Token'),
      { token: TOKEN },
      { 'Cache-Control': ref('headers', 'NoStore') },
    ),
    challenges: ['Bearer realm="token"'],
  },
  'GET /notes': {
    id: 'readNote',
    tag: 'notes',
    success: jsonAnswer('The note.', ref('schemas', 'Note'), {
      title: 'Welcome',
      contents: 'This note is kept by the service and read with a token.',
    }),
    challenges: ['Bearer realm="notes"', 'Bearer realm="notes", error="invalid_token"'],
  },
  'GET /protected': {
    id: 'greetCaller',
    tag: 'access',
    success: textAnswer('The credentials are right.', 'Welcome, Administrator.\n'),
    challenges: ['Basic realm="protected", charset="UTF-8"'],
  },
  'GET /users': {
    id: 'listUsers',
    tag: 'users',
    parameters: ['Limit', 'After', 'Email'],
    success: jsonAnswer(
      'Users by ascending `id`. A long list is streamed; a connection that breaks off in its middle means that the store failed.',
      { type: 'array', items: ref('schemas', 'User') },
      [ADA],
      { 'Content-Length': ref('headers', 'StreamedLength'), Link: ref('headers', 'Link') },
    ),
    challenges: USERS_CHALLENGES,
  },
  'POST /users': {
    id: 'createUser',
    tag: 'users',
    body: { schema: 'NewUser', example: NEW_ADA },
    success: jsonAnswer('The user as created.', ref('schemas', 'User'), ADA, {
      ...TAGGED,
      Location: ref('headers', 'Location'),
    }),
    challenges: USERS_CHALLENGES,
  },
  'GET /users/{id}': {
    id: 'readUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    success: jsonAnswer('The user.', ref('schemas', 'User'), ADA, TAGGED),
    challenges: USERS_CHALLENGES,
  },
  'PUT /users/{id}': {
    id: 'replaceUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    body: { schema: 'NewUser', example: { ...NEW_ADA, name: 'Ada King' } },
    success: jsonAnswer(
      'The user as it now is.',
      ref('schemas', 'User'),
      { ...ADA, name: 'Ada King' },
      CHANGED,
    ),
    challenges: USERS_CHALLENGES,
  },
  'PATCH /users/{id}': {
    id: 'patchUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    body: { schema: 'UserChange', example: { name: 'Ada' } },
    success: jsonAnswer(
      'The user as it now is.',
      ref('schemas', 'User'),
      { ...ADA, name: 'Ada' },
      CHANGED,
    ),
    challenges: USERS_CHALLENGES,
  },
  'DELETE /users/{id}': {
    id: 'deleteUser',
    tag: 'users',
    parameters: ['UserId', ...CONDITIONS],
    success: jsonAnswer('The user as it was.', ref('schemas', 'User'), ADA),
    challenges: USERS_CHALLENGES,
  },
  'GET /openapi.json': {
    id: 'describeApi',
    tag: 'service',
    success: jsonAnswer('This document.', ref('schemas', 'Description'), {
      openapi: '3.1.0',
      info: { title: 'Notes and Users', version: VERSION },
      paths: {},
      components: {},
    }),
  },
  'GET /docs': {
    id: 'showDocs',
    tag: 'service',
    success: htmlAnswer('The page. It takes nothing from elsewhere.', PAGE),
  },
};
