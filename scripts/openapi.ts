// Generates openapi.json (contract 8.1) and the introduction of docs.html (contract 8.2) from the
// route table: `npm run openapi`. A row lists the statuses of its handler. Its access and body
// determine the statuses that the pipeline returns. HEAD and OPTIONS are not in the document.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Access, challenge, realmOf } from '../src/auth/access.ts';
import { MEDIA_TYPES } from '../src/http/media.ts';
import type { Route } from '../src/route.ts';
import { routes } from '../src/routes.ts';
import { VERSION } from '../src/version.js';
import { HEADERS } from './openapi/headers.ts';
import { OPERATIONS, type Operation, TAGS } from './openapi/operations.ts';
import { PARAMETERS, SECURITY_SCHEMES } from './openapi/parameters.ts';
import { RESPONSES, SHARED, unauthorized, unsupported } from './openapi/responses.ts';
import { type JsonObject, ref, SCHEMAS } from './openapi/schemas.ts';

const DESCRIPTION = `Tokens (HS256 JWT), a note behind Bearer, a greeting behind Basic, and users.

Errors are \`text/plain\`: the status text, or one sentence that says what is wrong. Checks run in this
order: 404 path, 405, 401 or 429, 413, 415, 400 syntax, 400 fields, 404 user, 412, 400 taken email.
\`POST /token\` checks its credentials last, because they are in the body.

The operations do not list the responses that any request can get: 404 for an unknown path, 405 with
\`Allow\` for an unsupported method, 408 for a request that arrives too slowly, 413 for a body larger than
\`BODY_LIMIT_BYTES\` on a route that takes none, 431 for headers larger than 16 KiB, and 505 for an HTTP
version other than 1.0 and 1.1. All except 404 and 405 close the connection.

Every response has \`X-Content-Type-Options: nosniff\` and an \`X-Request-Id\`, which is also in the log.
A request can set it to 1 to 128 letters, digits, dots, hyphens or underscores. \`Cache-Control\` is
\`private, no-cache\`, so that no cache returns a stale response; \`no-store\` with a token, and
\`no-cache\` with this document and its page. Every body has a \`Content-Length\`, except a long list of
users, which is streamed. If \`CORS_ORIGIN\` is set, every response has \`Access-Control-Allow-Origin\` and
\`Access-Control-Expose-Headers\`.

\`HEAD\` works on every route with \`GET\`, and \`OPTIONS\` on every path. If a route takes no body, the
service drops a body sent to it, within the same size limit.`;

const SECURITY: Readonly<Record<Access, readonly JsonObject[]>> = {
  none: [],
  basic: [{ basic: [] }],
  bearer: [{ bearer: [] }],
  bearerIfProtected: [{}, { bearer: [] }],
};

/** Returns JSON in ASCII, so that the white space in its patterns is visible. */
export function openapi(): string {
  // 8.1
  const paths: { [path: string]: { [method: string]: JsonObject } } = {};
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
    servers: [{ url: '/', description: 'The server of this document.' }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: SCHEMAS,
      parameters: PARAMETERS,
      headers: HEADERS,
      responses: { ...RESPONSES, ...unauthorizedByName() },
      securitySchemes: SECURITY_SCHEMES,
    },
  };
  return `${JSON.stringify(document, null, 1)}\n`.replace(/[^\n -~]/g, escaped);
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

function operationOf(key: string, route: Route): JsonObject {
  const operation = OPERATIONS[key as keyof typeof OPERATIONS];
  const { id, tag, parameters = [] } = operation;
  return {
    operationId: id,
    tags: [tag],
    summary: route.summary,
    ...(route.access === 'bearerIfProtected' && {
      description: 'Needs a token only if the service runs with `PROTECT_USERS=true`.',
    }),
    security: SECURITY[route.access],
    parameters: [...parameters, 'RequestId'].map((name) => ref('parameters', name)),
    ...(operation.body && { requestBody: bodyOf(route, operation.body) }),
    responses: responsesOf(key, route, operation),
  };
}

function bodyOf(route: Route, { schema, example }: NonNullable<Operation['body']>): JsonObject {
  const content = mediaTypes(route).map((type) => [
    type,
    { schema: ref('schemas', schema), example },
  ]);
  return { required: true, content: Object.fromEntries(content) };
}

function responsesOf(key: string, route: Route, operation: Operation): JsonObject {
  const statuses = new Set([...route.returns, 400]);
  if (route.access !== 'none') statuses.add(401);
  if (route.access === 'basic') statuses.add(429);
  if (route.accepts.length > 0) for (const status of [413, 415]) statuses.add(status);
  const response = (status: number): JsonObject => {
    if (status < 300) return operation.success;
    if (status === 304 && operation.notModified) return operation.notModified;
    if (status === 401) return operation.unauthorized ?? ref('responses', nameOf(realmOf(key)));
    if (status === 415) return unsupported(mediaTypes(route).join(', '), key.startsWith('PATCH '));
    return ref('responses', SHARED[status as keyof typeof SHARED]);
  };
  const sorted = [...statuses].sort((a, b) => a - b);
  return Object.fromEntries(sorted.map((status) => [status, response(status)]));
}

/** Returns one 401 component per realm, which all its routes share. */
function unauthorizedByName(): JsonObject {
  const challenged = Object.entries<Route>(routes).filter(([, { access }]) => access !== 'none');
  const refused = { scheme: 'bearer', credentials: 'x' };
  return Object.fromEntries(
    challenged.map(([key, { access }]) => {
      const realm = realmOf(key);
      const challenges = new Set(
        [undefined, refused].map((sent) => challenge(access, realm, sent)),
      );
      return [nameOf(realm), unauthorized(...challenges)];
    }),
  );
}

function nameOf(realm: string): string {
  return `${realm.charAt(0).toUpperCase()}${realm.slice(1)}Unauthorized`;
}

function mediaTypes({ accepts }: Route): readonly string[] {
  return accepts.map((type) => MEDIA_TYPES[type]);
}

/** Inserts the title and the introduction of the document into the page. */
export function withIntroduction(html: string): string {
  // 8.2
  const { title, version, summary, description } = JSON.parse(openapi()).info;
  const head = [`<title>${markup(title)}</title>`];
  head.push(`<meta name="description" content="${markup(summary)}">`);
  const paragraphs = description
    .split(/\n\s*\n/)
    .map((text: string) => `    <p>${markup(text.replaceAll('\n', ' '))}</p>`);
  const heading = `  <h1>${markup(title)} <small>${markup(version)}</small></h1>`;
  const intro = [heading, '  <div id="intro">', ...paragraphs, '  </div>'].join('\n');
  const marked = /<!-- (title|intro) -->.*?<!-- \/\1 -->/gs;
  return html.replace(marked, (_all, name) => {
    const text = name === 'title' ? head.join('\n') : intro;
    return `<!-- ${name} -->\n${text}\n<!-- /${name} -->`;
  });
}

/** Converts text with `code` to HTML. */
function markup(text: string): string {
  const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
  return escaped.replace(/`([^`]+)`/g, '<code>$1</code>');
}

if (import.meta.main) {
  writeFileSync(join(import.meta.dirname, '../openapi.json'), openapi());
  const page = join(import.meta.dirname, '../src/docs.html');
  writeFileSync(page, withIntroduction(readFileSync(page, 'utf8')));
}
