// The limit on failed credential checks (contract 3.13), with a clock that the tests set: a model with random
// steps, and the limits of the table. FAST_CHECK_SEED repeats a run. The keys of addresses are in
// test/http/address.test.ts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FailureLimiter } from '../../src/auth/limiter.ts';
import { HttpError } from '../../src/http/errors.ts';
import { usedBytes } from '../support/garbage.ts';
import '../support/seed.ts';

const CLIENT = '192.0.2.1';
const MINUTE_MS = 60_000;

function limited(limit: number) {
  const clock = { ms: 1_000_000 };
  const limiter = new FailureLimiter(limit, () => clock.ms);
  /** Returns 'right' or 'wrong' after a check, or the seconds of Retry-After without one. */
  const attempt = (isRight: boolean, client = CLIENT): 'right' | 'wrong' | number => {
    let isChecked = false;
    const check = () => {
      isChecked = true;
      return isRight;
    };
    try {
      return limiter.attempt(client, check) ? 'right' : 'wrong';
    } catch (err) {
      assert.ok(err instanceof HttpError && !isChecked);
      const { status, message, headers } = err;
      assert.deepEqual([status, message, headers[0]], [429, 'Too Many Requests', 'Retry-After']);
      return Number(headers[1]);
    }
  };
  return { clock, attempt };
}

/** The /64s of one /48, each with two addresses. */
const ipv6 = (subnet: number, host = 1) => `2001:db8:7:${subnet.toString(16)}::${host}`;

test('3.13 exactly the rule, for random addresses, pauses and results', () => {
  const step = fc.record({
    pause: fc.oneof(fc.constant(0), fc.nat(5_000), fc.constantFrom(59_999, 60_000, 60_001)),
    isRight: fc.boolean(),
    // One address, or one of each of many /64s.
    first: fc.nat(3),
    count: fc.oneof({ weight: 5, arbitrary: fc.constant(1) }, fc.integer({ min: 60, max: 66 })),
    host: fc.integer({ min: 1, max: 2 }),
    isIpv4: fc.boolean(),
  });
  const steps = fc.array(step, { maxLength: 60, size: 'max' });
  const locks = { network: 0, site: 0 };
  const property = fc.property(fc.nat(4), steps, (limit, all) => {
    const { clock, attempt } = limited(limit);
    const most = limit || Infinity;
    const windows = new Map<string, { failures: number; endMs: number }>();
    const windowOf = (key: string) => {
      const window = windows.get(key);
      return window && window.endMs > clock.ms
        ? window
        : { failures: 0, endMs: clock.ms + MINUTE_MS };
    };
    for (const { pause, isRight, first, count, host, isIpv4 } of all) {
      clock.ms += pause;
      for (let i = first; i < first + (isIpv4 ? 1 : count); i++) {
        const limits = isIpv4 ? { [`v4 ${i}`]: most } : { [`v6 ${i}`]: most, site: 64 * most };
        const ends = Object.entries(limits).map(([key, max]) => {
          const { failures, endMs } = windowOf(key);
          if (failures === max) locks[key === 'site' ? 'site' : 'network']++;
          return failures === max ? endMs : 0;
        });
        const seconds = Math.ceil((Math.max(...ends) - clock.ms) / 1000);
        const expected = seconds > 0 ? seconds : isRight ? 'right' : 'wrong';
        const client = isIpv4 ? `192.0.2.${i}` : ipv6(i, host);
        assert.equal(attempt(isRight, client), expected);
        if (expected !== 'wrong') continue;
        for (const [key, max] of Object.entries(limits)) {
          const window = windowOf(key);
          window.failures++;
          if (window.failures === max) window.endMs = clock.ms + MINUTE_MS;
          windows.set(key, window);
        }
      }
    }
  });
  fc.assert(property, { numRuns: 200 });
  assert.ok(locks.network > 0 && locks.site > 0, JSON.stringify(locks));
});

const LEFT = 'x'.repeat(1000);
/** An address as a part of a longer X-Forwarded-For. */
const ipv4 = (i: number) => {
  const address = `203.${100 + (i >> 14)}.${100 + ((i >> 7) & 127)}.${100 + (i & 127)}`;
  return Buffer.from(LEFT + address)
    .toString('latin1')
    .slice(LEFT.length);
};

test('3.13 exactly the 10,000 addresses that failed last keep their locks, in less than 4 MB', () => {
  const before = usedBytes();
  const { attempt } = limited(1);
  for (let i = 0; i < 20_000; i++) {
    // The clean ones are accepted, and a failure counts as usual.
    assert.equal(attempt(true, ipv4(i)), 'right');
    assert.equal(attempt(false, ipv4(i)), 'wrong');
    assert.equal(attempt(true, ipv4(i)), 60);
  }
  const grown = usedBytes() - before;
  assert.ok(grown < 4 * 2 ** 20, `${grown} bytes`);
  for (let i = 10_000; i < 20_000; i++) assert.equal(attempt(true, ipv4(i)), 60, ipv4(i));
  assert.equal(attempt(true, ipv4(9_999)), 'right');
});

test('3.13 the /64s of a /48 that each fail once do not push out its count', () => {
  const { attempt } = limited(200);
  for (let i = 0; i < 12_800; i++) assert.equal(attempt(false, ipv6(i)), 'wrong');
  assert.equal(attempt(true, ipv6(12_800)), 60);
});
