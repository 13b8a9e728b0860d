// Debian's nginx and HAProxy in front of the service, with the settings of docs/operations.md: entity tags stay usable
// (contract 2.17, 8.3), and a flood is refused.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, writeFileSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { startHaproxy as haproxy } from '../ha/balancer.ts';
import { HAPROXY } from '../ha/programs.ts';
import { sendUnchecked as send } from '../support/client.ts'; // Proxies add headers.
import { Daemon, find, freePort } from '../support/daemon.ts';
import { block } from '../support/manual.ts';
import { newFolder, start } from '../support/program.ts';

const NGINX = find('nginx') ?? '';

async function startNginx(blocks: string, backend: string): Promise<Daemon> {
  const [port, folder] = [await freePort(), newFolder()];
  chmodSync(folder, 0o777); // nginx doesn't run as root.
  const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join('\n');
  const file = join(folder, 'nginx.conf');
  const served = blocks
    .replace('server {', `server { listen 127.0.0.1:${port};`)
    .replaceAll('http://127.0.0.1:3000', backend);
  const settings = `daemon off; master_process off; pid ${folder}/pid; error_log stderr;
    events {}
    http { access_log off; ${temp} ${served} }`;
  writeFileSync(file, settings);
  return new Daemon(port, NGINX, ['-e', 'stderr', '-p', folder, '-c', file]).listening();
}

async function startHaproxy(frontend: string, backend: string): Promise<Daemon> {
  const port = await freePort();
  const settings = `defaults
      mode http
      timeout connect 10s
      timeout client 60s
      timeout server 60s
    ${frontend.replace('bind :80', `bind 127.0.0.1:${port}`)}
    backend notes-users
      server a ${new URL(backend).host}\n`;
  return haproxy(port, settings);
}

test('2.17 behind nginx with the settings of the manual a tag stays strong, and other responses are compressed', {
  skip: NGINX === '' && 'no nginx is installed',
  timeout: 240_000,
}, async () => {
  await using program = await start();
  const body = { name: 'Ada'.repeat(20), email: 'ada@example.com' };
  await send(`${program.url}/users`, { method: 'POST', body });
  const location = block('Behind a cache or a compressing proxy', 'gzip on');
  await using proxy = await startNginx(`server { ${location} }`, program.url);
  // Reads the user as a browser does, and changes it with the received tag.
  const { url } = proxy;
  const read = await send(`${url}/users/1`, { headers: { 'accept-encoding': 'gzip' } });
  const tag = read.headers.get('etag') ?? '';
  assert.match(tag, /^"/);
  const init = { method: 'PATCH', headers: { 'if-match': tag }, body: { name: 'Ben' } };
  assert.equal((await send(`${url}/users/1`, init)).status, 200);
  for (const path of ['/openapi.json', '/docs']) {
    const { headers } = await send(url + path, { headers: { 'accept-encoding': 'br, gzip' } });
    const found = ['content-encoding', 'etag', 'vary'].map((name) => headers.get(name));
    assert.match(found.join(' '), /^br "\S+" Accept-Encoding$/);
  }
});

for (const { name, path, start: startProxy, words } of [
  { name: 'nginx', path: NGINX, start: startNginx, words: 'limit_conn' },
  { name: 'HAProxy', path: HAPROXY, start: startHaproxy, words: 'stick-table' },
]) {
  test(`with the limits of the manual, ${name} refuses a flood of one client, serves the others, and adds their addresses`, {
    skip: path === '' && `no ${name} is installed`,
    timeout: 240_000,
  }, async () => {
    await using program = await start({ TRUST_PROXY: '1' });
    await using proxy = await startProxy(block('Sizing', words), program.url);
    const agent = new Agent({ keepAlive: true, maxSockets: 10 });
    const flood = Array.from({ length: 1_000 }, () => statusFor('127.0.0.2', proxy.port, agent));
    const statuses = new Set(await Promise.all(flood));
    assert.deepEqual([...statuses].sort(), [200, 429]);
    assert.equal(await statusFor('127.0.0.3', proxy.port), 200);
    await program.until(({ log }) => log.at(-1)?.client === '127.0.0.3');
    const clients = program.log.flatMap(({ client }) => client ?? []);
    assert.deepEqual([...new Set(clients)], ['127.0.0.2', '127.0.0.3']); // not the forged one
    agent.destroy();
  });
}

/** Requests the greeting from a client's own address, with a forged one. */
async function statusFor(localAddress: string, port: number, agent?: Agent): Promise<number> {
  const headers = { 'x-forwarded-for': '192.0.2.9' };
  const req = get({ host: '127.0.0.1', port, localAddress, agent, headers });
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  res.resume();
  await once(res, 'end');
  return res.statusCode!;
}
