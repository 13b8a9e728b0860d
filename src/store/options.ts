// What both stores have in common: the options, their end, and what the metrics read.
import type { UserStore } from '../user.ts';

export interface Store extends UserStore {
  // To Postgres; `waiting` are calls that wait for one (7.3).
  readonly connections?: Readonly<Record<'used' | 'idle' | 'limit' | 'waiting', number>>;
  readonly walBytes?: number | undefined; // size of SQLite's write-ahead log (7.3)
  /** Releases files and connections. The outcome of a write that runs is unknown. Call nothing afterwards. */
  close(): Promise<void>;
}

export interface StoreOptions {
  readonly poolSize: number; // number of Postgres connections
  readonly timeoutMs: number; // time limit of each call, queueing included
  readonly now: () => number; // a monotonic clock in milliseconds
  readonly onUnavailable: (cause: unknown) => void; // called once per outage, when it begins
  readonly onAvailable: () => void; // called when the outage ends
  readonly debug: (message: string, fields: Readonly<Record<string, string>>) => void; // logs
  readonly onFatal: (err: Error) => void; // called if this version can never use the database
}
