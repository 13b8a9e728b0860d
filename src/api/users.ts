// The six operations on users (contract section 4).
import { condition, entityTag, isUnchanged, isWanted } from '../http/conditional.ts';
import { HttpError } from '../http/errors.ts';
import { parseQuery } from '../http/query.ts';
import { empty, json, type Reply } from '../http/reply.ts';
import type { Context } from '../route.ts';
import {
  type Changed,
  FIELDS,
  isEmail,
  parseChange,
  parseNewUser,
  type User,
  type UserChange,
  type UserStore,
} from '../user.ts';

/** Users that one page of the streamed list takes from the store. */
const STREAM_PAGE = 500; // 4.1
const MAX_LIMIT = 1000;

/** GET /users: all of them, a page of them, or the one with an email (contract 4.1, 4.2). */
export async function listUsers({ query, services: { store } }: Context): Promise<Reply> {
  const values = parseQuery(query, ['limit', 'after', 'email']);
  const limit = parseInteger('limit', values.limit, 1, MAX_LIMIT);
  const after = parseInteger('after', values.after, 0, Number.MAX_SAFE_INTEGER) ?? 0;
  if (values.email !== undefined) return withEmail(values.email, after, store);
  if (limit !== undefined) return page(limit, after, store);
  const first = await store.list({ after, limit: STREAM_PAGE });
  // A list that ends with its first page is sent whole, with its length.
  if (first.length < STREAM_PAGE) return json(jsonArray(first)); // 4.1
  return { status: 200, type: 'application/json', body: pages(first, store) };
}

/** POST /users (contract 4.4, 4.10, 4.11). */
export async function createUser({ body, services: { store } }: Context): Promise<Reply> {
  // 4.4
  const user = await store.create(parseNewUser(body));
  return json(
    representation(user),
    ['Location', `/users/${user.id}`, 'ETag', entityTag(user)],
    201,
  );
}

/** GET /users/{id} (contract 4.3). */
export async function readUser(context: Context): Promise<Reply> {
  // 4.3
  const found = await context.services.store.find(parseId(context.parameter));
  const user = existing(found && !isWanted(found, context.headers) ? 'stale' : found);
  const headers = ['ETag', entityTag(user)];
  if (isUnchanged(user, context.headers)) return empty(304, headers);
  return json(representation(user), headers);
}

/** PUT /users/{id} (contract 4.5): replaces both fields, never creates. */
export function replaceUser(context: Context): Promise<Reply> {
  // 4.5
  return change(context, parseNewUser(context.body));
}

/** PATCH /users/{id} (contract 4.6): JSON Merge Patch, RFC 7396. */
export function patchUser(context: Context): Promise<Reply> {
  return change(context, parseChange(context.body));
}

/** DELETE /users/{id} (contract 4.7): answers with the user as it was. */
export async function deleteUser(context: Context): Promise<Reply> {
  // 4.7
  const id = parseId(context.parameter);
  const removed = await context.services.store.remove(id, condition(context.headers));
  return json(representation(existing(removed)));
}

async function change(context: Context, fields: UserChange): Promise<Reply> {
  // 2.5
  const id = parseId(context.parameter);
  const user = existing(
    await context.services.store.change(id, fields, condition(context.headers)),
  );
  // Against RFC 9110 §9.3.4 the tag is sent: clients need it for the next If-Match (contract 4.8).
  return json(representation(user), [
    'ETag',
    entityTag(user),
    'Content-Location', // 4.8
    `/users/${user.id}`,
  ]);
}

function existing(changed: Changed): User {
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
  return json(jsonArray(user !== undefined && user.id > after ? [user] : []));
}

/** One page; one user more than asked for shows whether another follows. */
async function page(limit: number, after: number, store: UserStore): Promise<Reply> {
  // 4.2
  const users = await store.list({ after, limit: limit + 1 });
  if (users.length <= limit) return json(jsonArray(users));
  const next = `</users?limit=${limit}&after=${users[limit - 1]!.id}>; rel="next"`; // 4.2
  return json(jsonArray(users, limit), ['Link', next]);
}

/** The whole list in keyset pages. The store holds nothing while the client reads. */
async function* pages(first: readonly User[], store: UserStore): AsyncGenerator<string> {
  // 4.1
  let users = first;
  yield `[${users.map(representation).join(',')}`;
  while (users.length === STREAM_PAGE) {
    users = await store.list({ after: users.at(-1)!.id, limit: STREAM_PAGE });
    if (users.length > 0) yield `,${users.map(representation).join(',')}`;
  }
  yield ']';
}

/** Calls that shared a read got the same array. Its JSON is made once for all of them. */
const texts = new WeakMap<readonly User[], { readonly count: number; readonly text: string }>();

/** JSON of the first `count` users. */
function jsonArray(users: readonly User[], count = users.length): string {
  const known = texts.get(users);
  if (known?.count === count) return known.text;
  const text = `[${users.slice(0, count).map(representation).join(',')}]`;
  texts.set(users, { count, text });
  return text;
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
