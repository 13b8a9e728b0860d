// Rules 3.1 to 3.4, 3.11 and 3.12 of the contract: the greeting and the token endpoint. The tests
// of the form parser are in forms.test.ts.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { freePort } from '../support/postgres.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const FORM = 'application/x-www-form-urlencoded';
const RIGHT = { id: USER, pw: PASSWORD };
const REFUSED = {
  status: 401,
  type: TEXT,
  challenge: 'Bearer realm="token"',
  body: 'Unauthorized',
};

describe('3.1 to 3.4 greeting and token', () => {
  let program: Program;
  before(async () => {
    program = await start({ AUTH_FAILURES_PER_MINUTE: '0' });
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('3.1 GET / returns 200 and a plain-text greeting', async () => {
    const response = await send(program.url);
    assert.deepEqual(
      { status: response.status, type: response.headers.get('content-type') },
      { status: 200, type: TEXT },
    );
    assert.match(response.body, /^\P{Cc}+\n?$/u);
  });

  test('3.1 GET / ignores credentials', async () => {
    const plain = await send(program.url);
    const response = await send(program.url, { headers: { authorization: 'Bearer nonsense' } });
    assert.deepEqual(summary(response), summary(plain));
  });

  for (const { why, init } of [
    { why: 'as JSON', init: { body: RIGHT } },
    { why: 'as JSON with a charset', init: typed('application/json; charset=utf-8', RIGHT) },
    {
      why: 'as JSON with a quoted charset',
      init: typed('application/json;charset="UTF-8"', RIGHT),
    },
    { why: 'as JSON in another case', init: typed('Application/JSON', RIGHT) },
    { why: 'with unknown members', init: { body: { ...RIGHT, name: 'x', user: {} } } },
    { why: 'as a form', init: form('id=admin&pw=correct%20horse') },
    { why: 'as a form, + for a space', init: form('pw=correct+horse&id=admin') },
    { why: 'with a broken Authorization header', init: bad('Bearer x y z', RIGHT) },
    { why: 'with wrong Basic credentials', init: bad('Basic YTpi', RIGHT) },
  ]) {
    test(`3.2 POST /token with the right pair ${why} returns 200`, async () => {
      const response = await send(`${program.url}/token`, { method: 'POST', ...init });
      assert.deepEqual(
        {
          status: response.status,
          type: response.headers.get('content-type'),
          cache: response.headers.get('cache-control'),
          challenge: response.headers.get('www-authenticate'),
          members: Object.keys(JSON.parse(response.body)),
        },
        {
          status: 200,
          type: 'application/json',
          cache: 'no-store',
          challenge: null,
          members: ['token'],
        },
      );
      assert.match(JSON.parse(response.body).token, /^[\w-]+\.[\w-]+\.[\w-]{43}$/);
    });
  }

  for (const { why, init } of [
    { why: 'a wrong id', init: { body: { id: 'root', pw: PASSWORD } } },
    { why: 'a wrong pw', init: { body: { id: USER, pw: 'wrong horse' } } },
    { why: 'both wrong', init: { body: { id: 'root', pw: 'wrong horse' } } },
    { why: 'id and pw swapped', init: { body: { id: PASSWORD, pw: USER } } },
    { why: 'an id in another case', init: { body: { id: 'Admin', pw: PASSWORD } } },
    { why: 'a pw in another case', init: { body: { id: USER, pw: 'Correct horse' } } },
    { why: 'a space after the id', init: { body: { id: `${USER} `, pw: PASSWORD } } },
    { why: 'a NUL after the pw', init: { body: { id: USER, pw: `${PASSWORD}\0` } } },
    { why: 'a pw one character short', init: { body: { id: USER, pw: PASSWORD.slice(0, -1) } } },
    { why: 'a pw one character long', init: { body: { id: USER, pw: `${PASSWORD}e` } } },
    { why: 'the name instead of the id', init: { body: { id: 'Administrator', pw: PASSWORD } } },
    { why: 'no id', init: { body: { pw: PASSWORD } } },
    { why: 'no pw', init: { body: { id: USER } } },
    { why: 'neither', init: { body: {} } },
    { why: 'an empty id', init: { body: { id: '', pw: PASSWORD } } },
    { why: 'an empty pw', init: { body: { id: USER, pw: '' } } },
    { why: 'a number as pw', init: { body: { id: USER, pw: 12345678 } } },
    { why: 'null as pw', init: { body: { id: USER, pw: null } } },
    { why: 'true as pw', init: { body: { id: USER, pw: true } } },
    { why: 'an array of the right id', init: { body: { id: [USER], pw: PASSWORD } } },
    { why: 'an array of the right pw', init: { body: { id: USER, pw: [PASSWORD] } } },
    { why: 'an object as pw', init: { body: { id: USER, pw: { toString: PASSWORD } } } },
    {
      why: 'a lone surrogate as pw',
      init: typed('application/json', '{"id":"admin","pw":"\\ud800"}'),
    },
    { why: 'the pair under __proto__', init: proto() },
    {
      why: 'the pair under constructor',
      init: typed('application/json', { constructor: { prototype: RIGHT } }),
    },
    { why: 'the pair nested', init: { body: { user: RIGHT } } },
    { why: 'JSON that is an array', init: typed('application/json', [RIGHT]) },
    { why: 'JSON that is a string', init: typed('application/json', '"admin"') },
    { why: 'JSON that is a number', init: typed('application/json', '0') },
    { why: 'JSON that is null', init: typed('application/json', 'null') },
    { why: 'JSON that is true', init: typed('application/json', 'true') },
    { why: 'an empty body as JSON', init: typed('application/json', '') },
    { why: 'an empty body as form', init: form('') },
    { why: 'an empty body of no type', init: {} },
    { why: 'a form with a wrong pw', init: form('id=admin&pw=wrong') },
    { why: 'a form without pw', init: form('id=admin') },
    { why: 'a form with a nested pw', init: form('id=admin&pw[x]=correct+horse') },
    { why: 'a form with a list of one pw', init: form('id=admin&pw[]=correct+horse') },
    { why: 'a form with id twice', init: form('id=admin&id=admin&pw=correct+horse') },
  ]) {
    test(`3.3 3.11 POST /token with ${why} returns 401`, async () => {
      const response = await send(`${program.url}/token`, { method: 'POST', ...init });
      assert.deepEqual(summary(response), REFUSED);
    });
  }

  test('3.3 POST /token with neither a body nor a length returns 401', async () => {
    const response = await raw(
      program.url,
      'POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    );
    assert.match(response, /^HTTP\/1\.1 401 Unauthorized\r\n/);
    assert.match(response, /\r\nWWW-Authenticate: Bearer realm="token"\r\n/i);
    assert.match(response, /\r\n\r\nUnauthorized$/);
  });

  test('3.3 the response does not say whether the id exists', async () => {
    const [known, unknown] = await Promise.all(
      [USER, 'nobody'].map((id) =>
        send(`${program.url}/token`, { method: 'POST', body: { id, pw: 'wrong horse' } }),
      ),
    );
    const shape = (response?: HttpResponse) => [response?.status, response?.body, names(response)];
    assert.deepEqual(shape(known), shape(unknown));
    assert.deepEqual(shape(known)[0], 401);
  });

  test('3.4 the token has exactly the header, the claims and the signature of the rule', async () => {
    const earliest = Math.floor(Date.now() / 1000);
    const token = await newToken(program);
    const latest = Math.floor(Date.now() / 1000);
    const [header = '', payload = '', signature] = token.split('.');
    assert.equal(text(header), '{"alg":"HS256","typ":"JWT"}');
    const claims = JSON.parse(text(payload));
    assert.deepEqual(claims, {
      id: USER,
      name: 'Administrator',
      iat: claims.iat,
      exp: claims.iat + 3600,
    });
    assert.ok(Number.isInteger(claims.iat));
    assert.ok(claims.iat >= earliest && claims.iat <= latest, `iat ${claims.iat}`);
    assert.equal(signature, hmac(SECRET, `${header}.${payload}`));
  });

  for (const length of [0, 1, 7, 12, 13, 14, 64, 65, 4096, 16_000]) {
    test(`3.12 a password of ${length} wrong characters is refused like any other`, async () => {
      const body = { id: USER, pw: 'x'.repeat(length) };
      const response = await send(`${program.url}/token`, { method: 'POST', body });
      assert.deepEqual(summary(response), REFUSED);
    });
  }

  test('3.12 an id of 16,000 characters is refused like any other', async () => {
    const body = { id: 'a'.repeat(16_000), pw: PASSWORD };
    const response = await send(`${program.url}/token`, { method: 'POST', body });
    assert.deepEqual(summary(response), REFUSED);
  });
});

describe('3.1 greeting without a store', () => {
  test('3.1 GET / returns 200 while the store is down', async () => {
    const url = `postgres://nobody:none@127.0.0.1:${await freePort()}/none`;
    await using program = await start({ DATABASE_URL: url, DATABASE_TIMEOUT_MS: '500' });
    const users = await send(`${program.url}/users`);
    assert.equal(users.status, 500, 'the store is down');
    const response = await send(program.url);
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), TEXT);
  });
});

describe('3.2 and 3.4 with other settings', () => {
  const password = 'pässwörd: 🔑\u00a0=+&';
  const secret = 'ключ подписи: 🔐🔐🔐'.padEnd(40, '!');
  let program: Program;
  before(async () => {
    program = await start({
      AUTH_USER: 'jörg',
      AUTH_PASSWORD: password,
      AUTH_NAME: 'Jörg "🙂"',
      SIGNING_SECRET: secret,
    });
  });
  after(() => program?.[Symbol.asyncDispose]());

  for (const { why, init } of [
    { why: 'JSON', init: { body: { id: 'jörg', pw: password } } },
    { why: 'a form', init: form(String(new URLSearchParams({ id: 'jörg', pw: password }))) },
  ]) {
    test(`3.2 3.4 a pair, a name and a secret beyond ASCII are UTF-8 in ${why}`, async () => {
      const response = await send(`${program.url}/token`, { method: 'POST', ...init });
      const { token } = JSON.parse(response.body);
      const [header = '', payload = '', signature] = token.split('.');
      const { id, name } = JSON.parse(text(payload));
      assert.deepEqual({ id, name }, { id: 'jörg', name: 'Jörg "🙂"' });
      assert.equal(signature, hmac(secret, `${header}.${payload}`));
    });
  }

  test('3.20 the decomposed form of the same letters is the same login and password', async () => {
    const body = { id: 'jörg'.normalize('NFD'), pw: password.normalize('NFD') };
    assert.notEqual(body.pw, password);
    const response = await send(`${program.url}/token`, { method: 'POST', body });
    assert.equal(response.status, 200);
    const id = JSON.parse(Buffer.from(response.body.split('.')[1]!, 'base64url').toString()).id;
    assert.equal(id, 'jörg');
  });
});

function typed(type: string, body: unknown) {
  const content = typeof body === 'string' ? body : JSON.stringify(body);
  return { headers: { 'content-type': type }, body: content };
}

function form(body: string) {
  return typed(FORM, body);
}

function bad(authorization: string, body: object) {
  return { headers: { authorization }, body };
}

function proto() {
  return typed('application/json', `{"__proto__":${JSON.stringify(RIGHT)}}`);
}

function summary(response: HttpResponse) {
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    challenge: response.headers.get('www-authenticate'),
    body: response.body,
  };
}

function names(response: HttpResponse | undefined) {
  return [...(response?.headers.keys() ?? [])];
}

async function newToken(program: Program): Promise<string> {
  const response = await send(`${program.url}/token`, { method: 'POST', body: RIGHT });
  return JSON.parse(response.body).token;
}

function text(part: string): string {
  return Buffer.from(part, 'base64url').toString();
}

function hmac(secret: string, input: string): string {
  return createHmac('sha256', secret).update(input).digest('base64url');
}
