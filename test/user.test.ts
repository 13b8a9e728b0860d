// Valid values of a user (contract 4.6, 4.11, 4.12). The edges are in vectors/users.ts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  FIELD_NAMES,
  FIELDS,
  isValid,
  parseChange,
  parseNewUser,
  REPRESENTATION,
  toPublic,
  toUser,
} from '../src/user.ts';
import { newUser } from './support/users.ts';
import * as vectors from './vectors/users.ts';

const { CONTROLS, NOT_OBJECTS, WHITE_SPACE } = vectors;

const NAME = `name must be ${FIELDS.name.description}`;
const EMAIL = `email must be ${FIELDS.email.description}`;
const user = newUser();

function invalid(message: string) {
  return { name: 'InvalidUser', message };
}

test('4.16 a row and the JSON have the members of the representation, in this order', () => {
  const members = vectors.REPRESENTATIONS[REPRESENTATION]!;
  assert.deepEqual(['id', ...FIELD_NAMES], members);
  const stored = toUser([...members, 'version'])!;
  const all = [...members, 'version'].map((member) => [member, member]);
  assert.deepEqual(Object.entries(stored), all);
  assert.deepEqual(Object.entries(toPublic(stored)), all.slice(0, -1));
});

for (const [i, [field, values]] of Object.entries(vectors.FIELDS).entries()) {
  const { accepted, refused, default: absent } = values;
  const { description } = FIELDS[FIELD_NAMES[i]!];
  describe(`the field ${field}`, () => {
    for (const [why, value] of Object.entries(accepted)) {
      test(`${why}: accepted unchanged`, () =>
        assert.deepEqual(parseNewUser({ ...user, [field]: value }), { ...user, [field]: value }));
    }
    for (const [why, value] of Object.entries(refused)) {
      test(`${why}: refused`, () => {
        const message = `${field} must be ${description}.`;
        assert.throws(() => parseNewUser({ ...user, [field]: value }), invalid(message));
      });
    }
    test(`absent: ${absent === undefined ? 'refused' : absent}`, () => {
      const body = { ...user, [field]: undefined };
      if (absent === undefined) return assert.throws(() => parseNewUser(body), /InvalidUser/);
      assert.deepEqual(parseNewUser(body), { ...user, [field]: absent });
      assert.deepEqual(parseChange(body), { ...user, [field]: absent });
    });
  });
}

test('an email can have any code point except White_Space, controls, surrogates and @', () => {
  const refused: number[] = [];
  for (let code = 0; code <= 0x10ffff; code++) {
    if (!isValid('email', `a${String.fromCodePoint(code)}@b`)) refused.push(code);
  }
  const surrogates = Array.from({ length: 0x800 }, (_, i) => 0xd800 + i);
  const expected = new Set([...WHITE_SPACE, ...CONTROLS, 0x40, ...surrogates]);
  assert.deepEqual(
    refused,
    [...expected].sort((a, b) => a - b),
  );
});

describe('a new user', () => {
  const proto = '"__proto__":{"name":"x","email":"a@b"}';
  for (const body of [
    Object.freeze({ id: 7, version: 3, ...user, role: 'root' }),
    JSON.parse(`{${proto},"name":"Ada","email":"ada@example.org"}`),
  ]) {
    test(`of ${JSON.stringify(body)} has the fields only`, () =>
      assert.deepEqual(parseNewUser(body), user));
  }

  for (const body of ['{}', `{${proto}}`]) {
    test(`of ${body} is refused with one message for both fields`, () =>
      assert.throws(() => parseNewUser(JSON.parse(body)), invalid(`${NAME}; ${EMAIL}.`)));
  }

  for (const [why, json] of Object.entries(NOT_OBJECTS)) {
    const body: unknown = json === '' ? undefined : JSON.parse(json);
    test(`${why} as a body: refused, on a change too`, () => {
      const refused = invalid('The body must be a JSON object.');
      assert.throws(() => parseNewUser(body), refused);
      assert.throws(() => parseChange(body), refused);
    });
  }
});

describe('a change', () => {
  for (const [body, change] of [
    [user, user],
    [{ name: 'B' }, { name: 'B' }],
    [{ email: 'b@c' }, { email: 'b@c' }],
    [{}, {}],
    [{ id: 1, version: 2 }, {}],
    [JSON.parse('{"__proto__":{"name":"x"}}'), {}],
  ] as const) {
    test(`of ${JSON.stringify(body)} has the present fields only`, () => {
      assert.deepEqual(parseChange(body), change);
      assert.deepEqual(Object.keys(parseChange(body)), Object.keys(change));
    });
  }

  // RFC 7396: null would remove a field.
  for (const [body, message] of [
    [{ name: null }, `${NAME}.`],
    [{ email: null }, `${EMAIL}.`],
    [{ name: '', email: 'a@b' }, `${NAME}.`],
    [{ name: 1, email: 2 }, `${NAME}; ${EMAIL}.`],
  ] as const) {
    test(`of ${JSON.stringify(body)} is refused`, () =>
      assert.throws(() => parseChange(body), invalid(message)));
  }
});
