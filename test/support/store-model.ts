// Random calls of a UserStore, and a model of it: what each returns if the calls run one at a time.
import fc from 'fast-check';
import {
  ALWAYS,
  type Caller,
  type Condition,
  type User,
  type UserChange,
  type UserStore,
} from '../../src/user.ts';
import { newUser, storedUser } from './users.ts';

/** One call. Each kind uses some of the fields. */
export interface Call {
  readonly kind: keyof typeof WEIGHTS | 'ping';
  readonly id: number; // of the user, or the one before a page
  readonly name: string;
  readonly email: string;
  readonly change: UserChange;
  readonly condition: Condition;
  readonly limit: number;
}

/** The users by their ids. */
export type Table = ReadonlyMap<number, User>;

export const shown = (result: unknown): string => JSON.stringify(result) ?? 'nothing';

export function make(store: UserStore, call: Call, caller?: Caller): Promise<unknown> {
  const { kind, id, name, email, change, condition, limit } = call;
  if (kind === 'create') return store.create(newUser({ name, email }), caller);
  if (kind === 'find') return store.find(id, caller);
  if (kind === 'findByEmail') return store.findByEmail(email, caller);
  if (kind === 'list') return store.list({ after: id, limit }, caller);
  if (kind === 'update') return store.update(id, change, condition, caller);
  if (kind === 'delete') return store.delete(id, condition, caller);
  return store.ping(caller);
}

/** Returns the result of a call, or the name of its error, and the table afterwards. A new user gets `newId`. */
export function runAlone(
  table: Table,
  { kind, id, name, email, change, condition, limit }: Call,
  newId: number,
): { readonly table: Table; readonly result: string } {
  const unchanged = (value: unknown) => ({ table, result: shown(value) });
  const owner = (wanted: string) => [...table.values()].find((user) => user.email === wanted);
  if (kind === 'ping') return unchanged(undefined);
  if (kind === 'findByEmail') return unchanged(owner(email));
  if (kind === 'list') {
    const following = sorted(table).filter((user) => user.id > id);
    return unchanged(following.slice(0, limit));
  }
  if (kind === 'create') {
    if (owner(email)) return { table, result: 'EmailTaken' };
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

export function sorted(table: Table): User[] {
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
export const anyCall = fc.record({
  kind: fc.constantFrom(...(KINDS as Call['kind'][])),
  id: fc.nat(8),
  name,
  email,
  change: fc.record({ name, email }, { requiredKeys: [] }),
  condition,
  limit: fc.constantFrom(1, 2, 100),
});
