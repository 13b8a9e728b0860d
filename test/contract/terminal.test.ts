// The log on a terminal (contract 6.7), which `script` of util-linux provides.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';

const HAS_SCRIPT = {
  skip: spawnSync('script', ['--version']).error && 'needs script (util-linux)',
};
const { start } = JSON.parse(readFileSync('package.json', 'utf8')).scripts;

for (const { why, argument, pattern } of [
  {
    why: 'text',
    argument: '',
    pattern: /^[\d:.]{12} listening url=http:\/\/localhost:\d+ store=sqlite /,
  },
  {
    why: 'JSON with --json',
    argument: ' --json',
    pattern: /^\{"time":".+"message":"listening"/,
  },
]) {
  test(`6.7 a terminal gets ${why}`, HAS_SCRIPT, async () => {
    const env = { ...process.env, PORT: '0', DATABASE_URL: 'sqlite::memory:' };
    const terminal = spawn('script', ['-qec', start + argument, '/dev/null'], { env });
    let output = '';
    terminal.stdout.setEncoding('utf8');
    while (!output.includes('listening')) output += (await once(terminal.stdout, 'data'))[0];
    terminal.kill();
    await once(terminal, 'close');
    assert.match(output, /AUTH_PASSWORD is not set; generated for user admin: \S+/);
    const line = output.split(/\r?\n/).find((text) => text.includes('listening'));
    assert.match(String(line), pattern);
  });
}

test('6.10 6.12 a stopped terminal, as after Ctrl-S, blocks neither the service nor its stop', {
  ...HAS_SCRIPT,
  timeout: 60_000,
}, async () => {
  const env = { ...process.env, PORT: '0', DATABASE_URL: 'sqlite::memory:' };
  const terminal = spawn('script', ['-qec', start, '/dev/null'], { env });
  let output = '';
  terminal.stdout.setEncoding('utf8');
  while (!output.includes('listening')) output += (await once(terminal.stdout, 'data'))[0];
  terminal.stdout.pause();
  const pid = readFileSync(`/proc/${terminal.pid}/task/${terminal.pid}/children`, 'utf8').trim();
  const state = () => /\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1];
  try {
    const url = /url=(\S+)/.exec(output)![1]!;
    // These are more lines than the terminal and its pipe hold.
    const headers = { 'X-Request-Id': 'x'.repeat(128) };
    for (let i = 0; i < 2_000; i++) {
      const response = await fetch(url, { headers, signal: AbortSignal.timeout(5_000) });
      assert.equal(await response.text(), 'Hello! This is the Notes and Users API.\n');
    }
    process.kill(Number(pid), 'SIGTERM');
    // The parent is blocked too and does not reap it.
    while (state() !== 'Z') await pause(10);
  } finally {
    if (state() !== 'Z') process.kill(Number(pid), 'SIGKILL');
    terminal.stdout.resume();
  }
  assert.deepEqual(await once(terminal, 'close'), [0, null]);
});
