// Calls that run together, on either engine: a checker searches for a serial order that explains their
// results. FAST_CHECK_SEED repeats the random calls of a run, but not the order in which the database ran them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { open } from '../support/open-store.ts';
import { newDatabase } from '../support/program.ts';
import '../support/seed.ts';
import {
  anyCall,
  type Call,
  make,
  runAlone,
  shown,
  sorted,
  type Table,
} from '../support/store-model.ts';

interface Made {
  readonly call: Call;
  readonly result: string;
  readonly began: number;
  readonly ended: number;
}

/**
 * True if the calls, run one at a time in some order, give these results and this table. A call
 * that had ended before another began comes before it.
 */
function isExplained(table: Table, calls: readonly Made[], end: string): boolean {
  if (calls.length === 0) return shown(sorted(table)) === end;
  return calls.some((next) => {
    const rest = calls.filter((call) => call !== next);
    if (rest.some((call) => call.ended < next.began)) return false;
    const alone = runAlone(table, next.call, newIdOf(next));
    return alone.result === next.result && isExplained(alone.table, rest, end);
  });
}

/** Returns the id that a create gave; 0 if it gave none. */
function newIdOf({ call: { kind }, result }: Made): number {
  return kind === 'create' ? Number(/"id":(\d+)/.exec(result)?.[1] ?? 0) : 0;
}

// `id` is the place among the known ids. A call waits so many turns of the event loop first.
const call = fc.tuple(anyCall, fc.constantFrom(0, 0, 0, 0, 1, 2));
const group = fc.array(call, { minLength: 1, maxLength: 6, size: 'max' });

for (const { why, store, count, runs } of [
  { why: 'SQLite in memory', store: undefined, count: 1, runs: 2000 },
  { why: 'SQLite, two stores of one file', store: 'sqlite', count: 2, runs: 200 },
  { why: 'Postgres', store: 'postgres', count: 1, runs: 700 },
  { why: 'Postgres, two stores of one database', store: 'postgres', count: 2, runs: 700 },
] as const) {
  test(`5.0 5.6 calls that run together give the results of some serial order (${why})`, async (t) => {
    const url = store ? await newDatabase(store) : 'sqlite::memory:';
    const stores = await Array.fromAsync({ length: count }, () => open(t, url));
    let table: Table = new Map();
    let newestId = 0;
    // Existing users come first, then recently removed ones.
    let ids: number[] = [];

    const property = fc.asyncProperty(group, async (members) => {
      let time = 0;
      const made = await Promise.all(
        members.map(async ([{ id: nth, ...fields }, turns], i): Promise<Made> => {
          const made = { ...fields, id: nth === 0 ? 0 : (ids[nth - 1] ?? 999_999) };
          for (let i = 0; i < turns; i++) await turn();
          const began = time++;
          const result = await make(stores[i % count]!, made).then(shown, (err) => err.name);
          return { call: made, result, began, ended: time++ };
        }),
      );
      const users = await stores[0]!.list({ after: 0, limit: 1000 });
      const end = shown(users);
      const isGood = isExplained(table, made, end);
      const report = [`before ${shown(sorted(table))}`, ...made.map(shown), `after ${end}`];
      table = new Map(users.map((user) => [user.id, user]));
      const created = made.map(newIdOf).filter((id) => id > 0);
      assert.ok(Math.min(...created, Infinity) > newestId, `5.4 ${created} after ${newestId}`);
      newestId = Math.max(newestId, ...created);
      ids = [...new Set([...table.keys(), ...ids])].slice(0, 6);
      assert.ok(isGood, `no order explains\n${report.join('\n')}`);
    });
    await fc.assert(property, { numRuns: runs, endOnFailure: true });
  });
}
