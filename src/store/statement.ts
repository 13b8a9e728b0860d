// What all statements to Postgres share: parameters, the deadline of a write, deadlocks, and after
// which errors nobody knows what was done.
import { StoreUnavailable } from '../user.ts';
import type { Session } from './connection.ts';

/**
 * A write that reaches the server after its time is over fails by a division by zero: it may have
 * waited in the server's socket, where cutting the connection does not take it back. An empty
 * result would have another meaning. The first parameter is the time in the server's seconds.
 */
export const IN_TIME = '1 / (statement_timestamp() < to_timestamp($1::float8))::int = 1'; // 4.13

/** SQLSTATE (PostgreSQL manual, appendix A) of a value that another row has. */
export const UNIQUE_VIOLATION = '23505';
const DEADLOCK = '40P01';
const DIVISION_BY_ZERO = '22012';
// The server has become read-only; it gave the statement up.
const LOST_CODES = ['25006', '57014'];

/** Times that a statement is run which deadlocks. */
const MAX_ATTEMPTS = 5; // 5.6

class TooLate extends StoreUnavailable {}

/** The statement's rows. One that the server rolled back to end a deadlock is run again. */
export async function query<Row extends object>(
  session: Session,
  text: string,
  values: readonly string[],
): Promise<Row[]> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await session.query<Row>(text, values);
    } catch (err) {
      const { code } = err as { code?: string };
      if (code === DIVISION_BY_ZERO) throw new TooLate('the statement came too late');
      if (code !== DEADLOCK || attempt === MAX_ATTEMPTS) throw err; // 5.6
    }
  }
}

/** An array literal (PostgreSQL manual 8.15.2). */
export function array(values: readonly (string | number | undefined)[]): string {
  const elements = values.map((value) => {
    if (value === undefined) return 'null';
    return typeof value === 'number' ? value : `"${value.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${elements.join(',')}}`;
}

/** The rows by what identifies them. */
export function byKey<Value, Key>(
  rows: readonly Value[],
  key: (row: Value) => Key,
): Map<Key, Value> {
  return new Map(rows.map((row) => [key(row), row]));
}

/** Whether the server refused the statement by IN_TIME: nothing was done. */
export function isTooLate(err: unknown): boolean {
  return err instanceof TooLate;
}

/**
 * Whether nobody knows what became of the statement, or the connection is of no more use: anything
 * but an error that the server gave for the statement alone.
 */
export function isLost(err: unknown): boolean {
  const { code, severity } = err as { code?: unknown; severity?: string };
  if (severity !== 'ERROR' || typeof code !== 'string') return true;
  return LOST_CODES.includes(code);
}
