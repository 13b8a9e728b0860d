// Generates openapi.json from the route table (contract 8.1): `npm run openapi` writes the file that
// the service serves. A route's row lists the statuses of its handler; the statuses that the
// pipeline returns first follow from the row's access and body. HEAD and OPTIONS follow from the
// methods of a path and are not in the document.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Access } from '../src/auth/access.ts';
import { MEDIA_TYPES } from '../src/http/body.ts';
import type { Route } from '../src/route.ts';
import { routes } from '../src/routes.ts';
import { VERSION } from '../src/version.ts';
import { ANSWERS, RESPONSES, UNMATCHED, unauthorized, unsupported } from './openapi/answers.ts';
import { HEADERS } from './openapi/headers.ts';
import { OPERATIONS, type Operation, TAGS } from './openapi/operations.ts';
import { PARAMETERS, SECURITY_SCHEMES } from './openapi/parameters.ts';
import { type Part, ref, SCHEMAS } from './openapi/schemas.ts';

const DESCRIPTION = `Tokens (HS256 JWT), a note behind Bearer, a greeting behind Basic, and users.

Errors are \`text/plain\`: the status text, or one sentence that says what was wrong. Checks come in
this order: 404 path, 405, 401 or 429, 413, 415, 400 syntax, 400 fields, 404 user, 412, 400 taken
email; \`POST /token\`, whose body holds the credentials, checks them last.
An unknown path answers 404, and another method than those of a path 405. \`HEAD\` is
wherever \`GET\` is, and \`OPTIONS\` everywhere. A body that a route does not take is dropped, within
the same limit of its size.`;

/** Answers of every route: to bytes that are no request, or one too large or too slow. */
const EVERYWHERE = [400, 408, 413, 431, 505];

const SECURITY: { readonly [access in Access]: readonly Part[] } = {
  public: [],
  basic: [{ basic: [] }],
  bearer: [{ bearer: [] }],
  users: [{}, { bearer: [] }],
};

/** The document as JSON. */
export function openapi(): string {
  // 8.1
  const paths: { [path: string]: { [method: string]: Part } } = {};
  for (const [key, route] of Object.entries<Route>(routes)) {
    const [method, path] = key.split(' ') as [string, string];
    paths[path] ??= {};
    paths[path][method.toLowerCase()] = operationOf(key, route);
  }
  const document = {
    openapi: '3.1.0',
    info: {
      title: 'Notes and Users',
      version: VERSION,
      summary: 'A notes and users HTTP API: JWT and Basic authentication.',
      description: DESCRIPTION,
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/', description: 'Where this document is served.' }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    'x-unmatched': UNMATCHED,
    components: {
      schemas: SCHEMAS,
      parameters: PARAMETERS,
      headers: HEADERS,
      responses: RESPONSES,
      securitySchemes: SECURITY_SCHEMES,
    },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

function operationOf(key: string, route: Route): Part {
  const operation = OPERATIONS[key as keyof typeof OPERATIONS];
  const { id, tag, parameters = [] } = operation;
  return {
    operationId: id,
    tags: [tag],
    summary: route.summary,
    ...(route.access === 'users' && {
      description: 'Needs the token only where the service runs with `PROTECT_USERS`.',
    }),
    security: SECURITY[route.access],
    parameters: [...parameters, 'RequestId'].map((name) => ref('parameters', name)),
    ...(operation.body && { requestBody: bodyOf(route, operation.body) }),
    responses: responsesOf(key, route, operation),
  };
}

function bodyOf(route: Route, { schema, example }: NonNullable<Operation['body']>): Part {
  const content = mediaTypes(route).map((type) => [
    type,
    { schema: ref('schemas', schema), example },
  ]);
  return { required: true, content: Object.fromEntries(content) };
}

function responsesOf(key: string, route: Route, operation: Operation): Part {
  const statuses = new Set([...route.answers, ...EVERYWHERE]);
  if (route.access !== 'public') statuses.add(401);
  if (route.access === 'basic') statuses.add(429);
  if (route.accepts.length > 0) statuses.add(415);
  const answer = (status: number): Part => {
    if (status < 300) return operation.success;
    if (status === 401) return unauthorized(operation.challenges ?? []);
    if (status === 415) return unsupported(mediaTypes(route).join(', '), key.startsWith('PATCH '));
    return ref('responses', ANSWERS[status as keyof typeof ANSWERS]);
  };
  const sorted = [...statuses].sort((a, b) => a - b);
  return Object.fromEntries(sorted.map((status) => [status, answer(status)]));
}

function mediaTypes({ accepts }: Route): readonly string[] {
  return accepts.map((type) => MEDIA_TYPES[type]);
}

if (import.meta.main) {
  writeFileSync(join(import.meta.dirname, '../openapi.json'), openapi());
}
