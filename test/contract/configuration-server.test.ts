// Section 1 of the contract: listeners (PORT, HOST, ADMIN_PORT, TLS_*), bodies,
// origins, the log, and stopping.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request as requestTls } from 'node:https';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { before, describe, test } from 'node:test';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import postgres from 'postgres';
import { accepts, GET, items, open, request, responsesIn, statusesOf } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { type HttpResponse, raw, send } from '../support/client.ts';
import { Page } from '../support/metrics.ts';
import { createDatabase, freePort } from '../support/postgres.ts';
import {
  COMPLETE,
  fileOf as file,
  newFolder,
  PASSWORD,
  Program,
  run,
  start,
  USER,
} from '../support/program.ts';
import { until } from '../support/until.ts';

describe('1 configuration: ports', { concurrency: 2, timeout: 300_000 }, () => {
  test('1 PORT, ADMIN_PORT, HOST: the listeners have these ports, or free ones with 0, on HOST', async () => {
    const [HOST, one, two] = ['127.0.0.2', await freePort(), await freePort()];
    await using given = await start({ HOST, PORT: String(one), ADMIN_PORT: String(two) });
    assert.deepEqual(
      [given.url, given.adminUrl],
      [one, two].map((port) => `http://${HOST}:${port}`),
    );
    await using free = await start({ HOST });
    for (const { url, adminUrl } of [given, free]) {
      assert.match(url, /^http:\/\/127\.0\.0\.2:[1-9]\d*$/);
      assert.equal((await send(url)).status, 200);
      assert.equal((await send(`${adminUrl}/live`)).status, 200);
      assert.equal((await send(`${url}/live`)).status, 404);
    }
  });

  test('1 HOST: the default is all interfaces', async () => {
    await using program = await start({ HOST: '' });
    const { port } = new URL(program.url);
    for (const host of ['127.0.0.1', '127.0.0.2']) {
      assert.equal((await send(`http://${host}:${port}/`)).status, 200);
    }
  });

  const noIpv6 =
    !Object.values(networkInterfaces()).some((all) =>
      all?.some(({ address }) => address === '::1'),
    ) && 'no IPv6 here';
  test('1 HOST: an IPv6 address is in brackets in the start line', {
    skip: noIpv6,
  }, async () => {
    await using program = await start({ HOST: '::1' });
    assert.match(program.url, /^http:\/\/\[::1\]:\d+$/);
    assert.equal((await send(program.url)).status, 200);
  });

  test('1 HOST, ADMIN_HOST: each listener binds its own address only', async () => {
    const [HOST, ADMIN_HOST, neither] = [newAddress(), newAddress(), newAddress()];
    await using program = await start({ HOST, ADMIN_HOST });
    const [api, admin] = [new URL(program.url), new URL(program.adminUrl)];
    assert.deepEqual([api.hostname, admin.hostname], [HOST, ADMIN_HOST]);
    assert.equal((await send(program.url)).status, 200);
    assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
    const others = [
      `${HOST}:${admin.port}`,
      `${neither}:${admin.port}`,
      `${ADMIN_HOST}:${api.port}`,
    ];
    for (const other of others) {
      await assert.rejects(raw(`http://${other}`, ''), { code: 'ECONNREFUSED' }, other);
    }
  });

  test('1 ADMIN_PORT: unset, there is no admin listener', async () => {
    await using program = await start({ ADMIN_PORT: '' });
    assert.ok(!('adminUrl' in (await program.logged('listening'))));
    for (const path of ['/live', '/ready', '/metrics']) {
      assert.equal((await send(program.url + path)).status, 404);
    }
  });
});

describe('1 configuration: bodies, origins, log, stop', {
  concurrency: 2,
  timeout: 300_000,
}, () => {
  test('1 BODY_LIMIT_BYTES: a body of that size is read, and one more byte returns 413', async () => {
    await using program = await start({ BODY_LIMIT_BYTES: '100' });
    for (const [length, status] of [
      [100, 200],
      [101, 413],
    ] as const) {
      const body = JSON.stringify({ id: USER, pw: PASSWORD }).padEnd(length);
      const headers = { 'content-type': 'application/json' };
      const response = await send(`${program.url}/token`, { method: 'POST', headers, body });
      assert.equal(response.status, status);
    }
  });

  test('1 MEMORY_LIMIT_BYTES: the clients that hold the most memory are closed, others are served', async () => {
    // A budget of at least 10 MiB, and 400 unfinished bodies that are charged 8 times their 16 kB.
    await using program = await start({ MEMORY_LIMIT_BYTES: '67108864' });
    const body = request('POST /token', 'x'.repeat(16_384)).slice(0, -1);
    const hoarders = await Promise.all(Array.from({ length: 400 }, () => open(program.url)));
    const patient = await open(program.url);
    for (const { socket } of hoarders) socket.write(body);
    // On a busy machine, the service would close a connection that waits meanwhile (6.3).
    await until(async () => {
      const seen = patient.text().length;
      await patient.write(GET);
      await patient.received(RegExp(`^[^]{${seen}}HTTP/1\\.1 200 [^]*\\r\\n\\r\\n.`));
      return hoarders.some(({ socket }) => socket.closed);
    });
    assert.equal((await send(program.url)).status, 200);
    for (const { socket } of [patient, ...hoarders]) socket.destroy();
  });

  const cors = (response: HttpResponse) =>
    [...response.headers.keys()].filter((name) => /^access-c/.test(name));
  const preflight = {
    method: 'OPTIONS',
    headers: {
      origin: 'https://app.example',
      'access-control-request-method': 'PATCH',
      'access-control-request-headers':
        'authorization,content-type,if-match,traceparent,tracestate',
    },
  };

  test('1 CORS_ORIGIN: unset, no response has a CORS header', async () => {
    await using program = await start();
    const headers = { origin: 'https://app.example' };
    assert.deepEqual(cors(await send(`${program.url}/users`, { headers })), []);
    const response = await send(`${program.url}/users/1`, preflight);
    assert.equal(response.status, 204);
    assert.deepEqual(cors(response), []);
  });

  test('1 CORS_ORIGIN: every response allows it, whatever the Origin, and a preflight needs no token', async () => {
    const exposed = 'etag, link, location, retry-after, x-request-id';
    const fields =
      'authorization, content-type, if-match, if-none-match, traceparent, tracestate, x-request-id';
    const methods = 'delete, get, head, options, patch, put';
    const list = (headers: Headers, name: string) =>
      items(headers.get(`access-control-${name}`)).join(', ');
    for (const origin of ['https://app.example', '*']) {
      await using program = await start({ CORS_ORIGIN: origin, PROTECT_USERS: 'true' });
      for (const [path, status, sent] of [
        ['/', 200, 'https://app.example'],
        ['/users', 401, 'https://app.example'],
        ['/nowhere', 404, 'https://evil.example'],
      ] as const) {
        const response = await send(program.url + path, { headers: { origin: sent } });
        assert.equal(response.status, status);
        assert.equal(response.headers.get('access-control-allow-origin'), origin);
        assert.equal(list(response.headers, 'expose-headers'), exposed);
      }
      const { status, body, headers } = await send(`${program.url}/users/1`, preflight);
      assert.deepEqual([status, body], [204, '']);
      assert.equal(headers.get('access-control-allow-origin'), origin);
      assert.equal(headers.get('access-control-max-age'), '7200');
      assert.equal(list(headers, 'allow-methods'), methods);
      assert.equal(list(headers, 'allow-headers'), fields);
    }
  });

  const failures = ['error store unavailable', 'error request failed'];
  const all = ['info listening', 'info request', ...failures, 'info stopping', 'info stopped'];
  for (const [level, expected] of [
    ['silent', []],
    ['error', failures],
    ['', all],
  ] as const) {
    test(`1 LOG_LEVEL: "${level}" writes ${expected.join(', ') || 'nothing'}`, async () => {
      const PORT = String(await freePort());
      const DATABASE_URL = `postgres://127.0.0.1:${await freePort()}/none`;
      const settings = { PORT, DATABASE_URL, DATABASE_TIMEOUT_MS: '200', LOG_LEVEL: level };
      await using program = new Program({ ...COMPLETE, ...settings });
      const url = `http://127.0.0.1:${PORT}`;
      await until(() => accepts(url));
      assert.equal((await send(url)).status, 200);
      assert.equal((await send(`${url}/users`)).status, 500);
      assert.deepEqual(await program.stop(), { code: 0, signal: null });
      const lines = program.log.map(({ level, message }) => `${level} ${message}`);
      assert.deepEqual([...new Set(lines)].sort(), [...expected].sort());
      assert.equal(program.stderr, '');
    });
  }

  test('1 LOG_LEVEL: debug also writes each connection to Postgres that is made, lost or refused', async () => {
    const url = new URL(await createDatabase());
    const env = { DATABASE_URL: url.href, DATABASE_POOL_SIZE: '1', LOG_LEVEL: 'debug' };
    await using program = await start(env);
    const { level, host } = await program.logged('connected');
    assert.deepEqual([level, host], ['debug', url.host]);
    const sql = postgres(url.href, { max: 1, onnotice: () => {} });
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'notes-users' and datname = current_database()`;
    await sql.end({ timeout: 5 });
    assert.equal((await program.logged('connection lost')).level, 'debug');
    const connections = () => program.log.filter(({ message }) => message === 'connected');
    await program.until(() => connections().length === 2);
    await using away = await start({
      ...env,
      DATABASE_URL: `postgres://127.0.0.1:${await freePort()}/x`,
    });
    assert.match(String((await away.logged('cannot connect')).cause), /ECONNREFUSED/);
  });
});

describe('1 configuration: TLS', { skip: NO_OPENSSL, timeout: 300_000 }, () => {
  let first: Pair;
  let second: Pair;
  before(() => {
    first = pair();
    second = pair();
  });

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: both set, the API uses HTTPS on PORT, the admin listener HTTP', async () => {
    await using program = await start({ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: first.key });
    assert.match(program.url, /^https:\/\/127\.0\.0\.1:\d+$/);
    const response = await askTls(program.url, first);
    assert.deepEqual([response.status, response.fingerprint], [200, first.fingerprint]);
    assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
    for (const method of ['GET', 'DELETE']) {
      const plain = await raw(program.url, `${method} / HTTP/1.1\r\nHost: x\r\n\r\n`);
      assert.match(
        plain,
        /^HTTP\/1\.1 400 [\s\S]*\r\n\r\nThis port takes HTTPS; the request was plain/,
      );
    }
    await program.until(({ log }) => log.filter(({ status }) => status === 400).length === 2);
    assert.equal(await raw(program.url, 'no TLS either\r\n\r\n').catch(() => ''), '');
    const { values } = await Page.of(program.adminUrl);
    // The last one got no response, because nobody has said that it is HTTP.
    assert.equal(values.get('http_server_connections_closed_total{reason="refused"}'), 3);
    assert.equal(values.get('http_server_connections{state="lingering"}'), 0);
  });

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: a wrong pair exits with 78 and names its variable', async () => {
    const missing = join(newFolder(), 'missing');
    const [cert, key, none] = [first.cert, first.key, file('')];
    const encrypted = file('-----BEGIN ENCRYPTED PRIVATE KEY-----');
    const rows = [
      [cert, '', /^TLS_KEY_FILE: missing, but TLS_CERT_FILE is set; expected/],
      ['', key, /^TLS_CERT_FILE: missing, but TLS_KEY_FILE is set; expected/],
      [missing, key, RegExp(`^TLS_CERT_FILE: .*${missing}`)],
      [cert, missing, RegExp(`^TLS_KEY_FILE: .*${missing}`)],
      [file('no PEM'), key, /^TLS_CERT_FILE: /],
      [none, key, /^TLS_CERT_FILE: .* is empty;/],
      [cert, none, /^TLS_(CERT|KEY)_FILE: .* is empty;/],
      [cert, second.key, /^TLS_KEY_FILE: .* another key;/],
      [cert, certificate('rsa').TLS_KEY_FILE, /another key;/],
      [cert, encrypted, /^TLS_KEY_FILE: .* is encrypted; expected .*: openssl pkey -in /],
    ] as const;
    for (const [TLS_CERT_FILE, TLS_KEY_FILE, line] of rows) {
      const env = { ...COMPLETE, TLS_CERT_FILE, TLS_KEY_FILE };
      const { exit, stdout, lines } = await run(env);
      assert.deepEqual(exit, { code: 78, signal: null }, String(line));
      assert.equal(stdout, '');
      assert.equal(lines.length, 1, lines.join('\n'));
      assert.match(lines[0]!, line);
    }
  });

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: SIGHUP reloads them without dropping a connection', async () => {
    const used = copy(first, join(newFolder(), 'tls'));
    await using program = await start({ TLS_CERT_FILE: used.cert, TLS_KEY_FILE: used.key });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const earlier = await askTls(program.url, first, agent);
    copy(second, used.path);
    program.process.kill('SIGHUP');
    assert.equal((await program.logged('TLS certificate reloaded')).level, 'info');
    const later = await askTls(program.url, first, agent);
    assert.deepEqual([later.status, later.localPort], [200, earlier.localPort]);
    const fresh = await askTls(program.url, second);
    assert.deepEqual([fresh.status, fresh.fingerprint], [200, second.fingerprint]);
    agent.destroy();
  });

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: if invalid at SIGHUP, the old ones stay in use, with one error line', async () => {
    const used = copy(first, join(newFolder(), 'tls'));
    await using program = await start({ TLS_CERT_FILE: used.cert, TLS_KEY_FILE: used.key });
    const spoil = [
      () => rmSync(used.key),
      () => writeFileSync(used.key, 'no PEM'),
      () => writeFileSync(used.key, ''),
      () => writeFileSync(used.key, readFileSync(second.key)),
    ];
    for (const [i, act] of spoil.entries()) {
      act();
      program.process.kill('SIGHUP');
      await program.until(({ log }) => log.filter(({ level }) => level === 'error').length > i);
      const response = await askTls(program.url, first);
      assert.deepEqual([response.status, response.fingerprint], [200, first.fingerprint]);
    }
    const lines = program.log
      .filter(({ level }) => level === 'error')
      .map(({ message }) => message);
    assert.deepEqual(lines, Array(4).fill('TLS certificate not reloaded'));
  });

  test('1 TLS_CERT_FILE: one that is not valid now is used, with an error line at startup and at each reload', async () => {
    const expired = certificate('ec', ['20200101000000Z', '20200102000000Z']);
    const early = certificate('ec', ['20500101000000Z', '20510101000000Z']);
    const used = { cert: join(newFolder(), 'cert'), key: join(newFolder(), 'key') };
    const use = ({ TLS_CERT_FILE: cert, TLS_KEY_FILE: key }: typeof expired) => {
      // Keeps the owner of the files, which is another user if the program runs in a container.
      writeFileSync(used.cert, readFileSync(cert));
      writeFileSync(used.key, readFileSync(key));
    };
    use(expired);
    await using program = await start({ TLS_CERT_FILE: used.cert, TLS_KEY_FILE: used.key });
    const warnings = () => program.log.filter(({ level }) => level === 'error');
    const reloads = () =>
      program.log.filter(({ message }) => message === 'TLS certificate reloaded');
    assert.deepEqual(
      warnings().map(({ from, to }) => `${from} ${to}`),
      ['2020-01-01T00:00:00.000Z 2020-01-02T00:00:00.000Z'],
    );
    const notAfter = async () => {
      const { values } = await Page.of(program.adminUrl);
      return values.get('tls_certificate_not_after_timestamp_seconds'); // 7.3
    };
    assert.equal(await notAfter(), Date.UTC(2020, 0, 2) / 1000);
    assert.match(String(warnings()[0]!.message), /^TLS certificate is not valid now; replace it/);
    for (const [i, pairUsed] of [expired, early, certificate()].entries()) {
      use(pairUsed);
      program.process.kill('SIGHUP');
      await program.until(() => reloads().length === i + 1);
    }
    assert.deepEqual(
      warnings().map(({ from }) => String(from).slice(0, 4)),
      ['2020', '2020', '2050'],
    );
    assert.ok((await notAfter())! > Date.now() / 1000);
  });

  const AEAD = ['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'CHACHA20-POLY1305'];
  const CBC = ['AES128-SHA256', 'AES256-SHA'];
  for (const [kind, name, others] of [
    ['ec', 'ECDHE-ECDSA', ['ECDHE-ECDSA-AES128-CCM']],
    ['rsa', 'ECDHE-RSA', ['AES256-GCM-SHA384', 'AES256-SHA', 'DHE-RSA-AES256-GCM-SHA384']],
  ] as const) {
    test(`1 TLS_CERT_FILE: TLS 1.2 accepts only ECDHE with AES-GCM or ChaCha20, ${kind} key, also after SIGHUP`, async () => {
      await using program = await start(certificate(kind));
      for (const _ of ['at the start', 'after SIGHUP']) {
        for (const cipher of AEAD.map((suffix) => `${name}-${suffix}`)) {
          assert.equal(await handshake(program.url, '-tls1_2', cipher), cipher);
        }
        for (const cipher of [...CBC.map((suffix) => `${name}-${suffix}`), ...others]) {
          assert.equal(await handshake(program.url, '-tls1_2', cipher), '', cipher);
        }
        assert.equal(await handshake(program.url, '-tls1_1', 'ALL'), '');
        const suite = 'TLS_AES_128_GCM_SHA256';
        assert.equal(await handshake(program.url, '-tls1_3', suite), suite);
        program.process.kill('SIGHUP');
        await program.logged('TLS certificate reloaded');
      }
    });
  }

  test('2.16 over TLS a client that closes its side gets its responses', async () => {
    await using program = await start({ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: first.key });
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const versions = { minVersion: version, maxVersion: version };
      const socket = await openTls(program.url, first, versions);
      const user = `{"name":"Ann","email":"ann@${version}"}`;
      socket.end(request('POST /users', user) + GET);
      const text = Buffer.concat(await socket.toArray()).toString();
      assert.deepEqual(statusesOf(responsesIn(text)), [201, 200]);
    }
  });

  test('2.4 over TLS a client can offer http/1.1 or http/1.0 (ALPN)', async () => {
    await using program = await start({ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: first.key });
    for (const protocol of ['http/1.1', 'http/1.0']) {
      const socket = await openTls(program.url, first, { ALPNProtocols: [protocol] });
      assert.equal(socket.alpnProtocol, protocol);
      socket.end('GET / HTTP/1.0\r\n\r\n');
      assert.match(Buffer.concat(await socket.toArray()).toString(), /^HTTP\/1\.1 200 /);
    }
  });
});

/**
 * Returns a loopback address that only this test uses. On 127.0.0.1, a program of another test can
 * listen on the same port and accept a connection that should be refused.
 */
function newAddress(): string {
  const byte = () => 1 + Math.floor(Math.random() * 254);
  return `127.${byte()}.${byte()}.${byte()}`;
}

interface Pair {
  readonly path: string;
  readonly cert: string;
  readonly key: string;
  readonly fingerprint: string;
}

/** Writes a new certificate and its key to files. */
function pair(): Pair {
  const { TLS_CERT_FILE: cert, TLS_KEY_FILE: key } = certificate();
  const { fingerprint256: fingerprint } = new X509Certificate(readFileSync(cert));
  return { path: cert.replace(/\.crt$/, ''), cert, key, fingerprint };
}

/** Copies the pair to `path` with `.crt` and `.key`. */
function copy(pair: Pair, path: string): Pair {
  const [cert, key] = [`${path}.crt`, `${path}.key`];
  writeFileSync(cert, readFileSync(pair.cert));
  writeFileSync(key, readFileSync(pair.key), { mode: 0o600 });
  return { path, cert, key, fingerprint: pair.fingerprint };
}

/** Offers only this cipher with openssl. Returns the agreed cipher, or '' if that fails. */
async function handshake(url: string, version: string, cipher: string): Promise<string> {
  // At level 0 openssl offers weak ciphers, so the service has to refuse them.
  const offer =
    version === '-tls1_3' ? ['-ciphersuites', cipher] : ['-cipher', `${cipher}:@SECLEVEL=0`];
  const client = spawn('openssl', ['s_client', '-connect', new URL(url).host, version, ...offer], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const agreed = /^New, .*, Cipher is (.+)$/m.exec(await textOf(client.stdout))?.[1];
  return agreed === undefined || agreed === '(NONE)' ? '' : agreed;
}

/** Opens a TLS connection that can close only its own side. */
async function openTls(url: string, { cert }: Pair, options: ConnectionOptions) {
  const { hostname: host, port } = new URL(url);
  const all = { host, port: Number(port), ca: readFileSync(cert), allowHalfOpen: true, ...options };
  const socket = connectTls(all);
  await once(socket, 'secureConnect');
  return socket;
}

/** Sends `GET /` over TLS; returns the response and the parameters of the connection. */
async function askTls(url: string, pair: Pair, agent: Agent | false = false) {
  const req = requestTls(url, { ca: readFileSync(pair.cert), agent }).end();
  const [res] = await once(req, 'response');
  const { localPort } = res.socket;
  const { fingerprint256 } = res.socket.getPeerCertificate();
  await res.resume().toArray();
  return { status: res.statusCode as number, localPort, fingerprint: fingerprint256 };
}
