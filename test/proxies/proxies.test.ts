// Debian's Varnish, nginx and HAProxy in front of the service: a client reads its own writes, entity tags stay
// usable (contract 2.17, 8.3), and a flood is refused (docs/operations.md).
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { HttpResponse } from '../support/client.ts';
import { Daemon, find, stablePort } from '../support/daemon.ts';
import { newFolder, type Program, start } from '../support/program.ts';

const VARNISH = find('varnishd');
const NGINX = find('nginx');
const HAPROXY = find('haproxy');

/** Replaces the contract tests' client, because proxies add headers that openapi.json lacks. */
async function send(
  url: string,
  {
    body,
    headers,
    method,
  }: { body?: object; headers?: Record<string, string>; method?: string } = {},
): Promise<HttpResponse> {
  const type = body && { 'content-type': 'application/json' };
  const res = await fetch(url, {
    method: method ?? 'GET',
    headers: { ...type, ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: res.status, headers: res.headers, body: await res.text() };
}

/** Creates a folder that a program without root can write. */
function openFolder(): string {
  const folder = newFolder();
  chmodSync(folder, 0o777);
  return folder;
}

test('2.17 a client behind Varnish with its built-in rules reads its own writes', {
  skip: VARNISH === undefined && 'no varnishd is installed',
  timeout: 240_000,
}, async () => {
  await using program = await start();
  const port = await stablePort();
  const backend = `127.0.0.1:${new URL(program.url).port}`;
  const folder = join(openFolder(), 'varnish');
  const places = ['-n', folder, '-a', `127.0.0.1:${port}`, '-b', backend];
  const args = ['-F', '-j', 'none', ...places, '-s', 'malloc,16m'];
  await using cache = await new Daemon(port, VARNISH!, args).listening();
  const url = `http://127.0.0.1:${cache.port}`;
  const read = async (path: string) => {
    const { status, headers, body } = await send(url + path);
    assert.match(headers.get('via') ?? '', /varnish/);
    return {
      status,
      tag: headers.get('etag') ?? '',
      body: JSON.parse(status === 200 ? body : '0'),
    };
  };
  const create = (email: string) =>
    send(`${url}/users`, { method: 'POST', body: { name: 'Ada', email } });
  const page = '/users?after=0&limit=9';

  // Each of these is read before it changes.
  assert.deepEqual((await read(page)).body, []);
  assert.equal((await read('/users/1')).status, 404);
  assert.equal((await create('ada@example.com')).status, 201);
  assert.deepEqual((await read(page)).body, [{ id: 1, name: 'Ada', email: 'ada@example.com' }]);
  for (const name of ['Ben', 'Cy', 'Dan']) {
    const headers = { 'if-match': (await read('/users/1')).tag };
    const changed = await send(`${url}/users/1`, { method: 'PATCH', headers, body: { name } });
    assert.equal(changed.status, 200);
    assert.equal((await read('/users/1')).body.name, name);
  }
  assert.equal((await send(`${url}/users/1`, { method: 'DELETE' })).status, 200);
  assert.equal((await read('/users/1')).status, 404);
  assert.deepEqual((await read(page)).body, []);

  // 8.3: documents are revalidated with the service.
  for (const path of ['/openapi.json', '/docs']) {
    const { headers, body } = await send(url + path);
    const tag = headers.get('etag') ?? '';
    assert.match(tag, /^"[^"]+"$/);
    assert.equal((await send(url + path, { headers: { 'if-none-match': tag } })).status, 304);
    assert.equal(body, (await send(program.url + path)).body);
  }
});

const MANUAL = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');

/** Returns the block of the manual that contains the text. */
function blockWith(text: string): string {
  const blocks = MANUAL.matchAll(/^```\w+\n(.*?)^```/gms);
  return [...blocks].map(([, block]) => block!).find((block) => block.includes(text))!;
}

/** Starts nginx with these blocks of `http`. */
async function startNginx(blocks: string, backend: string): Promise<Daemon> {
  const [port, folder] = [await stablePort(), openFolder()];
  const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join('\n');
  const file = join(folder, 'nginx.conf');
  const served = blocks
    .replace('server {', `server { listen 127.0.0.1:${port};`)
    .replaceAll('http://127.0.0.1:3000', backend);
  writeFileSync(
    file,
    `daemon off; master_process off; pid ${folder}/pid; error_log stderr;
    events {}
    http { access_log off; ${temp} ${served} }`,
  );
  return new Daemon(port, NGINX!, ['-e', 'stderr', '-p', folder, '-c', file]).listening();
}

/** Starts HAProxy with this frontend. */
async function startHaproxy(frontend: string, backend: string): Promise<Daemon> {
  const port = await stablePort();
  const file = join(openFolder(), 'haproxy.cfg');
  writeFileSync(
    file,
    `defaults
      mode http
      timeout connect 10s
      timeout client 60s
      timeout server 60s
    ${frontend.replace('bind :80', `bind 127.0.0.1:${port}`)}
    backend notes-users
      server a ${new URL(backend).host}\n`,
  );
  return new Daemon(port, HAPROXY!, ['-db', '-f', file]).listening();
}

describe('behind nginx that compresses JSON', {
  skip: NGINX === undefined && 'no nginx is installed',
  timeout: 240_000,
}, () => {
  let program: Program;
  before(async () => {
    program = await start();
    const body = { name: 'Ada'.repeat(20), email: 'ada@example.com' };
    await send(`${program.url}/users`, { method: 'POST', body });
  });
  after(() => program?.[Symbol.asyncDispose]());

  /** Reads the user as a browser does, and changes it with the received tag. */
  async function change({ port }: Daemon): Promise<{ tag: string; status: number }> {
    const url = `http://127.0.0.1:${port}/users/1`;
    const { headers } = await send(url, { headers: { 'accept-encoding': 'gzip' } });
    const tag = headers.get('etag') ?? '';
    const body = { name: `Ada${crypto.randomUUID()}` };
    const { status } = await send(url, { method: 'PATCH', headers: { 'if-match': tag }, body });
    return { tag, status };
  }

  test('2.17 with gzip for every type a tag becomes weak and fails If-Match', async () => {
    const everything = 'gzip on; gzip_proxied any; gzip_types *;';
    const location = 'location / { proxy_pass http://127.0.0.1:3000; }';
    await using proxy = await startNginx(`server { ${everything} ${location} }`, program.url);
    const { tag, status } = await change(proxy);
    assert.match(tag, /^W\/"/);
    assert.equal(status, 412);
  });

  test('2.17 with the settings of the manual a tag stays strong, and other responses are compressed', async () => {
    await using proxy = await startNginx(`server { ${blockWith('gzip on')} }`, program.url);
    const { tag, status } = await change(proxy);
    assert.match(tag, /^"/);
    assert.equal(status, 200);
    for (const path of ['/openapi.json', '/docs']) {
      const url = `http://127.0.0.1:${proxy.port}${path}`;
      const { headers } = await send(url, { headers: { 'accept-encoding': 'br, gzip' } });
      assert.deepEqual(
        [headers.get('content-encoding'), headers.get('etag')?.[0], headers.get('vary')],
        ['br', '"', 'Accept-Encoding'],
      );
    }
  });
});

for (const { name, path, start: startProxy, block, refused } of [
  { name: 'nginx', path: NGINX, start: startNginx, block: 'limit_conn', refused: 503 },
  { name: 'HAProxy', path: HAPROXY, start: startHaproxy, block: 'stick-table', refused: 429 },
]) {
  test(`with the limits of the manual, ${name} refuses a flood of one client, and serves the others`, {
    skip: path === undefined && `no ${name} is installed`,
    timeout: 240_000,
  }, async () => {
    await using program = await start();
    await using proxy = await startProxy(blockWith(block), program.url);
    const agent = new Agent({ keepAlive: true, maxSockets: 10 });
    const flood = Array.from({ length: 1_000 }, () => statusFor('127.0.0.2', proxy.port, agent));
    const statuses = new Set(await Promise.all(flood));
    assert.deepEqual([...statuses].sort(), [200, refused]);
    assert.equal(await statusFor('127.0.0.3', proxy.port), 200);
    agent.destroy();
  });
}

/** Requests the greeting from a client's own address. */
async function statusFor(localAddress: string, port: number, agent?: Agent): Promise<number> {
  const req = get({ host: '127.0.0.1', port, localAddress, agent });
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  res.resume();
  await once(res, 'end');
  return res.statusCode!;
}
