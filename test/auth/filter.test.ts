// A set of keys that expire, in constant memory.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExpiringFilter } from '../../src/auth/filter.ts';

const KEEP_MS = 1000;

test('a key is kept for at least the configured time, and at most twice that', () => {
  const filter = new ExpiringFilter(KEEP_MS);
  filter.add('first', 0);
  filter.add('last', KEEP_MS - 1);
  assert.deepEqual([filter.remainingMs('first', 0), filter.remainingMs('last', 0)], [2000, 2000]);
  assert.equal(filter.remainingMs('last', 2 * KEEP_MS - 1), 1);
  assert.equal(filter.remainingMs('last', 2 * KEEP_MS), 0);
});

test('a key that is added again is kept from that time', () => {
  const filter = new ExpiringFilter(KEEP_MS);
  for (let now = 0; now < 10 * KEEP_MS; now += KEEP_MS / 4) {
    filter.add('key', now);
    assert.ok(filter.remainingMs('key', now) > KEEP_MS);
  }
});

test('the filter has no key before the first is added and after the last has expired', () => {
  const filter = new ExpiringFilter(KEEP_MS);
  assert.equal(filter.remainingMs('key', 0), 0);
  filter.add('key', 0);
  filter.add('key', KEEP_MS);
  assert.equal(filter.remainingMs('key', 3 * KEEP_MS - 1), 1);
  assert.equal(filter.remainingMs('key', 3 * KEEP_MS), 0);
});

test('a third generation replaces the first', () => {
  const filter = new ExpiringFilter(KEEP_MS);
  for (let now = 0; now <= 2 * KEEP_MS; now += KEEP_MS) filter.add(String(now), now);
  assert.deepEqual(
    [0, KEEP_MS, 2 * KEEP_MS].map((key) => filter.remainingMs(String(key), 2 * KEEP_MS)),
    [0, KEEP_MS, 2 * KEEP_MS],
  );
});

test('it finds each of half a million keys, and at most 10 of 100,000 others', () => {
  const filter = new ExpiringFilter(KEEP_MS);
  for (let i = 0; i < 500_000; i++) filter.add(`in ${i}`, 0);
  for (let i = 0; i < 500_000; i += 10) assert.ok(filter.remainingMs(`in ${i}`, 0) > 0);
  let found = 0;
  // The probability of a false match is 1 in 50,000.
  for (let i = 0; i < 100_000; i++) if (filter.remainingMs(`out ${i}`, 0) > 0) found++;
  assert.ok(found <= 10, `${found} of 100,000`);
});
