// Rules 3.6, 3.9, 3.10 and 3.12 of the contract: the sample route behind Basic authentication
// (RFC 7617).
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { basic, type HttpResponse, raw, send } from '../support/client.ts';
import { PASSWORD, type Program, start, USER } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const CHALLENGE = 'Basic realm="protected", charset="UTF-8"';
const REFUSED = { status: 401, type: TEXT, challenge: CHALLENGE, body: 'Unauthorized' };
// 19 bytes: their last base64 character has four unused bits, and two "=" follow it.
const RIGHT = 'YWRtaW46Y29ycmVjdCBob3JzZQ==';

describe('3.9 and 3.10 protected', () => {
  let program: Program;
  before(async () => {
    program = await start({ AUTH_FAILURES_PER_MINUTE: '0' });
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('3.9 GET /protected with the right pair returns 200 and plain text', async () => {
    assert.equal(basic(USER, PASSWORD), `Basic ${RIGHT}`);
    const headers = { authorization: `Basic ${RIGHT}` };
    const response = await send(`${program.url}/protected`, { headers });
    assert.deepEqual(
      { ...summary(response), body: '' },
      { status: 200, type: TEXT, challenge: null, body: '' },
    );
    assert.match(response.body, /\S/);
  });

  for (const scheme of ['basic', 'BASIC', 'bAsIc']) {
    test(`3.9 the scheme's name in the case ${scheme} is accepted`, async () => {
      const headers = { authorization: `${scheme} ${RIGHT}` };
      assert.equal((await send(`${program.url}/protected`, { headers })).status, 200);
    });
  }

  for (const { why, credentials } of [
    { why: 'a wrong user', credentials: encode(`root:${PASSWORD}`) },
    { why: 'a wrong password', credentials: encode(`${USER}:wrong horse`) },
    { why: 'user and password swapped', credentials: encode(`${PASSWORD}:${USER}`) },
    { why: 'a user in another case', credentials: encode(`Admin:${PASSWORD}`) },
    { why: 'a password in another case', credentials: encode(`${USER}:Correct horse`) },
    { why: 'a password one byte short', credentials: encode(`${USER}:${PASSWORD.slice(0, -1)}`) },
    { why: 'a password one byte long', credentials: encode(`${USER}:${PASSWORD}e`) },
    { why: 'an empty user', credentials: encode(`:${PASSWORD}`) },
    { why: 'an empty password', credentials: encode(`${USER}:`) },
    { why: 'only a colon', credentials: encode(':') },
    { why: 'no colon', credentials: encode(`${USER}${PASSWORD}`) },
    { why: 'the user alone', credentials: encode(USER) },
    { why: 'a colon too many', credentials: encode(`${USER}::${PASSWORD}`) },
    { why: 'a newline after it', credentials: encode(`${USER}:${PASSWORD}\n`) },
    { why: 'a NUL after it', credentials: encode(`${USER}:${PASSWORD}\0`) },
    { why: 'a byte order mark before it', credentials: encode(`\ufeff${USER}:${PASSWORD}`) },
    {
      why: 'UTF-16',
      credentials: Buffer.from(`${USER}:${PASSWORD}`, 'utf16le').toString('base64'),
    },
    {
      why: 'bytes that are not UTF-8',
      credentials: Buffer.from([0x61, 0x3a, 0xff]).toString('base64'),
    },
    {
      why: 'the pair and a byte that is not UTF-8',
      credentials: Buffer.from(`${USER}:${PASSWORD}\xff`, 'latin1').toString('base64'),
    },
    { why: 'the pair in plain text', credentials: `${USER}:${PASSWORD.replace(' ', '')}` },
    // RFC 4648 3.5: base64 has one spelling.
    { why: 'no padding', credentials: RIGHT.slice(0, -2) },
    { why: 'half the padding', credentials: RIGHT.slice(0, -1) },
    { why: 'padding too many', credentials: `${RIGHT}=` },
    { why: 'padding of a whole group too many', credentials: `${RIGHT}====` },
    { why: 'loose last bits', credentials: 'YWRtaW46Y29ycmVjdCBob3JzZR==' },
    { why: 'padding in the middle', credentials: 'YWRtaW46Y29ycmVj=dCBob3JzZQ==' },
    { why: 'text after the padding', credentials: `${RIGHT}AAAA` },
    { why: 'a character outside the alphabet', credentials: `~${RIGHT}` },
    {
      why: 'a character outside the alphabet in the middle',
      credentials: 'YWRtaW46*Y29ycmVjdCBob3JzZQ==',
    },
    { why: 'only padding', credentials: '==' },
  ]) {
    test(`3.10 Basic credentials with ${why} return 401`, async () => {
      const headers = { authorization: `Basic ${credentials}` };
      const response = await send(`${program.url}/protected`, { headers });
      assert.deepEqual(summary(response), REFUSED);
    });
  }

  for (const { why, lines } of [
    { why: 'no header', lines: [] },
    { why: 'an empty header', lines: ['Authorization:'] },
    { why: 'the scheme alone', lines: ['Authorization: Basic'] },
    { why: 'the credentials alone', lines: [`Authorization: ${RIGHT}`] },
    { why: 'two spaces', lines: [`Authorization: Basic  ${RIGHT}`] },
    { why: 'a tab for the space', lines: [`Authorization: Basic\t${RIGHT}`] },
    { why: 'a third part', lines: [`Authorization: Basic ${RIGHT} x`] },
    { why: 'another scheme', lines: [`Authorization: Bearer ${RIGHT}`] },
    { why: 'a longer scheme', lines: [`Authorization: Basics ${RIGHT}`] },
    { why: 'two right headers', lines: Array(2).fill(`Authorization: Basic ${RIGHT}`) },
    {
      why: 'a right and a wrong header',
      lines: [`Authorization: Basic ${RIGHT}`, 'Authorization: Basic YTpi'],
    },
    { why: 'Proxy-Authorization', lines: [`Proxy-Authorization: Basic ${RIGHT}`] },
  ]) {
    test(`3.6 3.10 GET /protected with ${why} returns 401`, async () => {
      const head = ['GET /protected HTTP/1.1', 'Host: x', 'Connection: close', ...lines];
      const response = await raw(program.url, `${head.join('\r\n')}\r\n\r\n`);
      assert.deepEqual(
        {
          status: Number(response.slice(9, 12)),
          type: header(response, 'content-type'),
          challenge: header(response, 'www-authenticate'),
          body: response.slice(response.indexOf('\r\n\r\n') + 4),
        },
        REFUSED,
      );
    });
  }

  for (const length of [0, 1, 12, 13, 14, 64, 9000]) {
    test(`3.12 a password of ${length} wrong bytes is refused like any other`, async () => {
      const headers = { authorization: basic(USER, 'x'.repeat(length)) };
      const response = await send(`${program.url}/protected`, { headers });
      assert.deepEqual(summary(response), REFUSED);
    });
  }
});

describe('3.10 with other pairs', () => {
  for (const { why, user, password } of [
    { why: 'colons in the password', user: USER, password: 'a:b::c:d' },
    { why: 'a colon first and last in the password', user: USER, password: ':colons:' },
    { why: 'a pair beyond ASCII', user: 'jörg', password: 'pässwörd 🔑' },
    { why: 'a pair with spaces around', user: ' a ', password: '  secret  ' },
  ]) {
    test(`3.10 ${why} returns 200, and 401 when one byte differs`, async () => {
      await using program = await start({ AUTH_USER: user, AUTH_PASSWORD: password });
      const statuses = [];
      for (const pair of [`${user}:${password}`, `${user}:${password}:`, `${user}:x${password}`]) {
        const headers = { authorization: `Basic ${encode(pair)}` };
        statuses.push((await send(`${program.url}/protected`, { headers })).status);
      }
      assert.deepEqual(statuses, [200, 401, 401]);
    });
  }

  test('3.20 a pair in either normal form returns 200, whichever was set', async () => {
    const pairs = ['NFC', 'NFD'].map((form) =>
      ['jörg', 'pässwörd ế'].map((s) => s.normalize(form)),
    );
    for (const [user, password] of pairs) {
      await using program = await start({ AUTH_USER: user!, AUTH_PASSWORD: password! });
      for (const pair of pairs) {
        const headers = { authorization: `Basic ${encode(pair.join(':'))}` };
        assert.equal((await send(`${program.url}/protected`, { headers })).status, 200);
      }
    }
  });

  test('3.10 the pair in Latin-1 is refused', async () => {
    await using program = await start({ AUTH_USER: 'jörg' });
    const credentials = Buffer.from(`jörg:${PASSWORD}`, 'latin1').toString('base64');
    const headers = { authorization: `Basic ${credentials}` };
    const response = await send(`${program.url}/protected`, { headers });
    assert.deepEqual(summary(response), REFUSED);
  });
});

function encode(text: string): string {
  return Buffer.from(text).toString('base64');
}

function header(response: string, name: string): string | undefined {
  return new RegExp(`^${name}: (.*)$`, 'im').exec(response)?.[1];
}

function summary(response: HttpResponse) {
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    challenge: response.headers.get('www-authenticate'),
    body: response.body,
  };
}
