// The limit on failed credential checks, with an injected clock.
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { FailureLimiter } from '../../src/auth/limiter.ts';
import { HttpError } from '../../src/http/errors.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);
const CLIENT = '192.0.2.1';

/** Returns a limiter with a clock that the test sets. */
function limited(limit: number) {
  const clock = { ms: 1_000_000 };
  const limiter = new FailureLimiter(limit, () => clock.ms);
  /** Returns 'right' or 'wrong' after a check, or the seconds of Retry-After without a check. */
  const attempt = (isRight: boolean, client = CLIENT): 'right' | 'wrong' | number => {
    try {
      return limiter.attempt(client, () => isRight) ? 'right' : 'wrong';
    } catch (err) {
      assert.ok(err instanceof HttpError && err.status === 429);
      assert.equal(err.message, 'Too Many Requests');
      assert.equal(err.headers[0], 'Retry-After');
      return Number(err.headers[1]);
    }
  };
  const fail = (times: number, client = CLIENT) =>
    Array.from({ length: times }, () => attempt(false, client));
  return { clock, attempt, fail };
}

describe('the limit', () => {
  test('3.13 attempts are checked up to the limit of failures, and not after it', () => {
    const { attempt, fail } = limited(3);
    assert.deepEqual(fail(3), ['wrong', 'wrong', 'wrong']);
    assert.equal(attempt(false), 60);
  });

  test('3.13 correct credentials are refused too during the lock', () => {
    const { attempt, fail } = limited(1);
    fail(1);
    assert.equal(attempt(true), 60);
  });

  test('3.13 one failure below the limit locks nothing', () => {
    const { attempt, fail } = limited(3);
    fail(2);
    assert.equal(attempt(true), 'right');
  });

  test('3.13 a success does not count', () => {
    const { attempt } = limited(2);
    for (let i = 0; i < 100; i++) assert.equal(attempt(true), 'right');
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 'right');
  });

  test('3.13 a success does not reset', () => {
    const { attempt } = limited(2);
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 'right');
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 60);
  });

  test('3.13 0 disables it', () => {
    const { attempt, fail } = limited(0);
    assert.deepEqual(new Set(fail(10_000)), new Set(['wrong']));
    assert.equal(attempt(true), 'right');
  });

  test('3.13 nothing is checked during the lock', () => {
    const limiter = new FailureLimiter(1, () => 0);
    limiter.attempt(CLIENT, () => false);
    assert.throws(() => limiter.attempt(CLIENT, () => assert.fail('checked')), { status: 429 });
  });

  test('3.13 a check that throws does not count', () => {
    const limiter = new FailureLimiter(1, () => 0);
    const broken = () => {
      throw new RangeError('broken');
    };
    assert.throws(() => limiter.attempt(CLIENT, broken), RangeError);
    assert.equal(
      limiter.attempt(CLIENT, () => true),
      true,
    );
  });
});

describe('time', () => {
  test('3.13 the lock ends a minute after the failure that reached the limit', () => {
    const { clock, attempt, fail } = limited(2);
    fail(1);
    clock.ms += 30_000;
    fail(1);
    for (const { ms, result } of [
      { ms: 0, result: 60 },
      { ms: 1, result: 60 },
      { ms: 999, result: 59 },
      { ms: 58_999, result: 1 },
      { ms: 1, result: 'right' },
    ]) {
      clock.ms += ms;
      assert.equal(attempt(true), result, String(ms));
    }
  });

  test('3.13 Retry-After is a whole number of seconds that is long enough', () => {
    const { clock, attempt, fail } = limited(1);
    fail(1);
    clock.ms += 12_345.678;
    const seconds = attempt(true);
    assert.equal(seconds, 48);
    clock.ms += Number(seconds) * 1000;
    assert.equal(attempt(true), 'right');
  });

  test('3.13 attempts during the lock do not extend it', () => {
    const { clock, attempt, fail } = limited(1);
    fail(1);
    clock.ms += 59_999;
    assert.equal(attempt(false), 1);
    clock.ms += 1;
    assert.equal(attempt(true), 'right');
  });

  test('3.13 after the lock, counting starts again', () => {
    const { clock, attempt, fail } = limited(2);
    fail(2);
    clock.ms += 60_000;
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 'right');
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 60);
  });

  test('3.13 failures count from the first one on, for a minute', () => {
    const { clock, attempt, fail } = limited(2);
    fail(1);
    clock.ms += 59_999;
    fail(1);
    assert.equal(attempt(true), 60);
    clock.ms += 60_000;
    fail(1);
    clock.ms += 60_000;
    fail(1);
    assert.equal(attempt(true), 'right');
  });

  test('3.13 exactly the rule, in any pattern of addresses, pauses and results', (t: TestContext) => {
    t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
    const step = fc.record({
      pause: fc.oneof(fc.constant(0), fc.nat(5_000), fc.constantFrom(59_999, 60_000, 60_001)),
      client: fc.constantFrom('192.0.2.1', '192.0.2.2', '2001:db8::1', '2001:db8:0:1::1', 'x'),
      isRight: fc.boolean(),
    });
    const steps = fc.array(step, { maxLength: 60, size: 'max' });
    let locks = 0;
    const property = fc.property(fc.integer({ min: 1, max: 5 }), steps, (limit, all) => {
      const { clock, attempt } = limited(limit);
      const windows = new Map<string, { count: number; endMs: number }>();
      for (const { pause, client, isRight } of all) {
        clock.ms += pause;
        const known = windows.get(client);
        const window =
          known && known.endMs > clock.ms ? known : { count: 0, endMs: clock.ms + 60_000 };
        windows.set(client, window);
        const result = attempt(isRight, client);
        if (window.count === limit) {
          locks++;
          assert.equal(result, Math.ceil((window.endMs - clock.ms) / 1000));
          continue;
        }
        assert.equal(result, isRight ? 'right' : 'wrong');
        if (isRight && window.count === 0) windows.delete(client);
        if (isRight) continue;
        window.count++;
        if (window.count === limit) window.endMs = clock.ms + 60_000;
      }
    });
    fc.assert(property, { seed: SEED, numRuns: 2000 });
    assert.ok(locks > 0);
  });
});

describe('addresses', () => {
  for (const { why, one, other } of [
    {
      why: 'two addresses of an IPv6 /64',
      one: '2001:db8:0:1::1',
      other: '2001:db8:0:1:ffff:ffff:ffff:ffff',
    },
    { why: 'an IPv6 address in two spellings', one: '2001:db8::1', other: '2001:0DB8:0:0:0:0:0:1' },
    { why: 'an IPv6 address with and without a zone', one: 'fe80::1', other: 'fe80::1%eth0' },
  ]) {
    test(`3.13 ${why} share a counter`, () => {
      const { attempt, fail } = limited(1);
      fail(1, one);
      assert.equal(attempt(true, other), 60);
    });
  }

  for (const { why, one, other } of [
    { why: 'two IPv4 addresses', one: '192.0.2.1', other: '192.0.2.2' },
    { why: 'two IPv6 /64', one: '2001:db8:0:1::1', other: '2001:db8:0:2::1' },
    { why: 'an IPv4 address and ::1', one: '0.0.0.1', other: '::1' },
    { why: 'no address and an address', one: '', other: '192.0.2.1' },
  ]) {
    test(`3.13 ${why} have separate counters`, () => {
      const { attempt, fail } = limited(1);
      fail(1, one);
      assert.equal(attempt(true, other), 'right');
      assert.equal(attempt(true, one), 60);
    });
  }
});

/** The /64s of 2001:db8:7::/48. */
const subnet = (i: number) => `2001:db8:7:${i.toString(16)}::1`;

describe('an IPv6 /48', () => {
  test('3.13 failures up to 64 times the limit are checked', () => {
    const { attempt, fail } = limited(5);
    const results = Array.from({ length: 50_006 }, (_, i) => fail(1, subnet(i % 65_536))[0]);
    assert.equal(results.filter((result) => result === 'wrong').length, 64 * 5);
    assert.equal(attempt(true, '192.0.2.9'), 'right');
    assert.equal(attempt(true, '2001:db8:8::1'), 'right');
  });

  test('3.13 64 addresses can use up the limit, and the 65th is refused without a check', () => {
    const { attempt, fail } = limited(2);
    for (let i = 0; i < 64; i++) {
      assert.equal(attempt(true, subnet(64)), 'right', String(i));
      assert.deepEqual(fail(2, subnet(i)), ['wrong', 'wrong']);
    }
    assert.equal(attempt(true, subnet(64)), 60);
  });

  test('3.13 its lock ends after a minute, and counting starts again', () => {
    const { clock, attempt, fail } = limited(1);
    for (let i = 0; i < 64; i++) fail(1, subnet(i));
    clock.ms += 59_999;
    assert.equal(attempt(true, subnet(64)), 1);
    clock.ms += 1;
    for (let i = 0; i < 64; i++) assert.equal(attempt(false, subnet(i)), 'wrong');
    assert.equal(attempt(true, subnet(64)), 60);
  });

  test('3.13 a locked address in it does not lock its neighbours', () => {
    const { attempt, fail } = limited(1);
    fail(1, subnet(0));
    assert.equal(attempt(true, subnet(0)), 60);
    assert.equal(attempt(true, subnet(1)), 'right');
  });

  test('3.13 a refusal without a check does not count for it', () => {
    const { attempt, fail } = limited(1);
    fail(1_000, subnet(0));
    for (let i = 1; i < 63; i++) fail(1, subnet(i));
    assert.equal(attempt(true, subnet(63)), 'right');
    fail(1, subnet(63));
    assert.equal(attempt(true, subnet(64)), 60);
  });
});

describe('many addresses', () => {
  const ipv4 = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;
  /** IPv6 addresses, each in its own /48. */
  const ipv6 = (i: number) => `2001:${(i >> 16).toString(16)}:${(i & 0xffff).toString(16)}::1`;

  for (const { why, address } of [
    { why: 'IPv4', address: ipv4 },
    { why: 'IPv6', address: ipv6 },
  ]) {
    test(`3.13 a clean address is accepted while 50,000 ${why} addresses are locked`, () => {
      const { attempt, fail } = limited(1);
      for (let i = 0; i < 50_000; i++) fail(1, address(i));
      for (const clean of ['192.0.2.1', '2001:ffff::1', address(50_000)]) {
        assert.equal(attempt(true, clean), 'right', clean);
      }
      // A wrong guess counts for this address as usual.
      assert.deepEqual(fail(1, '192.0.2.1'), ['wrong']);
      assert.equal(attempt(true, '192.0.2.1'), 60);
    });
  }

  test('3.13 50,000 addresses take less than 4 MB', () => {
    const before = usedBytes();
    const { fail } = limited(1);
    for (let i = 0; i < 50_000; i++) fail(1, ipv6(i));
    const grown = usedBytes() - before;
    assert.ok(grown < 4 * 2 ** 20, `${grown} bytes`);
    assert.equal(typeof fail(1, ipv6(49_999))[0], 'number');
  });

  test('3.13 the 10,000 addresses that failed last keep their locks', () => {
    const { attempt, fail } = limited(1);
    for (let i = 0; i < 10_001; i++) fail(1, ipv4(i));
    for (let i = 1; i < 10_001; i++) assert.equal(attempt(true, ipv4(i)), 60, ipv4(i));
    assert.equal(attempt(true, ipv4(0)), 'right');
  });
});

/** Returns the bytes of the heap and buffers after garbage collection. */
function usedBytes(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
