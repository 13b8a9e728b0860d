// Node's timers and clocks, taken when this module is loaded. Fake timers that a test suite installs later
// don't reach the service (9.9). In jsdom the global timers are not node's.
import timers from 'node:timers';
import promises from 'node:timers/promises';

const RealDate = Date;

export const { setTimeout, clearTimeout, setInterval, clearInterval } = timers;
export const { setImmediate, clearImmediate } = timers;
export const { queueMicrotask } = globalThis;
export const sleep = promises.setTimeout;
export const nextTurn = promises.setImmediate;

/** A monotonic clock in milliseconds. */
export const now = performance.now.bind(performance);
/** The Unix time in milliseconds. */
export const unixMs = RealDate.now;
export const dateOf = (ms: number): Date => new RealDate(ms);
