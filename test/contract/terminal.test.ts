// The service on a terminal, which `script` of util-linux provides, and under npm: the log (contract 6.7) and
// the signals (6.2, 6.9).
import assert from 'node:assert/strict';
import { type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { halfSent } from '../support/bytes.ts';
import { accepts, freePort } from '../support/daemon.ts';
import { newFolder } from '../support/program.ts';
import { missing } from '../support/tools.ts';
import { DEADLINE_MS, until } from '../support/until.ts';

const HAS_SCRIPT = { skip: missing('script') };
const { start } = JSON.parse(readFileSync('package.json', 'utf8')).scripts;

/** Runs a command on a terminal of its own; resolves once it has written the word. */
async function onTerminal(command: string, PORT = '0', word = 'listening') {
  const env = { ...process.env, PORT, DATABASE_URL: 'sqlite::memory:' };
  const terminal = spawn('script', ['-qec', command, '/dev/null'], { env });
  let output = '';
  terminal.stdout.setEncoding('utf8').on('data', (text) => (output += text));
  await until(() => output.includes(word));
  return { terminal, closed: once(terminal, 'close'), output: () => output };
}

test('6.7 a terminal gets JSON with --json', HAS_SCRIPT, async () => {
  const { terminal, closed, output } = await onTerminal(`${start} --json`);
  terminal.kill();
  await closed;
  assert.match(output(), /AUTH_PASSWORD is not set; generated for user admin: \S+/);
  assert.match(output(), /^\{"time":".+"message":"listening"/m);
});

test('6.7 6.10 6.12 a terminal gets text, and Ctrl-S blocks nothing', HAS_SCRIPT, async () => {
  const { terminal, closed, output } = await onTerminal(start);
  assert.match(output(), /^[\d:.]{12} listening url=http:\/\/localhost:\d+ store=sqlite /m);
  terminal.stdout.pause();
  const pid = readFileSync(`/proc/${terminal.pid}/task/${terminal.pid}/children`, 'utf8').trim();
  const state = () => /\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1];
  try {
    const url = /url=(\S+)/.exec(output())![1]!;
    // These are more lines than the terminal and its pipe hold.
    const headers = { 'X-Request-Id': 'x'.repeat(128) };
    const ask = async () => {
      const response = await fetch(url, { headers, signal: AbortSignal.timeout(DEADLINE_MS) });
      assert.equal(await response.text(), 'Hello! This is the Notes and Users API.\n');
    };
    // A busy machine takes a minute for 2,000 one after the other.
    for (let i = 0; i < 100; i++) await Promise.all(Array.from({ length: 20 }, ask));
    process.kill(Number(pid), 'SIGTERM');
    // The parent is blocked too and does not reap it.
    await until(() => state() === 'Z');
  } finally {
    if (state() !== 'Z') process.kill(Number(pid), 'SIGKILL');
    terminal.stdout.resume();
  }
  assert.deepEqual(await closed, [0, null]);
});

test('1.6 after Ctrl-S and Ctrl-Q there is the configuration error', HAS_SCRIPT, async () => {
  const command = `echo begin; read -r line; ${start}`;
  const { terminal, closed, output } = await onTerminal(command, 'x', 'begin');
  terminal.stdin.write('\x13\n'); // Ctrl-S
  await pause(2_000); // long enough to exit without having written the line
  terminal.stdin.write('\x11'); // Ctrl-Q
  assert.deepEqual(await closed, [78, null]);
  assert.match(output(), /PORT: invalid/);
});

/** Starts a command on a free port, and begins a POST once it listens. */
async function startPosting(command: string, args: readonly string[], options: SpawnOptions = {}) {
  const port = await freePort();
  const env = { ...process.env, PORT: String(port), DATABASE_URL: 'sqlite::memory:' };
  const child = spawn(command, args, { env, ...options, stdio: 'pipe' });
  child.stdout.resume();
  const url = `http://127.0.0.1:${port}`;
  await until(() => accepts(url));
  const held = await halfSent(url);
  return {
    child,
    url,
    closed: () => until(async () => !(await accepts(url))),
    /** Sends the rest of the body; resolves with the response. */
    async finish(): Promise<void> {
      held.finish();
      await held.received(/\r\n\r\nHTTP\/1\.1 201 Created\r\n/);
      held.socket.destroy();
    },
  };
}

// The signal that npm relays and that of the terminal race, so each is tried four times.
for (let i = 1; i <= 4; i++) {
  test(`6.2 Ctrl-C at npm start finishes a POST, then exits 0 (${i})`, HAS_SCRIPT, async () => {
    // With exec, because dash gets the signal too and would end with its own 130.
    const terminal = ['-qec', 'exec npm start', '/dev/null'];
    const { child, closed, finish } = await startPosting('script', terminal);
    child.stdin.write('\x03');
    await closed();
    await finish();
    assert.deepEqual(await once(child, 'close'), [0, null]);
  });

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`6.2 ${signal} to the process group of npm start does the same (${i})`, async () => {
      const { child, closed, finish } = await startPosting('npm', ['start'], { detached: true });
      process.kill(-child.pid!, signal);
      await closed();
      await finish();
      assert.deepEqual(await once(child, 'close'), [0, null]);
    });
  }
}

describe('6.9 SIGHUP and terminals', HAS_SCRIPT, () => {
  const folder = newFolder();
  const read = (name: string) => readFileSync(join(folder, name), 'utf8');

  for (const [why, command] of [
    ['the service', start],
    ['the service without input', `${start} < /dev/null`],
    ['the service with its log in a file', `${start} < /dev/null > ${join(folder, 'log')}`],
    ['npm start', 'npm start'],
    ['npm start with its log in a file', `npm start > ${join(folder, 'log')} 2>&1`],
  ] as const) {
    test(`6.9 closing the terminal of ${why} stops it like SIGTERM`, async () => {
      const terminal = ['-qec', command, '/dev/null'];
      const { child, closed, finish } = await startPosting('script', terminal);
      child.kill('SIGKILL');
      await closed();
      await finish();
      if (command.includes('log')) await until(() => read('log').includes('"stopped"'));
    });
  }

  test('6.9 SIGHUP changes nothing while the terminal is open', async () => {
    const line = `echo $$ > ${folder}/open; ${start}`;
    const { child, url, finish } = await startPosting('script', ['-qec', line, '/dev/null']);
    process.kill(Number(read('open')), 'SIGHUP');
    await finish();
    assert.equal((await fetch(url)).headers.get('connection'), 'keep-alive'); // It doesn't stop.
    child.stdin.write('\x03');
    assert.deepEqual(await once(child, 'close'), [0, null]);
  });

  test('6.9 under nohup, closing the terminal changes nothing', async () => {
    const line = `echo $$ > ${folder}/nohup; ${start.replace('exec', 'exec nohup')} > /dev/null`;
    const { child, closed, finish } = await startPosting('script', ['-qec', line, '/dev/null']);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await finish();
    process.kill(Number(read('nohup')), 'SIGTERM');
    await closed();
  });
});
