// What the connection layer relies on in node without documentation (docs/design.md). Each failure is a sentence
// that names the reliance. NODE_24 is the path of a node 24, on which the checks run too.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { certificate, NO_OPENSSL } from './support/certificate.ts';

const CHECKS = `
const http = require('node:http'), https = require('node:https'), net = require('node:net'), tls = require('node:tls');
const { readFileSync } = require('node:fs');
const once = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));
const listen = async (server, host = '127.0.0.1') => { server.listen(0, host); await once(server, 'listening'); return server.address().port; };
const exchange = async (port, text, isHalfClosed = false) => {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  let received = '';
  socket.on('data', (bytes) => { received += bytes; }).on('error', () => {});
  if (isHalfClosed) socket.end(text); else socket.write(text);
  await once(socket, 'end');
  socket.destroy();
  return received;
};
const HEAD = 'GET / HTTP/1.1\\r\\nHost: x\\r\\n';
const checks = {
  async 'server.httpAllowHalfOpen keeps a connection whose client has closed its side'() {
    const server = http.createServer((req, res) => setTimeout(() => res.end('late'), 50));
    server.httpAllowHalfOpen = true;
    const text = await exchange(await listen(server), HEAD + '\\r\\n', true);
    server.close();
    return text.endsWith('late');
  },
  async 'net.Server.prototype.close closes no connection of an http.Server'() {
    const server = http.createServer((req, res) => res.end('x'));
    const socket = net.connect(await listen(server), '127.0.0.1');
    socket.write(HEAD + '\\r\\n');
    await once(socket, 'data');
    net.Server.prototype.close.call(server);
    socket.write(HEAD + '\\r\\n');
    const result = await Promise.race([once(socket, 'data'), once(socket, 'close')]);
    socket.destroy();
    server.close();
    return Buffer.isBuffer(result);
  },
  async 'rawHeaders has as many fields as maxHeadersCount'() {
    let count;
    const server = http.createServer((req, res) => { count = req.rawHeaders.length / 2; res.end(); });
    server.maxHeadersCount = 101;
    await exchange(await listen(server), HEAD + 'a:b\\r\\n'.repeat(99) + 'Connection: close\\r\\n\\r\\n');
    server.close();
    return count === 101;
  },
  async 'replacing the data listeners of a socket ends parsing'() {
    let count = 0;
    const server = http.createServer((req, res) => {
      count++;
      req.socket.removeAllListeners('data').on('data', () => {});
      req.socket.destroySoon = () => {};
      res.end('x');
    });
    const socket = net.connect(await listen(server), '127.0.0.1');
    socket.write(HEAD + '\\r\\n');
    await once(socket, 'data');
    socket.write(HEAD + '\\r\\n');
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.destroy();
    server.close();
    return count === 1;
  },
  async 'node calls socket.destroySoon after the last response'() {
    let calls = 0;
    const server = http.createServer((req, res) => {
      const { socket } = req;
      socket.destroySoon = () => { calls++; socket.destroy(); };
      res.writeHead(200, ['Connection', 'close']).end('x');
    });
    await exchange(await listen(server), HEAD + '\\r\\n').catch(() => {});
    server.close();
    return calls === 1;
  },
  async 'emitting close on a destroyed socket aborts its requests at once'() {
    const requests = [], responses = [];
    const server = http.createServer((req, res) => { requests.push(req); responses.push(res); });
    const client = net.connect(await listen(server), '127.0.0.1').on('error', () => {});
    client.write((HEAD + '\\r\\n').repeat(3));
    await once(server, 'request');
    const { socket } = requests[0];
    socket.destroy();
    socket.emit('close');
    // Node 24.0 keeps the responses that wait.
    const waiting = process.version.startsWith('v24.0.') ? [] : responses.slice(1);
    const isFreed = [...requests, ...waiting].every(({ destroyed }) => destroyed);
    server.close();
    return requests.length === 3 && isFreed && socket.parser === null;
  },
  async 'res.shouldKeepAlive is false after Connection: close'() {
    const seen = [];
    const server = http.createServer((req, res) => { seen.push(res.shouldKeepAlive); res.end(); });
    await exchange(await listen(server), HEAD + '\\r\\n' + HEAD + 'Connection: close\\r\\n\\r\\n');
    server.close();
    return seen.join() === 'true,false';
  },
  async 'res.useChunkedEncodingByDefault ends a body without chunks'() {
    const server = http.createServer((req, res) => {
      res.useChunkedEncodingByDefault = false;
      res.writeHead(200, ['Connection', 'close']);
      res.write('x');
      res.end();
    });
    const text = await exchange(await listen(server), HEAD.replace('1.1', '1.0') + 'TE: chunked\\r\\n\\r\\n');
    server.close();
    return text.endsWith('\\r\\n\\r\\nx');
  },
  async 'tlsSocket._parent is the TCP socket, and its bytesRead counts TLS records'() {
    if (process.argv[1] === undefined) return true;
    const [cert, key] = process.argv.slice(1).map((path) => readFileSync(path));
    const server = https.createServer({ cert, key });
    const sockets = [];
    server.on('connection', (socket) => sockets.push(socket));
    const port = await listen(server);
    const secured = once(server, 'secureConnection');
    const client = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false }).on('error', () => {});
    const socket = await secured;
    const isRight = socket._parent === sockets[0] && socket._parent.bytesRead > socket.bytesRead;
    client.destroy();
    socket.destroy();
    server.close();
    return isRight;
  },
};
(async () => {
  const failed = [];
  for (const [sentence, check] of Object.entries(checks)) {
    if (!(await check())) failed.push(sentence);
  }
  console.log(JSON.stringify(failed));
  process.exit();
})();
`;

for (const { version, node, skip } of [
  { version: process.version, node: process.execPath, skip: false },
  {
    version: 'v24',
    node: process.env.NODE_24 ?? '',
    skip: !process.env.NODE_24 && 'NODE_24 is unset',
  },
]) {
  test(`the reliances on node hold in ${version}`, { skip }, () => {
    const { TLS_CERT_FILE, TLS_KEY_FILE } = NO_OPENSSL
      ? ({} as Record<string, string>)
      : certificate();
    const files = [TLS_CERT_FILE, TLS_KEY_FILE].filter((path) => path !== undefined);
    const { stdout, stderr } = spawnSync(node, ['-e', CHECKS, '--', ...files], {
      encoding: 'utf8',
      timeout: 20_000,
    });
    assert.deepEqual(JSON.parse(stdout || '["the checks end"]'), [], stderr);
  });
}
