// Records the duration and the failure of each store operation for the metrics.
import { CallerLeft, EmailTaken, StoreUnavailable, type UserStore } from '../user.ts';
import type { Metrics } from './metrics.ts';

export const OPERATIONS = [
  'create',
  'find',
  'findByEmail',
  'list',
  'update',
  'delete',
  'ping',
] as const;
export type Operation = (typeof OPERATIONS)[number];

/** `timeout`: failed at its deadline. `unavailable`: failed earlier. `_OTHER`: any other error. */
export type Failure = 'timeout' | 'unavailable' | '_OTHER';

/** Returns a store that passes each operation on and records it. */
export function measure(
  store: UserStore,
  timeoutMs: number,
  now: () => number,
  metrics: Pick<Metrics, 'recordOperation'>,
): UserStore {
  const calls = OPERATIONS.map((operation) => {
    const method = store[operation] as (...args: unknown[]) => Promise<unknown>;
    const call: typeof method = (...args) => {
      const startMs = now();
      const called = method.apply(store, args);
      // The caller gets the store's own promise, so it doesn't wait for the recording.
      called.then(
        () => metrics.recordOperation(operation, now() - startMs, undefined),
        (err: unknown) => {
          const ms = now() - startMs;
          metrics.recordOperation(operation, ms, failureOf(err, ms >= timeoutMs));
        },
      );
      return called;
    };
    return [operation, call];
  });
  const measured: Pick<UserStore, Operation> = Object.fromEntries(calls);
  return { ...measured, close: (graceMs) => store.close(graceMs) };
}

function failureOf(err: unknown, isLate: boolean): Failure | undefined {
  if (err instanceof EmailTaken || err instanceof CallerLeft) return undefined;
  if (!(err instanceof StoreUnavailable)) return '_OTHER';
  return isLate ? 'timeout' : 'unavailable';
}
