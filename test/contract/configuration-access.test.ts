// Section 1 of the contract: access (AUTH_*, SIGNING_SECRET*, PROTECT_USERS, TRUST_PROXY),
// and the note.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { basic, raw, send } from '../support/client.ts';
import { claims, login, resign, token } from '../support/login.ts';
import { PASSWORD, type Program, SECRET, start, USER } from '../support/program.ts';

const EMOJI = '\u{1F600}';

describe('1 configuration: credentials', { concurrency: 2, timeout: 300_000 }, () => {
  test('1 AUTH_USER, AUTH_NAME: the defaults are admin and Administrator', async () => {
    await using program = await start({ AUTH_USER: '', AUTH_NAME: '' });
    const { id, name } = claims(await token(program, PASSWORD, 'admin'));
    assert.deepEqual([id, name], ['admin', 'Administrator']);
  });

  test('1 AUTH_USER, AUTH_PASSWORD, AUTH_NAME: the set values are valid, and the default user is not', async () => {
    const env = { AUTH_USER: 'Zoë', AUTH_PASSWORD: `${EMOJI.repeat(7)}:`, AUTH_NAME: 'Zoë Ω' };
    await using program = await start(env);
    const { id, name } = claims(await token(program, env.AUTH_PASSWORD, env.AUTH_USER));
    assert.deepEqual([id, name], ['Zoë', 'Zoë Ω']);
    const authorization = basic(env.AUTH_USER, env.AUTH_PASSWORD);
    assert.equal(
      (await send(`${program.url}/protected`, { headers: { authorization } })).status,
      200,
    );
    assert.equal((await login(program, env.AUTH_PASSWORD, 'admin')).status, 401);
  });

  test('1 AUTH_PASSWORD: unset, each start generates one and prints it once on stderr', async () => {
    const printed = [];
    for (let i = 0; i < 2; i++) {
      await using program = await start({ AUTH_PASSWORD: '' });
      await program.until(({ stderr }) => /AUTH_PASSWORD.*\n/.test(stderr));
      const line = program.stderr.split('\n').filter((text) => text.includes('AUTH_PASSWORD'));
      assert.equal(line.length, 1, program.stderr);
      const right = [];
      for (const word of line[0]!.split(/[\s"']+/).filter((text) => text.length >= 8)) {
        const { status } = await login(program, word);
        if (status === 200) right.push(word);
      }
      assert.equal(right.length, 1, `a password is in: ${line[0]}`);
      await program.stop();
      const output = program.stdout + program.stderr;
      assert.equal(output.split(right[0]!).length, 2, 'printed more than once');
      printed.push(right[0]);
    }
    assert.notEqual(printed[0], printed[1]);
  });

  test('1 SIGNING_SECRET: its UTF-8 bytes are the HS256 key', async () => {
    const secret = 'é'.repeat(16);
    await using program = await start({ SIGNING_SECRET: secret });
    const jwt = await token(program);
    assert.equal(jwt, resign(jwt, secret));
  });

  test('1 SIGNING_SECRET: unset, one is generated with a warning, and a restart invalidates tokens', async () => {
    await using first = await start({ SIGNING_SECRET: '' });
    await using second = await start({ SIGNING_SECRET: '' });
    await first.until(({ stdout, stderr }) => /SIGNING_SECRET.*\n/.test(stdout + stderr));
    const headers = { authorization: `Bearer ${await token(first)}` };
    assert.equal((await send(`${first.url}/notes`, { headers })).status, 200);
    assert.equal((await send(`${second.url}/notes`, { headers })).status, 401);
  });

  test('1 SIGNING_SECRET_PREVIOUS: verifies, never signs', async () => {
    const previous = 'the signing secret of the day before';
    await using program = await start({ SIGNING_SECRET_PREVIOUS: previous });
    const jwt = await token(program);
    assert.equal(jwt, resign(jwt, SECRET));
    const statuses = [];
    for (const secret of [SECRET, previous, 'a secret that was never configured']) {
      const headers = { authorization: `Bearer ${resign(jwt, secret)}` };
      statuses.push((await send(`${program.url}/notes`, { headers })).status);
    }
    assert.deepEqual(statuses, [200, 200, 401]);
  });

  test('1 SIGNING_SECRET_PREVIOUS: unset, only SIGNING_SECRET verifies', async () => {
    await using program = await start();
    const jwt = resign(await token(program), 'the signing secret of the day before');
    const headers = { authorization: `Bearer ${jwt}` };
    assert.equal((await send(`${program.url}/notes`, { headers })).status, 401);
  });

  test('1 NOTE_TITLE, NOTE_CONTENTS: the one note, by default a short welcome', async () => {
    const notes = [];
    for (const env of [{}, { NOTE_TITLE: 'T "1"', NOTE_CONTENTS: 'line 1\nline 2 \u2028' }]) {
      await using program = await start(env);
      const headers = { authorization: `Bearer ${await token(program)}` };
      notes.push(JSON.parse((await send(`${program.url}/notes`, { headers })).body));
    }
    assert.deepEqual(Object.keys(notes[0]), ['title', 'contents']);
    assert.match(notes[0].title, /\S/);
    assert.match(notes[0].contents, /\S/);
    assert.deepEqual(notes[1], { title: 'T "1"', contents: 'line 1\nline 2 \u2028' });
  });

  test('1 PROTECT_USERS: true requires the bearer token on every /users route', async () => {
    await using program = await start({ PROTECT_USERS: 'true' });
    const authorization = `Bearer ${await token(program)}`;
    const body = { name: 'Ann', email: 'ann@example.com' };
    const routes = [
      ['POST', '/users', body, 201],
      ['GET', '/users', undefined, 200],
      ['HEAD', '/users', undefined, 200],
      ['GET', '/users/1', undefined, 200],
      ['PUT', '/users/1', body, 200],
      ['PATCH', '/users/1', {}, 200],
      ['DELETE', '/users/1', undefined, 200],
    ] as const;
    for (const [method, path, body, status] of routes) {
      const refused = await send(program.url + path, { method, body });
      assert.equal(refused.status, 401, `${method} ${path}`);
      assert.equal(refused.headers.get('www-authenticate'), 'Bearer realm="users"');
      assert.equal(refused.body, method === 'HEAD' ? '' : 'Unauthorized');
      const taken = await send(program.url + path, { method, body, headers: { authorization } });
      assert.equal(taken.status, status, `${method} ${path}`);
    }
    const headers = { authorization: basic(USER, PASSWORD) };
    assert.equal((await send(`${program.url}/users`, { headers })).status, 401);
  });

  test('1 PROTECT_USERS: false and unset leave the /users routes open', async () => {
    for (const PROTECT_USERS of ['false', '']) {
      await using program = await start({ PROTECT_USERS });
      const headers = { authorization: 'Bearer nonsense' };
      assert.equal((await send(`${program.url}/users`, { headers })).status, 200);
      const body = { name: 'Ann', email: 'ann@example.com' };
      assert.equal((await send(`${program.url}/users`, { method: 'POST', body })).status, 201);
    }
  });

  test('1 AUTH_FAILURES_PER_MINUTE: 2 failures pass, /token and /protected together, then 429', async () => {
    await using program = await start({ AUTH_FAILURES_PER_MINUTE: '2' });
    const headers = { authorization: basic(USER, 'wrong') };
    const statuses = [
      (await login(program, 'wrong')).status,
      (await send(`${program.url}/protected`, { headers })).status,
      (await login(program, 'wrong')).status,
      (await send(`${program.url}/protected`, { headers })).status,
    ];
    assert.deepEqual(statuses, [401, 401, 429, 429]);
  });

  test('1 AUTH_FAILURES_PER_MINUTE: the default is 60', async () => {
    await using program = await start();
    const statuses = [];
    for (let i = 0; i < 61; i++) statuses.push((await login(program, 'wrong')).status);
    assert.deepEqual(statuses, [...Array(60).fill(401), 429]);
  });

  test('1 AUTH_FAILURES_PER_MINUTE: 0 disables the limit', async () => {
    await using program = await start({ AUTH_FAILURES_PER_MINUTE: '0' });
    const statuses = new Set<number>();
    for (let i = 0; i < 200; i++) statuses.add((await login(program, 'wrong')).status);
    assert.deepEqual([...statuses], [401]);
    assert.equal((await login(program)).status, 200);
  });
});

describe('1 configuration: proxies', { concurrency: 2, timeout: 300_000 }, () => {
  const rows = [
    ['0', '203.0.113.1', '127.0.0.1', 'no proxy is trusted'],
    ['', '203.0.113.1', '127.0.0.1', 'none is by default'],
    ['1', '203.0.113.1, 203.0.113.2', '203.0.113.2', 'the last address'],
    ['1', '203.0.113.1|203.0.113.2', '203.0.113.2', 'several lines are one list'],
    ['1', '', '127.0.0.1', 'no header'],
    ['2', '198.51.100.9, 203.0.113.1,203.0.113.2', '203.0.113.1', 'the last but one'],
    ['2', '198.51.100.9, 203.0.113.1|203.0.113.2', '203.0.113.1', 'over two lines'],
    ['2', '203.0.113.2', '127.0.0.1', 'the list is too short'],
  ] as const;
  for (const TRUST_PROXY of ['0', '', '1', '2']) {
    describe(`TRUST_PROXY="${TRUST_PROXY}"`, { concurrency: 1 }, () => {
      let program: Program;
      before(async () => {
        program = await start({ TRUST_PROXY });
      });
      after(() => program[Symbol.asyncDispose]());

      for (const [, list, client, why] of rows.filter(([value]) => value === TRUST_PROXY)) {
        test(`1 TRUST_PROXY: "${TRUST_PROXY}" with "${list}" makes the client ${client} (${why})`, async () => {
          const lines = list.split('|').map((line) => `X-Forwarded-For: ${line}\r\n`);
          const id = `id-${rows.findIndex((row) => row[3] === why)}`;
          const fields = `X-Request-Id: ${id}\r\n${list && lines.join('')}`;
          const head = `GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${fields}\r\n`;
          assert.match(await raw(program.url, head), /^HTTP\/1\.1 200 /);
          const find = () => program.log.find(({ requestId }) => requestId === id);
          await program.until(() => find() !== undefined);
          assert.equal(find()?.client, client);
        });
      }
    });
  }

  test('1 TRUST_PROXY: failures count for the address that the proxy saw', async () => {
    await using program = await start({ TRUST_PROXY: '1', AUTH_FAILURES_PER_MINUTE: '1' });
    const statuses = [];
    for (const list of ['203.0.113.1', 'spoofed, 203.0.113.1', '203.0.113.2', '203.0.113.2']) {
      statuses.push((await login(program, 'wrong', USER, { 'x-forwarded-for': list })).status);
    }
    assert.deepEqual(statuses, [401, 429, 401, 429]);
  });
});
