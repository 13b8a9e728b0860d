// A model of section 4: for each request, the response that it must get. It knows the contract, a URL, and
// nothing of the code.
import assert from 'node:assert/strict';
import fc from 'fast-check';
import * as vectors from '../vectors/users.ts';
import { type HttpResponse, send } from './client.ts';

const { EMAILS, FIELDS, IDS, NOT_OBJECTS, TAG_LISTS } = vectors;
const REPRESENTATION = Object.keys(vectors.REPRESENTATIONS).at(-1); // the current one
const FIELD_NAMES = Object.keys(FIELDS);
const OTHERS = FIELD_NAMES.filter((field) => field !== 'name' && field !== 'email');
const NOBODY = 999_999;
const JSON_TYPE = 'application/json';
const MERGE_PATCH = 'application/merge-patch+json';
const HEADERS = ['content-type', 'content-length', 'etag', 'link', 'location', 'content-location'];

/** A list of tags that is made from a user's current tag, or from its first one. */
type TagList = { readonly form: string; readonly isFirst?: boolean };
type Conditions = { readonly ifMatch?: TagList; readonly ifNoneMatch?: TagList };
type Query = {
  readonly limit?: number | undefined;
  readonly after?: number | { readonly nth: number; readonly minus: number } | undefined;
  readonly email?: string | undefined;
  readonly isEscaped?: boolean;
  readonly refused?: string | undefined; // makes the query invalid
  readonly ignored?: string;
};
interface Step {
  readonly call: 'GET' | 'HEAD' | 'DELETE' | 'PUT' | 'PATCH' | 'POST' | 'list' | 'list head';
  readonly nth?: number; // of all ids given so far, also those of deleted users
  readonly spelling?: string;
  readonly if?: Conditions | undefined;
  readonly body?: string; // JSON
  readonly type?: string;
  readonly query?: Query;
}

type Fields = Readonly<Record<string, unknown>>;
interface User {
  readonly id: number;
  readonly fields: Fields;
  readonly version: number;
}

/** A response. Headers that it does not name must be absent. */
interface Wanted {
  readonly status: number;
  readonly body: string | RegExp;
  readonly tag?: string;
  readonly link?: string | undefined;
  readonly location?: string;
  readonly contentLocation?: string;
}

const NOT_FOUND: Wanted = { status: 404, body: 'No user has this id.' }; // 4.9
const TAKEN: Wanted = { status: 400, body: 'Another user has this email.' }; // 4.10
const NO_OBJECT: Wanted = { status: 400, body: 'The body must be a JSON object.' }; // 4.12
const NO_JSON: Wanted = { status: 400, body: 'The body is not valid JSON.' }; // 2.8
const STALE: Wanted = {
  status: 412,
  body: "The user's current version fails If-Match or If-None-Match.", // 4.8
};

export class Model {
  readonly #url: string;
  readonly #users = new Map<number, User>(); // by ascending id
  readonly #ids: number[] = [];

  constructor(url: string) {
    this.#url = `${url}/users`;
  }

  /** Runs the steps on an empty service, then compares all users. */
  static async run(url: string, steps: readonly Step[]): Promise<void> {
    const users: User[] = JSON.parse((await send(`${url}/users`)).body);
    await Promise.all(users.map(({ id }) => send(`${url}/users/${id}`, { method: 'DELETE' })));
    const model = new Model(url);
    for (const step of [...steps, { call: 'list', query: {} } as const]) {
      const error = await model.#take(step).catch((err: Error) => err);
      if (error) throw new Error(`${JSON.stringify(step)}: ${error.message}`, { cause: error });
    }
  }

  /** Sends the request of a step and checks its response. */
  async #take(step: Step): Promise<void> {
    const { call, nth = 0, spelling = 'itself', if: conditions = {}, body = '' } = step;
    if (call === 'list') return this.#list('GET', step.query);
    if (call === 'list head') return this.#list('HEAD', step.query);
    if (call === 'POST') return this.#create(body);
    const id = this.#ids[nth % this.#ids.length] ?? NOBODY;
    const user = spelling in IDS.same ? this.#users.get(id) : undefined;
    const path = `/${SPELLINGS[spelling]!(id)}`;
    const headers = headersOf(conditions, user);
    if (call === 'PUT' || call === 'PATCH') {
      const typed = { ...headers, 'content-type': step.type ?? JSON_TYPE };
      const response = await this.#send(call, path, typed, body);
      return this.#update(call, body, user, conditions, response);
    }
    const response = await this.#send(call, path, headers);
    const refused = refusal(user, conditions, call);
    if (user === undefined || refused) return check(response, refused!, call);
    const wanted = { status: 200, body: json(user) };
    if (call !== 'DELETE') return check(response, { ...wanted, tag: tagOf(user) }, call); // 4.3
    check(response, wanted); // 4.7
    this.#users.delete(id);
  }

  async #create(body: string): Promise<void> {
    const response = await this.#send('POST', '', { 'content-type': JSON_TYPE }, body);
    const fields = parseBody(body, true);
    if (isRefusal(fields)) return check(response, fields);
    if (this.#ownerOf(fields.email) !== undefined) return check(response, TAKEN);
    const location = response.headers.get('location') ?? '';
    const id = Number(location.replace('/users/', ''));
    const user = { id, fields, version: 1 };
    check(response, { status: 201, body: json(user), tag: tagOf(user), location }); // 4.4
    assert.ok(Number.isSafeInteger(id) && id > (this.#ids.at(-1) ?? 0), 'ids ascend'); // 5.4
    this.#ids.push(id);
    this.#users.set(id, user);
  }

  async #update(
    method: string,
    body: string,
    user: User | undefined,
    conditions: Conditions,
    response: HttpResponse,
  ): Promise<void> {
    const given = parseBody(body, method === 'PUT'); // 4.5, 4.6
    if (isRefusal(given)) return check(response, given); // 2.5: before 404 and 412
    const refused = refusal(user, conditions, method);
    if (user === undefined || refused) return check(response, refused!);
    if (![undefined, user].includes(this.#ownerOf(given.email))) return check(response, TAKEN);
    const fields = { ...user.fields, ...given };
    const isChanged = FIELD_NAMES.some((field) => fields[field] !== user.fields[field]);
    const changed = { ...user, fields, version: user.version + Number(isChanged) }; // 4.16
    const contentLocation = `/users/${user.id}`; // 4.8
    check(response, { status: 200, body: json(changed), tag: tagOf(changed), contentLocation });
    this.#users.set(user.id, changed);
  }

  async #list(
    method: 'GET' | 'HEAD',
    { limit, email, ignored, refused, ...query }: Query = {},
  ): Promise<void> {
    const from = query.after ?? 0;
    const after =
      typeof from === 'number' ? from : (this.#ids[from.nth % this.#ids.length] ?? 1) - from.minus;
    const encode = query.isEscaped
      ? encodeURIComponent
      : (text: string) => text.replaceAll('%', '%25');
    const parts = [
      query.after === undefined ? undefined : `after=${after}`,
      limit && `${query.isEscaped ? '%6c' : 'l'}imit=${limit}`,
      email && `email=${encode(email)}`,
    ];
    const text = [ignored, ...parts, refused].filter((part) => part !== undefined).join('&');
    const response = await this.#send(method, `?${text}`);
    if (refused !== undefined) {
      return check(response, { status: 400, body: /^The query (?!.* {2})[^\p{Cc}]+\.$/u }, method);
    }
    const rest = [...this.#users.values()].filter(({ id }) => id > after);
    const page = rest.filter(({ fields }) => !email || fields.email === email).slice(0, limit);
    const isLast = email !== undefined || page.length === rest.length;
    const next = `</users?limit=${limit}&after=${page.at(-1)?.id}>; rel="next"`;
    const body = `[${page.map(json)}]`;
    check(response, { status: 200, body, link: isLast ? undefined : next }, method); // 4.1, 4.2
  }

  #send(method: string, path: string, headers?: Record<string, string>, body?: string) {
    const wrong = { authorization: 'Bearer nonsense', 'x-forwarded-prefix': '/x' }; // 4.15, 2.18
    const all = { ...headers, ...wrong };
    return send(this.#url + path, { method, headers: all, body, cache: 'no-store' });
  }

  #ownerOf(email: unknown): User | undefined {
    return [...this.#users.values()].find(({ fields }) => fields.email === email);
  }
}

function check(response: HttpResponse, wanted: Wanted, method = ''): void {
  const { status, headers } = response;
  const isSent = method !== 'HEAD' && wanted.status !== 304;
  if (isSent && wanted.body instanceof RegExp) assert.match(response.body, wanted.body);
  const body = wanted.body instanceof RegExp ? response.body : wanted.body;
  const type = wanted.status < 300 ? JSON_TYPE : 'text/plain; charset=utf-8';
  const { link = null, location = null, contentLocation = null, tag = null } = wanted;
  const content = wanted.status === 304 ? [null, null] : [type, `${Buffer.byteLength(body)}`];
  const expected = [...content, tag, link, location, contentLocation];
  const found = [status, response.body, ...HEADERS.map((name) => headers.get(name))];
  assert.deepEqual(found, [wanted.status, isSent ? body : '', ...expected]);
}

function tagOf({ version }: Pick<User, 'version'>): string {
  return `"${REPRESENTATION}-${version}"`; // 4.16
}

/** A field that is null has no member. */
function json({ id, fields }: Pick<User, 'id' | 'fields'>): string {
  const members = FIELD_NAMES.map((field) => [field, fields[field] ?? undefined]);
  return JSON.stringify({ id, ...Object.fromEntries(members) });
}

/** Returns the fields that count, or the refusal. A whole user has all fields, some by default. */
function parseBody(text: string, isWhole: boolean): Fields | Wanted {
  let body: unknown;
  try {
    body = text === '' ? undefined : JSON.parse(text);
  } catch {
    return NO_JSON;
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return NO_OBJECT;
  const defaults = FIELD_NAMES.map((field) => [field, FIELDS[field]!.default] as const);
  const values = new Map<string, unknown>([...(isWhole ? defaults : []), ...Object.entries(body)]);
  const given = FIELD_NAMES.filter((field) => values.has(field));
  const fields = Object.fromEntries(given.map((field) => [field, values.get(field)]));
  const wrong = Object.keys(fields).filter((field) => !isField(field, fields[field]));
  const sentence = wrong.map((field) => `${field} must be a string of [^;]+`).join('; ');
  return wrong.length > 0 ? { status: 400, body: new RegExp(`^${sentence}\\.$`) } : fields; // 4.11
}

function isRefusal(parsed: Fields | Wanted): parsed is Wanted {
  return 'status' in parsed;
}

function isField(field: string, value: unknown): boolean {
  if (OTHERS.includes(field)) return isOther(field, value);
  if (typeof value !== 'string' || /[\0\p{Cs}]/u.test(value)) return false;
  const isInRange = Array.from(value).length >= 1 && Array.from(value).length <= 100;
  return (
    isInRange &&
    (field === 'name' || /^[^@\p{White_Space}\p{Cc}]+@[^@\p{White_Space}\p{Cc}]+$/u.test(value))
  );
}

/** True for the accepted values in the vectors. */
function isOther(field: string, value: unknown): boolean {
  const { accepted, default: absent } = FIELDS[field]!;
  return [...Object.values(accepted), absent].some((one) => one === value && one !== undefined);
}

function headersOf(
  { ifMatch, ifNoneMatch }: Conditions,
  user: User | undefined,
): Record<string, string> {
  const value = ({ form, isFirst }: TagList) =>
    TAGS[form]!(tagOf(user && !isFirst ? user : { version: 1 }).slice(1, -1));
  return {
    ...(ifMatch && { 'if-match': value(ifMatch) }),
    ...(ifNoneMatch && { 'if-none-match': value(ifNoneMatch) }),
  };
}

function refusal(
  user: User | undefined,
  { ifMatch, ifNoneMatch }: Conditions,
  method: string,
): Wanted | undefined {
  if (user === undefined) return NOT_FOUND;
  const isMatch = (list: TagList, ...tables: readonly object[]) =>
    tables.some((forms) => list.form in forms) &&
    (ANY.includes(list.form) || !list.isFirst || user.version === 1);
  if (ifMatch && !isMatch(ifMatch, TAG_LISTS.strong, TAG_LISTS.version)) return STALE; // 4.3, 4.8, 4.16
  if (!ifNoneMatch || !isMatch(ifNoneMatch, TAG_LISTS.strong, TAG_LISTS.weak)) return undefined;
  const isRead = method === 'GET' || method === 'HEAD';
  return isRead ? { status: 304, body: '', tag: tagOf(user) } : STALE;
}

const SPELLINGS: vectors.Vectors<(id: number) => string> = { ...IDS.same, ...IDS.other };
const ANY = ['an asterisk', 'an asterisk with space around'];
const TAGS: vectors.Vectors<(tag: string) => string> = Object.assign(
  {},
  ...Object.values(TAG_LISTS),
);
const FORMS = Object.keys(TAGS);
const LIMITS = [1, 2, 3, 5, 6, 7, 999, 1000];
const FEW_EMAILS = ['a@b', 'A@b', 'a+b@c', '%41=@x', 'jörg@x', '"\\"@{x,null}'];
const ADA = JSON.stringify({ name: 'Ada', email: 'ada@x' });
const AFTERS = [
  0,
  2 ** 31,
  2 ** 53 - 1,
  ...[0, 2, 6].flatMap((nth) => [0, 1].map((minus) => ({ nth, minus }))),
];

const body = (fields: object) => JSON.stringify(fields);
const post = (fields: object): Step => ({ call: 'POST', body: body(fields) });
const values = (all: object) => Object.values({ ...all, absent: undefined }) as unknown[];

const FIELD_STEPS = ['name', ...OTHERS].flatMap((field) =>
  values({ ...FIELDS[field]!.accepted, ...FIELDS[field]!.refused }).flatMap((value, i): Step[] => [
    post({ name: 'Ada', email: `${field}${i}@x`, [field]: value }),
    { call: 'PUT', nth: 0, body: body({ name: 'Ada', email: 'first@x', [field]: value }) },
    { call: 'PATCH', nth: 0, body: body({ [field]: value }), type: MERGE_PATCH },
  ]),
);

const EMAIL_STEPS = [
  post({ name: 'Ada', email: 'ada@x' }),
  ...values(EMAILS.accepted).flatMap((email): Step[] => [
    { call: 'PUT', nth: 0, body: body({ name: 'Ada', email }) },
    { call: 'PATCH', nth: 0, body: ADA },
    { call: 'PATCH', nth: 0, body: body({ email }) },
    { call: 'PATCH', nth: 0, body: ADA },
    post({ name: 'Ada', email }),
    { call: 'PATCH', nth: 0, body: body({ email }) },
  ]),
  ...values(EMAILS.refused).flatMap((email): Step[] => [
    post({ name: 'Ada', email }),
    { call: 'PATCH', nth: 0, body: body({ email }) },
  ]),
];

const OTHER_MEMBERS = ['{}', '{"id":7,"version":null}', '{"__proto__":{"name":"A","email":"a@b"}}'];
const REPEATED = '{"name":"Ada","email":"b@x","name":"Grace","id":1,"version":7}';
// 2.9: JSON of any depth, and what only begins like it.
const DEEP = [
  ...['[', '{"a":'].map(
    (open) => `${open.repeat(25_000)}1${(open === '[' ? ']' : '}').repeat(25_000)}`,
  ),
  ...['['.repeat(100_000), '[{"":'.repeat(30_000), '["\\uDEAD",1e999,-0,123123123123123123]'],
].flatMap((value) => [value, `{"name":"Ada","email":"deep@x","x":${value}}`]);
/** Longest body of the steps, in bytes. A container with 128 MiB takes 183,500 (2.8). */
export const LONGEST = 160_000;
const BODY_STEPS = [...Object.values(NOT_OBJECTS), ...OTHER_MEMBERS, REPEATED, ...DEEP].flatMap(
  (text): Step[] => [
    post({ name: 'Ada', email: 'ada@x' }),
    { call: 'POST', body: text },
    { call: 'PUT', nth: 0, body: text },
    { call: 'PATCH', nth: 0, body: text },
    { call: 'PATCH', nth: 0, body: text, type: MERGE_PATCH },
  ],
);

const ID_STEPS = Object.keys(SPELLINGS).flatMap((spelling, nth): Step[] => [
  post({ name: 'Ada', email: `${nth}@x` }),
  { call: 'GET', nth, spelling },
  { call: 'HEAD', nth, spelling },
  { call: 'PUT', nth, spelling, body: body({ name: 'Grace', email: `${nth}@y` }) },
  { call: 'PATCH', nth, spelling, body: '{}' },
  { call: 'PATCH', nth, spelling, body: '{"name":""}' }, // 2.5: 400 before 404
  { call: 'DELETE', nth, spelling, if: { ifMatch: { form: 'an asterisk' } } },
  { call: 'DELETE', nth, spelling },
]);

const TAG_STEPS = FORMS.flatMap((form) => [
  ...(['ifMatch', 'ifNoneMatch'] as const).map((header) => ({ [header]: { form } })),
  ...(form === 'the tag' ? [{ ifMatch: { form, isFirst: true } }] : []),
]).flatMap((conditions: Conditions, nth): Step[] => [
  post({ name: 'Ada', email: `${nth}@x` }),
  ...Array.from({ length: nth < 2 ? 11 : 1 }, (_, i): Step => {
    return { call: 'PATCH', nth, body: body({ name: `Grace ${i}` }) }; // to a version of two digits
  }),
  { call: 'GET', nth, if: conditions },
  { call: 'HEAD', nth, if: conditions },
  { call: 'PUT', nth, if: conditions, body: body({ name: 'Eve', email: `${nth}@y` }) },
  { call: 'PATCH', nth, if: conditions, body: body({ email: `${nth}@z` }) },
  { call: 'PATCH', nth, if: conditions, body: '{}' },
  { call: 'DELETE', nth, if: conditions },
]);

const QUERY_STEPS: Step[] = [
  ...[...FEW_EMAILS, 'gone@x'].map((email) => post({ name: 'Ada', email })),
  { call: 'DELETE', nth: 2 },
  ...[undefined, ...LIMITS].flatMap((limit) =>
    [undefined, ...AFTERS].map((after): Step => ({ call: 'list', query: { limit, after } })),
  ),
  ...[...FEW_EMAILS, 'nobody@x'].flatMap((email) =>
    AFTERS.map((after): Step => ({ call: 'list', query: { email, after, isEscaped: true } })),
  ),
  ...vectors.REFUSED_QUERIES.map((refused): Step => ({ call: 'list', query: { refused } })),
  ...vectors.IGNORED_QUERIES.map(
    (ignored): Step => ({ call: 'list', query: { ignored, limit: 1 } }),
  ),
];

/** Steps that try every edge. */
export const EDGES = {
  fields: FIELD_STEPS,
  emails: EMAIL_STEPS,
  bodies: BODY_STEPS,
  ids: ID_STEPS,
  tags: TAG_STEPS,
  queries: QUERY_STEPS,
};

/** In half of the cases undefined. */
const some = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
const text = fc.string({ unit: 'binary', maxLength: 102, size: 'max' });
const name = fc.oneof({ weight: 6, arbitrary: fc.constantFrom('Ada', 'Grace') }, text);
const email = fc.oneof(
  { weight: 9, arbitrary: fc.constantFrom(...FEW_EMAILS) },
  fc.tuple(text, text).map((parts) => parts.join('@')),
);
const valuesOf = ({ accepted, refused }: (typeof FIELDS)[string]) =>
  fc.constantFrom(null, ...Object.values({ ...accepted, ...refused }));
const others = fc.record(
  Object.fromEntries(OTHERS.map((field) => [field, valuesOf(FIELDS[field]!)])),
  { requiredKeys: [] },
);
const members = fc.oneof(
  fc.tuple(fc.record({ name, email }), others).map(([one, more]) => ({ ...one, ...more })),
  fc.record({ name, email, id: fc.nat(9), other: fc.jsonValue() }, { requiredKeys: [] }),
  fc.record({ name: fc.jsonValue(), email: fc.jsonValue() }, { requiredKeys: [] }),
);
const anyBody = fc.oneof({ weight: 9, arbitrary: members.map(body) }, fc.json());
const nth = fc.nat(9);
const tagList = fc.record({
  form: fc.oneof({ weight: 2, arbitrary: fc.constant('the tag') }, fc.constantFrom(...FORMS)),
  isFirst: fc.boolean(),
});
const conditions = some(
  fc.record({ ifMatch: tagList, ifNoneMatch: tagList }, { requiredKeys: [] }),
);
const query = fc.record({
  limit: some(fc.constantFrom(...LIMITS)),
  after: some(fc.constantFrom(...AFTERS)),
  email: some(fc.constantFrom(...FEW_EMAILS)),
  isEscaped: fc.boolean(),
});
type Parts = Record<string, fc.Arbitrary<unknown>>;
const CALLS: [weight: number, names: Step['call'][], more: Parts][] = [
  [3, ['POST'], { body: anyBody }],
  [3, ['GET', 'HEAD', 'DELETE'], { nth, if: conditions }],
  [5, ['PUT', 'PATCH'], { nth, if: conditions, body: anyBody }],
  [1, ['list', 'list head'], { query }],
];
const step = fc.oneof(
  ...CALLS.map(([weight, names, more]) => ({
    weight,
    arbitrary: fc.record({ call: fc.constantFrom(...names), ...more }) as fc.Arbitrary<Step>,
  })),
);
export const randomSteps = fc.array(step, { maxLength: 40, size: 'max' });
