// The failure limit, on a clock that is passed in.
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { Failures } from '../../src/auth/failures.ts';
import { HttpError } from '../../src/http/errors.ts';

const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);
const CLIENT = '192.0.2.1';

/** Failures under a clock that the test sets. */
function limited(limit: number) {
  const clock = { ms: 1_000_000 };
  const failures = new Failures(limit, () => clock.ms);
  /** 'right' or 'wrong' as checked, or the seconds of Retry-After when nothing was checked. */
  const attempt = (isRight: boolean, client = CLIENT): 'right' | 'wrong' | number => {
    try {
      return failures.attempt(client, () => isRight) ? 'right' : 'wrong';
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
  test('3.13 as many failures as the limit are checked, the next attempt is not', () => {
    const { attempt, fail } = limited(3);
    assert.deepEqual(fail(3), ['wrong', 'wrong', 'wrong']);
    assert.equal(attempt(false), 60);
  });

  test('3.13 right credentials are refused too while the lock holds', () => {
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

  test('3.13 0 switches it off', () => {
    const { attempt, fail } = limited(0);
    assert.deepEqual(new Set(fail(10_000)), new Set(['wrong']));
    assert.equal(attempt(true), 'right');
  });

  test('3.13 nothing is checked while the lock holds', () => {
    const failures = new Failures(1, () => 0);
    failures.attempt(CLIENT, () => false);
    assert.throws(() => failures.attempt(CLIENT, () => assert.fail('checked')), { status: 429 });
  });

  test('3.13 a check that throws counts for nothing', () => {
    const failures = new Failures(1, () => 0);
    const broken = () => {
      throw new RangeError('broken');
    };
    assert.throws(() => failures.attempt(CLIENT, broken), RangeError);
    assert.equal(
      failures.attempt(CLIENT, () => true),
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
    for (const { ms, answer } of [
      { ms: 0, answer: 60 },
      { ms: 1, answer: 60 },
      { ms: 999, answer: 59 },
      { ms: 58_999, answer: 1 },
      { ms: 1, answer: 'right' },
    ]) {
      clock.ms += ms;
      assert.equal(attempt(true), answer, String(ms));
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

  test('3.13 attempts during the lock do not make it longer', () => {
    const { clock, attempt, fail } = limited(1);
    fail(1);
    clock.ms += 59_999;
    assert.equal(attempt(false), 1);
    clock.ms += 1;
    assert.equal(attempt(true), 'right');
  });

  test('3.13 after the lock, counting begins anew', () => {
    const { clock, attempt, fail } = limited(2);
    fail(2);
    clock.ms += 60_000;
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 'right');
    assert.equal(attempt(false), 'wrong');
    assert.equal(attempt(true), 60);
  });

  test('3.13 a failure counts for a minute', () => {
    const { clock, attempt, fail } = limited(2);
    fail(1);
    clock.ms += 59_999;
    fail(1);
    assert.equal(attempt(true), 60);
  });

  test('3.13 a failure of a minute ago no longer counts', () => {
    const { clock, attempt, fail } = limited(2);
    fail(1);
    clock.ms += 60_000;
    fail(1);
    assert.equal(attempt(true), 'right');
  });

  test('3.13 no minute holds more failures than the limit, however they come', (t: TestContext) => {
    t.diagnostic(`FAST_CHECK_SEED=${SEED}`);
    const step = fc.record({
      pause: fc.oneof(fc.constant(0), fc.nat(5_000), fc.constantFrom(59_999, 60_000, 60_001)),
      isRight: fc.boolean(),
    });
    const steps = fc.array(step, { maxLength: 60, size: 'max' });
    const property = fc.property(fc.integer({ min: 1, max: 5 }), steps, (limit, all) => {
      const { clock, attempt } = limited(limit);
      const times: number[] = [];
      for (const { pause, isRight } of all) {
        clock.ms += pause;
        const answer = attempt(isRight);
        if (answer === 'wrong') times.push(clock.ms);
        const inMinute = times.filter((time) => time > clock.ms - 60_000).length;
        assert.ok(inMinute <= limit);
        // And nobody below the limit is ever refused.
        if (typeof answer === 'number')
          assert.ok(answer >= 1 && answer <= 60 && times.length >= limit);
      }
    });
    fc.assert(property, { seed: SEED, numRuns: 2000 });
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
    test(`3.13 ${why} have counters of their own`, () => {
      const { attempt, fail } = limited(1);
      fail(1, one);
      assert.equal(attempt(true, other), 'right');
      assert.equal(attempt(true, one), 60);
    });
  }
});

const ipv4 = (i: number) => `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;
const ipv6 = (i: number) => `2001:db8:${(i >> 16).toString(16)}:${(i & 0xffff).toString(16)}::1`;

describe('many addresses', () => {
  for (const { why, address } of [
    { why: 'IPv4', address: ipv4 },
    { why: 'IPv6', address: ipv6 },
  ]) {
    test(`3.13 100,000 ${why} addresses leave less than 8 MB behind`, () => {
      const { fail } = limited(3);
      for (let i = 0; i < 20_000; i++) fail(1, address(i));
      const before = heapBytes();
      for (let i = 20_000; i < 120_000; i++) fail(1, address(i));
      const grown = heapBytes() - before;
      assert.ok(grown < 8 * 2 ** 20, `${grown} bytes`);
      assert.equal(fail(1)[0], 'wrong');
    });

    test(`3.13 100,000 locked ${why} addresses leave less than 8 MB behind`, () => {
      const before = heapBytes();
      const { fail } = limited(1);
      for (let i = 0; i < 100_000; i++) fail(1, address(i));
      const grown = heapBytes() - before;
      assert.ok(grown < 8 * 2 ** 20, `${grown} bytes`);
      assert.equal(typeof fail(1, address(0))[0], 'number');
    });
  }

  test('3.13 a locked address stays locked whatever 100,000 others do', () => {
    const { clock, attempt, fail } = limited(2);
    fail(2);
    for (let i = 0; i < 100_000; i++) fail(1 + (i % 2), ipv4(i));
    clock.ms += 59_999;
    assert.equal(attempt(true), 1);
    clock.ms += 1;
    assert.equal(attempt(true), 'right');
  });

  test('3.13 of 100,000 addresses that reach the limit, none gets past it within the minute', () => {
    const { clock, attempt, fail } = limited(1);
    for (let i = 0; i < 100_000; i++) fail(1, ipv4(i));
    clock.ms += 59_000;
    for (let i = 0; i < 100_000; i++) assert.equal(attempt(true, ipv4(i)), 1, ipv4(i));
  });

  test('3.13 when every place is taken, those that come later share one counter', () => {
    const { attempt, fail } = limited(2);
    for (let i = 0; i < 10_000; i++) fail(2, ipv4(i));
    assert.equal(attempt(false, '192.0.2.1'), 'wrong');
    assert.equal(attempt(false, '192.0.2.2'), 'wrong');
    assert.equal(attempt(true, '192.0.2.3'), 60);
    assert.equal(attempt(true, ipv4(9_999)), 60);
  });

  test('3.13 when the locks have ended, everyone may try again', () => {
    const { clock, attempt, fail } = limited(1);
    for (let i = 0; i < 20_000; i++) fail(1, ipv4(i));
    clock.ms += 60_000;
    for (let i = 0; i < 20_000; i++) assert.equal(attempt(true, ipv4(i)), 'right');
  });

  test('3.13 the address that has been quiet for longest is the one that is forgotten', () => {
    const { attempt, fail } = limited(2);
    fail(1, '192.0.2.1');
    for (let i = 0; i < 9_998; i++) fail(1, ipv4(i));
    fail(1, '192.0.2.2');
    // One more: 192.0.2.1 makes room.
    fail(1, '192.0.2.3');
    assert.deepEqual([fail(1, '192.0.2.2')[0], attempt(true, '192.0.2.2')], ['wrong', 60]);
    assert.deepEqual([fail(1, '192.0.2.1')[0], attempt(true, '192.0.2.1')], ['wrong', 'right']);
  });
});

/** The heap after garbage collection. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}
