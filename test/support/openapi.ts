// Holds what a service answered against openapi.json: the route, the status, the headers, the media
// type and the body of an answer must be declared there. Knows nothing of src.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';

/** A JSON object of the document. */
export interface Part {
  readonly [name: string]: Part;
}

/** A request and what it was answered with. */
export interface Exchange {
  readonly method: string;
  /** The request target as sent. */
  readonly target: string;
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

const NAME = 'openapi.json';
const text = readFileSync(new URL(`../../${NAME}`, import.meta.url), 'utf8');

/** The committed document; its references name it, so that each part can be used by itself. */
export const DOCUMENT: Part = JSON.parse(text.replaceAll('"$ref": "#', `"$ref": "${NAME}#`));

const { paths, 'x-unmatched': unmatched } = DOCUMENT as Readonly<Record<string, Part>>;

/** Answers to requests that no operation takes: what every operation declares, and 404 and 405. */
const { 200: _greeting, ...everywhere } = paths!['/']!.get!.responses!;
const UNROUTED = { ...everywhere, ...unmatched } as Part;

/** Fields of HTTP and node, which a document of an API does not declare. */
const TRANSPORT = ['connection', 'content-type', 'date', 'keep-alive', 'transfer-encoding'];

/** Pages of the admin listener, which is another API. */
const ADMIN = ['/live', '/ready', '/metrics'];

const ajv = new Ajv2020({ strict: true, allErrors: true, formats: { password: true } });
ajv.addVocabulary(Object.keys(DOCUMENT));
ajv.addSchema(DOCUMENT, NAME);

/** What is wrong with a value; undefined when the schema takes it. */
export function fault(schema: Part, value: unknown): string | undefined {
  const validate = ajv.compile(schema);
  return validate(value) ? undefined : ajv.errorsText(validate.errors);
}

/** The part itself, or what its `$ref` names. */
export function resolve(part: Part): Part {
  if (part.$ref === undefined) return part;
  const [, ...names] = String(part.$ref).split('#')[1]!.split('/');
  return resolve(names.reduce((at, name) => at[name]!, DOCUMENT));
}

/** Everything that the operations declare, as `seen` names it. */
export function declared(): string[] {
  return Object.entries(paths!).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { responses }]) =>
      Object.entries(responses!).flatMap(([status, response]) =>
        namesOf(`${method.toUpperCase()} ${path} ${status}`, resolve(response).headers!),
      ),
    ),
  );
}

/**
 * What of the document an exchange has shown: `GET /users 200`, and `GET /users 200 Link` for each
 * of its headers; a header with few values also by its value. HEAD and OPTIONS are not in the
 * document, but HEAD must answer as GET does.
 * @throws AssertionError when the answer is not declared
 */
export function seen({ method, target, status, headers, body }: Exchange): string[] {
  const path = pathOf(target);
  if (method === 'OPTIONS' || ADMIN.includes(target.split('?', 1)[0]!)) return [];
  // Methods are case-sensitive (RFC 9110 §9.1).
  const name = method === 'HEAD' ? 'get' : method === method.toUpperCase() && method.toLowerCase();
  const operation = path && name ? paths![path]![name] : undefined;
  const key = `${method} ${operation ? path : target} ${status}`;
  const declaration = (operation ? operation.responses! : UNROUTED)[status];
  assert.ok(declaration, `${key} is not declared in ${NAME}`);
  const response = resolve(declaration);
  checkBody(key, response, headers.get('content-type'), method === 'HEAD' ? undefined : body);
  checkHeaders(key, response.headers!, headers);
  const present = Object.entries(response.headers!).filter(([name]) => headers.has(name));
  return namesOf(key, Object.fromEntries(present), headers);
}

function namesOf(key: string, headers: Part, values?: Headers): string[] {
  const names = Object.entries(headers).flatMap(([name, header]) => {
    const listed = resolve(header).schema!.enum as unknown as string[] | undefined;
    if (listed === undefined) return [`${key} ${name}`];
    const shown = values === undefined ? listed : [values.get(name)];
    return shown.map((value) => `${key} ${name}: ${value}`);
  });
  return [key, ...names];
}

function checkBody(key: string, response: Part, type: string | null, body: string | undefined) {
  if (response.content === undefined) {
    assert.deepEqual([type, body || ''], [null, ''], `${key} has no body in ${NAME}`);
    return;
  }
  const content = response.content[type ?? ''];
  assert.ok(content, `${key} as ${type} is not declared in ${NAME}`);
  if (body === undefined) return;
  const value = type === 'application/json' ? JSON.parse(body) : body;
  assert.equal(fault(content.schema!, value), undefined, `the body of ${key}: ${body}`);
}

function checkHeaders(key: string, declarations: Part, headers: Headers): void {
  const known = Object.keys(declarations).map((name) => name.toLowerCase());
  const unknown = [...headers.keys()].filter((name) => ![...known, ...TRANSPORT].includes(name));
  assert.deepEqual(unknown, [], `headers of ${key} that are not declared in ${NAME}`);
  for (const [name, declaration] of Object.entries(declarations)) {
    const { required, schema } = resolve(declaration) as { required?: unknown; schema: Part };
    const value = headers.get(name);
    if (value === null) {
      assert.ok(!required, `${key} lacks ${name}`);
      continue;
    }
    const isInteger = String(schema.type) === 'integer';
    assert.equal(
      fault(schema, isInteger ? Number(value) : value),
      undefined,
      `${name} of ${key}: ${value}`,
    );
  }
}

/** The path of the document that a target names, as contract 2.7 reads it. */
function pathOf(target: string): string | undefined {
  const path = target.replace(/^https?:\/\/[^/?]*/i, '').replace(/\?.*$/s, '') || '/';
  const given = partsOf(path);
  return Object.keys(paths!).find((pattern) => {
    const parts = partsOf(pattern)!;
    const isSame = (part: string, i: number) => part.startsWith('{') || part === given![i];
    return given?.length === parts.length && parts.every(isSame);
  });
}

function partsOf(path: string): string[] | undefined {
  if (path.includes('//')) return undefined;
  try {
    const parts = path.split('/').map(decodeURIComponent);
    return parts.length > 2 && parts.at(-1) === '' ? parts.slice(0, -1) : parts;
  } catch {
    return undefined;
  }
}
