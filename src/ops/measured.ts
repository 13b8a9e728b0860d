// Records the duration and the failure of each store operation for the metrics.
import { CallerLeft, EmailTaken, StoreUnavailable, type UserStore } from '../user.ts';

export type Operation = Exclude<keyof UserStore, 'close'>;

// An object, so that the compiler reports a missing one.
const MEASURED: Readonly<Record<Operation, true>> = {
  create: true,
  find: true,
  findByEmail: true,
  list: true,
  update: true,
  delete: true,
  ping: true,
};
export const OPERATIONS = Object.keys(MEASURED) as Operation[];

/** `timeout`: failed at its deadline. `unavailable`: failed earlier. `_OTHER`: any other error. */
export type Failure = 'timeout' | 'unavailable' | '_OTHER';

export interface OperationRecorder {
  recordOperation(operation: Operation, ms: number, failure: Failure | undefined): void;
}

type AsyncMethod = (...args: unknown[]) => Promise<unknown>;

/** Returns a store that passes each operation on and records it. */
export function measure(
  store: UserStore,
  timeoutMs: number,
  now: () => number,
  recorder: OperationRecorder,
): UserStore {
  const measured = OPERATIONS.map((operation) => {
    const method = store[operation] as AsyncMethod;
    const call: AsyncMethod = (...args) => {
      const startMs = now();
      const called = method.apply(store, args);
      // The caller gets the store's own promise, so it doesn't wait for the recording.
      called.then(
        () => recorder.recordOperation(operation, now() - startMs, undefined),
        (err: unknown) => {
          const ms = now() - startMs;
          recorder.recordOperation(operation, ms, failureOf(err, ms >= timeoutMs));
        },
      );
      return called;
    };
    return [operation, call];
  });
  return { ...Object.fromEntries(measured), close: (graceMs) => store.close(graceMs) } as UserStore;
}

function failureOf(err: unknown, isLate: boolean): Failure | undefined {
  if (err instanceof EmailTaken || err instanceof CallerLeft) return undefined;
  if (!(err instanceof StoreUnavailable)) return '_OTHER';
  return isLate ? 'timeout' : 'unavailable';
}
