// Heads that are served or refused, against a service in this process, as in users.ts. In `npm test` it runs against the
// program (test/contract/http.test.ts).
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { start } from '../../src/start.ts';
import { exchange, outcomes } from '../support/bytes.ts';
import { ACCEPTED, REFUSED } from '../vectors/messages.ts';

const service = await start();
after(() => service.close());

const accepted = ACCEPTED.map(([bytes, why]) => [bytes, 200, why] as const);
for (const [bytes, status, why] of [...accepted, ...REFUSED]) {
  test(`${why} returns ${status}`, async () => {
    assert.deepEqual(outcomes(await exchange(service.url, bytes)), [`${status} close`]);
  });
}
