// The six operations on users (contract section 4).
import { condition, entityTag, isUnchanged, isWanted } from '../http/conditional.ts';
import { HttpError } from '../http/errors.ts';
import { parseQuery } from '../http/query.ts';
import { empty, json, type Pieces, type Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';
import {
  FIELDS,
  isEmail,
  parseChange,
  parseNewUser,
  type User,
  type UserChange,
  type UserStore,
  type WriteResult,
} from '../user.ts';

/** Lists of this many users and more are streamed, and read from the store in pages of this size. */
const STREAM_PAGE = 500; // 4.1
/** The size of a page for a client that reads slowly: most of a larger one would be read in vain. */
const SLOW_PAGE = 100;
/** Length of a piece of a stream, about. */
const PIECE_CHARACTERS = 32 * 1024;
const MAX_LIMIT = 1000;

/** GET /users: all of them, a page of them, or the one with an email (contract 4.1, 4.2). */
export async function listUsers({ query }: Context, { store }: Services): Promise<Reply> {
  const values = parseQuery(query, ['limit', 'after', 'email']);
  const limit = parseInteger('limit', values.limit, 1, MAX_LIMIT);
  const after = parseInteger('after', values.after, 0, Number.MAX_SAFE_INTEGER) ?? 0;
  if (values.email !== undefined) return withEmail(values.email, after, store);
  if (limit !== undefined) return page(limit, after, store);
  const users = await store.list({ after, limit: STREAM_PAGE });
  if (users.length < STREAM_PAGE) return json(jsonArray(users, users.length));
  const body = new UserPieces(users, Number.POSITIVE_INFINITY, store); // 4.1
  return { status: 200, type: 'application/json', body };
}

/** POST /users (contract 4.4, 4.10, 4.11). */
export function createUser({ body }: Context, { store }: Services): Promise<Reply> {
  return store.create(parseNewUser(body)).then((user) =>
    json(
      representation(user),
      ['Location', `/users/${user.id}`, 'ETag', entityTag(user)], // 4.4
      201,
    ),
  );
}

/** GET /users/{id} (contract 4.3). */
export async function readUser(
  { parameters, headers }: Context,
  { store }: Services,
): Promise<Reply> {
  const found = await store.find(parseId(parameters.id!));
  // 4.3
  const user = existing(found && !isWanted(found, headers) ? 'stale' : found);
  const tag = ['ETag', entityTag(user)];
  if (isUnchanged(user, headers)) return empty(304, tag);
  return json(representation(user), tag);
}

/** PUT /users/{id} (contract 4.5): replaces both fields, never creates. */
export function replaceUser(context: Context, services: Services): Promise<Reply> {
  return change(context, services, parseNewUser(context.body));
}

/** PATCH /users/{id} (contract 4.6): JSON Merge Patch, RFC 7396. */
export function patchUser(context: Context, services: Services): Promise<Reply> {
  return change(context, services, parseChange(context.body));
}

/** DELETE /users/{id} (contract 4.7): returns the user as it was. */
export async function deleteUser(
  { parameters, headers }: Context,
  { store }: Services,
): Promise<Reply> {
  const removed = await store.delete(parseId(parameters.id!), condition(headers));
  return json(representation(existing(removed)));
}

async function change(
  { parameters, headers }: Context,
  { store }: Services,
  fields: UserChange,
): Promise<Reply> {
  const id = parseId(parameters.id!); // 2.5
  const user = existing(await store.update(id, fields, condition(headers)));
  // Against RFC 9110 §9.3.4 the tag is sent: clients need it for the next If-Match.
  return json(representation(user), [
    'ETag',
    entityTag(user),
    'Content-Location', // 4.8
    `/users/${user.id}`,
  ]);
}

function existing(changed: WriteResult): User {
  if (changed === undefined) throw noSuchUser();
  if (changed === 'stale') {
    throw new HttpError(412, "If-Match or If-None-Match rules out the user's version."); // 4.8
  }
  return changed;
}

function noSuchUser(): HttpError {
  // 4.9
  return new HttpError(404, 'No user has this id.');
}

async function withEmail(email: string, after: number, store: UserStore): Promise<Reply> {
  // 4.2
  if (!isEmail(email)) {
    throw new HttpError(400, `The query parameter email must be ${FIELDS.email.description}.`);
  }
  const user = await store.findByEmail(email);
  const found = user !== undefined && user.id > after ? [user] : [];
  return json(jsonArray(found, found.length));
}

/** One page; one user more than asked for shows whether another follows. */
async function page(limit: number, after: number, store: UserStore): Promise<Reply> {
  const users = await store.list({ after, limit: limit + 1 });
  if (users.length <= limit) return list(users, users.length, store);
  const next = `</users?limit=${limit}&after=${users[limit - 1]!.id}>; rel="next"`; // 4.2
  return list(users, limit, store, ['Link', next]);
}

/** The first `count` users of a read: a short list whole, with its length, a longer one streamed. */
function list(
  users: readonly User[],
  count: number,
  store: UserStore,
  headers: readonly string[] = [],
): Reply {
  if (count < STREAM_PAGE) return json(jsonArray(users, count), headers); // 4.1
  const body = new UserPieces(users, users[count - 1]!.id, store);
  return { status: 200, type: 'application/json', body, headers };
}

/**
 * A JSON array of users in pieces. What the store returned is kept while the client reads it at
 * once; for a client that does not, it is dropped, and the next users are read when they are needed.
 */
class UserPieces implements Pieces {
  #users: readonly User[];
  readonly #last: number;
  readonly #store: UserStore;
  #next = 0;
  #after = 0;
  #pageSize = STREAM_PAGE;
  #separator = '[';
  /** Whether the next piece can be made without the store. */
  #isLoaded = true;

  constructor(users: readonly User[], last: number, store: UserStore) {
    this.#users = users;
    this.#last = last;
    this.#store = store;
  }

  next(): Buffer | undefined | Promise<void> {
    if (this.#separator === '') return undefined;
    if (this.#isLoaded) return this.#piece();
    return this.#store.list({ after: this.#after, limit: this.#pageSize }).then((users) => {
      this.#users = users;
      this.#next = 0;
      this.#isLoaded = true;
    });
  }

  release(): number {
    this.#users = [];
    this.#isLoaded = this.#after >= this.#last;
    this.#pageSize = SLOW_PAGE;
    return 0;
  }

  #piece(): Buffer {
    let text = '';
    while (this.#next < this.#users.length && text.length < PIECE_CHARACTERS) {
      const user = this.#users[this.#next]!;
      if (user.id > this.#last) break;
      this.#next++;
      this.#after = user.id;
      text += this.#separator + representation(user);
      this.#separator = ',';
    }
    if (text === '') {
      this.#separator = '';
      return Buffer.from(']');
    }
    this.#isLoaded = this.#next < this.#users.length || this.#after >= this.#last;
    return Buffer.from(text);
  }
}

/** Calls that shared a read have the same array. Its JSON is made once for all of them. */
const serialised = new WeakMap<
  readonly User[],
  { readonly count: number; readonly body: string | Buffer }
>();

/** From this length, bytes that all responses share are cheaper than a text copied for each. */
const SHARED_CHARACTERS = 16 * 1024;

/** JSON of the first `count` users. */
function jsonArray(users: readonly User[], count: number): string | Buffer {
  const known = serialised.get(users);
  if (known?.count === count) return known.body;
  const text = `[${users.slice(0, count).map(representation).join(',')}]`;
  const body = text.length < SHARED_CHARACTERS ? text : Buffer.from(text);
  serialised.set(users, { count, body });
  return body;
}

/** What a client sees of a user: these keys in this order, nothing else. */
function representation({ id, name, email }: User): string {
  return JSON.stringify({ id, name, email });
}

/** @throws HttpError 404 for an id that no store gives (contract 4.9) */
function parseId(text: string): number {
  // 4.9
  const id = /^[1-9][0-9]{0,15}$/.test(text) ? Number(text) : 0;
  if (id === 0 || !Number.isSafeInteger(id)) throw noSuchUser();
  return id;
}

function parseInteger(
  // 4.2
  name: string,
  text: string | undefined,
  min: number,
  max: number,
): number | undefined {
  if (text === undefined) return undefined;
  const value = /^(?:0|[1-9][0-9]{0,15})$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new HttpError(400, `The query parameter ${name} must be an integer from ${min} to ${max}.`);
}
