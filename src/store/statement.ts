// Parts that the Postgres statements share: the deadline of a write, the outcome after an error, and
// array parameters. SQLite shares the versions of a condition.
import type { Versions } from '../user.ts';
import type { FailedOutcome } from './batch.ts';

/**
 * Condition of every write. Division by zero rejects a write that arrives past its deadline: it may
 * have waited in the server's socket, where closing the connection does not cancel it. An empty
 * result would be ambiguous. The first parameter is the deadline in seconds of the server's clock.
 */
export const BEFORE_DEADLINE = '1 / (statement_timestamp() < to_timestamp($1::float8))::int = 1'; // 4.13

// SQLSTATE codes (PostgreSQL manual, appendix A).
export const UNIQUE_VIOLATION = '23505';
const DIVISION_BY_ZERO = '22012';
const READ_ONLY_TRANSACTION = '25006';
const DEADLOCK_DETECTED = '40P01';
const QUERY_CANCELED = '57014';

/**
 * Returns the outcome of a statement that failed. Only an ERROR from the server means that it was
 * rolled back. 25006 (the server has become read-only) and 57014 (it cancelled the statement) count
 * as unknown, so that the connection is replaced.
 */
export function outcomeAfter(err: unknown): FailedOutcome {
  const { code, severity } = err as { code?: unknown; severity?: string };
  if (severity !== 'ERROR' || typeof code !== 'string') return 'unknown';
  if (code === DIVISION_BY_ZERO) return 'not started';
  if (code === DEADLOCK_DETECTED) return 'deadlock'; // 5.6
  return code === READ_ONLY_TRANSACTION || code === QUERY_CANCELED ? 'unknown' : 'rolled back';
}

/** Returns an array literal (PostgreSQL manual, section 8.15.2). */
export function array(values: readonly (string | number | undefined)[]): string {
  const elements = values.map((value) => {
    if (value === undefined) return 'null';
    return typeof value === 'number' ? value : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${elements.join(',')}}`;
}

/** Indexes rows by a key. */
export function byKey<Value, Key>(
  rows: readonly Value[],
  key: (row: Value) => Key,
): Map<Key, Value> {
  return new Map(rows.map((row) => [key(row), row]));
}

/** Returns the versions between commas, so that a statement can search for one; `*` for any. */
export function versionList(versions: Versions): string {
  return versions === 'any' ? '*' : `,${versions.join(',')},`;
}
