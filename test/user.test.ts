// The members of a user, and every code point of an email. test/contract/users.test.ts tries the edges of
// vectors/users.ts on each route.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FIELD_NAMES, isValid, REPRESENTATION, toPublic, toUser } from '../src/user.ts';
import { CONTROLS, REPRESENTATIONS, WHITE_SPACE } from './vectors/users.ts';

test('4.16 a row and the JSON have the members of the representation, in this order', () => {
  const members = REPRESENTATIONS[REPRESENTATION]!;
  assert.deepEqual(['id', ...FIELD_NAMES], members);
  const stored = toUser([...members, 'version'])!;
  const all = [...members, 'version'].map((member) => [member, member]);
  assert.deepEqual(Object.entries(stored), all);
  assert.deepEqual(Object.entries(toPublic(stored)), all.slice(0, -1));
});

test('an email can have any code point except White_Space, controls, surrogates and @', () => {
  const refused: number[] = [];
  for (let code = 0; code <= 0x10ffff; code++) {
    if (!isValid('email', `a${String.fromCodePoint(code)}@b`)) refused.push(code);
  }
  const surrogates = Array.from({ length: 0x800 }, (_, i) => 0xd800 + i);
  assert.deepEqual(new Set(refused), new Set([...WHITE_SPACE, ...CONTROLS, 0x40, ...surrogates]));
});
