// Section 1 of the contract: secrets and access (AUTH_*, SIGNING_SECRET*, VERIFY_ONLY_SECRET).
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send, statusesOf } from '../support/client.ts';
import { claims, token } from '../support/login.ts';
import { SECRET, start } from '../support/program.ts';
import { HEADER, signed } from '../vectors/tokens.ts';

test('1 AUTH_USER, AUTH_NAME, AUTH_PASSWORD: unset, they are admin, Administrator, and a password that each start generates and prints once on stderr', async () => {
  const [first, second] = await Array.fromAsync([1, 2], async () => {
    await using program = await start({ AUTH_USER: '', AUTH_PASSWORD: '' });
    const line = /^AUTH_PASSWORD is not set; generated for user admin: (\S{20})\n/m;
    await program.until(({ stderr }) => line.test(stderr));
    const password = line.exec(program.stderr)![1]!;
    assert.equal(claims(await token(program, password)).name, 'Administrator');
    await program.stop();
    const output = program.stdout + program.stderr;
    assert.equal(output.split(password).length, 2, 'printed more than once');
    return password;
  });
  assert.notEqual(first, second);
});

test('1 SIGNING_SECRET: unset, one is generated with a warning, and a restart invalidates tokens', async () => {
  await using first = await start({ SIGNING_SECRET: '' });
  await using second = await start({ SIGNING_SECRET: '' });
  await first.until(({ stderr }) => /SIGNING_SECRET.*\n/.test(stderr));
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
  const responses = [SECRET, next, previous, 'never configured'].map((secret) => {
    const headers = { authorization: `Bearer ${signed(HEADER, claims(jwt), secret)}` };
    return send(`${program.url}/notes`, { headers });
  });
  assert.deepEqual(statusesOf(await Promise.all(responses)), [200, 200, 200, 401]);
});
