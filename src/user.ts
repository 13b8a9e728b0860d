// The domain: users, their valid values, and the interface of a store. Imports nothing.

/** The fields that clients give. `FIELDS` has their valid values. */
export interface NewUser {
  readonly name: string;
  readonly email: string; // unique, compared exactly
}

/** A user as stored. */
export interface User extends NewUser {
  readonly id: number; // assigned by the store: ascending, never reused, 1 to 2^53 - 1
  readonly version: number; // starts at 1 and grows by one with every change of a field
}

/** The fields to set; absent ones stay as they are. */
export type UserChange = Partial<NewUser>;
export type Versions = readonly number[] | 'any';

/** A write happens only if the user's version is in `oneOf` and not in `noneOf`. */
export type Condition = { readonly oneOf: Versions; readonly noneOf: Versions };

/** The condition that every user meets. Compared by identity. */
export const ALWAYS: Condition = { oneOf: 'any', noneOf: [] };

/** True if a user with this version meets the condition. */
export function holds({ oneOf, noneOf }: Condition, version: number): boolean {
  return matches(oneOf, version) && !matches(noneOf, version); // 4.8
}

/** True if `*` or a list includes this version (RFC 9110 §13.1.1, §13.1.2). */
export function matches(list: Versions, version: number): boolean {
  return list === 'any' || list.includes(version);
}

/** The first `limit` users with an id greater than `after`. */
export type Page = { readonly after: number; readonly limit: number };

/** The client on whose behalf a method of a store is called. */
export interface Caller {
  readonly network: string; // its IPv4 address or IPv6 /64, by which clients take turns (5.11)
  readonly hasLeft: boolean; // if true, a call that has not begun fails with CallerLeft (4.17)
}

/** The user, `'stale'` if it does not meet the condition, or undefined if no user has the id. */
export type WriteResult = User | 'stale' | undefined;

/**
 * Stores users; both engines implement it (5.0). A write resolves only after it is durable. Every
 * method throws StoreUnavailable if the store fails or does not respond in time. The outcome of a
 * write is then unknown: it was done, may still be done, or never is. It is never done twice. A call
 * that waits for its turn throws CallerLeft if its caller has left (4.17).
 */
export interface UserStore {
  /** @throws EmailTaken */
  create(user: NewUser, caller?: Caller): Promise<User>;
  find(id: number, caller?: Caller): Promise<User | undefined>;
  findByEmail(email: string, caller?: Caller): Promise<User | undefined>;
  /** The users of a page, by ascending id. */
  list(page: Page, caller?: Caller): Promise<readonly User[]>;
  /** Returns the user after the change. @throws EmailTaken */
  update(id: number, set: UserChange, condition: Condition, caller?: Caller): Promise<WriteResult>;
  /** Returns the user as it was before. */
  delete(id: number, condition: Condition, caller?: Caller): Promise<WriteResult>;
  /** Rejects if the store is unusable. */
  ping(caller?: Caller): Promise<void>;
}

class NamedError extends Error {
  override readonly name = this.constructor.name;
}
export class EmailTaken extends NamedError {}
export class CallerLeft extends NamedError {} // the call was not done
export class StoreUnavailable extends NamedError {} // `cause` says how
export class InvalidUser extends NamedError {} // names every invalid field and what is expected

// The patterns below have only ASCII, because generators copy them from openapi.json into code and headers:
// U+2028 ends a line of JavaScript, PHP compares bytes, Ruby and HTTP refuse others. Engines differ in `\p{…}`.
const NOT_IN_EMAIL = /[\p{White_Space}\p{Cc}]/u;

/**
 * A text field as JSON Schema (2020-12), where lengths count code points (4.11). Stores can't keep U+0000 or lone
 * surrogates. `isValid` rejects what no portable pattern can: lone surrogates, and NOT_IN_EMAIL beyond ASCII.
 */
interface FieldSchema {
  readonly minLength: number; // at least 1
  readonly maxLength: number;
  readonly pattern: string;
  readonly description: string;
  readonly default?: string | null; // null if the field can be null; without a default it is required
}

const NAME: FieldSchema = {
  minLength: 1,
  maxLength: 100,
  pattern: '^[^\\x00]*$',
  description: 'a string of 1 to 100 characters without U+0000 or lone surrogates',
};

const EMAIL: FieldSchema = {
  minLength: 3,
  maxLength: 100,
  pattern: '^[^@\\x00-\\x20\\x7f]+@[^@\\x00-\\x20\\x7f]+$',
  description:
    'a string of 3 to 100 characters with one @ that has text on both sides, without white space, control characters or lone surrogates',
};

export type Field = keyof NewUser;
/** In the order of the JSON. The stores make their SQL from the names. */
export const FIELDS: Readonly<Record<Field, FieldSchema>> = { name: NAME, email: EMAIL };
export const FIELD_NAMES = Object.keys(FIELDS) as readonly Field[];
const PATTERNS = new Map(FIELD_NAMES.map((field) => [field, new RegExp(FIELDS[field].pattern)]));

/** Returns the user of a row: its id, the fields and its version. Arrays cost half as much as objects. */
export function toUser(row: unknown): User | undefined {
  if (row === undefined) return undefined;
  const [id, name, email, version] = row as readonly [number, string, string, number];
  return { id, name, email, version };
}

/** Returns what clients see. A member without a value is undefined, so that JSON leaves it out. */
export function toPublic({ id, name, email }: User): Record<'id' | Field, unknown> {
  return { id, name, email };
}

/**
 * Number of the form of `toPublic`. Raise it with every change of that form, and never use a number again:
 * an entity tag has one body, whichever version of the service returns it (4.16).
 */
export const REPRESENTATION = 1;

/** Requires each field that has no default. @throws InvalidUser */
export function parseNewUser(body: unknown): NewUser {
  return parse(body, false) as NewUser;
}

/** Reads a JSON Merge Patch (4.6). @throws InvalidUser, also for null if the field can't be null */
export function parseChange(body: unknown): UserChange {
  return parse(body, true);
}

/** Returns the fields of the body, without its other members. */
function parse(body: unknown, isPartial: boolean): UserChange {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new InvalidUser('The body must be a JSON object.'); // 4.12
  }
  const values = body as Readonly<Record<string, unknown>>;
  const fields = FIELD_NAMES.filter((field) => !isPartial || Object.hasOwn(values, field));
  const given = fields.map((field) => {
    const { [field]: value = FIELDS[field].default } = values;
    return [field, value] as const;
  });
  const faults = given
    .filter(([field, value]) => !isValid(field, value))
    .map(([field]) => `${field} must be ${FIELDS[field].description}`);
  if (faults.length > 0) throw new InvalidUser(`${faults.join('; ')}.`);
  return Object.fromEntries(given); // 4.12
}

export function isValid(field: Field, value: unknown): boolean {
  const { minLength, maxLength } = FIELDS[field];
  if (value === null) return FIELDS[field].default === null;
  // A code point has one or two UTF-16 units, so longer values need not be counted.
  if (typeof value !== 'string' || value.length > 2 * maxLength) return false; // 4.6, 4.11
  if (field === 'email' && NOT_IN_EMAIL.test(value)) return false; // 4.11
  const { length } = [...value];
  const isInRange = length >= minLength && length <= maxLength;
  return isInRange && value.isWellFormed() && PATTERNS.get(field)!.test(value); // 4.11
}
