// Rules 3.14 to 3.17 of the contract: POST /token parses forms. The right id and pw are strings, so
// a 401 means that a value was nested or absent.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, send } from '../support/client.ts';
import { newDatabase, PASSWORD, type Program, STORES, start, USER } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const RIGHT = 'id=admin&pw=correct+horse';

for (const store of STORES) {
  describe(`3.14 to 3.17 forms (${store})`, () => {
    let program: Program;
    before(async () => {
      const url = await newDatabase(store);
      program = await start({ DATABASE_URL: url, AUTH_FAILURES_PER_MINUTE: '0' });
    });
    after(() => program?.[Symbol.asyncDispose]());

    for (const { why, body } of [
      { why: 'in either order', body: 'pw=correct+horse&id=admin' },
      { why: 'with %20 for the space', body: 'id=admin&pw=correct%20horse' },
      {
        why: 'with every byte percent-encoded',
        body: `${percent('id')}=${percent(USER)}&${percent('pw')}=${percent(PASSWORD)}`,
      },
      { why: 'with escapes in lower case', body: 'id=%61%64min&pw=correct%20h%6frse' },
      { why: 'with empty parts around', body: `&&${RIGHT}&&` },
      { why: 'with nested values next to it', body: `user[name]=x&a[b][c]=1&${RIGHT}` },
      { why: 'with lists next to it', body: `a[]=1&a[]=2&b=1&b=2&c[1]=x&c[0]=y&${RIGHT}` },
      { why: 'with objects in lists next to it', body: `a[][b]=1&c[0][d]=2&c[1][d]=3&${RIGHT}` },
      {
        why: 'with a member and an index twice next to it',
        body: `a[b]=1&a[b]=2&c[0]=3&c[0]=4&${RIGHT}`,
      },
      { why: 'with names without a value next to it', body: `a&b=&${RIGHT}` },
      { why: 'with an empty name next to it', body: `=x&=&${RIGHT}` },
      { why: 'with id inside another name', body: `user[id]=root&${RIGHT}` },
      {
        why: 'with names of Object.prototype next to it',
        body: `toString=1&valueOf[x]=2&hasOwnProperty=3&${RIGHT}`,
      },
      {
        why: 'with __proto__ next to it',
        body: `__proto__[id]=root&__proto__=x&a[__proto__][b]=1&${RIGHT}`,
      },
      {
        why: 'with constructor next to it',
        body: `constructor[prototype][id]=root&constructor=x&${RIGHT}`,
      },
      { why: 'with escaped brackets next to it', body: `user%5Bname%5D=x&${RIGHT}` },
    ]) {
      test(`3.14 the right pair ${why} returns 200`, async () => {
        const response = await post(program, body);
        assert.deepEqual(
          [response.status, response.headers.get('content-type')],
          [200, 'application/json'],
        );
        assert.deepEqual(Object.keys(JSON.parse(response.body)), ['token']);
      });
    }

    for (const { why, body } of [
      { why: 'id nested', body: 'id[x]=admin&pw=correct+horse' },
      { why: 'id nested by escaped brackets', body: 'id%5Bx%5D=admin&pw=correct+horse' },
      { why: 'id a list of one', body: 'id[]=admin&pw=correct+horse' },
      { why: 'id a list of one by index', body: 'id[0]=admin&pw=correct+horse' },
      { why: 'id twice', body: 'id=admin&id=admin&pw=correct+horse' },
      { why: 'pw twice', body: 'id=admin&pw=wrong&pw=correct+horse' },
      { why: 'pw nested', body: 'id=admin&pw[a][b]=correct+horse' },
      { why: 'pw empty', body: 'id=admin&pw=' },
      { why: 'pw without =', body: 'id=admin&pw' },
      { why: 'a + that is escaped', body: 'id=admin&pw=correct%2Bhorse' },
      { why: 'an escape of an escape', body: 'id=admin&pw=correct%2520horse' },
      { why: 'names in another case', body: 'ID=admin&PW=correct+horse' },
      { why: 'a semicolon between the parameters', body: 'id=admin;pw=correct+horse' },
      { why: 'JSON in a form', body: '{"id":"admin","pw":"correct horse"}' },
      { why: 'the pair under __proto__', body: '__proto__[id]=admin&__proto__[pw]=correct+horse' },
      {
        why: 'the pair under constructor.prototype',
        body: 'constructor[prototype][id]=admin&constructor[prototype][pw]=correct+horse',
      },
      {
        why: 'the pair under a nested __proto__',
        body: 'a[__proto__][id]=admin&a[__proto__][pw]=correct+horse',
      },
      { why: 'only separators', body: '&&&' },
      { why: 'only =', body: '=' },
    ]) {
      test(`3.14 ${why} returns 401`, async () => {
        const response = await post(program, body);
        assert.deepEqual(summary(response), { status: 401, type: TEXT, body: 'Unauthorized' });
      });
    }

    for (const { why, body } of [
      { why: 'a value and an object', body: 'a=1&a[b]=2' },
      { why: 'an object and a value', body: 'a[b]=1&a=2' },
      { why: 'a value and a list', body: 'id=admin&id[]=admin' },
      { why: 'a value and a list below another name', body: 'a[b]=1&a[b][]=2' },
      { why: 'a key and an index', body: 'a[b]=1&a[0]=2' },
      { why: 'a key and []', body: 'a[]=1&a[b]=2' },
      { why: 'an index and []', body: 'a[0]=1&a[]=2' },
      { why: 'a first index of 1', body: 'a[1]=x' },
      { why: 'a gap', body: 'a[0]=x&a[2]=y' },
      { why: 'index 999 alone', body: 'a[999]=1' },
      { why: 'index 1000 alone', body: 'a[b][1000]=1' },
      { why: 'index 4294967295 alone', body: 'a[4294967295]=1' },
      { why: 'index 9007199254740991 alone', body: 'a[9007199254740991]=1' },
      { why: 'an unclosed bracket', body: 'a[b=1' },
      { why: 'an unclosed bracket without a value', body: 'a[' },
      { why: 'an unclosed encoded bracket', body: 'a%5Bb=1' },
      { why: 'a closing bracket alone', body: 'a]=1' },
      { why: 'brackets in brackets', body: 'a[b[c]]=1' },
      { why: 'text after a bracket', body: 'a[b]c=1' },
      { why: 'nothing before a bracket', body: '[a]=1' },
      { why: 'an equals sign before a bracket', body: 'a=[b]=1' },
    ]) {
      test(`3.14 ${why} returns 400: ${body}`, async () => {
        const response = await post(program, `${body}&${RIGHT}`);
        assert.deepEqual([response.status, response.headers.get('content-type')], [400, TEXT]);
        assert.match(response.body, /^The form \P{Cc}+\.$/u);
      });
    }

    test('3.17 no form changes a prototype, so the next request is not affected', async () => {
      const names = [
        '__proto__',
        'constructor[prototype]',
        'a[__proto__]',
        'a[constructor][prototype]',
        '[__proto__]',
        '__proto__[__proto__]',
        '%5F%5Fproto%5F%5F',
        'a[]',
        'a[0][__proto__]',
      ];
      for (const name of names) {
        await post(program, `${name}[id]=admin&${name}[pw]=correct+horse&${name}[toString]=1`);
      }
      const url = `${program.url}/token`;
      const statuses = [
        (await send(url, { method: 'POST', body: {} })).status,
        (await post(program, 'x=1')).status,
        (await post(program, RIGHT)).status,
      ];
      assert.deepEqual(statuses, [401, 401, 200]);
    });

    for (const { why, extra, status } of [
      { why: '200 parameters', extra: parameters(198), status: 200 },
      { why: '201 parameters', extra: parameters(199), status: 413 },
      { why: '200 parameters of one name', extra: 'a=1&'.repeat(198), status: 200 },
      { why: '201 parameters of one name', extra: 'a=1&'.repeat(199), status: 413 },
      { why: '200 parameters of one list', extra: 'a[]=1&'.repeat(198), status: 200 },
      { why: '201 parameters of one list', extra: 'a[]=1&'.repeat(199), status: 413 },
      { why: 'depth 32', extra: `a${'[b]'.repeat(32)}=1&`, status: 200 },
      { why: 'depth 33', extra: `a${'[b]'.repeat(33)}=1&`, status: 400 },
      { why: 'depth 32 of lists', extra: `a${'[]'.repeat(32)}=1&`, status: 200 },
      { why: 'depth 33 of lists', extra: `a${'[]'.repeat(33)}=1&`, status: 400 },
      { why: 'depth 33 with escaped brackets', extra: `a${'%5Bb%5D'.repeat(33)}=1&`, status: 400 },
      { why: 'depth 5,000', extra: `a${'[b]'.repeat(5_000)}=1&`, status: 400 },
      { why: '200 indices', extra: indices(198), status: 200 },
      { why: '201 indices', extra: indices(199), status: 413 },
      { why: '500 segments', extra: segments(498), status: 200 },
      { why: '501 segments', extra: segments(499), status: 400 },
    ]) {
      test(`3.15 ${why} returns ${status}`, async () => {
        const response = await post(program, `${extra}${RIGHT}`);
        assert.equal(response.status, status, response.body);
      });
    }

    for (const { why, body } of [
      { why: 'a lone %', body: `a=%&${RIGHT}` },
      { why: 'a % at the end', body: `${RIGHT}&a=%` },
      { why: 'half an escape', body: `a=%4&${RIGHT}` },
      { why: 'an escape without hexadecimal digits', body: `a=%zz&${RIGHT}` },
      { why: 'a broken escape in a name', body: `a%=1&${RIGHT}` },
      { why: 'a broken escape in a nested name', body: `a[%f]=1&${RIGHT}` },
      { why: 'an escaped byte that is not UTF-8', body: `a=%ff&${RIGHT}` },
      { why: 'an escaped overlong sequence', body: `a=%c0%af&${RIGHT}` },
      { why: 'an escaped surrogate', body: `a=%ed%a0%80&${RIGHT}` },
      { why: 'an escaped sequence cut short', body: `a=%e2%82&${RIGHT}` },
      { why: 'an escaped Latin-1 letter', body: `a=%e9&${RIGHT}` },
      { why: 'the old %u escape', body: `a=%u263a&${RIGHT}` },
      { why: 'a raw byte that is not UTF-8', body: Buffer.from(`a=\xff&${RIGHT}`, 'latin1') },
      {
        why: 'a raw byte in the middle of an escape',
        body: Buffer.from(`a=%e2\x82%ac&${RIGHT}`, 'latin1'),
      },
    ]) {
      test(`3.16 ${why} returns 400`, async () => {
        const response = await post(program, body);
        assert.deepEqual([response.status, response.headers.get('content-type')], [400, TEXT]);
        assert.match(response.body, /^\P{Cc}+$/u);
      });
    }

    test('3.15 the service works after forms of 16 kB that have index 999 in each bracket', async () => {
      const names = Array.from({ length: 190 }, (_, i) => `${100 + i}${'[999]'.repeat(19)}=`);
      const attack = names.join('&').slice(0, 16_000);
      const responses = await Promise.all(Array.from({ length: 20 }, () => post(program, attack)));
      assert.deepEqual(new Set(responses.map((response) => response.status)), new Set([400]));
      assert.equal((await post(program, RIGHT)).status, 200);
    });

    test('3.15 the 413 or 400 above a limit has one plain sentence', async () => {
      const bodies = [parameters(201), `a${'[b]'.repeat(33)}=1`, segments(501)];
      const responses = await Promise.all(bodies.map((body) => post(program, body)));
      assert.deepEqual(
        responses.map((response) => [response.status, response.headers.get('content-type')]),
        [
          [413, TEXT],
          [400, TEXT],
          [400, TEXT],
        ],
      );
      for (const { body } of responses) assert.match(body, /^\P{Cc}+$/u);
    });
  });
}

function post(program: Program, body: string | Uint8Array): Promise<HttpResponse> {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  return send(`${program.url}/token`, { method: 'POST', headers, body });
}

function parameters(count: number): string {
  return Array.from({ length: count }, (_, i) => `p${i}=${i}&`).join('');
}

function indices(count: number): string {
  return Array.from({ length: count }, (_, i) => `a[${i}]=${i}&`).join('');
}

/** Returns parameters with that many segments in their names, at most 25 in each. */
function segments(count: number): string {
  const names = Array.from({ length: Math.ceil(count / 25) }, (_, i) => {
    const levels = Math.min(25, count - 25 * i) - 1;
    return `p${i}${'[b]'.repeat(levels)}=1&`;
  });
  return names.join('');
}

function percent(text: string): string {
  return Array.from(Buffer.from(text), (byte) => `%${byte.toString(16)}`).join('');
}

function summary(response: HttpResponse) {
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    body: response.body,
  };
}
