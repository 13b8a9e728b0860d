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

  async function responds(expected: number, form: string): Promise<void> {
    const { status, headers, body } = await post(Buffer.from(form, 'latin1'));
    assert.equal(status, expected, body);
    if (status === 200) return;
    assert.equal(headers.get('content-type'), TEXT);
    assert.match(body, /^\P{Cc}+$/u);
  }

  for (const [body, status] of [
    ['pw=correct%20horse&&%69d=%61dmin', 200],
    [`user[name]=x&user[id]=root&a[]=1&a[]=2&c[0][d]=2&c[1][d]=3&e&=x&${RIGHT}`, 200],
    ['id[x]=admin&pw=correct+horse', 401],
    ['id%5B%5D=admin&pw=correct+horse', 401],
    ['id=admin&id=admin&pw=correct+horse', 401],
    ['id=admin;pw=correct+horse', 401],
    ['&&&', 401],
    [`a=1&a[b]=2&${RIGHT}`, 400],
    [`a[0]=x&a[2]=y&${RIGHT}`, 400],
    [`a[b=1&${RIGHT}`, 400],
  ] as const) {
    test(`3.14 ${body} returns ${status}`, () => responds(status, body));
  }

  for (const [why, body, status] of [
    ['200 parameters', repeat(198, (i) => `p${i}=1`), 200],
    ['201 parameters', repeat(199, (i) => `p${i}=1`), 413],
    ['32 levels', `a${'[b]'.repeat(32)}=1&`, 200],
    ['33 levels', `a${'[b]'.repeat(33)}=1&`, 400],
    ['500 segments', repeat(20, (i) => `p${i}${'[b]'.repeat(i ? 24 : 22)}=1`), 200],
    ['501 segments', repeat(20, (i) => `p${i}${'[b]'.repeat(i ? 24 : 23)}=1`), 400],
  ] as const) {
    test(`3.15 a form with ${why} returns ${status}`, () => responds(status, `${body}${RIGHT}`));
  }

  for (const body of ['a=%', 'a[%4]=1', 'a=%ed%a0%80', 'a=\xff']) {
    test(`3.16 ${body} returns 400`, () => responds(400, `${body}&${RIGHT}`));
  }

  test('3.17 no form changes a prototype, so the next request is not affected', async () => {
    for (const name of ['__proto__', 'constructor[prototype]', 'a[__proto__]']) {
      const body = `${name}[id]=admin&${name}[pw]=correct+horse&${name}[toString]=1`;
      assert.equal((await post(body)).status, 401);
    }
    const json = await send(`${program.url}/token`, { method: 'POST', body: {} });
    const statuses = [json.status, (await post('x=1')).status, (await post(RIGHT)).status];
    assert.deepEqual(statuses, [401, 401, 200]);
  });
});
