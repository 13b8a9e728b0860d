// Rules 6.7 to 6.16 of the contract: the log and its readers, arguments and exit statuses,
// connection headers and timeouts, errors outside a request.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { exchange, open, outcomes, request } from '../support/bytes.ts';
import { basic, send } from '../support/client.ts';
import { token } from '../support/login.ts';
import {
  ENTRY,
  newDatabase,
  newFolder,
  PASSWORD,
  Program,
  preloaded,
  SECRET,
  start,
  USER,
} from '../support/program.ts';
import { serve } from '../support/service.ts';
import { until } from '../support/until.ts';

const USAGE =
  'usage: notes-users [--json | --backup FILE | --live | --ready | --help | --version]\n';

describe('6 operations', { concurrency: 4 }, () => {
  test('6.8 a valid traceparent puts traceId into the line, any other does not', async () => {
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const valid = `00-${traceId}-00f067aa0ba902b7-01`;
    const other = (from: string | RegExp, to: string) => valid.replace(from, to);
    const valids = [
      ...[valid, ` ${valid} `, other(/..$/, 'ff'), other('00-', 'cc-')],
      // Later versions may have more fields.
      ...[`${other('00-', 'fe-')}-what-ever`, `${other('00-', '01-')}-`],
    ];
    const invalids = [
      ...['', other('00-', 'ff-'), `${valid}-01`, `${valid}-`, valid.slice(0, -3)],
      ...[`${other('00-', 'cc-')}.x`, other(traceId, '0'.repeat(32)), valid.toUpperCase()],
      ...[other('00f067aa0ba902b7', '0'.repeat(16)), other('4bf9', '4bg9'), other('4bf9', '4bf')],
      ...[valid, `cc${valid.slice(2)}-x`].map((each) => `${each}\r\ntraceparent: ${each}`),
    ];
    await using program = await start();
    for (const [i, value] of [...valids, ...invalids].entries()) {
      await exchange(program.url, `GET / HTTP/1.0\r\ntraceparent: ${value}\r\n\r\n`);
      await program.until(({ log }) => log.length > i + 1);
      assert.equal(program.log.at(-1)?.traceId, i < valids.length ? traceId : undefined, value);
    }
  });

  test('1.7, 6.8 the line of a request has these fields and no others, and no line at any level contains a secret, a body, an email, a token, a credential or a query', async () => {
    const previous = 'the signing secret of the day before';
    const url = new URL(await newDatabase('postgres'));
    const env = { DATABASE_URL: url.href, LOG_LEVEL: 'debug', VERIFY_ONLY_SECRET: previous };
    await using program = await serve(env);
    const { level, host } = await program.logged('connected');
    assert.deepEqual([level, host], ['debug', url.host]);
    const body = { name: 'Secretive', email: 'secretive@example.com' };
    const created = await send(`${program.url}/users?secretive`, { method: 'POST', body });
    const jwt = await token(program);
    const authorization = basic(USER, PASSWORD);
    for (const [path, init] of [
      ['/users', { method: 'POST', body }],
      ['/users?email=secretive@example.com', {}],
      ['/users?limit=secretive', {}],
      ['/notes', { headers: { authorization: `Bearer ${jwt}` } }],
      ['/protected', { headers: { authorization } }],
      ['/token', { method: 'POST', body: { id: PASSWORD, pw: 'secretive' } }],
      ['/secretive', { method: 'HEAD' }],
    ] as const) {
      await send(program.url + path, init);
    }
    const [refused] = await exchange(program.url, 'SECRETIVE\r\n\r\n');
    assert.deepEqual(await program.stop(), { code: 0, signal: null });
    const requests = program.log.filter(({ message }) => message === 'request');
    assert.equal(requests.length, 10);
    const { time, ms, ...rest } = requests[0]!;
    assert.match(String(time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.ok(typeof ms === 'number' && ms > 0 && ms < 60_000);
    assert.ok(String(time) < String(requests.at(-1)!.time));
    assert.deepEqual(rest, {
      level: 'info',
      message: 'request',
      requestId: created.headers.get('x-request-id'),
      method: 'POST',
      route: '/users',
      status: 201,
      bytes: Buffer.byteLength(created.body),
      client: '127.0.0.1',
    });
    const unrouted = { method: 'HEAD', route: '', status: 404, bytes: 0 };
    assert.partialDeepStrictEqual(requests.at(-2), unrouted);
    const bytes = Buffer.byteLength(refused!.body);
    const malformed = { method: '', route: '', status: 400, bytes, client: '127.0.0.1' };
    assert.partialDeepStrictEqual(requests.at(-1), malformed);
    const secrets = [PASSWORD, SECRET, previous, jwt, authorization.slice('Basic '.length)];
    for (const secret of [...secrets, 'ecretive', 'example.com', 'Welcome']) {
      assert.ok(!(program.stdout + program.stderr).includes(secret), secret);
    }
  });

  test('6.10 the service survives the exit of a log reader, and counts the lines', async () => {
    await using program = await start();
    program.process.stdout?.destroy();
    for (let i = 0; i < 20; i++) assert.equal((await send(program.url)).status, 200);
    assert.equal((await send(`${program.url}/users`)).status, 200);
    const metrics = await send(`${program.adminUrl}/metrics`);
    assert.match(metrics.body, /^log_dropped_lines_total [1-9]/m);
    assert.deepEqual(await program.stop(), { code: 0, signal: null });
  });

  for (const isCut of [false, true]) {
    test(`6.6 6.7 6.10 logging to a file is asynchronous, and resumes after a full disk${isCut ? ', after a line that was cut' : ''}`, async () => {
      const file = join(newFolder(), 'service.log');
      const shell = `ulimit -f 8; exec "$0" "$@" >>${file}`; // in units of 512 bytes
      const env = { DATABASE_URL: 'sqlite::memory:', PORT: '0', AUTH_PASSWORD: PASSWORD };
      const command = ['sh', '-c', shell, process.execPath, '--trace-sync-io', ENTRY];
      await using program = new Program(env, [], command);
      // The file ends in the middle of the line that didn't fit.
      const lines = () =>
        existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
      await until(() => lines().length > 0);
      program.url = JSON.parse(lines()[0]!).url;
      for (let i = 0; i < 50; i++) assert.equal((await send(program.url)).status, 200);
      const [first = '', ...others] = lines();
      assert.ok(others.length < 49);
      truncateSync(file, isCut ? first.length + '\n{"time":'.length : 0);
      assert.equal((await send(program.url)).status, 200);
      assert.deepEqual(await program.stop(), { code: 0, signal: null });
      const kept = lines();
      if (isCut) assert.equal(kept.splice(0, 2)[1], '{"time":');
      if (kept[0] === '') kept.shift(); // what ended the line that did not fit
      const logged = kept.map((line) => JSON.parse(line));
      const dropped = logged.findIndex(({ message }) => message === 'log lines dropped');
      const [{ count }] = logged.splice(dropped, 1);
      // The line of an earlier request can follow.
      const last = logged.slice(-3).map(({ message }) => message);
      assert.deepEqual(last, ['request', 'stopping', 'stopped']);
      // Of 'listening', 51 requests, 'stopping' and 'stopped'.
      assert.equal(1 + others.length + count + logged.length, 54);
      assert.doesNotMatch(program.stderr, /writeSync/); // --trace-sync-io
    });
  }

  test('6.7 who replaces the write of stdout gets the log, also if stdout is a file', async () => {
    // As pm2's cluster mode does.
    const code = `process.stdout.write = (text, encoding, done) => {
      process.stderr.write(text);
      done?.();
    }`;
    const env = { ...preloaded(code), DATABASE_URL: 'sqlite::memory:', PORT: '0' };
    const shell = `exec "$0" "$1" >${join(newFolder(), 'service.log')}`;
    await using program = new Program(env, [], ['sh', '-c', shell, process.execPath, ENTRY]);
    await until(() => program.stderr.includes('"listening"'));
    program.process.kill();
    await until(() => program.stderr.includes('"stopped"'));
  });

  test('6.12 a log reader that stops reading does not block a stop', async () => {
    await using program = await start();
    program.process.stdout?.pause();
    // Their lines are more than the pipe between the processes holds.
    const headers = { 'x-request-id': 'x'.repeat(128) };
    for (let i = 0; i < 40; i++) {
      await Promise.all(Array.from({ length: 100 }, () => send(program.url, { headers })));
    }
    program.process.kill('SIGTERM');
    const signal = AbortSignal.timeout(9_000); // half a second, on a busy machine
    assert.deepEqual(await once(program.process, 'exit', { signal }), [0, null]);
  });

  // A named pipe to which nothing more can be written, and one whose reader has exited.
  const full = 'exec 3<>pipe 4>pipe; dd if=/dev/zero of=pipe bs=1 oflag=nonblock 2>&-';
  const closed = 'exec 3<>pipe 4>pipe 3<&-';
  for (const [why, args, settings, status, ...pipes] of [
    ['a failed start', [], { DATABASE_URL: 'sqlite:/dev/null/x' }, 1, full, closed],
    ['a configuration error', [], { PORT: 'x' }, 78, full, closed],
    ['--help', ['--help'], {}, 0, closed],
  ] as const) {
    test(`6.4 6.11 6.12 nobody reads stdout and stderr: ${why} exits with ${status}`, async () => {
      for (const pipe of pipes) {
        const shell = `cd ${newFolder()}; mkfifo pipe; ${pipe}; exec "$0" "$@" >&4 2>&1`;
        const env = { DATABASE_URL: 'sqlite::memory:', PORT: '0', ...settings };
        await using program = new Program(env, args, ['sh', '-c', shell, process.execPath, ENTRY]);
        assert.deepEqual(await program.exited, { code: status, signal: null });
      }
    });
  }

  for (const [args, code, stdout, stderr] of [
    [['--backup', 'a', 'b'], 1, /^$/, USAGE],
    [['--json', '--live'], 1, /^$/, USAGE],
    [['--help'], 0, /^usage: .+\n\n( {2}--\w+ {2,}\S.+\n){5}/, ''],
    [['--version'], 0, /^notes-users \d+\.\d+\.\d+\n$/, ''],
  ] as const) {
    test(`6.11 ${args.join(' ')} exits with ${code}, and reads no setting`, async () => {
      await using program = new Program({ PORT: 'not a port' }, args);
      assert.deepEqual(await program.exited, { code, signal: null });
      assert.match(program.stdout, stdout);
      assert.equal(program.stderr, stderr);
    });
  }

  test('1 IDLE_TIMEOUT_MS: responses announce it, and idle connections are closed after it (6.14)', async () => {
    await using program = await start({ IDLE_TIMEOUT_MS: '1000' });
    const clients = await Promise.all([program.url, program.adminUrl].map((url) => open(url)));
    for (const client of clients) {
      const began = performance.now();
      assert.equal((await client.ask()).headers.get('keep-alive'), 'timeout=1');
      await client.closed; // The service closes it, not we.
      assert.ok(performance.now() - began > 990, 'not earlier');
    }
  });

  const STRAY = "throw new Error('stray')";
  for (const [why, fault, name = 'Error: stray', timeoutMs = ''] of [
    ['thrown', STRAY],
    ['rejected without an Error', 'Promise.reject()', 'undefined'],
    [
      'rejected, while another module only reports rejections',
      "process.on('unhandledRejection', () => {}); Promise.reject(new Error('stray'))",
    ],
    ['thrown, and a stop that times out', STRAY, undefined, '100'],
    [
      'thrown by a function that the driver calls',
      `const socket = () => Object.assign(new EventEmitter(), { write() { ${STRAY} } });
        postgres({ socket }).unsafe('select 1').catch(() => {})`,
    ],
  ] as const) {
    test(`6.16 after an error outside a request, ${why}, the process stops with 70`, async () => {
      await using program = await startWith(fault, { SHUTDOWN_TIMEOUT_MS: timeoutMs });
      const post = request('POST /users', '{"name":"Ann","email":"ann@example.com"}');
      await using client = await open(program.url);
      await client.write(post.slice(0, -9));
      await send(program.url);
      program.process.kill('SIGUSR2');
      await program.logged('stopping');
      const { message, level, cause } = program.log.find((line) => line.level === 'error')!;
      assert.deepEqual([message, level], ['fault outside a request', 'error']);
      assert.ok(typeof cause === 'string' && cause.startsWith(name), String(cause));
      if (name.startsWith('Error')) assert.match(String(cause), /\n +at /);
      // The process is already stopping, so an operator's first signal changes nothing.
      program.process.kill('SIGTERM');
      if (timeoutMs === '') {
        assert.deepEqual(outcomes([await client.ask(post.slice(-9))]), ['201 close']);
      }
      assert.deepEqual(await program.exited, { code: 70, signal: null });
      assert.equal(program.log.at(-1)?.message, 'stopped');
    });
  }

  test('6.16 the process survives errors of the driver, and of connections whose peer is gone', async () => {
    const codes = ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH'];
    // The driver writes to an unwritable socket in a later turn.
    await using program = await startWith(`
      const next = [
        () => postgres({ socket: () => new EventEmitter() }).unsafe('select 1').catch(() => {}),
        () => postgres({ socket: () => Object.assign(new EventEmitter(), { write: Buffer.alloc }) })
          .unsafe('select 1').catch(() => {}),
        () => { const sql = postgres(); sql.end(); sql.unsafe('select 1').execute(); },
        ...${JSON.stringify(codes)}.map((code) => () =>
          new EventEmitter().emit('error', Object.assign(new Error(code), { code }))),
      ][globalThis.faults = (globalThis.faults ?? -1) + 1];
      next();`);
    const faults = () => program.log.filter(({ level }) => level === 'error');
    for (const [i, cause] of [
      /^TypeError: .*write.*\n +at .*[/\\]postgres[/\\]/,
      /^TypeError.*ERR_INVALID_ARG_TYPE.*\n +at .*node:/,
      /CONNECTION_ENDED/,
      ...codes.map((code) => RegExp(`^Error: ${code}`)),
    ].entries()) {
      program.process.kill('SIGUSR2');
      await program.until(() => faults().length > i);
      assert.equal(faults()[i]?.message, 'fault outside a request');
      assert.match(String(faults()[i]?.cause), cause);
      assert.equal((await send(`${program.url}/users`)).status, 200);
    }
    assert.deepEqual(await program.stop(), { code: 0, signal: null });
    assert.equal(faults().length, 3 + codes.length);
  });
});

/** Starts the program with extra code that runs at SIGUSR2, outside any request. */
function startWith(fault: string, env = {}): Promise<Program> {
  const code = `import { EventEmitter } from 'node:events';
    import { createRequire } from 'node:module';
    const postgres = createRequire(${JSON.stringify(ENTRY)})('postgres');
    process.on('SIGUSR2', () => setTimeout(() => { ${fault} }));`;
  return start({ ...preloaded(code), ...env });
}
