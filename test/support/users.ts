// Users for tests, with each field of the service. A test names only the fields that it is about.
import type { NewUser, User } from '../../src/user.ts';
import { FIELDS } from '../vectors/users.ts';

const DEFAULTS = Object.fromEntries(
  Object.entries(FIELDS).map(([field, vectors]) => [field, vectors.default]),
) as unknown as NewUser;

export function newUser(fields: Partial<NewUser> = {}): NewUser {
  return { ...DEFAULTS, name: 'Ada', email: 'ada@example.org', ...fields };
}

export function storedUser({ id = 1, version = 1, ...fields }: Partial<User>): User {
  return { id, ...newUser(fields), version };
}
