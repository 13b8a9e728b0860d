// One fault, again and again, under writers, and what must hold of every fault between the service
// and Postgres: it lives, answers in time, heals, loses nothing, does nothing twice and nothing late.
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Program, start } from '../support/program.ts';
import { Ledger } from './ledger.ts';
import { report, secondsSince } from './results.ts';
import { query, usersIn } from './users.ts';
import { Writers } from './writers.ts';

/** DATABASE_TIMEOUT_MS of the service unless the campaign says otherwise. */
export const TIMEOUT_MS = 1000;
export const WRITERS = 16;

/** What contract 4.13 allows beyond DATABASE_TIMEOUT_MS. */
const GRACE_MS = 1000;
const HEAL_SECONDS = 2;

/** One fault. */
export interface Campaign {
  readonly fault: string;
  readonly times: number;
  /** What the service is given. */
  readonly databaseUrl: string;
  /** The same database for the test itself, around the fault. */
  readonly directUrl?: string;
  readonly env?: Record<string, string>;
  /** Whether writers are answered 500 meanwhile. */
  readonly refuses: boolean;
  /** The longest time from its end to the next success; 2 s unless the fault explains more. */
  readonly healSeconds?: number;
  /** Puts the fault, makes sure that it has landed, and resolves at its end. */
  readonly inject: (writers: Writers, i: number, program: Program) => Promise<void>;
}

/** Runs a campaign, checks all that must hold, and reports it. */
export async function run(t: TestContext, campaign: Campaign): Promise<void> {
  const { fault, times, databaseUrl, inject, refuses } = campaign;
  const directUrl = campaign.directUrl ?? databaseUrl;
  const env = { DATABASE_TIMEOUT_MS: String(TIMEOUT_MS), ...campaign.env };
  const timeoutMs = Number(env.DATABASE_TIMEOUT_MS);
  await using program = await start({ ...env, DATABASE_URL: databaseUrl });
  const ledger = new Ledger();
  const writers = new Writers(ledger, program.url, WRITERS);
  await writers.progress(1);
  await stampRows(directUrl);
  let healSeconds = 0;
  let landed = 0;
  for (let i = 0; i < times; i++) {
    await writers.progress(4 * WRITERS);
    await pause(Math.random() * 100);
    if (writers.inFlight > 0) landed++;
    const lines = count(program, 'store unavailable');
    await inject(writers, i, program);
    const began = performance.now();
    await writers.progress(1);
    healSeconds = Math.max(healSeconds, secondsSince(began));
    // One line when the store is gone, not one a try.
    assert.ok(count(program, 'store unavailable') <= lines + 1);
  }
  await writers.stop();
  assert.equal(landed, times, 'no write was on its way');
  assert.deepEqual([program.process.exitCode, program.process.signalCode], [null, null]);
  assert.deepEqual([writers.surprises, writers.broken], [[], 0]);
  assert.equal(writers.refused.size > 0, refuses, `${writers.refused.size} creations refused`);
  const latest = timeoutMs + GRACE_MS;
  assert.ok(writers.slowestMs < latest, `an answer after ${writers.slowestMs} ms`);
  assert.ok(healSeconds < (campaign.healSeconds ?? HEAL_SECONDS), `healed after ${healSeconds} s`);
  assert.deepEqual(await lateIn(directUrl, writers.refused, timeoutMs), []);
  const findings = ledger.check(await usersIn(directUrl));
  assert.deepEqual(findings, { lost: [], duplicated: [] });
  const { acknowledged } = ledger;
  const store = 'postgres';
  report(t, { fault, store, injected: landed, acknowledged, lost: 0, duplicated: 0, healSeconds });
}

function count(program: Program, message: string): number {
  return program.log.filter((line) => line.message === message).length;
}

/** From now on every new row tells when it was made. */
async function stampRows(databaseUrl: string): Promise<void> {
  await query(
    databaseUrl,
    'alter table users add column stored_at timestamptz default clock_timestamp()',
  );
}

/** Users that were made later than `allowedMs` after their creation was answered 500. */
async function lateIn(
  databaseUrl: string,
  refused: ReadonlyMap<string, number>,
  allowedMs: number,
): Promise<string[]> {
  const rows = await query(
    databaseUrl,
    'select email, extract(epoch from stored_at)::float8 * 1000 as "storedMs" from users',
  );
  const lateBy = ({ email, storedMs }: Record<string, unknown>) =>
    Number(storedMs) - (refused.get(String(email)) ?? Number.POSITIVE_INFINITY) - allowedMs;
  return rows
    .filter((row) => lateBy(row) > 0)
    .map((row) => `${row.email}: ${Math.round(lateBy(row))} ms too late`);
}
