// Rules 3.14 to 3.17 of the contract over HTTP, one case of each class. The vectors are in
// test/http/form.test.ts. The right id and pw are strings, so 401 means that one was nested or absent.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { TEXT } from '../support/bytes.ts';
import { type HttpResponse, send } from '../support/client.ts';
import { type Program, start } from '../support/program.ts';

const RIGHT = 'id=admin&pw=correct+horse';
const repeat = (count: number, make: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => `${make(i)}&`).join('');

describe('3.14 to 3.17 forms', () => {
  let program: Program;
  before(async () => {
    program = await start({ AUTH_FAILURES_PER_MINUTE: '0' });
  });
  after(() => program?.[Symbol.asyncDispose]());

  const post = (body: string | Uint8Array): Promise<HttpResponse> => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    return send(`${program.url}/token`, { method: 'POST', headers, body });
  };

  for (const [status, bodies] of [
    [
      200,
      [
        'pw=correct%20horse&&%69d=%61dmin',
        `user[name]=x&user[id]=root&a[]=1&a[]=2&c[0][d]=2&c[1][d]=3&e&=x&${RIGHT}`,
        `toString=1&__proto__[id]=root&constructor[prototype][id]=root&${RIGHT}`,
      ],
    ],
    [
      401,
      [
        'id[x]=admin&pw=correct+horse',
        'id%5B%5D=admin&pw=correct+horse',
        'id=admin&id=admin&pw=correct+horse',
        'id=admin&pw=correct%2Bhorse',
        'id=admin;pw=correct+horse',
        'ID=admin&PW=correct+horse',
        '__proto__[id]=admin&__proto__[pw]=correct+horse',
        '&&&',
      ],
    ],
  ] as const) {
    for (const body of bodies) {
      test(`3.14 ${body} returns ${status}`, async () => {
        const response = await post(body);
        assert.equal(response.status, status, response.body);
        if (status === 401) assert.equal(response.body, 'Unauthorized');
        else assert.deepEqual(Object.keys(JSON.parse(response.body)), ['token']);
      });
    }
  }

  for (const body of ['a=1&a[b]=2', 'a[0]=1&a[]=2', 'a[0]=x&a[2]=y', 'a[b=1', 'a]=1', '[a]=1']) {
    test(`3.14 ${body} returns 400`, async () => {
      const response = await post(`${body}&${RIGHT}`);
      assert.deepEqual([response.status, response.headers.get('content-type')], [400, TEXT]);
      assert.match(response.body, /^The form \P{Cc}+\.$/u);
    });
  }

  test('3.17 no form changes a prototype, so the next request is not affected', async () => {
    const prototypes = ['__proto__', 'constructor[prototype]', 'a[__proto__]', 'a[0][__proto__]'];
    for (const name of prototypes) {
      await post(`${name}[id]=admin&${name}[pw]=correct+horse&${name}[toString]=1`);
    }
    const json = await send(`${program.url}/token`, { method: 'POST', body: {} });
    const statuses = [json.status, (await post('x=1')).status, (await post(RIGHT)).status];
    assert.deepEqual(statuses, [401, 401, 200]);
  });

  for (const [why, extra, status] of [
    ['200 parameters', repeat(198, (i) => `p${i}=1`), 200],
    ['201 parameters', repeat(199, (i) => `p${i}=1`), 413],
    ['depth 32', `a${'[b]'.repeat(32)}=1&`, 200],
    ['depth 33', `a${'[b]'.repeat(33)}=1&`, 400],
    ['500 segments', repeat(20, (i) => `p${i}${'[b]'.repeat(i ? 24 : 22)}=1`), 200],
    ['501 segments', repeat(20, (i) => `p${i}${'[b]'.repeat(i ? 24 : 23)}=1`), 400],
  ] as const) {
    test(`3.15 ${why} returns ${status}, above a limit with one plain sentence`, async () => {
      const { status: seen, body, headers } = await post(`${extra}${RIGHT}`);
      assert.equal(seen, status, body);
      if (status === 200) return;
      assert.equal(headers.get('content-type'), TEXT);
      assert.match(body, /^\P{Cc}+$/u);
    });
  }

  test('3.15 the service works after forms of 16 kB that have index 999 in each bracket', async () => {
    const attack = repeat(190, (i) => `${100 + i}${'[999]'.repeat(19)}=`).slice(0, 16_000);
    const responses = await Promise.all(Array.from({ length: 20 }, () => post(attack)));
    assert.deepEqual([...new Set(responses.map(({ status }) => status))], [400]);
    assert.equal((await post(RIGHT)).status, 200);
  });

  for (const body of ['a=%', 'a[%4]=1', 'a=%ff', 'a=%ed%a0%80', 'a=\xff']) {
    test(`3.16 ${body} returns 400`, async () => {
      const response = await post(Buffer.from(`${body}&${RIGHT}`, 'latin1'));
      assert.deepEqual([response.status, response.headers.get('content-type')], [400, TEXT]);
      assert.match(response.body, /^\P{Cc}+$/u);
    });
  }
});
