// The time to read a hostile Accept-Encoding. test/contract/docs.test.ts tests the rules.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compress } from '../../src/http/static.ts';

test('an Accept-Encoding of 16 KiB is read in less than 100 ms of CPU', async () => {
  const document = await compress(Buffer.from('x'), 'text/plain');
  const start = process.cpuUsage();
  for (const text of [',', ' ', 'a ', ';', 'q=0.', 'gzip;q=1,', 'a \t;']) {
    document({ 'accept-encoding': `a${text.repeat(16_384 / text.length)}x` });
  }
  const { user, system } = process.cpuUsage(start);
  assert.ok(user + system < 100_000, `${user + system} microseconds`);
});
