// Bare node:http with a flat form parser, to compare attacks that compute: what a small service without defences does.
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

const { TLS_CERT_FILE, TLS_KEY_FILE, SIGNING_SECRET } = process.env;

async function answer(req: IncomingMessage): Promise<[status: number, body: string]> {
  let text = '';
  for await (const chunk of req) text += chunk;
  if (req.url !== '/token') return [req.url === '/' ? 200 : 404, 'Hello, World!\n'];
  const isForm = String(req.headers['content-type']).includes('form');
  const login = isForm ? Object.fromEntries(new URLSearchParams(text)) : JSON.parse(text);
  const claims = Buffer.from(JSON.stringify({ id: login.id })).toString('base64url');
  const signature = createHmac('sha256', String(SIGNING_SECRET)).update(claims).digest('base64url');
  return [200, JSON.stringify({ token: `${'h'.repeat(36)}.${claims}.${signature}` })];
}

async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const [status, body] = await answer(req).catch(() => [400, ''] as const);
  const own = { 'X-Request-Id': req.headers['x-request-id'] ?? '', 'Content-Type': 'text/plain' };
  res.writeHead(status, { ...own, 'Content-Length': Buffer.byteLength(body) });
  res.end(body);
}

const server =
  TLS_CERT_FILE === undefined
    ? createServer(handle)
    : createTlsServer(
        { cert: readFileSync(TLS_CERT_FILE), key: readFileSync(String(TLS_KEY_FILE)) },
        handle,
      );
server.listen(0, '127.0.0.1', 4096, () => {
  const url = `${TLS_CERT_FILE ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`;
  console.log(JSON.stringify({ message: 'listening', url }));
});
