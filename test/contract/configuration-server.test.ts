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
import { accepts, GET, items, open, request } from '../support/bytes.ts';
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
  test('1 PORT: 0 picks a free port, and the start line names it', async () => {
    await using first = await start();
    await using second = await start();
    assert.notEqual(first.url, second.url);
    for (const program of [first, second]) {
      assert.match(program.url, /^http:\/\/127\.0\.0\.1:[1-9]\d*$/);
      assert.equal((await send(program.url)).status, 200);
    }
  });

  test('1 PORT: a number is the port of the API', async () => {
    const port = await freePort();
    await using program = await start({ PORT: String(port) });
    assert.equal(program.url, `http://127.0.0.1:${port}`);
    assert.equal((await send(program.url)).status, 200);
  });

  test('1 PORT: the default is 3000', async () => {
    const { PORT: _, ...rest } = COMPLETE;
    await using program = new Program(rest);
    // If another process has the port, the error line names the port.
    await Promise.race([program.logged('listening'), program.exited]).catch(() => {});
    assert.match(program.stdout + program.stderr, /127\.0\.0\.1:3000\b/);
  });

  test('1 HOST: only that address is bound, and the start-up line names it', async () => {
    const [HOST, other] = [newAddress(), newAddress()];
    await using program = await start({ HOST });
    const { port } = new URL(program.url);
    assert.equal(program.url, `http://${HOST}:${port}`);
    assert.equal((await send(program.url)).status, 200);
    const { port: adminPort } = new URL(program.adminUrl);
    for (const own of [port, adminPort]) {
      await assert.rejects(raw(`http://${other}:${own}`, ''), { code: 'ECONNREFUSED' });
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

  test('1 ADMIN_PORT: a number is the port of the admin listener', async () => {
    const port = await freePort();
    await using program = await start({ ADMIN_PORT: String(port) });
    assert.equal(program.adminUrl, `http://127.0.0.1:${port}`);
    assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
    assert.equal((await send(`${program.url}/live`)).status, 404);
  });

  test('1 ADMIN_HOST: only the admin listener binds that address', async () => {
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

  test('1 ADMIN_HOST: unset, the admin listener binds HOST', async () => {
    await using program = await start({ HOST: '127.0.0.2' });
    assert.equal(new URL(program.adminUrl).hostname, '127.0.0.2');
    assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
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
  for (const [value, limit] of [
    ['', 16_384],
    ['100', 100],
  ] as const) {
    test(`1 BODY_LIMIT_BYTES: "${value}" accepts ${limit} bytes and returns 413 for one more`, async () => {
      await using program = await start({ BODY_LIMIT_BYTES: value });
      const statuses = [];
      for (const length of [limit, limit + 1]) {
        const body = JSON.stringify({ id: USER, pw: PASSWORD }).padEnd(length);
        const headers = { 'content-type': 'application/json' };
        statuses.push(
          (await send(`${program.url}/token`, { method: 'POST', headers, body })).status,
        );
      }
      assert.deepEqual(statuses, [200, 413]);
    });
  }

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

  for (const origin of ['https://app.example', '*']) {
    test(`1 CORS_ORIGIN: "${origin}" every response allows it, whatever the Origin, and exposes our headers`, async () => {
      await using program = await start({ CORS_ORIGIN: origin, PROTECT_USERS: 'true' });
      for (const sent of ['https://app.example', 'https://evil.example']) {
        for (const [path, status] of [
          ['/', 200],
          ['/users', 401],
          ['/nowhere', 404],
        ] as const) {
          const response = await send(program.url + path, { headers: { origin: sent } });
          assert.equal(response.status, status);
          assert.equal(response.headers.get('access-control-allow-origin'), origin);
          const exposed = items(response.headers.get('access-control-expose-headers'));
          const expected = ['etag', 'link', 'location', 'retry-after', 'x-request-id'];
          assert.deepEqual(exposed, expected);
        }
      }
    });

    test(`1 CORS_ORIGIN: "${origin}" a preflight passes without the required token`, async () => {
      await using program = await start({ CORS_ORIGIN: origin, PROTECT_USERS: 'true' });
      const { status, body, headers } = await send(`${program.url}/users/1`, preflight);
      assert.deepEqual([status, body], [204, '']);
      assert.equal(headers.get('access-control-allow-origin'), origin);
      assert.equal(headers.get('access-control-max-age'), '7200');
      const methods = items(headers.get('access-control-allow-methods'));
      for (const method of ['get', 'put', 'patch', 'delete']) assert.ok(methods.includes(method));
      const fields = items(headers.get('access-control-allow-headers'));
      const conditions = 'if-match if-none-match';
      const expected = `authorization content-type ${conditions} traceparent tracestate x-request-id`;
      assert.deepEqual(fields, expected.split(' '));
    });
  }

  /** Starts the program at that level, causes one success and one store failure, and stops it. */
  async function lifetime(LOG_LEVEL: string): Promise<Program> {
    const port = String(await freePort());
    const DATABASE_URL = `postgres://127.0.0.1:${await freePort()}/none`;
    const env = { ...COMPLETE, PORT: port, DATABASE_URL, DATABASE_TIMEOUT_MS: '200', LOG_LEVEL };
    const program = new Program(env);
    program.url = `http://127.0.0.1:${port}`;
    await until(() => accepts(program.url));
    assert.equal((await send(program.url)).status, 200);
    assert.equal((await send(`${program.url}/users`)).status, 500);
    assert.deepEqual(await program.stop(), { code: 0, signal: null });
    return program;
  }

  test('1 LOG_LEVEL: silent writes nothing', async () => {
    await using program = await lifetime('silent');
    assert.deepEqual([program.stdout, program.stderr], ['', '']);
  });

  test('1 LOG_LEVEL: error writes failures and nothing else', async () => {
    await using program = await lifetime('error');
    assert.ok(program.log.length >= 1);
    assert.deepEqual([...new Set(program.log.map((line) => line.level))], ['error']);
    assert.ok(program.log.some((line) => line.requestId !== undefined && line.cause !== undefined));
  });

  test('1 LOG_LEVEL: info, the default, writes start, stop, failures and a line a request', async () => {
    await using program = await lifetime('');
    const messages = program.log.map((line) => line.message);
    for (const message of ['listening', 'stopping', 'stopped', 'store unavailable']) {
      assert.equal(messages.filter((text) => text === message).length, 1, message);
    }
    const requests = program.log.filter((line) => line.message === 'request');
    const seen = requests.map(({ level, route, status }) => [level, route, status]);
    assert.deepEqual(seen.slice(-2), [
      ['info', '/', 200],
      ['info', '/users', 500],
    ]);
    assert.ok(program.log.some((line) => line.level === 'error' && line.requestId));
    assert.ok(!program.log.some(({ level }) => level === 'debug'));
  });

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
    const rows = [
      [{ TLS_CERT_FILE: first.cert }, /^TLS_KEY_FILE: missing, but TLS_CERT_FILE is set; expected/],
      [{ TLS_KEY_FILE: first.key }, /^TLS_CERT_FILE: missing, but TLS_KEY_FILE is set; expected/],
      [{ TLS_CERT_FILE: missing, TLS_KEY_FILE: first.key }, RegExp(`^TLS_CERT_FILE: .*${missing}`)],
      [{ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: missing }, RegExp(`^TLS_KEY_FILE: .*${missing}`)],
      [{ TLS_CERT_FILE: file('no PEM'), TLS_KEY_FILE: first.key }, /^TLS_CERT_FILE: /],
      [{ TLS_CERT_FILE: file(''), TLS_KEY_FILE: first.key }, /^TLS_CERT_FILE: .* is empty;/],
      [{ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: file('') }, /^TLS_(CERT|KEY)_FILE: .* is empty;/],
      [{ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: second.key }, /^TLS_KEY_FILE: .* another key;/],
      [
        { TLS_CERT_FILE: first.cert, TLS_KEY_FILE: certificate('rsa').TLS_KEY_FILE },
        /another key;/,
      ],
      [
        { TLS_CERT_FILE: first.cert, TLS_KEY_FILE: file('-----BEGIN ENCRYPTED PRIVATE KEY-----') },
        /^TLS_KEY_FILE: .* is encrypted; expected .*: openssl pkey -in /,
      ],
    ] as const;
    for (const [env, line] of rows) {
      const { exit, stdout, lines } = await run({ ...COMPLETE, ...env });
      assert.deepEqual(exit, { code: 78, signal: null }, JSON.stringify(env));
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

  for (const { kind, taken, refused } of [
    {
      kind: 'ec',
      taken: ['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'CHACHA20-POLY1305'].map(
        (name) => `ECDHE-ECDSA-${name}`,
      ),
      refused: ['ECDHE-ECDSA-AES128-SHA256', 'ECDHE-ECDSA-AES256-SHA', 'ECDHE-ECDSA-AES128-CCM'],
    },
    {
      kind: 'rsa',
      taken: ['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'CHACHA20-POLY1305'].map(
        (name) => `ECDHE-RSA-${name}`,
      ),
      refused: [
        ...['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'AES256-SHA'],
        ...['ECDHE-RSA-AES128-SHA256', 'ECDHE-RSA-AES256-SHA', 'DHE-RSA-AES256-GCM-SHA384'],
      ],
    },
  ] as const) {
    test(`1 TLS_CERT_FILE: TLS 1.2 accepts only ECDHE with AES-GCM or ChaCha20, ${kind} key`, async () => {
      await using program = await start(certificate(kind));
      for (const when of ['at the start', 'after SIGHUP']) {
        for (const cipher of taken) {
          assert.equal(await handshake(program.url, '-tls1_2', cipher), cipher, when);
        }
        for (const cipher of refused) {
          assert.equal(await handshake(program.url, '-tls1_2', cipher), '', cipher);
        }
        const suites = ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384'];
        for (const suite of [...suites, 'TLS_CHACHA20_POLY1305_SHA256']) {
          assert.equal(await handshake(program.url, '-tls1_3', suite), suite, when);
        }
        assert.equal(await handshake(program.url, '-tls1_1', 'ALL'), '', when);
        program.process.kill('SIGHUP');
        await program.logged('TLS certificate reloaded');
      }
    });
  }

  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    test(`2.16 over ${version} a client that closes its side gets its responses`, async () => {
      await using program = await start({ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: first.key });
      const socket = await openTls(program.url, first, {
        minVersion: version,
        maxVersion: version,
      });
      const body = '{"name":"Ann","email":"ann@example.com"}';
      const head = 'POST /users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
      socket.end(
        `${head}Content-Length: ${body.length}\r\n\r\n${body}GET /users HTTP/1.1\r\nHost: x\r\n\r\n`,
      );
      const text = Buffer.concat(await socket.toArray()).toString();
      const statuses = Array.from(text.matchAll(/HTTP\/1\.1 (\d+) /g), ([, status]) => status);
      assert.deepEqual(statuses, ['201', '200']);
    });
  }

  for (const protocol of ['http/1.1', 'http/1.0']) {
    test(`2.4 over TLS a client can offer ${protocol} (ALPN)`, async () => {
      await using program = await start({ TLS_CERT_FILE: first.cert, TLS_KEY_FILE: first.key });
      const socket = await openTls(program.url, first, { ALPNProtocols: [protocol] });
      assert.equal(socket.alpnProtocol, protocol);
      socket.end('GET / HTTP/1.0\r\n\r\n');
      assert.match(Buffer.concat(await socket.toArray()).toString(), /^HTTP\/1\.1 200 /);
    });
  }
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
