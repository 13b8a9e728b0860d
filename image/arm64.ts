// Builds the image for arm64 and runs it, on arm64 or under qemu:
//   npx node image/arm64.ts [FLAG …]
// The flags go to the engine's build. On other processors it needs qemu's user mode (Debian's
// qemu-user-static) and the kernel's binfmt_misc. Prints figures; exit status 0 if everything works.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ENGINE, run } from './unpack.ts';

const SOURCE = join(import.meta.dirname, '..');
const IMAGE = 'notes-users-arm64:latest';
const PLATFORM = ['--platform', 'linux/arm64'];
const QEMU = '/proc/sys/fs/binfmt_misc/qemu-aarch64';
const START_TIMEOUT_MS = 120_000;

/**
 * The flags that docs/operations.md recommends, with more memory for qemu. With 128 MB, the kernel
 * kills the service and the health check, which is a second emulated process.
 */
const HARDENED = [
  ...['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges'],
  ...['--pids-limit', '64', '--memory', '256m'],
];

try {
  await main(process.argv.slice(2));
} catch (err) {
  process.stderr.write(`${(err as Error).message}\n`);
  process.exitCode = 1;
}

async function main(flags: readonly string[]): Promise<void> {
  if (process.arch !== 'arm64' && !existsSync(QEMU)) {
    throw new Error(`${QEMU}: absent; install qemu-user-static and mount binfmt_misc`);
  }
  const folder = mkdtempSync(join(tmpdir(), 'notes-users-arm64-'));
  try {
    const list = join(folder, 'build.log');
    const began = performance.now();
    writeFileSync(list, await build(flags));
    report('build', seconds(performance.now() - began));
    const size = await run(ENGINE, ['image', 'inspect', '-f', '{{.Size}}', IMAGE]);
    report('size', `${(Number(size) / 1e6).toFixed(1)} MB`);
    await check();
    const verify = [join(import.meta.dirname, 'verify.ts'), IMAGE, list];
    process.stdout.write(await run(process.execPath, verify));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Builds the image and prints the output. Uses no cache, because a cached step prints nothing.
 * @returns the output, which has the list of files
 */
async function build(flags: readonly string[]): Promise<string> {
  const args = ['build', '--no-cache', ...PLATFORM, '-t', IMAGE, ...flags, SOURCE];
  const child = spawn(ENGINE, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      process.stderr.write(text);
    });
  }
  const [status] = await once(child, 'close');
  if (status !== 0) throw new Error(`${ENGINE} ${args.join(' ')}: exit status ${status}`);
  return output;
}

/** Runs a container, creates a user and reads it back, checks its health, and stops it. */
async function check(): Promise<void> {
  const began = performance.now();
  const flags = ['-d', ...PLATFORM, ...HARDENED, '-p', '127.0.0.1::3000'];
  const container = (await run(ENGINE, ['run', ...flags, IMAGE])).trim();
  try {
    const [address] = (await run(ENGINE, ['port', container, '3000'])).split('\n');
    const url = `http://${address}`;
    await responds(url, container);
    report('first 200 after docker run', seconds(performance.now() - began));

    const node = ['exec', container, '/usr/local/bin/node'];
    const arch = await run(ENGINE, [...node, '-p', 'process.arch']);
    if (arch.trim() !== 'arm64') throw new Error(`it runs on ${arch}`);
    const user = { name: 'Ada Lovelace', email: 'ada@example.com' };
    const headers = { 'content-type': 'application/json', connection: 'close' };
    const init = { method: 'POST', headers, body: JSON.stringify(user) };
    const created = await fetch(`${url}/users`, init);
    const found = await fetch(`${url}/users/1`, { headers: { connection: 'close' } });
    const [a, b] = [await created.text(), await found.text()];
    if (created.status !== 201 || a !== b) throw new Error(`${created.status} ${a}\n${b}`);
    await run(ENGINE, [...node, '/app/dist/main.cjs', '--ready']);

    const stats = ['stats', '--no-stream', '--format', '{{.MemUsage}}', container];
    report('memory, qemu included', (await run(ENGINE, stats)).trim());
    const stopping = performance.now();
    await run(ENGINE, ['stop', container]);
    report('docker stop', seconds(performance.now() - stopping));
    const status = await run(ENGINE, ['inspect', '-f', '{{.State.ExitCode}}', container]);
    if (status.trim() !== '0') throw new Error(`it ended with exit status ${status}`);
  } finally {
    await run(ENGINE, ['rm', '-f', '-v', container]);
  }
}

async function responds(url: string, container: string): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline) {
    const res = await fetch(url, { headers: { connection: 'close' } }).catch(() => undefined);
    if (res?.ok) return;
    await pause(50);
  }
  throw new Error(
    `no response in ${START_TIMEOUT_MS} ms:\n${await run(ENGINE, ['logs', container])}`,
  );
}

function report(name: string, value: string): void {
  process.stdout.write(`${name}: ${value}\n`);
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
