// The scenarios: request, contestants, data, and expected response. measure.ts runs them.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { type Name, SETTINGS } from './contestants.ts';
import type { Traffic } from './load.ts';

/** One row of the table. */
export interface Scenario {
  readonly title: string;
  readonly contestants: readonly Name[];
  /** Ratios are relative to this contestant's rate in the same round. */
  readonly baseline: Name;
  readonly connections: number;
  /** Users in the table before a run of that many seconds; undefined without a store. */
  readonly rows?: (seconds: number) => number;
  /** Users that a write adds; 0 if it changes a name. The table is refilled before a run, and counted after it. */
  readonly effect?: 1 | 0 | -1;
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

const ROWS = 10_000;
const JSON_BODY = { 'Content-Type': 'application/json' };

const plain = {
  contestants: ['raw', 'fastify', 'go', 'axum', 'ours', 'ours-log'],
  baseline: 'raw',
  connections: 64,
  status: 200,
  type: 'application/json',
} as const;
const users = {
  ...plain,
  contestants: ['raw-pg', 'raw-sqlite', 'fastify', 'go', 'axum', 'ours', 'ours-log', 'ours-sqlite'],
  baseline: 'raw-pg',
  rows: () => ROWS,
} as const;
const unknownUser: Refused = { path: '/users/2000000000', isByStatement: true, status: 404 };

const userById: Scenario = {
  ...users,
  title: 'GET /users/{id}',
  traffic: { method: 'GET', path: '/users/{id}', headers: {} },
  body: isUser('Name of user 1', 'user-1@bench.example.org'),
  refused: [unknownUser],
};

/** All scenarios by their name for `--scenario`, in the order of the table. */
export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  greeting: {
    ...plain,
    type: 'text/plain',
    title: 'GET /',
    traffic: { method: 'GET', path: '/', headers: {} },
    body: (body) => assert(body),
  },
  notes: {
    ...plain,
    title: 'GET /notes, 20,000 tokens',
    traffic: {
      method: 'GET',
      path: '/notes',
      headers: { Authorization: 'Bearer {token}' },
      tokens: Array.from({ length: 20_000 }, (_, i) => token(i)),
    },
    body(body) {
      const note = { title: SETTINGS.NOTE_TITLE, contents: SETTINGS.NOTE_CONTENTS };
      assert.deepEqual(JSON.parse(body), note);
    },
    refused: [
      { headers: { Authorization: `Bearer ${token(0).slice(0, -6)}AAAAAA` }, status: 401 },
      { headers: { Authorization: `Bearer ${token(100_000)}` }, status: 401 }, // It has expired.
    ],
  },
  token: {
    ...plain,
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
    ...users,
    title: 'GET /users, 100 rows',
    rows: () => 100,
    traffic: { method: 'GET', path: '/users', headers: {} },
    body(body) {
      const list: { id: number }[] = JSON.parse(body);
      assert.deepEqual([list.length, list[0]?.id, list[99]?.id], [100, 1, 100]);
      assert.deepEqual(Object.keys(list[0] ?? {}), ['id', 'name', 'email']);
    },
  },
  create: {
    ...users,
    title: 'POST /users',
    status: 201,
    rows: () => 0,
    effect: 1,
    traffic: {
      method: 'POST',
      path: '/users',
      headers: JSON_BODY,
      body: '{"name":"Name of user {n}","email":"user-{run}-{n}@bench.example.org"}',
    },
    body: isUser('Name of user 1', 'user-check-1@bench.example.org'),
    refused: [
      { isByStatement: true, status: 400 }, // The email is taken by now.
      { body: '{"name":"Nobody","email":"nowhere"}', status: 400 },
      { body: '{"name":"","email":"nobody@bench.example.org"}', status: 400 },
      { body: '{"name":"Nobody"', status: 400 },
    ],
  },
  patch: {
    ...userById,
    title: 'PATCH /users/{id}',
    effect: 0,
    traffic: {
      method: 'PATCH',
      path: '/users/{id}',
      headers: JSON_BODY,
      body: '{"name":"New name {n}"}',
    },
    body: isUser('New name 1', 'user-1@bench.example.org'),
    refused: [
      unknownUser,
      { body: '{"email":"user-2@bench.example.org"}', isByStatement: true, status: 400 },
      { body: '{"name":""}', status: 400 },
    ],
  },
  delete: {
    ...userById,
    title: 'DELETE /users/{id}',
    rows: (seconds) => 200_000 * seconds,
    effect: -1,
    traffic: { method: 'DELETE', path: '/users/{n}', headers: {} },
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

function isUser(name: string, email: string): (body: string) => void {
  return (body) => {
    const { id, ...rest } = JSON.parse(body);
    assert(Number.isInteger(id));
    assert.deepEqual(rest, { name, email });
  };
}
