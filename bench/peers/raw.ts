// Bare node:http: responds with fixed bytes of the services' size and checks nothing. The upper
// bound for any service on node:http.
import { createServer } from 'node:http';

const JSON_TYPE = 'application/json';
const someone = { id: 12345, name: 'Name of user 12345', email: 'user-12345@bench.example.org' };
const user = JSON.stringify(someone);
const list = JSON.stringify(Array.from({ length: 100 }, () => someone));
const token = JSON.stringify({ token: `${'h'.repeat(36)}.${'p'.repeat(95)}.${'s'.repeat(43)}` });
const note = JSON.stringify({
  title: process.env.NOTE_TITLE,
  contents: process.env.NOTE_CONTENTS,
});

createServer(async (req, res) => {
  if (req.method !== 'GET' && req.method !== 'DELETE') for await (const _chunk of req);
  const [status, type, body] = answer(String(req.method), String(req.url));
  res.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) });
  res.end(body);
}).listen(Number(process.env.PORT));

function answer(method: string, url: string): [status: number, type: string, body: string] {
  if (url === '/') return [200, 'text/plain', 'Hello, World!\n'];
  if (url === '/notes') return [200, JSON_TYPE, note];
  if (url === '/token') return [200, JSON_TYPE, token];
  if (url === '/users' && method === 'GET') return [200, JSON_TYPE, list];
  return [method === 'POST' ? 201 : 200, JSON_TYPE, user];
}
