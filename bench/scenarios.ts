// The scenarios: request, contestants, data, and expected response. measure.ts runs them. `million`
// and `start` work differently and have their own files.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { SETTINGS } from './contestants.ts';
import type { Traffic } from './load.ts';

/** One line of the result tables. */
export interface Scenario {
  readonly title: string;
  readonly contestants: readonly string[];
  /** Ratios are relative to this contestant's rate in the same round. */
  readonly baseline: string;
  /** True if the scenario needs a store. */
  readonly hasUsers?: boolean;
  /** True to emulate a disk whose fsync takes 2 ms. */
  readonly slowFsync?: boolean;
  readonly connections: number;
  /** Users in the table before a run; with `perSecond`, that many for each second of the run. */
  readonly rows?: number | { readonly perSecond: number };
  /** Number of users that a request adds or removes; checked against the table after the run. */
  readonly effect?: 1 | -1;
  /** True if the table is refilled before every run. */
  readonly writes?: boolean;
  readonly traffic: Traffic;
  readonly status: number;
  readonly type: 'text/plain' | 'application/json';
  /** @throws if the body is not the right response to the first request */
  readonly body: (body: string) => void;
  /** Requests that must be refused, as changes to the scenario's request, with their status. */
  readonly refused?: readonly Refused[];
}

/** A refused request. `isByStatement`: the result of the statement is enough to refuse it. */
type Refused = Partial<Pick<Traffic, 'path' | 'headers' | 'body'>> & {
  readonly status: number;
  readonly isByStatement?: boolean;
};

const PLAIN = ['raw', 'express', 'fastify', 'hono', 'elysia', 'go', 'axum', 'ours'];
const USERS = [
  ...['raw-pg', 'raw-sqlite', 'express', 'fastify', 'hono', 'elysia', 'go', 'axum'],
  ...['pocketbase', 'ours', 'ours-sqlite'],
];
/** PocketBase makes system calls without libc, so its fsyncs can't be slowed. */
const SLOW_FSYNC = USERS.filter((name) => name !== 'pocketbase');
const AS_SHIPPED = ['ours', 'ours-log', 'source', 'source-log', 'image', 'image-log'];
const POOL_SIZES = ['ours', 'ours-pool-1', 'ours-pool-2', 'ours-pool-8'];
const ROWS = 10_000;
const JSON_BODY = { 'Content-Type': 'application/json' };
const NEW_USER = '{"name":"Name of user {n}","email":"user-{run}-{n}@bench.example.org"}';

const plain = { contestants: PLAIN, baseline: 'raw', connections: 64 } as const;
const users = {
  contestants: USERS,
  baseline: 'raw-pg',
  hasUsers: true,
  connections: 64,
  status: 200,
  type: 'application/json',
} as const;
const text = { status: 200, type: 'text/plain', body: (body: string) => assert(body) } as const;
const json = { status: 200, type: 'application/json' } as const;

const greeting: Scenario = {
  ...plain,
  ...text,
  title: 'GET /',
  traffic: { method: 'GET', path: '/', headers: {} },
};
const notes: Scenario = {
  ...plain,
  ...json,
  title: 'GET /notes, one token',
  traffic: { method: 'GET', path: '/notes', headers: { Authorization: `Bearer ${token(0)}` } },
  body: isJson({ title: SETTINGS.NOTE_TITLE, contents: SETTINGS.NOTE_CONTENTS }),
  refused: [
    { headers: { Authorization: `Bearer ${token(0).slice(0, -6)}AAAAAA` }, status: 401 },
    { headers: { Authorization: `Bearer ${token(100_000)}` }, status: 401 }, // It has expired.
  ],
};
const notes20k: Scenario = {
  ...notes,
  title: 'GET /notes, 20,000 tokens',
  traffic: {
    ...notes.traffic,
    headers: { Authorization: 'Bearer {token}' },
    tokens: Array.from({ length: 20_000 }, (_, i) => token(i)),
  },
};
const userById: Scenario = {
  ...users,
  title: 'GET /users/{id}',
  rows: ROWS,
  traffic: { method: 'GET', path: '/users/{id}', headers: {} },
  body: isUser('Name of user 1', 'user-1@bench.example.org'),
  refused: [{ path: '/users/2000000000', isByStatement: true, status: 404 }],
};
const create: Scenario = {
  ...users,
  title: 'POST /users',
  status: 201,
  rows: 0,
  effect: 1,
  writes: true,
  traffic: { method: 'POST', path: '/users', headers: JSON_BODY, body: NEW_USER },
  body: isUser('Name of user 1', 'user-check-1@bench.example.org'),
  refused: [
    { isByStatement: true, status: 400 }, // The email is taken by now.
    { body: '{"name":"Nobody","email":"nowhere"}', status: 400 },
    { body: '{"name":"","email":"nobody@bench.example.org"}', status: 400 },
    { body: '{"name":"Nobody"', status: 400 },
  ],
};
const basic = Buffer.from(`${SETTINGS.AUTH_USER}:${SETTINGS.AUTH_PASSWORD}`).toString('base64');

/** All scenarios by their name for `--scenario`, in the order of the report. */
export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  greeting,
  protected: {
    ...greeting,
    title: 'GET /protected',
    traffic: { method: 'GET', path: '/protected', headers: { Authorization: `Basic ${basic}` } },
    refused: [{ headers: { Authorization: `Basic ${btoa('admin:wrong password')}` }, status: 401 }],
  },
  notes,
  'notes-20k': notes20k,
  token: {
    ...plain,
    ...json,
    title: 'POST /token',
    traffic: {
      method: 'POST',
      path: '/token',
      headers: JSON_BODY,
      body: JSON.stringify({ id: SETTINGS.AUTH_USER, pw: SETTINGS.AUTH_PASSWORD }),
    },
    body: (body) => assert.match(JSON.parse(body).token, /^[\w-]+\.[\w-]+\.[\w-]{43}$/),
    refused: [{ body: '{"id":"admin","pw":"wrong password"}', status: 401 }],
  },
  'user-by-id': userById,
  'user-by-id-1': { ...userById, title: 'GET /users/{id}, 1 connection', connections: 1 },
  'list-100': {
    ...userById,
    title: 'GET /users, 100 rows',
    rows: 100,
    traffic: { method: 'GET', path: '/users', headers: {} },
    body: isList(100),
    refused: [],
  },
  create,
  'create-2ms': {
    ...create,
    title: 'POST /users, fsync of 2 ms',
    contestants: SLOW_FSYNC,
    slowFsync: true,
  },
  put: {
    ...userById,
    title: 'PUT /users/{id}',
    writes: true,
    traffic: {
      method: 'PUT',
      path: '/users/{id}',
      headers: JSON_BODY,
      body: '{"name":"New name {n}","email":"put-{run}-{n}@bench.example.org"}',
    },
    body: isUser('New name 1', 'put-check-1@bench.example.org'),
    refused: [
      { path: '/users/2000000000', isByStatement: true, status: 404 },
      {
        body: '{"name":"Name","email":"user-2@bench.example.org"}',
        isByStatement: true,
        status: 400,
      },
      { body: '{"name":"Name","email":"nowhere"}', status: 400 },
    ],
  },
  patch: {
    ...userById,
    title: 'PATCH /users/{id}',
    writes: true,
    traffic: {
      method: 'PATCH',
      path: '/users/{id}',
      headers: JSON_BODY,
      body: '{"name":"New name {n}"}',
    },
    body: isUser('New name 1', 'user-1@bench.example.org'),
    refused: [
      { path: '/users/2000000000', isByStatement: true, status: 404 },
      { body: '{"email":"user-2@bench.example.org"}', isByStatement: true, status: 400 },
      { body: '{"name":""}', status: 400 },
    ],
  },
  delete: {
    ...userById,
    title: 'DELETE /users/{id}',
    rows: { perSecond: 60_000 },
    effect: -1,
    writes: true,
    traffic: { method: 'DELETE', path: '/users/{n}', headers: {} },
  },
  shipped: { ...greeting, title: 'GET /, as shipped', contestants: AS_SHIPPED, baseline: 'ours' },
  'shipped-user': {
    ...userById,
    title: 'GET /users/{id}, as shipped',
    contestants: [...AS_SHIPPED, 'ours-sqlite', 'ours-sqlite-log'],
    baseline: 'ours',
  },
  'pool-user': {
    ...userById,
    title: 'GET /users/{id}, by pool size',
    ...{ contestants: POOL_SIZES, baseline: 'ours' },
  },
  'pool-create': {
    ...create,
    title: 'POST /users, by pool size',
    ...{ contestants: POOL_SIZES, baseline: 'ours' },
  },
};

/** Returns a token with its own times, like tokens issued one after another. */
function token(i: number): string {
  const iat = Math.floor(Date.now() / 1000) - i;
  const claims = { id: SETTINGS.AUTH_USER, name: SETTINGS.AUTH_NAME, iat, exp: iat + 86_400 };
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  const hmac = createHmac('sha256', SETTINGS.SIGNING_SECRET).update(signed);
  return `${signed}.${hmac.digest('base64url')}`;
}

function isJson(expected: unknown): (body: string) => void {
  return (body) => assert.deepEqual(JSON.parse(body), expected);
}

function isUser(name: string, email: string): (body: string) => void {
  return (body) => {
    const { id, ...rest } = JSON.parse(body);
    assert(Number.isInteger(id));
    assert.deepEqual(rest, { name, email });
  };
}

function isList(length: number): (body: string) => void {
  return (body) => {
    const users: { id: number }[] = JSON.parse(body);
    assert.deepEqual(
      users.map((user) => user.id),
      Array.from({ length }, (_, i) => i + 1),
    );
    assert.deepEqual(Object.keys(users[0] ?? {}), ['id', 'name', 'email']);
  };
}
