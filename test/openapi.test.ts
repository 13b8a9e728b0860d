// openapi.json: it is what the source makes, public validators take it, and its schemas and the
// validation of users agree. What a running service does with it is test/contract's business.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import fc from 'fast-check';
import { openapi } from '../scripts/openapi.ts';
import { routes } from '../src/routes.ts';
import { isEmail, parseChange, parseNewUser } from '../src/user.ts';
import { DOCUMENT, fault, type Part } from './support/openapi.ts';

const ROOT = join(import.meta.dirname, '..');
const PATH = join(ROOT, 'openapi.json');

describe('the document', () => {
  test('openapi.json is what the source makes: npm run openapi', () => {
    assert.equal(readFileSync(PATH, 'utf8'), openapi());
  });

  test('every route of the table is in it, and nothing else', () => {
    const described = Object.entries(DOCUMENT.paths!).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    assert.deepEqual(described.sort(), Object.keys(routes).sort());
  });

  test('it has the version of the package', () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    assert.equal(DOCUMENT.info!.version, version);
  });

  test('no two operations have one name', () => {
    const names = Object.values(DOCUMENT.paths!).flatMap((methods) =>
      Object.values(methods).map(({ operationId }) => String(operationId)),
    );
    assert.equal(new Set(names).size, Object.keys(routes).length);
  });
});

describe('public validators', () => {
  test('redocly lint, with its recommended rules, finds no error and no warning', () => {
    const text = lint(PATH);
    const { totals } = JSON.parse(text);
    assert.deepEqual(totals, { errors: 0, warnings: 0, ignored: 0 }, text);
  });

  test('the JSON Schema of OpenAPI 3.1 takes it', async () => {
    const { valid, errors } = await new Validator().validate(JSON.parse(openapi()));
    assert.deepEqual({ valid, errors }, { valid: true, errors: undefined });
  });

  test('the JSON Schema of OpenAPI 3.1 refuses it without an answer’s description', async () => {
    const broken = openapi().replace('"description": "The service is there.",', '');
    const { valid } = await new Validator().validate(JSON.parse(broken));
    assert.equal(valid, false);
  });
});

function lint(path: string): string {
  const cli = createRequire(import.meta.url).resolve('@redocly/cli/bin/cli.js');
  return execFileSync(process.execPath, [cli, 'lint', '--format=json', path], {
    encoding: 'utf8',
    env: { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

describe('validation and the schemas agree', () => {
  const { NewUser, UserChange, Email } = DOCUMENT.components!.schemas as Record<string, Part>;

  // Texts near the rules' edges: their lengths, code points of two units, and what patterns refuse.
  const unit = fc.constantFrom('a', 'é', '😀', '@', ' ', '\t', '\0', '\x7f', '\u0085', '\u2028');
  const odd = fc.constantFrom('\ud800', '\udfff', '\u3000', '\ufeff', '\u200b', '.', '\n');
  const few = fc.array(fc.oneof({ weight: 4, arbitrary: unit }, odd), { maxLength: 6 });
  const long = fc
    .tuple(few, fc.constantFrom('a', '😀'), fc.integer({ min: 94, max: 101 }))
    .map(([start, filler, length]) => [...start, ...Array(length).fill(filler)]);
  const text = fc.oneof(few, long).map((parts) => parts.join(''));
  const right = fc.tuple(fc.string({ minLength: 1 }), fc.string({ minLength: 1 }));
  const email = fc.oneof(
    text,
    fc.emailAddress(),
    right.map(([a, b]) => `${a}@${b}`),
  );
  const value = fc.oneof({ weight: 5, arbitrary: email }, text, fc.jsonValue());
  const body = fc.oneof(
    { weight: 5, arbitrary: fc.record({ name: value, email: value }, { requiredKeys: [] }) },
    { weight: 3, arbitrary: fc.record({ name: text, email: fc.emailAddress(), id: value }) },
    fc.jsonValue(),
  );

  for (const { what, isValid, schema, values } of [
    { what: 'a new user', isValid: doesNotThrow(parseNewUser), schema: NewUser, values: body },
    { what: 'a change', isValid: doesNotThrow(parseChange), schema: UserChange, values: body },
    { what: 'an email', isValid: isEmail, schema: Email, values: email },
  ] as readonly Agreement[]) {
    test(`on ${what}`, () => {
      const verdicts = new Set<boolean>();
      const agree = fc.property(values, (given) => {
        const isTaken = isValid(given);
        verdicts.add(isTaken);
        assert.equal(fault(schema, given) === undefined, isTaken);
      });
      fc.assert(agree, { numRuns: 2_000 });
      assert.deepEqual([...verdicts].sort(), [false, true]);
    });
  }
});

interface Agreement {
  readonly what: string;
  readonly isValid: (value: unknown) => boolean;
  readonly schema: Part;
  readonly values: fc.Arbitrary<unknown>;
}

function doesNotThrow(parse: (value: unknown) => unknown): (value: unknown) => boolean {
  return (value) => {
    try {
      parse(value);
      return true;
    } catch {
      return false;
    }
  };
}
