// Section 6 of the contract: start, stop, health checks, and no synchronous I/O in a request.
import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { halfSent, open, outcomes } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { responsesIn, send, statusesOf } from '../support/client.ts';
import { accepts, freePort, targetOf } from '../support/daemon.ts';
import { everyRoute, STATUSES } from '../support/every-route.ts';
import { newDatabase, PASSWORD, Program, preloaded, start, USER } from '../support/program.ts';
import { lockWrites, pathOf, refusal, serve } from '../support/service.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

const DONE = { code: 0, signal: null };
const FAILED = { code: 1, signal: null };
const LIST = 'GET /users HTTP/1.1\r\nHost: x\r\n\r\n';
const ON_LINUX = { skip: process.platform !== 'linux' && 'needs /proc, which Linux has' };

describe('6 the process', { concurrency: 3 }, () => {
  for (const isSilent of [false, true]) {
    const how = isSilent ? 'accepts connections and never responds' : 'refuses connections';
    test(`2.9, 3.1, 6.1, 6.2 a server that ${how}: /users returns 500, /ready 503, the log has one line, and a stop exits with 0`, async () => {
      await using proxy = await TcpProxy.listen(0);
      if (isSilent) proxy.stall();
      else proxy.refuse();
      // A name with two addresses.
      const lookup = `import dns from 'node:dns';
        dns.lookup = (_name, _options, done) =>
          done(null, [1, 2].map((n) => ({ address: '127.0.0.' + n, family: 4 })));`;
      await using program = await start({
        DATABASE_URL: `postgres://two.example:${proxy.port}/none`,
        DATABASE_TIMEOUT_MS: '500',
        ...preloaded(lookup),
      });
      const { level, cause } = await program.logged('store unavailable');
      assert.equal(level, 'error');
      const faults = [1, 2].map((n) => `connect ECONNREFUSED 127.0.0.${n}:${proxy.port}`);
      if (!isSilent) assert.equal(cause, faults.join('; '));
      for (const method of ['GET', 'DELETE']) {
        const { status, body } = await send(`${program.url}/users/1`, { method });
        assert.deepEqual([status, body], [500, 'Internal Server Error']);
      }
      const { status, body } = await send(`${program.adminUrl}/ready`);
      assert.deepEqual([status, body.slice(0, 28)], [503, 'not ready: store unavailable']);
      assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
      assert.equal((await send(program.url)).status, 200);
      assert.equal(program.log.filter(({ message }) => /^store /.test(message)).length, 1);
      const failed = await program.logged('request failed');
      assert.equal(failed.cause, `the store failed: ${cause}`); // 2.9
      assert.deepEqual(await program.stop(), DONE);
    });
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`6.2 ${signal}: a request in flight finishes with Connection: close, then exit 0`, async () => {
      await using program = await start({ SHUTDOWN_TIMEOUT_MS: '60000' });
      await using held = await halfSent(program.url);
      program.process.kill(signal);
      await program.logged('stopping');
      await until(async () => !(await accepts(program.url)));
      assert.equal((await send(`${program.adminUrl}/live`)).status, 200); // 7.1
      held.finish();
      await held.closed;
      const [, response] = responsesIn(held.text()); // after the 100
      assert.deepEqual(outcomes([response!]), ['201 close']);
      assert.match(response!.body, /^\{"id":1,"name":"Ann",.*\}$/);
      assert.deepEqual(await program.exited, DONE);
      const { level, message } = program.log.at(-1)!;
      assert.deepEqual([level, message], ['info', 'stopped']);
    });
  }

  for (const name of ['SHUTDOWN_TIMEOUT_MS', 'SHUTDOWN_DELAY_MS']) {
    test(`6.2 a second signal after a second, within ${name}, ends it at once with 1, and an earlier one does not`, async () => {
      const clock = `let ms = 0; performance.now = () => ms; process.on('SIGUSR2', () => { ms += 500; });`;
      await using program = await start({ [name]: '600000', ...preloaded(clock) });
      await using _held = await halfSent(program.url);
      program.process.kill('SIGTERM');
      await program.logged('stopping');
      for (const signal of ['SIGUSR2', 'SIGTERM', 'SIGUSR2'] as const) {
        program.process.kill(signal);
        assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
      }
      assert.deepEqual(await program.stop('SIGINT'), FAILED);
    });
  }

  test('6.2 a SHUTDOWN_TIMEOUT_MS of 0 without requests in flight exits with 0', async () => {
    await using program = await start({ SHUTDOWN_TIMEOUT_MS: '0' });
    await using idle = await open(program.url);
    await idle.ask();
    assert.deepEqual(await program.stop(), DONE);
    const messages = program.log.map(({ message }) => message);
    assert.deepEqual(messages.slice(-2), ['stopping', 'stopped']);
  });

  test('1 SHUTDOWN_TIMEOUT_MS: after the delay, a stop waits this long for a request in flight, then exits with 1 (6.2)', async () => {
    await using program = await start({ SHUTDOWN_DELAY_MS: '1000', SHUTDOWN_TIMEOUT_MS: '300' });
    await using _held = await halfSent(program.url);
    const began = performance.now();
    assert.deepEqual(await program.stop(), FAILED);
    assert.ok(performance.now() - began >= 1_290);
    const message = 'SHUTDOWN_TIMEOUT_MS has passed; requests in flight are cut';
    const { level } = await program.logged(message);
    assert.equal(level, 'error');
  });

  test('1 SHUTDOWN_DELAY_MS: meanwhile /ready fails, and new and old connections are served', async () => {
    await using program = await start({ SHUTDOWN_DELAY_MS: '5000' });
    await using old = await open(program.url);
    await old.ask();
    assert.equal((await send(`${program.adminUrl}/ready`)).status, 200);
    const began = performance.now();
    program.process.kill('SIGTERM');
    await program.logged('stopping');
    const { status, body } = await send(`${program.adminUrl}/ready`); // 7.2
    assert.deepEqual([status, body], [503, 'not ready: stopping\n']);
    await using fresh = await open(program.url);
    for (const client of [old, fresh]) {
      assert.deepEqual(outcomes([await client.ask(LIST)]), ['200 close']);
    }
    assert.deepEqual(await program.exited, DONE);
    assert.ok(performance.now() - began >= 4_990);
  });

  test('6.2 pipelines on connections that the kernel has already queued are served, with their refusals (2.3)', async () => {
    await using program = await start();
    await using used = await open(program.url);
    await used.ask();
    // While the process is frozen, the kernel queues the connections and their requests.
    program.process.kill('SIGSTOP');
    const waiting = await Promise.all(Array.from({ length: 50 }, () => open(program.url)));
    for (const client of [used, ...waiting]) await client.write(`${LIST.repeat(2)}?\r\n\r\n`);
    program.process.kill('SIGTERM');
    program.process.kill('SIGCONT');
    for (const { closed, text } of waiting) {
      await closed;
      assert.deepEqual(statusesOf(responsesIn(text())), [200, 200, 400]);
    }
    await used.closed;
    assert.deepEqual(statusesOf(responsesIn(used.text())), [200, 200, 200, 400]);
    assert.deepEqual(await program.exited, DONE);
  });

  test('6.2 6.9 SIGTERM ends a startup, and SIGHUP changes nothing', ON_LINUX, async () => {
    const url = await newDatabase('sqlite');
    await using lock = await lockWrites(url);
    await using ended = await waiting(url);
    assert.deepEqual(await ended.stop(), DONE);
    assert.equal(ended.stdout, '');
    await using program = await waiting(url);
    program.process.kill('SIGHUP');
    await lock.release();
    await program.logged('listening');
    program.process.kill('SIGHUP');
    assert.deepEqual(await program.stop(), DONE);
    const messages = program.log.map(({ message }) => message);
    assert.deepEqual(messages, ['listening', 'stopping', 'stopped']);
  });

  const skip = ON_LINUX.skip || NO_OPENSSL;
  test('6.9 a startup serves TLS files that are replaced while it waits', { skip }, async () => {
    const url = await newDatabase('sqlite');
    await using lock = await lockWrites(url);
    const [used, later] = [certificate(), certificate()];
    await using program = await waiting(url, used);
    for (const name of ['TLS_CERT_FILE', 'TLS_KEY_FILE'] as const) cpSync(later[name], used[name]);
    await lock.release();
    const { url: address } = await program.logged('listening');
    const { socket } = await open(String(address), { ca: readFileSync(later.TLS_CERT_FILE) }, true);
    assert.ok(Reflect.get(socket, 'authorized'));
  });

  for (const name of ['PORT', 'ADMIN_PORT']) {
    test(`6.4 the ${name} in use is one clear line and exit 1`, async () => {
      await using busy = await TcpProxy.listen(0);
      const env = { ADMIN_PORT: '0', [name]: String(busy.port) };
      assert.match(await refusal('sqlite::memory:', env), RegExp(`in use.*:${busy.port}$`));
    });
  }

  test('6.5 --live asks whether the service responds, --ready whether it takes requests; both fail if it hangs or is gone', async () => {
    await using program = await start({ SHUTDOWN_DELAY_MS: '60000' });
    const url = `postgres://127.0.0.1:${await freePort()}/none`;
    await using away = await start({ DATABASE_URL: url });
    await away.logged('store unavailable');
    assert.deepEqual(await checks(program), [DONE, DONE]);
    assert.deepEqual(await checks(away), [DONE, FAILED]);
    program.process.kill('SIGTERM');
    await program.logged('stopping');
    assert.deepEqual(await checks(program), [DONE, FAILED]);
    program.process.kill('SIGSTOP');
    assert.deepEqual(await checks(program), [FAILED, FAILED]);
    await program.stop('SIGKILL');
    assert.deepEqual(await checks(program), [FAILED, FAILED]);
  });

  test('6.6 no request does synchronous I/O', async () => {
    const env = { DATABASE_URL: await newDatabase('sqlite'), NODE_OPTIONS: '--trace-sync-io' };
    await using program = await serve(env);
    const begin = program.stderr.length;
    const credential = { user: USER, password: PASSWORD };
    const service = { ...program, credential, close: () => program.stop() };
    assert.equal(await everyRoute(async () => service as never), STATUSES);
    const found = program.stderr.slice(begin).split(/(?=\(node:\d+\) WARNING: Detected use)/);
    const others = found.filter((trace) => !/checkFiles|exposition/.test(trace)); // 5.2, 7.3
    assert.ok(others.length < found.length, 'it is detected');
    for (const trace of others) assert.match(trace, /internal\/crypto/);
  });
});

/** Runs both health checks; resolves with their exits. */
function checks({ adminUrl }: Program) {
  // They wait for 2.5 s at most.
  const limit = `const { timeout } = AbortSignal;
    AbortSignal.timeout = (ms) => (ms > 2_500 ? process.exit(9) : timeout(ms));`;
  const env = { ADMIN_PORT: new URL(adminUrl).port, ...preloaded(limit) };
  const run = (argument: string) => new Program(env, [argument]).exited;
  return Promise.all(['--live', '--ready'].map(run));
}

/** Starts a program; resolves once it has opened the locked file and waits. */
async function waiting(url: string, env: Record<string, string> = {}): Promise<Program> {
  const program = new Program({ DATABASE_URL: url, PORT: '0', ...env });
  const folder = `/proc/${program.process.pid}/fd`;
  const files = () => readdirSync(folder).map((name) => targetOf(join(folder, name)));
  await until(() => files().includes(pathOf(url)));
  return program;
}
