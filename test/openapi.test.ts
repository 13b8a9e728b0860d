// Checks openapi.json, which is written by hand: a public validator accepts it, it has the routes of the
// table, its schemas agree with the validation of users, and its form suits generators, which
// test/clients runs. test/contract/description.test.ts holds its responses against the service.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { Route } from '../src/route.ts';
import { routes } from '../src/routes.ts';
import { FIELDS } from '../src/user.ts';
import * as openapi from './support/openapi.ts';
import { ROOT } from './support/program.ts';

const PATH = join(ROOT, 'openapi.json');
const TEXT = readFileSync(PATH, 'utf8');

describe('the document', () => {
  test('8.2 the page has its title, summary and version', () => {
    const html = readFileSync(join(ROOT, 'src/docs.html'), 'utf8');
    const { title, version, summary } = openapi.DOCUMENT.info!;
    for (const part of [
      `<title>${title}</title>\n`,
      `<meta name="description" content="${summary}">\n`,
      `  <h1>${title} <small>${version}</small></h1>\n`,
    ]) {
      assert.ok(html.includes(part), part);
    }
  });

  test('it has every route of the table, with its credentials and media types, and no other', () => {
    const security = {
      none: [],
      basic: [{ basic: [] }],
      bearer: [{ bearer: [] }],
      bearerIfProtected: [{ bearer: [] }, {}], // Postman takes the first
    };
    const expected = Object.entries<Route>(routes).map(([key, { access, accepts }]) => [
      ...[key, security[access], accepts],
    ]);
    const described = openapi.OPERATIONS.map(({ method, path, part }) => [
      ...[`${method} ${path}`, part.security, Object.keys(part.requestBody?.content ?? {})],
    ]);
    assert.deepEqual(described, expected);
  });

  // Without the default: clients that are made from the document would send it with each PATCH.
  test("4.11 its schemas of a user's fields are those that the service validates with", () => {
    const { User, UserFields, UserChange, ...schemas } = openapi.DOCUMENT.components!.schemas!;
    for (const [field, { default: preset, ...schema }] of Object.entries(FIELDS)) {
      const name = field.replace(/^./, (letter) => letter.toUpperCase());
      const type = preset === null ? ['string', 'null'] : 'string';
      assert.deepEqual(schemas[name], { type, ...schema });
      for (const whole of [User, UserFields, UserChange]) {
        assert.match(String(whole?.properties?.[field]?.$ref), RegExp(`/schemas/${name}$`));
      }
    }
  });

  test('4.11 it requires what a user always has, what a new user must have, and both parts of a login; others are ignored', () => {
    const { User, UserFields, UserChange, Credentials } = openapi.DOCUMENT.components!.schemas!;
    const fields = Object.entries(FIELDS);
    const always = fields.filter(([, schema]) => schema.default !== null).map(([field]) => field);
    const given = fields.filter(([, schema]) => !('default' in schema)).map(([field]) => field);
    const required = [User, UserFields, UserChange, Credentials].map((schema) => schema?.required);
    assert.deepEqual(required, [['id', ...always], given, undefined, ['id', 'pw']]);
    for (const { type, additionalProperties } of [UserFields!, UserChange!]) {
      assert.deepEqual([type, additionalProperties], ['object', undefined]); // 4.12
    }
  });

  test('4.2 4.9 its parameters have the limits of the contract', () => {
    const { UserId, Limit, After, Email } = openapi.DOCUMENT.components!.parameters!;
    const maximum = 2 ** 53 - 1;
    const schemas = [UserId, Limit, After].map((parameter) => {
      const { description: _, ...schema } = openapi.resolve(parameter!.schema!);
      return schema as unknown;
    });
    assert.deepEqual(schemas, [
      { type: 'integer', format: 'int64', minimum: 1, maximum },
      { type: 'integer', minimum: 1, maximum: 1000 },
      { type: 'integer', format: 'int64', minimum: 0, maximum },
    ]);
    assert.match(String(Email?.schema?.$ref), /\/schemas\/Email$/);
  });
});

describe('generators and viewers', () => {
  test('8.1 it has at most 40 KB, all of it in ASCII', () => {
    assert.ok(TEXT.length <= 40_000, `${TEXT.length} bytes`);
    assert.match(TEXT, /^[\n -~]*$/);
  });

  test('8.1 the introduction has the statuses of any request and the headers of every response', () => {
    const introduction = String(openapi.DOCUMENT.info!.description);
    for (const status of [...openapi.TRANSPORT_STATUSES, ...openapi.UNROUTED_STATUSES]) {
      assert.match(introduction, new RegExp(`\\b${status}\\b`));
    }
    for (const name of Object.keys(openapi.COMMON_HEADERS)) {
      assert.ok(introduction.toLowerCase().includes(`\`${name}`), name);
    }
  });

  test('8.1 every const and enum has a type, and every integer above 2^31 is an int64', () => {
    let count = 0;
    JSON.parse(TEXT, (_name, part) => {
      if ((part?.const ?? part?.enum) !== undefined) assert.equal(part.type, 'string');
      if (part?.type === 'integer' && part.maximum >= 2 ** 31) {
        count++;
        assert.equal(part.format, 'int64');
      }
      return part;
    });
    assert.ok(count >= 2);
  });

  test('8.1 every header with a pattern has an example of it, which mock servers send', () => {
    const schemas = Object.values(openapi.DOCUMENT.components!.headers!).map(
      ({ schema }) => schema!,
    );
    const patterned = schemas.filter(({ pattern }) => pattern !== undefined);
    assert.ok(patterned.length >= 4);
    for (const { pattern, examples } of patterned) {
      assert.match(String(examples?.[0] ?? ''), RegExp(String(pattern)));
    }
  });

  // Literals, classes of literals and of \x00 to \x7f, repetition and anchors. Not `\s`, `\w`, `\d`, `\b`, `\p`, `\u`,
  // `.`, groups, `&&` and `[:` in classes, nor flags: each means something else in one of the five, or nothing.
  // Only ASCII: U+2028 breaks a literal of JavaScript, and clients in PHP use PCRE on bytes.
  test('8.1 its patterns have only what means the same in JavaScript, Python, Java, Go and PCRE', () => {
    const literal = String.raw`[^\\^$.|?*+()[\]{}]|\\[.?]`;
    const member = String.raw`[^\\^[\]&|]|\\x[0-7][0-9a-f]`;
    const one = String.raw`(?:${literal}|\[\^?(?:${member})+\])(?:[*+?]|\{\d+\})?`;
    const portable = RegExp(String.raw`^\^?(?:${one})+\$?$`);
    const patterns = [...TEXT.matchAll(/"pattern": (".*")/g)].map(([, json]) => JSON.parse(json!));
    assert.ok(patterns.length >= 6);
    for (const pattern of patterns) {
      assert.match(pattern, portable);
      assert.doesNotMatch(pattern, /--|~~|[^ -~]/); // Python reserves the first two.
    }
  });

  test('8.1 no optional parameter has an example, and any X-Request-Id is valid', () => {
    const parameters = openapi.OPERATIONS.flatMap(({ part }) => Object.values(part.parameters!));
    for (const parameter of parameters.map(openapi.resolve)) {
      const { required, example, examples, schema } = parameter;
      const { default: fallback, example: one, examples: some } = openapi.resolve(schema!);
      if (required) assert.notEqual(example, undefined);
      else assert.deepEqual([example, examples, fallback, one, some], Array(5).fill(undefined));
      if (String(parameter.name) === 'X-Request-Id') assert.deepEqual(schema, { type: 'string' });
    }
  });
});

test('redocly lint, with its recommended rules, finds no error and no warning', () => {
  const cli = createRequire(import.meta.url).resolve('@redocly/cli/bin/cli.js');
  const text = execFileSync(process.execPath, [cli, 'lint', '--format=json', PATH], {
    encoding: 'utf8',
    env: { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const { totals } = JSON.parse(text);
  assert.deepEqual(totals, { errors: 0, warnings: 0, ignored: 0 }, text);
});
