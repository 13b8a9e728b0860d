// Rule 3.13 of the contract over HTTP: the limit on failed credential checks. Each test has its own client
// addresses, set through X-Forwarded-For. Times, addresses and networks are in test/auth/limiter.test.ts.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { basic, type HttpResponse, send, statusesOf } from '../support/client.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';

const LIMIT = 3;

describe('3.13 failed credential checks', () => {
  let program: Program;
  before(async () => {
    program = await start({ AUTH_FAILURES_PER_MINUTE: String(LIMIT), TRUST_PROXY: '1' });
  });

  type Check = (from: string) => Promise<HttpResponse>;
  const login = (from: string, body: object) =>
    send(`${program.url}/token`, { method: 'POST', headers: { 'x-forwarded-for': from }, body });
  const get = (path: string, from: string, authorization: string) =>
    send(program.url + path, { headers: { 'x-forwarded-for': from, authorization } });
  const wrongToken: Check = (from) => login(from, { id: USER, pw: 'wrong' });
  const rightToken: Check = (from) => login(from, { id: USER, pw: PASSWORD });
  const wrongBasic: Check = (from) => get('/protected', from, basic(USER, 'wrong'));
  const rightBasic: Check = (from) => get('/protected', from, basic(USER, PASSWORD));

  async function inTurn(from: string, checks: readonly Check[]): Promise<number[]> {
    const statuses = [];
    for (const check of checks) statuses.push((await check(from)).status);
    return statuses;
  }

  test('3.13 of concurrent failures on /token and /protected the limit gets 401, and then everything 429', async () => {
    const from = '192.0.2.1';
    const checks = Array.from({ length: 10 }, () => [wrongToken, wrongBasic]).flat();
    const responses = await Promise.all(checks.map((check) => check(from)));
    assert.deepEqual(statusesOf(responses).sort(), [
      ...Array(LIMIT).fill(401),
      ...Array(20 - LIMIT).fill(429),
    ]);
    for (const response of [await rightToken(from), await rightBasic(from)]) {
      assert.deepEqual(
        [response.status, response.headers.get('content-type'), response.body],
        [429, 'text/plain; charset=utf-8', 'Too Many Requests'],
      );
      assert.match(response.headers.get('retry-after') ?? '', /^([1-9]|[1-5]\d|60)$/);
    }
    assert.deepEqual(await inTurn('192.0.2.2', [rightToken, wrongBasic]), [200, 401]);
  });

  test('3.13 only a checked credential counts and is refused, and a success neither counts nor resets', async () => {
    const from = '192.0.2.3';
    const { token } = JSON.parse((await rightToken(from)).body);
    const unchecked = [
      ...[{}, { id: USER }, { pw: 'wrong' }, { id: USER, pw: 1 }, { id: null, pw: 'x' }].map(
        (body) => (from: string) => login(from, body),
      ),
      ...['', 'Basic', 'Bearer x'].map((wrong) => (from: string) => get('/protected', from, wrong)),
      (from: string) => get('/notes', from, 'Bearer a.b.c'),
    ];
    const right = [rightToken, rightBasic, rightToken, rightBasic];
    const all401 = Array(unchecked.length).fill(401);
    assert.deepEqual(await inTurn(from, unchecked), all401);
    assert.deepEqual(await inTurn(from, [wrongToken, wrongBasic]), [401, 401]);
    assert.deepEqual(await inTurn(from, right), [200, 200, 200, 200]);
    assert.deepEqual(await inTurn(from, [wrongToken, rightToken]), [401, 429]);
    assert.deepEqual(await inTurn(from, unchecked), all401);
    assert.equal((await get('/notes', from, `Bearer ${token}`)).status, 200);
  });

  test('3.13 an IPv6 address counts by its /64, in any spelling', async () => {
    const wrong = Array.from({ length: LIMIT }, () => wrongBasic);
    await inTurn('2001:db8:0:5::1', wrong);
    assert.equal((await rightBasic('[2001:0DB8::5:0:0:0:9]:80')).status, 429);
    assert.equal((await rightBasic('2001:db8:0:6::1')).status, 200);
  });
});
