// Node's timers and clocks, taken when this module is loaded. Fake timers that a test suite installs later
// don't reach the service (9.9).
import timers from 'node:timers/promises';

const RealDate = Date;

export const { setTimeout, clearTimeout, setInterval, clearInterval } = globalThis;
export const { setImmediate, clearImmediate, queueMicrotask } = globalThis;
export const sleep = timers.setTimeout;
export const nextTurn = timers.setImmediate;

/** A monotonic clock in milliseconds. */
export const now = performance.now.bind(performance);
/** The Unix time in milliseconds. */
export const unixMs = RealDate.now;
export const dateOf = (ms: number): Date => new RealDate(ms);
