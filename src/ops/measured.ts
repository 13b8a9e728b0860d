// A store that is measured: calls are passed on unchanged, their time and failure are recorded.
import {
  type Changed,
  type Condition,
  EmailTaken,
  type NewUser,
  type Page,
  StoreUnavailable,
  type User,
  type UserChange,
  type UserStore,
} from '../user.ts';

/** The calls that are measured. */
export const OPERATIONS = [
  'create',
  'find',
  'findByEmail',
  'list',
  'change',
  'remove',
  'ping',
] as const satisfies readonly (keyof UserStore)[];
/** One of OPERATIONS. */
export type Operation = (typeof OPERATIONS)[number];

/**
 * How a call fails: it had all its time, it failed before, or an error that is none of the store's.
 * A taken email is an answer.
 */
export type Failure = 'timeout' | 'unavailable' | '_OTHER';

/** What the clock is, and who is told. */
export interface MeasuredOptions {
  /** The time that a call has. */
  readonly timeoutMs: number;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
  readonly record: (operation: Operation, ms: number, failure: Failure | undefined) => void;
}

/** Passes on and measures. */
export class MeasuredStore implements UserStore {
  readonly #store: UserStore;
  readonly #options: MeasuredOptions;

  constructor(store: UserStore, options: MeasuredOptions) {
    this.#store = store;
    this.#options = options;
  }

  create(user: NewUser): Promise<User> {
    return this.#measure('create', () => this.#store.create(user));
  }

  find(id: number): Promise<User | undefined> {
    return this.#measure('find', () => this.#store.find(id));
  }

  findByEmail(email: string): Promise<User | undefined> {
    return this.#measure('findByEmail', () => this.#store.findByEmail(email));
  }

  list(page: Page): Promise<readonly User[]> {
    return this.#measure('list', () => this.#store.list(page));
  }

  change(id: number, change: UserChange, condition: Condition): Promise<Changed> {
    return this.#measure('change', () => this.#store.change(id, change, condition));
  }

  remove(id: number, condition: Condition): Promise<Changed> {
    return this.#measure('remove', () => this.#store.remove(id, condition));
  }

  ping(): Promise<void> {
    return this.#measure('ping', () => this.#store.ping());
  }

  close(graceMs?: number): Promise<void> {
    return this.#store.close(graceMs);
  }

  /** The caller gets the store's own promise: nobody waits for the measuring. */
  #measure<T>(operation: Operation, call: () => Promise<T>): Promise<T> {
    const { now, timeoutMs, record } = this.#options;
    const startMs = now();
    const answer = call();
    answer.then(
      () => record(operation, now() - startMs, undefined),
      (err: unknown) => {
        const ms = now() - startMs;
        record(operation, ms, failureOf(err, ms >= timeoutMs));
      },
    );
    return answer;
  }
}

function failureOf(err: unknown, isLate: boolean): Failure | undefined {
  if (err instanceof EmailTaken) return undefined;
  if (!(err instanceof StoreUnavailable)) return '_OTHER';
  return isLate ? 'timeout' : 'unavailable';
}
