// The scenarios: which request, to whom, over what data, and what the right answer is. A scenario
// is data; measure.ts runs it. `million` and `start` are of another kind and have their own files.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { SETTINGS } from './contestants.ts';
import type { Traffic } from './load.ts';

/** One line of the result tables. */
export interface Scenario {
  readonly title: string;
  readonly contestants: readonly string[];
  /** The contestant whose rate in the same round is 1. */
  readonly baseline: string;
  readonly store: 'none' | 'postgres' | 'sqlite';
  /** Emulates a disk whose fsync takes 2 ms. */
  readonly slowFsync?: boolean;
  readonly connections: number;
  /** Users in the table before a run; with `perSecond`, that many for each second of the run. */
  readonly rows?: number | { readonly perSecond: number };
  /** What a request does to the number of users: checked against the table after the run. */
  readonly effect?: 1 | -1;
  /** True: the table is filled anew before every run. */
  readonly writes?: boolean;
  readonly traffic: Traffic;
  readonly status: number;
  readonly type: 'text/plain' | 'application/json';
  /** Throws when the body is not the right answer to the request's first instance. */
  readonly body: (body: string) => void;
}

const PLAIN = ['raw', 'express', 'fastify', 'hono', 'elysia', 'ours'];
const POSTGRES = ['raw-pg', 'express', 'fastify', 'fastify-pg', 'hono', 'elysia', 'ours'];
const ROWS = 10_000;
const JSON_BODY = { 'Content-Type': 'application/json' };
const NEW_USER = '{"name":"Name of user {n}","email":"user-{run}-{n}@bench.example.org"}';

const plain = { contestants: PLAIN, baseline: 'raw', store: 'none', connections: 64 } as const;
const onPostgres = {
  contestants: POSTGRES,
  baseline: 'raw-pg',
  store: 'postgres',
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
};
const userById: Scenario = {
  ...onPostgres,
  title: 'GET /users/{id}',
  rows: ROWS,
  traffic: { method: 'GET', path: '/users/{id}', headers: {} },
  body: isUser('Name of user 1', 'user-1@bench.example.org'),
};
const create: Scenario = {
  ...onPostgres,
  title: 'POST /users',
  status: 201,
  rows: 0,
  effect: 1,
  writes: true,
  traffic: { method: 'POST', path: '/users', headers: JSON_BODY, body: NEW_USER },
  body: isUser('Name of user 1', 'user-check-1@bench.example.org'),
};
const createSqlite: Scenario = {
  ...create,
  title: 'POST /users on SQLite, against one commit a request',
  contestants: ['raw-sqlite', 'ours'],
  baseline: 'raw-sqlite',
  store: 'sqlite',
};
const basic = Buffer.from(`${SETTINGS.AUTH_USER}:${SETTINGS.AUTH_PASSWORD}`).toString('base64');

/** All scenarios by the name that `--scenario` takes, in the order of the report. */
export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  greeting,
  protected: {
    ...greeting,
    title: 'GET /protected',
    traffic: { method: 'GET', path: '/protected', headers: { Authorization: `Basic ${basic}` } },
  },
  notes,
  'notes-20k': {
    ...notes,
    title: 'GET /notes, 20,000 tokens',
    traffic: {
      ...notes.traffic,
      headers: { Authorization: 'Bearer {token}' },
      tokens: Array.from({ length: 20_000 }, (_, i) => token(i)),
    },
  },
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
  },
  'user-by-id': userById,
  'user-by-id-1': { ...userById, title: 'GET /users/{id}, 1 connection', connections: 1 },
  'list-100': {
    ...userById,
    title: 'GET /users, 100 rows',
    rows: 100,
    traffic: { method: 'GET', path: '/users', headers: {} },
    body: isList(100),
  },
  create,
  'create-2ms': { ...create, title: 'POST /users, fsync of 2 ms', slowFsync: true },
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
  },
  delete: {
    ...userById,
    title: 'DELETE /users/{id}',
    rows: { perSecond: 60_000 },
    effect: -1,
    writes: true,
    traffic: { method: 'DELETE', path: '/users/{n}', headers: {} },
  },
  'create-sqlite': createSqlite,
  'create-sqlite-2ms': {
    ...createSqlite,
    title: 'POST /users on SQLite, fsync of 2 ms',
    slowFsync: true,
  },
  log: {
    ...greeting,
    title: 'GET /, log on against log off',
    contestants: ['ours', 'ours-log'],
    baseline: 'ours',
  },
};

/** A token that differs from every other by its times, as tokens issued one after another do. */
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
