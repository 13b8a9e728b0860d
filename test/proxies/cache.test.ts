// A client behind Debian's Varnish and nginx with default settings reads its own writes, and entity
// tags stay usable (contract 2.17, 8.3; docs/operations.md).
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Daemon, find, stablePort } from '../support/daemon.ts';
import { newDatabase, newFolder, type Program, STORES, start } from '../support/program.ts';

const VARNISH = find('varnishd');
const NGINX = find('nginx');

interface HttpResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

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

/** Starts Varnish with its built-in rules in front of the service. */
async function varnish({ url }: Program): Promise<Daemon> {
  const port = await stablePort();
  const backend = `127.0.0.1:${new URL(url).port}`;
  const folder = join(openFolder(), 'varnish');
  const args = ['-F', '-j', 'none', '-n', folder, '-a', `127.0.0.1:${port}`, '-b', backend];
  return new Daemon(port, VARNISH!, [...args, '-s', 'malloc,16m']).listening();
}

for (const store of STORES) {
  const skip = VARNISH === undefined && 'no varnishd is installed';
  describe(`a client behind Varnish reads its own writes (${store})`, {
    skip,
    timeout: 240_000,
  }, () => {
    let program: Program;
    let cache: Daemon;
    let url: string;
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
      cache = await varnish(program);
      url = `http://127.0.0.1:${cache.port}`;
    });
    after(async () => {
      await cache?.[Symbol.asyncDispose]();
      await program?.[Symbol.asyncDispose]();
    });

    const create = async (name: string, email: string): Promise<number> => {
      const { status, body } = await send(`${url}/users`, {
        method: 'POST',
        body: { name, email },
      });
      assert.equal(status, 201);
      return JSON.parse(body).id;
    };
    const read = async (path: string) => {
      const { status, headers, body } = await send(url + path);
      assert.match(headers.get('via') ?? '', /varnish/);
      return { status, tag: headers.get('etag') ?? '', body };
    };

    test('2.17 a list has a user that was created after the list was read', async () => {
      assert.equal((await read('/users?after=0&limit=9')).body, '[]');
      const id = await create('Ada', 'list@example.com');
      const user = { id, name: 'Ada', email: 'list@example.com' };
      assert.deepEqual(JSON.parse((await read('/users?after=0&limit=9')).body), [user]);
    });

    test('2.17 a user has its last change, and its tag is accepted', async () => {
      const id = await create('Ada', 'changed@example.com');
      for (const name of ['Ben', 'Cy', 'Dan']) {
        const { tag } = await read(`/users/${id}`);
        const { status } = await send(`${url}/users/${id}`, {
          method: 'PATCH',
          headers: { 'if-match': tag },
          body: { name },
        });
        assert.equal(status, 200);
        assert.equal(JSON.parse((await read(`/users/${id}`)).body).name, name);
      }
    });

    test('2.17 a deleted user is gone, and a new one is found', async () => {
      const id = await create('Ada', 'deleted@example.com');
      const [path, next] = [`/users/${id}`, `/users/${id + 1}`];
      assert.equal((await read(path)).status, 200);
      assert.equal((await read(next)).status, 404);
      assert.equal((await send(url + path, { method: 'DELETE' })).status, 200);
      assert.equal((await read(path)).status, 404);
      assert.equal(await create('Ada', 'next@example.com'), id + 1);
      assert.equal((await read(next)).status, 200);
    });

    test('8.3 the document and the page are revalidated with the service', async () => {
      for (const path of ['/openapi.json', '/docs']) {
        const first = await send(url + path);
        const tag = first.headers.get('etag') ?? '';
        assert.match(tag, /^"[^"]+"$/);
        const headers = { 'if-none-match': tag };
        const second = await send(url + path, { headers });
        assert.equal(second.status, 304);
        assert.equal(first.body, (await send(program.url + path)).body);
      }
    });
  });
}

const MANUAL = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');

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

  async function nginx(locations: string): Promise<Daemon> {
    const [port, folder] = [await stablePort(), openFolder()];
    const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
      .map((name) => `${name}_temp_path ${folder}/${name};`)
      .join('\n');
    const file = join(folder, 'nginx.conf');
    writeFileSync(
      file,
      `daemon off; master_process off; pid ${folder}/pid; error_log stderr;
      events {}
      http {
        access_log off; ${temp}
        server {
          listen 127.0.0.1:${port};
          ${locations.replaceAll('http://127.0.0.1:3000', program.url)}
        }
      }`,
    );
    return new Daemon(port, NGINX!, ['-e', 'stderr', '-p', folder, '-c', file]).listening();
  }

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
    await using proxy = await nginx(`gzip on; gzip_proxied any; gzip_types *;
      location / { proxy_pass http://127.0.0.1:3000; }`);
    const { tag, status } = await change(proxy);
    assert.match(tag, /^W\/"/);
    assert.equal(status, 412);
  });

  test('2.17 with the settings of the manual a tag stays strong, and other responses are compressed', async () => {
    const [, settings] = /```nginx\n(gzip.*?)```/s.exec(MANUAL) ?? [];
    await using proxy = await nginx(settings!);
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
