// Rule 3.13 of the contract: the limit on failed credential checks from one client address
// per minute. Each test has its own client addresses, set through X-Forwarded-For.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { basic, type HttpResponse, raw, send } from '../support/client.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';

const LIMIT = 3;

type Check = (program: Program, from: string) => Promise<HttpResponse>;

const wrongToken: Check = (program, from) => token(program, from, { id: USER, pw: 'wrong' });
const rightToken: Check = (program, from) => token(program, from, { id: USER, pw: PASSWORD });
const wrongBasic: Check = (program, from) => get(program, '/protected', from, basic(USER, 'wrong'));
const rightBasic: Check = (program, from) =>
  get(program, '/protected', from, basic(USER, PASSWORD));

let addresses = 0;

describe('3.13 failed credential checks', () => {
  let program: Program;
  before(async () => {
    program = await start({
      AUTH_FAILURES_PER_MINUTE: String(LIMIT),
      TRUST_PROXY: '1',
    });
  });
  after(() => program?.[Symbol.asyncDispose]());

  for (const { why, check } of [
    { why: 'POST /token', check: wrongToken },
    { why: 'GET /protected', check: wrongBasic },
  ]) {
    test(`3.13 ${why} returns 401 up to the limit and 429 after it`, async () => {
      const from = address();
      const statuses = [];
      for (let i = 0; i < LIMIT; i++) statuses.push((await check(program, from)).status);
      assert.deepEqual(statuses, Array(LIMIT).fill(401));
      const response = await check(program, from);
      assert.deepEqual(
        [response.status, response.headers.get('content-type'), response.body],
        [429, 'text/plain; charset=utf-8', 'Too Many Requests'],
      );
      assert.match(response.headers.get('retry-after') ?? '', /^([1-9]|[1-5]\d|60)$/);
    });
  }

  test('3.13 POST /token and GET /protected count together', async () => {
    const from = address();
    const checks = [wrongToken, wrongBasic, wrongToken, wrongBasic, wrongToken];
    const statuses = [];
    for (const check of checks) statuses.push((await check(program, from)).status);
    assert.deepEqual(statuses, [401, 401, 401, 429, 429]);
  });

  test('3.13 correct credentials return 429 too while the address is locked', async () => {
    const from = address();
    await lock(program, from);
    const responses = [await rightToken(program, from), await rightBasic(program, from)];
    for (const response of responses) {
      assert.deepEqual([response.status, response.body], [429, 'Too Many Requests']);
      assert.ok(Number(response.headers.get('retry-after')) >= 1);
    }
  });

  test('3.13 another address is not locked', async () => {
    await lock(program, address());
    const from = address();
    const responses = [await rightToken(program, from), await wrongBasic(program, from)];
    assert.deepEqual(statusesOf(responses), [200, 401]);
  });

  test('3.13 requests without credentials do not count', async () => {
    const from = address();
    const bodies = [{}, { id: USER }, { pw: 'wrong' }, { id: USER, pw: 1 }, { id: null, pw: 'x' }];
    const statuses = [];
    for (const body of bodies) statuses.push((await token(program, from, body)).status);
    for (const _ of bodies) statuses.push((await get(program, '/protected', from)).status);
    assert.deepEqual(statuses, Array(2 * bodies.length).fill(401));
    assert.deepEqual(await failures(program, from), [401, 401, 401, 429]);
  });

  test('3.13 a success neither counts nor resets', async () => {
    const from = address();
    const checks = [
      ...[wrongToken, wrongBasic],
      ...[rightToken, rightBasic, rightToken, rightBasic, rightToken],
      ...[wrongToken, rightToken],
    ];
    const statuses = [];
    for (const check of checks) statuses.push((await check(program, from)).status);
    assert.deepEqual(statuses, [401, 401, 200, 200, 200, 200, 200, 401, 429]);
  });

  test('3.13 concurrent checks do not exceed the limit', async () => {
    const from = address();
    const responses = await Promise.all(
      Array.from({ length: 20 }, (_, i) => [wrongToken, wrongBasic][i % 2]!(program, from)),
    );
    const statuses = statusesOf(responses).sort();
    assert.deepEqual(statuses, [...Array(LIMIT).fill(401), ...Array(20 - LIMIT).fill(429)]);
  });

  test('3.13 GET /notes is neither counted nor locked', async () => {
    const from = address();
    const wrong = [];
    for (let i = 0; i < 2 * LIMIT; i++) {
      wrong.push((await get(program, '/notes', from, 'Bearer a.b.c')).status);
    }
    assert.deepEqual(wrong, Array(2 * LIMIT).fill(401));
    assert.equal((await rightBasic(program, from)).status, 200);
    await lock(program, from);
    const now = Math.floor(Date.now() / 1000);
    const claims = { id: USER, name: 'Administrator', exp: now + 60 };
    const input = ['{"alg":"HS256"}', JSON.stringify(claims)].map(encode).join('.');
    const signature = createHmac('sha256', SECRET).update(input).digest('base64url');
    const right = await get(program, '/notes', from, `Bearer ${input}.${signature}`);
    assert.equal(right.status, 200);
  });

  for (const { why, locked, same, other } of [
    {
      why: 'IPv6 counts by /64',
      locked: '2001:db8:1:2::1',
      same: '2001:db8:1:2:ffff::9',
      other: '2001:db8:1:3::1',
    },
    {
      why: 'IPv6 counts by value, not by spelling',
      locked: '2001:DB8:0:5::1',
      same: '2001:0db8:0000:0005:0:0:0:1',
      other: '2001:db8:5::1',
    },
    {
      why: 'IPv4-mapped counts as IPv4',
      locked: '::ffff:198.51.100.1',
      same: '198.51.100.1',
      other: '::ffff:198.51.100.2',
    },
    {
      why: 'IPv4-mapped in hex counts as IPv4',
      locked: '::ffff:c633:6403',
      same: '198.51.100.3',
      other: '198.51.100.4',
    },
    {
      why: 'a port is dropped from IPv4',
      locked: '198.51.100.5:1',
      same: '198.51.100.5:65535',
      other: '198.51.100.6:1',
    },
    {
      why: 'a port is dropped from IPv6',
      locked: '[2001:db8:7::1]:1',
      same: '2001:db8:7::2',
      other: '[2001:db8:8::1]:1',
    },
    {
      why: 'the rightmost address counts',
      locked: '192.0.2.1, 198.51.100.7',
      same: '192.0.2.2,198.51.100.7',
      other: '198.51.100.7, 192.0.2.1',
    },
  ]) {
    test(`3.13 ${why}`, async () => {
      await lock(program, locked);
      const responses = [await rightBasic(program, same), await rightBasic(program, other)];
      assert.deepEqual(statusesOf(responses), [429, 200]);
    });
  }

  test('3.13 several X-Forwarded-For lines are one list', async () => {
    const from = address();
    await lock(program, from);
    const lines = [`X-Forwarded-For: ${address()}`, `X-Forwarded-For: ${from}`];
    assert.equal(await rawBasic(program, lines), 429);
    assert.equal(await rawBasic(program, lines.toReversed()), 200);
  });
});

describe('3.13 failed credential checks with other settings', () => {
  test('3.13 the default limit is 60', async () => {
    await using program = await start();
    const responses = [];
    for (let i = 0; i < 61; i++) responses.push(await wrongBasic(program, ''));
    assert.deepEqual(statusesOf(responses), [...Array(60).fill(401), 429]);
  });

  test('3.13 AUTH_FAILURES_PER_MINUTE=0 disables the limit', async () => {
    await using program = await start({ AUTH_FAILURES_PER_MINUTE: '0' });
    const responses = [];
    for (let i = 0; i < 150; i++) responses.push(await wrongBasic(program, ''));
    assert.deepEqual(statusesOf(responses), Array(150).fill(401));
  });

  test('3.13 without TRUST_PROXY the socket address counts, with any header', async () => {
    await using program = await start({ AUTH_FAILURES_PER_MINUTE: '3' });
    const responses = [];
    for (let i = 0; i < 4; i++) responses.push(await wrongBasic(program, address()));
    assert.deepEqual(statusesOf(responses), [401, 401, 401, 429]);
  });

  test('3.13 with a list shorter than TRUST_PROXY, or none, the socket address counts', async () => {
    await using program = await start({ AUTH_FAILURES_PER_MINUTE: '3', TRUST_PROXY: '2' });
    const lists = [address(), address(), '', address()];
    const responses = [];
    for (const list of lists) responses.push(await wrongBasic(program, list));
    assert.deepEqual(statusesOf(responses), [401, 401, 401, 429]);
    const long = await wrongBasic(program, `${address()}, ${address()}`);
    assert.equal(long.status, 401);
  });

  test('3.13 a /48 has 64 times the limit, and its lock is its own', async () => {
    await using program = await start({ AUTH_FAILURES_PER_MINUTE: '1', TRUST_PROXY: '1' });
    const responses = [];
    for (let i = 0; i < 65; i++) {
      responses.push(await wrongBasic(program, `2001:db8:7:${i.toString(16)}::1`));
    }
    assert.deepEqual(statusesOf(responses), [...Array(64).fill(401), 429]);
    for (const clean of [address(), '2001:db8:8::1']) {
      const checks = [rightBasic, rightToken, wrongBasic];
      const others = [];
      for (const check of checks) others.push(await check(program, clean));
      assert.deepEqual(statusesOf(others), [200, 200, 401], clean);
    }
    // This address has no failures of its own.
    const neighbour = await rightBasic(program, '2001:db8:7:ffff::1');
    assert.deepEqual([neighbour.status, neighbour.body], [429, 'Too Many Requests']);
  });
});

// Returns an IPv4 address that no test has used before.
function address(): string {
  addresses++;
  return `10.0.${addresses >> 8}.${addresses & 255}`;
}

function token(program: Program, from: string, body: object): Promise<HttpResponse> {
  const headers = { 'x-forwarded-for': from };
  return send(`${program.url}/token`, { method: 'POST', headers, body });
}

function get(
  program: Program,
  path: string,
  from: string,
  credentials = '',
): Promise<HttpResponse> {
  const headers = new Headers({ 'x-forwarded-for': from });
  if (credentials) headers.set('authorization', credentials);
  return send(program.url + path, { headers });
}

async function failures(program: Program, from: string, count = LIMIT + 1): Promise<number[]> {
  const statuses = [];
  for (let i = 0; i < count; i++) statuses.push((await wrongBasic(program, from)).status);
  return statuses;
}

async function lock(program: Program, from: string): Promise<void> {
  await failures(program, from, LIMIT);
}

async function rawBasic(program: Program, lines: readonly string[]): Promise<number> {
  const head = [
    'GET /protected HTTP/1.1',
    'Host: x',
    `Authorization: ${basic(USER, PASSWORD)}`,
    'Connection: close',
    ...lines,
  ];
  const response = await raw(program.url, `${head.join('\r\n')}\r\n\r\n`);
  return Number(response.slice(9, 12));
}

function statusesOf(responses: readonly HttpResponse[]): number[] {
  return responses.map((response) => response.status);
}

function encode(text: string): string {
  return Buffer.from(text).toString('base64url');
}
