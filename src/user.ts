// The domain: what a user is, which values a user can have, what a store of users promises, and
// the faults it knows. Imports nothing; HTTP and SQL are other files' business.

/** A user as stored. */
export interface User {
  /** Given by the store: ascending, never reused, 1 to 2^53 - 1. */
  readonly id: number;
  /** 1 to 100 Unicode code points. */
  readonly name: string;
  /** 3 to 100 Unicode code points, unique, compared exactly. */
  readonly email: string;
  /** Begins at 1 and grows by one with every change of name or email. */
  readonly version: number;
}

/** The part of a user that its creator decides. */
export type NewUser = Pick<User, 'name' | 'email'>;

/** What a change sets; an absent field stays as it is. */
export type UserChange = Partial<NewUser>;

/** Some versions of a user, or whichever it has. */
export type Versions = readonly number[] | 'any';

/** A change is done only to a user whose version is in `oneOf` and not in `noneOf`. */
export interface Condition {
  readonly oneOf: Versions;
  readonly noneOf: Versions;
}

/** The condition that every user meets; known by its identity. */
export const ALWAYS: Condition = { oneOf: 'any', noneOf: [] };

/** A keyset page: at most `limit` users whose id is greater than `after`. */
export interface Page {
  readonly after: number;
  readonly limit: number;
}

/**
 * Where users are kept. An answer of a write comes after it is durable. Every method throws
 * StoreUnavailable when the store fails or does not answer in time; for a write that means
 * "unknown": it may have been done, once.
 */
export interface UserStore {
  // 5.0
  /** @throws EmailTaken when another user has the email. */
  create(user: NewUser): Promise<User>;
  /** @returns undefined when no user has the id. */
  find(id: number): Promise<User | undefined>;
  /** @returns undefined when no user has the email. */
  findByEmail(email: string): Promise<User | undefined>;
  /** The users of a page, by ascending id. */
  list(page: Page): Promise<readonly User[]>;
  /**
   * The user as it is after the change, `'stale'` when the condition does not hold, undefined when
   * no user has the id.
   * @throws EmailTaken when another user has the email.
   */
  change(id: number, change: UserChange, condition: Condition): Promise<Changed>;
  /** The user as it was before, and else as `change`. */
  remove(id: number, condition: Condition): Promise<Changed>;
  /** Resolves when the store answers. */
  ping(): Promise<void>;
  /**
   * Releases files and connections; running statements have `graceMs` milliseconds, a second by
   * default and at most. No other method is called afterwards.
   */
  close(graceMs?: number): Promise<void>;
}

/** What became of a conditional change. */
export type Changed = User | 'stale' | undefined;

/** The email belongs to another user. */
export class EmailTaken extends Error {
  override readonly name = 'EmailTaken';
}

/** The store failed or did not answer in time; `cause` says how. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** A value that no user can have; the message names every wrong field and what it accepts. */
export class InvalidUser extends Error {
  override readonly name = 'InvalidUser';
}

/**
 * Unicode White_Space, control characters and `@`, as a character class that regular expressions of
 * JavaScript, Python, Java, Go and PCRE read alike: `\p{…}` and `\u…` differ, so the white space
 * above U+00A0 is written as itself.
 */
const NOT_IN_EMAIL = '@\\x00-\\x20\\x7f-\\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000';

/**
 * The rules of a user's fields as JSON Schema (2020-12), where lengths count code points. No store
 * keeps U+0000 or lone surrogates. No portable pattern refuses a lone surrogate, so `isValid` does.
 */
export const FIELDS = {
  name: {
    // 4.11
    type: 'string',
    minLength: 1,
    maxLength: 100,
    pattern: '^[^\\x00]*$',
    description: 'a string of 1 to 100 characters without U+0000 or lone surrogates',
  },
  email: {
    // 4.11
    type: 'string',
    minLength: 3,
    maxLength: 100,
    pattern: `^[^${NOT_IN_EMAIL}]+@[^${NOT_IN_EMAIL}]+$`,
    description:
      'a string of 3 to 100 characters with one @ that has text on both sides, without white space, control characters or lone surrogates',
  },
} as const;

type Field = keyof typeof FIELDS;
const FIELD_NAMES = Object.keys(FIELDS) as readonly Field[];
const PATTERNS = {
  // 4.11
  name: new RegExp(FIELDS.name.pattern),
  email: new RegExp(FIELDS.email.pattern),
};

/**
 * Both fields of a user from a parsed body; other members are ignored.
 * @throws InvalidUser
 */
export function parseNewUser(body: unknown): NewUser {
  return checked(body, FIELD_NAMES) as NewUser;
}

/**
 * The fields that a JSON Merge Patch (RFC 7396) sets. `null` would remove a field, which neither
 * allows.
 * @throws InvalidUser
 */
export function parseChange(body: unknown): UserChange {
  // 4.6
  return checked(
    body,
    FIELD_NAMES.filter((field) => isObject(body) && Object.hasOwn(body, field)),
  );
}

/** Whether a user can have this email. */
export function isEmail(value: string): boolean {
  return isValid('email', value);
}

function checked(body: unknown, fields: readonly Field[]): UserChange {
  // 4.11
  if (!isObject(body)) throw new InvalidUser('The body must be a JSON object.'); // 4.12
  const faults = fields.filter((field) => !isValid(field, body[field]));
  if (faults.length > 0) {
    const sentences = faults.map((field) => `${field} must be ${FIELDS[field].description}`);
    throw new InvalidUser(`${sentences.join('; ')}.`);
  }
  return Object.fromEntries(fields.map((field) => [field, body[field]])); // 4.12
}

function isValid(field: Field, value: unknown): boolean {
  if (typeof value !== 'string') return false; // 4.6
  const { minLength, maxLength } = FIELDS[field];
  // A code point takes one or two UTF-16 units: what is longer is not counted.
  if (value.length < minLength || value.length > 2 * maxLength) return false;
  const length = [...value].length;
  if (length < minLength || length > maxLength) return false;
  return value.isWellFormed() && PATTERNS[field].test(value); // 4.11
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
