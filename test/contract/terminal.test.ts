// What the program writes to a terminal (contract 6.7). `script` of util-linux gives
// it one.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

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
    why: 'JSON where --json asks for it',
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
