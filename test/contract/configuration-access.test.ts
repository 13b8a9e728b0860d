// Section 1 of the contract: access (AUTH_*, SIGNING_SECRET*, PROTECT_USERS, TRUST_PROXY),
// and the note.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { basic, raw, send } from '../support/client.ts';
import { claims, login, token } from '../support/login.ts';
import { PASSWORD, SECRET, start, USER } from '../support/program.ts';
import { HEADER, signed } from '../vectors/tokens.ts';

describe('1 configuration: credentials', { concurrency: 2, timeout: 300_000 }, () => {
  test('1 AUTH_USER, AUTH_NAME, NOTE_TITLE, NOTE_CONTENTS: the defaults are admin, Administrator and a welcome', async () => {
    await using program = await start({ AUTH_USER: '' });
    const jwt = await token(program);
    assert.deepEqual([claims(jwt).id, claims(jwt).name], ['admin', 'Administrator']);
    const headers = { authorization: `Bearer ${jwt}` };
    const { title, contents } = JSON.parse((await send(`${program.url}/notes`, { headers })).body);
    assert.equal(title, 'Welcome');
    assert.match(contents, /\S/);
  });

  test('1 AUTH_PASSWORD: unset, each start generates one and prints it once on stderr', async () => {
    const printed = [];
    for (let i = 0; i < 2; i++) {
      await using program = await start({ AUTH_PASSWORD: '' });
      const line = /^AUTH_PASSWORD is not set; generated for user admin: (\S+)\n/m;
      await program.until(({ stderr }) => line.test(stderr));
      const password = line.exec(program.stderr)![1]!;
      assert.equal((await login(program, password)).status, 200);
      await program.stop();
      const output = program.stdout + program.stderr;
      assert.equal(output.split(password).length, 2, 'printed more than once');
      printed.push(password);
    }
    assert.notEqual(printed[0], printed[1]);
  });

  test('1 SIGNING_SECRET: unset, one is generated with a warning, and a restart invalidates tokens', async () => {
    await using first = await start({ SIGNING_SECRET: '' });
    await using second = await start({ SIGNING_SECRET: '' });
    await first.until(({ stdout, stderr }) => /SIGNING_SECRET.*\n/.test(stdout + stderr));
    const headers = { authorization: `Bearer ${await token(first)}` };
    assert.equal((await send(`${first.url}/notes`, { headers })).status, 200);
    assert.equal((await send(`${second.url}/notes`, { headers })).status, 401);
  });

  test('1 VERIFY_ONLY_SECRET, SIGNING_SECRET_PREVIOUS: both verify, neither signs (3.7)', async () => {
    const next = 'the signing secret of the day after!';
    const previous = 'the signing secret of the day before';
    const env = { VERIFY_ONLY_SECRET: next, SIGNING_SECRET_PREVIOUS: previous };
    await using program = await start(env);
    const jwt = await token(program);
    assert.equal(jwt, signed(HEADER, claims(jwt), SECRET));
    const statuses = [];
    await using without = await start();
    for (const [{ url }, secret] of [
      [program, SECRET],
      [program, next],
      [program, previous],
      [program, 'a secret that was never configured'],
      [without, previous],
    ] as const) {
      const headers = { authorization: `Bearer ${signed(HEADER, claims(jwt), secret)}` };
      statuses.push((await send(`${url}/notes`, { headers })).status);
    }
    assert.deepEqual(statuses, [200, 200, 200, 401, 401]);
  });

  // description.test.ts tries each route.
  test('1 PROTECT_USERS: true requires the bearer token', async () => {
    await using program = await start({ PROTECT_USERS: 'true' });
    for (const path of ['/users', '/users/1']) {
      for (const authorization of ['', basic(USER, PASSWORD)]) {
        const { status, headers } = await send(program.url + path, { headers: { authorization } });
        assert.deepEqual([status, headers.get('www-authenticate')], [401, 'Bearer realm="users"']);
      }
    }
    const headers = { authorization: `Bearer ${await token(program)}` };
    assert.equal((await send(`${program.url}/users`, { headers })).status, 200);
  });

  test('1 AUTH_FAILURES_PER_MINUTE: that many failures return 401, then 429; the default is 60, and 0 disables it', async () => {
    for (const [AUTH_FAILURES_PER_MINUTE, limit] of [
      ['2', 2],
      ['', 60],
      ['0', 100],
    ] as const) {
      await using program = await start({ AUTH_FAILURES_PER_MINUTE });
      const statuses = [];
      for (let i = 0; i < limit; i++) statuses.push((await login(program, 'wrong')).status);
      assert.deepEqual(statuses, Array(limit).fill(401));
      const { status } = await login(program);
      assert.equal(status, AUTH_FAILURES_PER_MINUTE === '0' ? 200 : 429);
    }
  });

  test('1 TRUST_PROXY: the client is the entry of X-Forwarded-For at that position from the right', async () => {
    for (const [TRUST_PROXY, list, client] of [
      ['', '203.0.113.1', '127.0.0.1'],
      ['2', '198.51.100.9, 203.0.113.1|203.0.113.2', '203.0.113.1'],
      ['2', '203.0.113.2', '127.0.0.1'],
    ] as const) {
      await using program = await start({ TRUST_PROXY });
      const fields = list.split('|').map((line) => `X-Forwarded-For: ${line}\r\n`);
      const head = `GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${fields.join('')}\r\n`;
      await raw(program.url, head);
      assert.equal((await program.logged('request')).client, client, list);
    }
  });
});
