// Checks responses against openapi.json, which must declare route, status, headers, media type and
// body. The lists below have the part that the document's introduction describes for all routes.
// Does not import src.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { STATUS_CODES } from 'node:http';
import { Ajv2020 } from 'ajv/dist/2020.js';

export interface JsonObject {
  readonly [name: string]: JsonObject;
}

interface Exchange {
  readonly method: string;
  readonly target: string; // of the request, as sent
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

const NAME = 'openapi.json';
const text = readFileSync(new URL(`../../${NAME}`, import.meta.url), 'utf8');

/** The committed document. References include its name, so that each part works by itself. */
export const DOCUMENT: JsonObject = JSON.parse(text.replaceAll('"$ref": "#', `"$ref": "${NAME}#`));

const paths = DOCUMENT.paths!;

export const OPERATIONS = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, part]) => ({ method: method.toUpperCase(), path, part })),
);

/** Statuses that any request can get. No route declares them, and they close the connection. */
export const TRANSPORT_STATUSES = [408, 413, 431, 505];

/** Further statuses of requests that match no operation. */
export const UNROUTED_STATUSES = [400, 404, 405];

/** Headers of every response, by setting if they need one. */
export const COMMON_HEADERS: Readonly<Record<string, { value: RegExp; setting?: string }>> = {
  'x-request-id': { value: /^[A-Za-z0-9._-]{1,128}$/ },
  'x-content-type-options': { value: /^nosniff$/ },
  'cache-control': { value: /./ },
  'access-control-allow-origin': { value: /./, setting: 'CORS_ORIGIN' },
  'access-control-expose-headers': { value: /./, setting: 'CORS_ORIGIN' },
};

/** Headers that HTTP and node add. */
const HTTP_HEADERS = [
  ...['connection', 'content-length', 'content-type', 'date', 'keep-alive', 'transfer-encoding'],
];

const TEXT = {
  content: { 'text/plain; charset=utf-8': { schema: { type: 'string' } } },
} as unknown as JsonObject;
const WITH_ALLOW = {
  ...TEXT,
  headers: { Allow: { required: true, schema: { type: 'string' } } },
} as unknown as JsonObject;

/** Pages of the admin listener, which is another API. */
const ADMIN = ['/live', '/ready', '/metrics'];

const ajv = new Ajv2020({ strict: true, allErrors: true, validateFormats: false });
ajv.addVocabulary(Object.keys(DOCUMENT));
ajv.addSchema(DOCUMENT, NAME);

/** Returns the reason why the schema refuses a value; undefined if it accepts it. */
function fault(schema: JsonObject, value: unknown): string | undefined {
  const validate = ajv.compile(schema);
  return validate(value) ? undefined : ajv.errorsText(validate.errors);
}

/** Returns the object itself, or the target of its `$ref`. */
export function resolve(part: JsonObject): JsonObject {
  if (part.$ref === undefined) return part;
  const [, ...names] = String(part.$ref).split('#')[1]!.split('/');
  return resolve(names.reduce((at, name) => at[name]!, DOCUMENT));
}

/** Returns everything that the operations declare, in the format of `seen`. */
export function declared(): string[] {
  return OPERATIONS.flatMap(({ method, path, part }) =>
    Object.entries(part.responses!).flatMap(([status, response]) =>
      namesOf(`${method} ${path} ${status}`, resolve(response).headers ?? {}),
    ),
  );
}

/**
 * Returns the declarations that an exchange covers: `GET /users 200`, and `GET /users 200 Link` for
 * each of its headers; a header with few values also by its value. HEAD and OPTIONS are not in the
 * document, but HEAD must respond as GET does.
 * @throws AssertionError if the response is not declared
 */
export function seen({ method, target, status, headers, body }: Exchange): string[] {
  const path = pathOf(target);
  if (method === 'OPTIONS' || ADMIN.includes(target.replace(/^http:..x|\?.*/gi, ''))) return [];
  // Methods are case-sensitive (RFC 9110 section 9.1).
  const name = method === 'HEAD' ? 'get' : method === method.toUpperCase() && method.toLowerCase();
  const operation = path && name ? paths[path]![name] : undefined;
  const key = `${method} ${operation ? path : target} ${status}`;
  const response = operation?.responses?.[status] ?? undeclared(status, operation === undefined);
  assert.ok(response, `${key} is not declared in ${NAME}`);
  const { headers: declarations = {}, content } = resolve(response);
  checkBody(key, content, headers.get('content-type'), method === 'HEAD' ? undefined : body);
  if (status >= 400 && method !== 'HEAD') checkError(key, status, body);
  checkCommonHeaders(key, status, headers);
  checkHeaders(key, declarations, headers);
  const present = Object.entries(declarations).filter(([name]) => headers.has(name));
  return namesOf(key, Object.fromEntries(present), headers);
}

/** Returns the common response with this status, which no operation lists; undefined if none. */
function undeclared(status: number, isUnrouted: boolean): JsonObject | undefined {
  if (TRANSPORT_STATUSES.includes(status)) return TEXT;
  if (!isUnrouted || !UNROUTED_STATUSES.includes(status)) return undefined;
  return status === 405 ? WITH_ALLOW : TEXT;
}

function namesOf(key: string, headers: JsonObject, values?: Headers): string[] {
  const names = Object.entries(headers).flatMap(([name, header]) => {
    const listed = resolve(header).schema!.enum as unknown as string[] | undefined;
    if (listed === undefined) return [`${key} ${name}`];
    const shown = values === undefined ? listed : [values.get(name)];
    return shown.map((value) => `${key} ${name}: ${value}`);
  });
  return [key, ...names];
}

function checkBody(
  key: string,
  content: JsonObject | undefined,
  type: string | null,
  body: string | undefined,
): void {
  if (content === undefined) {
    assert.deepEqual([type, body || ''], [null, ''], `${key} has no body in ${NAME}`);
    return;
  }
  const declaration = content[type ?? ''];
  assert.ok(declaration, `${key} as ${type} is not declared in ${NAME}`);
  if (body === undefined) return;
  const value = type === 'application/json' ? JSON.parse(body) : body;
  assert.equal(fault(declaration.schema!, value), undefined, `the body of ${key}: ${body}`);
}

/** Internal words that no client may see: stacks, SQL, modules, drivers, tables. */
const INTERNALS =
  /\bat \S+ \(|\.[jt]s\b|node:|\/src\/|\b(select|insert|update|delete) .*\b(from|into|set)\b|sqlite|postgres|constraint|relation|econn|undefined|\[object/i;

/** An error is the status text, or one sentence without internal words (2.1). */
function checkError(key: string, status: number, body: string): void {
  if (body === STATUS_CODES[status]) return;
  assert.match(body, /^[^\s<>][^\r\n<>]{2,300}$/, key);
  assert.doesNotMatch(body, INTERNALS, key);
}

function checkCommonHeaders(key: string, status: number, headers: Headers): void {
  for (const [name, { value, setting }] of Object.entries(COMMON_HEADERS)) {
    const sent = headers.get(name);
    assert.ok(sent === null ? setting : value.test(sent), `${name} of ${key}: ${sent}`);
  }
  const isDocument = /^(GET|HEAD) \/(docs|openapi\.json) (200|304)$/.test(key);
  const cached = isDocument ? 'no-cache' : 'private, no-cache';
  const caching = key === 'POST /token 200' ? 'no-store' : cached;
  assert.equal(headers.get('cache-control'), caching, `2.17 ${key}`);
  const length = headers.get('content-length');
  const canLackLength = status === 304 || / \/users 200$/.test(key);
  assert.ok(length === null ? canLackLength : /^\d+$/.test(length), `${key} has length ${length}`);
  if (TRANSPORT_STATUSES.includes(status)) {
    assert.equal(headers.get('connection'), 'close', key);
  }
}

function checkHeaders(key: string, declarations: JsonObject, headers: Headers): void {
  const known = Object.keys(declarations).map((name) => name.toLowerCase());
  known.push(...HTTP_HEADERS, ...Object.keys(COMMON_HEADERS));
  const unknown = [...headers.keys()].filter((name) => !known.includes(name));
  assert.deepEqual(unknown, [], `headers of ${key} that are not declared in ${NAME}`);
  for (const [name, declaration] of Object.entries(declarations)) {
    const { required, schema } = resolve(declaration) as { required?: unknown; schema: JsonObject };
    const value = headers.get(name);
    if (value === null) {
      assert.ok(!required, `${key} lacks ${name}`);
      continue;
    }
    const typed = String(schema.type) === 'integer' ? Number(value) : value;
    assert.equal(fault(schema, typed), undefined, `${name} of ${key}: ${value}`);
  }
}

/** Returns the path of the document that matches a target (contract 2.7). */
function pathOf(target: string): string | undefined {
  const path = target.replace(/^https?:\/\/[^/?]*/i, '').replace(/\?.*$/s, '') || '/';
  const matches = (pattern: string) =>
    RegExp(`^${pattern.replace(/\{.*\}/, '[^/]+')}/?$`).test(path);
  return Object.keys(paths).find(matches);
}
