// Section 1 of the contract: listeners (PORT, HOST, ADMIN_PORT, TLS_*), origins and the log.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { before, describe, test } from 'node:test';
import type { SecureVersion, TLSSocket } from 'node:tls';
import { exchange, GET, open, request } from '../support/bytes.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { type HttpResponse, responsesIn, send, statusesOf } from '../support/client.ts';
import { accepts, freePort } from '../support/daemon.ts';
import { Page } from '../support/metrics.ts';
import { COMPLETE, Program, preloaded, start } from '../support/program.ts';
import { until } from '../support/until.ts';

const addresses = Object.values(networkInterfaces()).flatMap((all) => all!);
const NO_IPV6 = !addresses.some(({ address }) => address === '::1') && 'no IPv6 here';

test('1 PORT, ADMIN_PORT, HOST, ADMIN_HOST: each listener has its own address and port only', async () => {
  const [HOST, ADMIN_HOST, neither] = [newAddress(), newAddress(), newAddress()];
  const [port, adminPort] = [await freePort(), await freePort()];
  const ports = { PORT: String(port), ADMIN_PORT: String(adminPort) };
  await using program = await start({ HOST, ADMIN_HOST, ...ports });
  const { url, adminUrl } = program;
  assert.equal(url, `http://${HOST}:${port}`);
  assert.equal(adminUrl, `http://${ADMIN_HOST}:${adminPort}`);
  assert.equal((await send(url)).status, 200);
  assert.equal((await send(`${url}/live`)).status, 404);
  assert.equal((await send(`${adminUrl}/live`)).status, 200);
  const others = [`${HOST}:${adminPort}`, `${neither}:${adminPort}`, `${ADMIN_HOST}:${port}`];
  for (const other of others) {
    await assert.rejects(exchange(`http://${other}`, ''), { code: 'ECONNREFUSED' }, other);
  }
  await using without = await start({ HOST });
  assert.ok(without.adminUrl.startsWith(`http://${HOST}:`), without.adminUrl);
});

test('1 HOST, ADMIN_PORT: by default all interfaces, and no admin listener', async () => {
  await using program = await start({ HOST: '', ADMIN_PORT: '' });
  const { port } = new URL(program.url);
  assert.equal(program.adminUrl, '');
  for (const host of ['127.0.0.1', '127.0.0.2']) {
    for (const path of ['/live', '/ready', '/metrics']) {
      assert.equal((await send(`http://${host}:${port}${path}`)).status, 404);
    }
    assert.equal((await program.logged('request')).client, '127.0.0.1'); // not ::ffff:127.0.0.1
  }
});

test('1 HOST: an IPv6 address is in brackets in the start line', { skip: NO_IPV6 }, async () => {
  await using program = await start({ HOST: '::1' });
  assert.match(program.url, /^http:\/\/\[::1\]:\d+$/);
  assert.equal((await send(program.url)).status, 200);
});

test('1 CORS_ORIGIN, PROTECT_USERS: every response allows it, whatever the Origin, and a preflight needs no token although /users does; unset, there is no CORS header', async () => {
  const asked = 'authorization,baggage,content-type,if-match,traceparent,tracestate';
  const headers = {
    origin: 'https://app.example',
    'access-control-request-method': 'PATCH',
    'access-control-request-headers': asked,
  };
  const cors = ({ headers }: HttpResponse) =>
    Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control-')));
  for (const origin of ['https://app.example', '*', '']) {
    await using program = await start({ CORS_ORIGIN: origin, PROTECT_USERS: 'true' });
    const common = {
      'access-control-allow-origin': origin,
      'access-control-expose-headers': 'ETag, Link, Location, Retry-After, X-Request-Id',
    };
    for (const [line, status, sent] of [
      ['GET / HTTP/1.1', 200, 'https://app.example'],
      ['GET /users HTTP/1.1', 401, 'https://app.example'],
      ['GET /nowhere HTTP/1.1', 404, 'https://evil.example'],
      ['no request', 400, 'https://app.example'],
    ] as const) {
      const fields = `Host: x\r\nConnection: close\r\nOrigin: ${sent}\r\n`;
      const [response] = await exchange(program.url, `${line}\r\n${fields}\r\n`);
      assert.deepEqual([response!.status, cors(response!)], [status, origin ? common : {}]);
    }
    const response = await send(`${program.url}/users/1`, { method: 'OPTIONS', headers });
    assert.deepEqual([response.status, response.body], [204, '']);
    const expected = {
      ...common,
      'access-control-max-age': '7200',
      'access-control-allow-methods': 'GET, HEAD, PUT, PATCH, DELETE, OPTIONS',
      'access-control-allow-headers':
        'Authorization, Content-Type, If-Match, If-None-Match, X-Request-Id, traceparent, tracestate, baggage',
    };
    assert.deepEqual(cors(response), origin ? expected : {});
  }
});

const failures = ['error store unavailable', 'error request failed'];
for (const [level, expected] of [
  ['silent', []],
  ['error', failures],
  ['info', [...failures, 'info listening', 'info request', 'info stopping', 'info stopped']],
] as const) {
  test(`1 LOG_LEVEL: "${level}" writes ${expected.join(', ') || 'nothing'}`, async () => {
    const PORT = String(await freePort());
    const DATABASE_URL = `postgres://someone:sesame@127.0.0.1:${await freePort()}/none`;
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
    assert.doesNotMatch(program.stdout, /someone|sesame/); // 1.7
  });
}

describe('1 configuration: TLS', { skip: NO_OPENSSL }, () => {
  let first: Pair;
  let second: Pair;
  before(() => {
    first = certificate();
    second = certificate();
  });

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: both set, the API uses HTTPS on PORT, the admin listener HTTP', async () => {
    await using program = await start(first);
    assert.match(program.url, /^https:\/\/127\.0\.0\.1:\d+$/);
    await connect(program, first);
    assert.equal((await send(`${program.adminUrl}/live`)).status, 200);
    const starts = ['GET / HTTP/1.1', 'DELETE / HTTP/1.1', 'CONNECT x:1 HTTP/1.1', 'no TLS either'];
    for (const line of starts) {
      const [plain] = await exchange(program.url, `${line}\r\nHost: x\r\n\r\n`);
      assert.equal(plain?.status, 400);
      assert.match(plain.body, /^This port takes HTTPS; the request was plain/);
    }
    await program.until(({ log }) => log.filter(({ status }) => status === 400).length === 4);
    const { values } = await Page.of(program.adminUrl);
    assert.equal(values.get('http_server_connections_closed_total{reason="refused"}'), 4);
    assert.equal(values.get('http_server_connections{state="lingering"}'), 0);
    assert.equal(values.get('http_server_charges_bytes'), 112 * 1024); // 6.17: of `connect`
  });

  test('1 TLS_CERT_FILE, TLS_KEY_FILE: SIGHUP reloads them without dropping a connection; invalid ones are not used, with one error line', async () => {
    const used = certificate();
    replace(used, first);
    await using program = await start(used);
    const earlier = await connect(program, first);
    const errors = () => program.log.filter(({ level }) => level === 'error');
    for (const [i, spoil] of [
      () => rmSync(used.TLS_KEY_FILE),
      () => writeFileSync(used.TLS_KEY_FILE, 'no PEM'),
      () => writeFileSync(used.TLS_KEY_FILE, ''),
      () => writeFileSync(used.TLS_KEY_FILE, readFileSync(second.TLS_KEY_FILE)),
    ].entries()) {
      spoil();
      program.process.kill('SIGHUP');
      await program.until(() => errors().length > i);
      await connect(program, first);
    }
    const messages = errors().map(({ message }) => message);
    assert.deepEqual(messages, Array(4).fill('TLS certificate not reloaded'));
    for (const { cause } of errors()) assert.ok(String(cause).includes(used.TLS_KEY_FILE));
    replace(used, second);
    program.process.kill('SIGHUP');
    assert.equal((await program.logged('TLS certificate reloaded')).level, 'info');
    assert.equal((await earlier.ask()).status, 200);
    await connect(program, second);
  });

  test('1 TLS_CERT_FILE: one that is not valid now is used, with an error line at startup and at each reload', async () => {
    const [used, later] = [certificate(), certificate('ec', 3)];
    const validity = (pair: Pair) => new X509Certificate(readFileSync(pair.TLS_CERT_FILE));
    const { validFromDate: from, validToDate: to } = validity(used);
    // The times of the program: at its start, and after each reload.
    const clock = `const times = [${[+to + 1, +from - 1, +from, +to, +to + 1]}];
      Date.now = () => times[0];
      process.on('SIGHUP', () => times.shift());`;
    await using program = await start({ ...used, ...preloaded(clock) });
    const count = (message: string) =>
      program.log.filter((line) => line.message === message).length;
    const warning = 'TLS certificate is not valid now; replace it and send SIGHUP';
    for (const [reloads, warnings] of [1, 2, 2, 2, 2].entries()) {
      await program.until(() => count('TLS certificate reloaded') === reloads);
      await program.until(() => count(warning) >= warnings);
      assert.equal(count(warning), warnings);
      const { values } = await Page.of(program.adminUrl);
      const notAfter = values.get('tls_certificate_not_after_timestamp_seconds'); // 7.3
      assert.equal(notAfter, +validity(used).validToDate / 1000);
      if (reloads === 3) replace(used, later);
      if (reloads < 4) program.process.kill('SIGHUP');
    }
    const line = await program.logged(warning);
    assert.deepEqual([line.level, line.from, line.to], ['error', from.toJSON(), to.toJSON()]);
    await connect(program, later);
  });

  const AEAD = ['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'CHACHA20-POLY1305'];
  const CBC = ['AES128-SHA256', 'AES256-SHA'];
  const REFUSED = { code: /ALERT_(HANDSHAKE_FAILURE|PROTOCOL_VERSION)$/ }; // The client offers it.
  for (const [kind, name, others] of [
    ['ec', 'ECDHE-ECDSA', ['ECDHE-ECDSA-AES128-CCM']],
    ['rsa', 'ECDHE-RSA', ['AES256-GCM-SHA384', 'AES256-SHA', 'DHE-RSA-AES256-GCM-SHA384']],
  ] as const) {
    test(`1 TLS_CERT_FILE: TLS 1.2 accepts only ECDHE with AES-GCM or ChaCha20, and no renegotiation (6.17), ${kind} key, also after SIGHUP`, async () => {
      await using program = await start(certificate(kind));
      for (const _ of ['at the start', 'after SIGHUP']) {
        for (const cipher of AEAD.map((suffix) => `${name}-${suffix}`)) {
          const socket = await secure(program, 'TLSv1.2', cipher);
          assert.equal(socket.getCipher().name, cipher);
          const err = await new Promise((resolve) => {
            socket.on('error', resolve).renegotiate({}, resolve);
          });
          assert.ok(err instanceof Error);
        }
        for (const cipher of [...CBC.map((suffix) => `${name}-${suffix}`), ...others]) {
          await assert.rejects(secure(program, 'TLSv1.2', cipher), REFUSED, cipher);
        }
        await assert.rejects(secure(program, 'TLSv1.1', 'ALL'), REFUSED);
        await secure(program, 'TLSv1.3', 'TLS_AES_128_GCM_SHA256:ALL');
        program.process.kill('SIGHUP');
        await program.logged('TLS certificate reloaded');
      }
    });
  }

  test('2.4, 2.16 over TLS a client that closes its side gets its responses, and can offer http/1.1 or http/1.0 (ALPN)', async () => {
    await using program = await start(first);
    for (const [version, protocol, ...others] of [
      ['TLSv1.2', 'http/1.1', 'h2', 'http/1.0'],
      ['TLSv1.3', 'http/1.0'],
    ] as const) {
      const versions = { minVersion: version, maxVersion: version };
      const options = { ...versions, ALPNProtocols: [...others, protocol], allowHalfOpen: true };
      const { socket, closed, text } = await open(program.url, options, true);
      assert.equal((socket as TLSSocket).alpnProtocol, protocol);
      socket.end(request('POST /users', `{"name":"Ann","email":"ann@${version}"}`) + GET);
      await closed;
      assert.deepEqual(statusesOf(responsesIn(text())), [201, 200]);
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

type Pair = ReturnType<typeof certificate>;

/** Writes another pair to the same files, whose owner is another user if the program runs in a container. */
function replace(used: Pair, by: Pair): void {
  for (const name of ['TLS_CERT_FILE', 'TLS_KEY_FILE'] as const) {
    writeFileSync(used[name], readFileSync(by[name]));
  }
}

/** Connects over this version with these ciphers only. At level 0 the client offers weak ones too. */
async function secure({ url }: Program, version: SecureVersion, ciphers: string) {
  const versions = { minVersion: version, maxVersion: version };
  const client = await open(url, { ...versions, ciphers: `${ciphers}:@SECLEVEL=0` }, true);
  return client.socket as TLSSocket;
}

/** Returns a connection over TLS that has had a response. Checks that the service has this pair. */
async function connect({ url }: Program, { TLS_CERT_FILE }: Pair) {
  const client = await open(url, { ca: readFileSync(TLS_CERT_FILE) }, true);
  assert.ok((client.socket as TLSSocket).authorized);
  assert.equal((await client.ask()).status, 200);
  return client;
}
