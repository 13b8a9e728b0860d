// Watches comparisons in constant time (contract 3.12).
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import type { TestContext } from 'node:test';

/** Returns a function that returns what was compared since, as pairs of lengths. */
export function comparisons(t: TestContext): () => [given: number, expected: number][] {
  const { mock } = t.mock.method(crypto, 'timingSafeEqual');
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  return () => {
    const lengths = mock.calls.map((call) => call.arguments.map((one) => one.byteLength));
    mock.resetCalls();
    return lengths as [number, number][];
  };
}
