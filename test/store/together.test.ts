// Calls that run together, on either engine: a checker searches for a serial order that explains their
// results. FAST_CHECK_SEED repeats the random calls of a run, but not the order in which the database ran them.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  ALWAYS,
  type Condition,
  type User,
  type UserChange,
  type UserStore,
} from '../../src/user.ts';
import { open } from '../support/open-store.ts';
import { createDatabase } from '../support/postgres.ts';
import { newFolder } from '../support/program.ts';
import { execute } from '../support/service.ts';
import { newUser, storedUser } from '../support/users.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);

/** One call of a UserStore. Each kind uses some of the fields. */
interface Call {
  readonly kind: 'create' | 'find' | 'findByEmail' | 'list' | 'update' | 'delete';
  readonly id: number;
  readonly name: string;
  readonly email: string;
  readonly change: UserChange;
  readonly condition: Condition;
  readonly limit: number;
}

/** A finished call: its result as JSON, its start and its end. */
interface Made {
  readonly call: Call;
  readonly result: string;
  readonly began: number;
  readonly ended: number;
}

type Table = ReadonlyMap<number, User>;

const shown = (result: unknown): string => JSON.stringify(result) ?? 'nothing';

function make(store: UserStore, call: Call): Promise<unknown> {
  const { kind, id, name, email, change, condition, limit } = call;
  if (kind === 'create') return store.create(newUser({ name, email }));
  if (kind === 'find') return store.find(id);
  if (kind === 'findByEmail') return store.findByEmail(email);
  if (kind === 'list') return store.list({ after: id, limit });
  if (kind === 'update') return store.update(id, change, condition);
  return store.delete(id, condition);
}

/** Returns the table after a call that runs alone, and the result. A create uses the store's id. */
function runAlone(
  table: Table,
  { call, result }: Made,
  newestId: number,
): { table: Table; result: string } {
  const { kind, id, name, email, change, condition, limit } = call;
  const users = sorted(table);
  const owner = (wanted: string | undefined) => users.find((user) => user.email === wanted);
  const unchanged = (value: unknown) => ({ table, result: shown(value) });
  if (kind === 'findByEmail') return unchanged(owner(email));
  if (kind === 'list') return unchanged(users.filter((user) => user.id > id).slice(0, limit));
  if (kind === 'create') {
    if (owner(email)) return { table, result: 'EmailTaken' };
    const newId = Number(/"id":(\d+)/.exec(result)?.[1]);
    if (!(newId > newestId) || table.has(newId)) return { table, result: 'a new id' }; // 5.4
    const user = storedUser({ name, email, id: newId });
    return { table: new Map(table).set(newId, user), result: shown(user) };
  }
  const user = table.get(id);
  if (kind === 'find' || user === undefined) return unchanged(user);
  const { oneOf, noneOf } = condition;
  const { version } = user;
  const isRefused = noneOf === 'any' || noneOf.includes(version);
  if (isRefused || !(oneOf === 'any' || oneOf.includes(version))) return unchanged('stale');
  const rest = new Map(table);
  if (kind === 'delete') {
    rest.delete(id);
    return { table: rest, result: shown(user) };
  }
  const next = { ...user, ...change };
  if (![undefined, id].includes(owner(next.email)?.id)) return { table, result: 'EmailTaken' };
  const changed = { ...next, version: version + (shown(next) === shown(user) ? 0 : 1) };
  return { table: rest.set(id, changed), result: shown(changed) };
}

/**
 * True if the calls, run one at a time in some order, give these results and this table. A call
 * that had ended before another began comes before it.
 */
function isExplained(table: Table, calls: readonly Made[], end: string, newestId: number): boolean {
  if (calls.length === 0) return shown(sorted(table)) === end;
  return calls.some((next) => {
    const rest = calls.filter((call) => call !== next);
    if (rest.some((call) => call.ended < next.began)) return false;
    const alone = runAlone(table, next, newestId);
    return alone.result === next.result && isExplained(alone.table, rest, end, newestId);
  });
}

function sorted(table: Table): User[] {
  return [...table.values()].toSorted((a, b) => a.id - b.id);
}

const name = fc.constantFrom('A', 'B', 'C');
const email = fc.constantFrom('a@x', 'b@x', 'c@x', 'd@x');
const version = fc.integer({ min: 1, max: 4 });
const condition: fc.Arbitrary<Condition> = fc.oneof(
  { weight: 5, arbitrary: fc.constant(ALWAYS) },
  { weight: 3, arbitrary: version.map((v) => ({ oneOf: [v], noneOf: [] })) },
  { weight: 1, arbitrary: fc.tuple(version, version).map((oneOf) => ({ oneOf, noneOf: [] })) },
  { weight: 1, arbitrary: version.map((v): Condition => ({ oneOf: 'any', noneOf: [v] })) },
  fc.constantFrom<Condition>({ oneOf: [], noneOf: [] }, { oneOf: 'any', noneOf: 'any' }),
);
const WEIGHTS = { create: 4, find: 2, findByEmail: 1, list: 1, update: 5, delete: 2 };
const KINDS = Object.entries(WEIGHTS).flatMap(([kind, weight]) => Array(weight).fill(kind));
const call = fc.record({
  kind: fc.constantFrom(...(KINDS as Call['kind'][])),
  nth: fc.nat(7), // of the known ids
  name,
  email,
  change: fc.record({ name, email }, { requiredKeys: [] }),
  condition,
  limit: fc.constantFrom(1, 2, 100),
  turns: fc.constantFrom(0, 0, 0, 0, 1, 2), // of the event loop that it waits first
});
const group = fc.array(call, { minLength: 1, maxLength: 6, size: 'max' });

const newFile = async () => `sqlite:${join(newFolder(), 'service.db')}`;
const isolated = (level: string) => async () => {
  const url = await createDatabase();
  const name = new URL(url).pathname.slice(1);
  await execute(url, `alter database ${name} set default_transaction_isolation = '${level}'`);
  return url;
};

for (const { why, newUrl, count, runs } of [
  { why: 'SQLite in memory', newUrl: async () => 'sqlite::memory:', count: 1, runs: 2000 },
  { why: 'SQLite, two stores of one file', newUrl: newFile, count: 2, runs: 200 },
  { why: 'Postgres', newUrl: createDatabase, count: 1, runs: 700 },
  { why: 'Postgres, two stores of one database', newUrl: createDatabase, count: 2, runs: 700 },
  ...['repeatable read', 'serializable'].map((level) => ({
    ...{ why: `Postgres, two stores, ${level}`, newUrl: isolated(level), count: 2, runs: 200 },
  })),
]) {
  test(`5.0 5.6 calls that run together give the results of some serial order (${why})`, async (t) => {
    t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
    const url = await newUrl();
    const stores: UserStore[] = [];
    for (let i = 0; i < count; i++) stores.push(await open(t, url));
    let table: Table = new Map();
    let newestId = 0;
    // Existing users come first, then recently removed ones.
    let ids: number[] = [];

    const property = fc.asyncProperty(group, async (members) => {
      let time = 0;
      const made = await Promise.all(
        members.map(async ({ nth, turns, ...fields }, i): Promise<Made> => {
          const made = { ...fields, id: nth === 0 ? 0 : (ids[nth - 1] ?? 999_999) };
          for (let turn = 0; turn < turns; turn++)
            await new Promise((resolve) => setImmediate(resolve));
          const began = time++;
          const result = await make(stores[i % count]!, made).then(shown, (err) => err.name);
          return { call: made, result, began, ended: time++ };
        }),
      );
      const users = await stores[0]!.list({ after: 0, limit: 1000 });
      const end = shown(users);
      const isGood = isExplained(table, made, end, newestId);
      const report = [`before ${shown(sorted(table))}`, ...made.map(shown), `after ${end}`];
      table = new Map(users.map((user) => [user.id, user]));
      const created = made.map(({ call: { kind }, result }) =>
        kind === 'create' ? Number(/"id":(\d+)/.exec(result)?.[1] ?? 0) : 0,
      );
      newestId = Math.max(newestId, ...created, ...table.keys());
      ids = [...new Set([...table.keys(), ...ids])].slice(0, 6);
      assert.ok(isGood, `no order explains\n${report.join('\n')}`);
    });
    await fc.assert(property, { seed: SEED, numRuns: runs, endOnFailure: true });
  });
}
