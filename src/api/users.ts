// The six operations on users (contract section 4).
import { forwardedPrefix } from '../http/address.ts';
import { HttpError } from '../http/errors.ts';
import { copyOf } from '../http/message.ts';
import { parseQuery } from '../http/query.ts';
import { empty, json, type Pieces, type Reply } from '../http/reply.ts';
import type { Context, RouteHandler, Services } from '../route.ts';
import type { Page, User, UserChange, UserStore, WriteResult } from '../user.ts';
import { FIELDS, isValid, matches, parseChange, parseNewUser, toPublic } from '../user.ts';
import { condition, entityTag } from './preconditions.ts';

// Lists of at least this many users are streamed. Each read after the first takes at most this many (4.1).
const PAGE_SIZE = 500;
const PIECE_BYTES = 89 * 1024; // about: six slices of reply.ts. A longer list is streamed, too.
const GROUP_SIZE = 16; // JSON.stringify() takes twice as long for users one by one.
const SHARED_CHARACTERS = 16 * 1024; // A longer text becomes a Buffer, which responses share; text is copied.
const MAX_LIMIT = 1000; // 4.2
const MADE = Symbol('made');
const NO_SUCH_USER = 'No user has this id.';

export async function list(context: Context, { store, trustProxy }: Services): Promise<Reply> {
  const values = parseQuery(context.query, ['limit', 'after', 'email']); // 4.2
  const limit = parseInteger('limit', 1, MAX_LIMIT, values.limit);
  const after = parseInteger('after', 0, Number.MAX_SAFE_INTEGER, values.after) ?? 0;
  if (values.email !== undefined) {
    if (!isValid('email', values.email)) {
      throw new HttpError(400, `The query parameter email must be ${FIELDS.email.description}.`); // 4.2
    }
    const user = await store.findByEmail(copyOf(values.email), context);
    const found = user !== undefined && user.id > after ? [user] : [];
    return json(JSON.stringify(found.map(toPublic)));
  }
  // One user more than the limit shows whether another page follows.
  const pageLimit = limit === undefined ? PAGE_SIZE : limit + 1;
  const users = await store.list({ after, limit: pageLimit }, context);
  const count = Math.min(users.length, limit ?? PAGE_SIZE);
  const end = users[count - 1]?.id;
  if (end === undefined) return json('[]');
  const path = `${forwardedPrefix(context.headers, trustProxy)}/users`;
  const next = ['Link', `<${path}?limit=${limit}&after=${end}>; rel="next"`];
  const headers = count < users.length ? next : [];
  const last = limit === undefined && count === PAGE_SIZE ? Number.POSITIVE_INFINITY : end;
  const first = pieceOf(users, '[', last);
  const isWhole = count < PAGE_SIZE && first.nextPage === undefined; // 4.1
  return json(isWhole ? first.body : piecesFrom(first, last, context, store), headers);
}

export async function create(context: Context, services: Services): Promise<Reply> {
  const user = await services.store.create(parseNewUser(context.body), context);
  const headers = ['Location', pathOf(user, context, services), 'ETag', entityTag(user)]; // 4.4
  return json(representation(user), headers, 201);
}

export async function read(context: Context, { store }: Services): Promise<Reply> {
  const { oneOf, noneOf } = condition(context.headers);
  const found = await store.find(parseId(context), context);
  const user = existing(found && !matches(oneOf, found.version) ? 'stale' : found);
  const tag = ['ETag', entityTag(user)];
  if (matches(noneOf, user.version)) return empty(304, tag); // 4.3
  return json(representation(user), tag);
}

export const replace = updateWith(parseNewUser); // 4.5

export const patch = updateWith(parseChange); // 4.6: a JSON Merge Patch (RFC 7396)

export async function remove(context: Context, { store }: Services): Promise<Reply> {
  const removed = await store.delete(parseId(context), condition(context.headers), context);
  return json(representation(existing(removed))); // 4.7
}

function updateWith(parse: (body: unknown) => UserChange): RouteHandler {
  return async (context, services) => {
    const fields = parse(context.body);
    const id = parseId(context); // 2.5
    const user = existing(
      await services.store.update(id, fields, condition(context.headers), context),
    );
    // For PUT contrary to RFC 9110 §9.3.4: clients need the tag for the next If-Match.
    const path = pathOf(user, context, services);
    const tag = ['ETag', entityTag(user), 'Content-Location', path]; // 4.8
    return json(representation(user), tag);
  };
}

function pathOf({ id }: User, { headers }: Context, { trustProxy }: Services): string {
  return `${forwardedPrefix(headers, trustProxy)}/users/${id}`; // 2.18
}

function existing(result: WriteResult): User {
  if (result === undefined) throw new HttpError(404, NO_SUCH_USER); // 4.9
  if (result !== 'stale') return result;
  throw new HttpError(412, "The user's current version fails If-Match or If-None-Match."); // 4.8
}

/**
 * Streams a JSON array of users up to the id `last`. Each piece after the first is read just before it is
 * sent, so that a thousand clients hold no users meanwhile.
 */
function piecesFrom(first: Piece, last: number, caller: Context, store: UserStore): Pieces {
  let { body: begun, nextPage }: Partial<Piece> = first;
  const read = async (page: Page) => {
    const piece = pieceOf(await store.list(page, caller), ',', last);
    nextPage = piece.nextPage;
    return piece.body;
  };
  return {
    next() {
      const piece = begun ?? (nextPage && read(nextPage));
      begun = undefined;
      return piece;
    },
  };
}

interface Piece {
  readonly body: string | Buffer;
  readonly nextPage: Page | undefined; // of the next piece; undefined if the list ends with this one
}

/** Formats users up to the id `last`, from the first on, as about PIECE_BYTES that begin with `start`. */
function pieceOf(users: readonly User[], start: string, last: number): Piece {
  return shared(users, start + last, () => {
    const parts: string[] = [];
    let bytes = 0;
    let count = 0;
    while (bytes < PIECE_BYTES) {
      const group = users.slice(count, count + GROUP_SIZE).filter(({ id }) => id <= last);
      if (group.length === 0) break;
      const text = JSON.stringify(group.map(toPublic));
      parts.push(count === 0 ? start : ',', text.slice(1, -1));
      bytes += Buffer.byteLength(text);
      count += group.length;
    }
    const after = users[count - 1]?.id ?? last;
    const limit = Math.min(Math.ceil((PIECE_BYTES * count) / bytes), PAGE_SIZE);
    const nextPage = after === last ? undefined : { after, limit };
    if (nextPage === undefined) parts.push(']');
    // join() returns a flat string. Buffer.from() would flatten one built with + inside a fast API call, which
    // must not allocate: garbage collected in it can end the process (node 26, "Lazy deopt after a fast API call").
    const text = parts.join('');
    return { body: text.length < SHARED_CHARACTERS ? text : Buffer.from(text), nextPage };
  });
}

/** Returns `make()`, and keeps the last one on the list: requests that share a read make it once. */
function shared<T>(users: SharedUsers, key: string, make: () => T): T {
  const [knownKey, known] = users[MADE] ?? [];
  if (knownKey === key) return known as T;
  const value = make();
  users[MADE] = [key, value];
  return value;
}

/**
 * A list of the store, with the value last made from it. A WeakMap would keep the value until V8 collects the
 * old generation. Together with `splice` in session.ts this saves 23 MB of the peak of a million users.
 */
type SharedUsers = readonly User[] & { [MADE]?: readonly [key: string, value: unknown] };

const representation = (user: User) => JSON.stringify(toPublic(user));

function parseId({ parameters }: Context): number {
  const id = /^[1-9][0-9]{0,15}$/.test(parameters.id!) ? Number(parameters.id) : Number.NaN;
  if (!Number.isSafeInteger(id)) throw new HttpError(404, NO_SUCH_USER); // 4.9
  return id;
}

function parseInteger(name: string, min: number, max: number, text?: string): number | undefined {
  if (text === undefined) return undefined;
  const value = /^(?:0|[1-9][0-9]{0,15})$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new HttpError(400, `The query parameter ${name} must be an integer from ${min} to ${max}.`); // 4.2
}
